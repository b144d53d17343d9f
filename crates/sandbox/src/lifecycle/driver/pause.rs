//! Pausing and resuming. The driver does both, one step after the other.
//!
//! To pause, the driver stops the clocks of the agents, records `paused`, and freezes the
//! sandbox's control group: its agents and everything that they started. The memory stays. If the
//! server is killed after the record, the next one finds the processes frozen and leaves them so,
//! or finds some that still run and pauses the sandbox again.
//!
//! To resume, the driver records `running`, thaws the control group, and closes the connections
//! that stopped the clocks. If the server is killed in between, the next one thaws whatever its
//! record calls `running`.
//!
//! Connections of clients stay open: what they send waits in the sockets of the agents. No scope
//! starts during a pause, because the launcher would wait for a process that is frozen from its
//! start.

use crate::agent_client::stopped_clock::StoppedClock;
use crate::lifecycle::driver::Driver;
use crate::live::failpoint::pass;
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::command::ResumedFor;
use crate::model::error::Error;
use crate::model::info::SandboxInfo;
use crate::model::state::{State, Transition};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long all processes may take to freeze. One that waits for a disk delays it.
const FREEZE_WAIT: Duration = Duration::from_secs(5);

impl Driver {
    /// Freezes all processes of the sandbox. If that fails, they continue.
    pub(crate) async fn pause(&mut self) -> Result<SandboxInfo, Error> {
        match self.record.state {
            State::Running => {}
            State::Paused => return Ok(self.record.info()),
            State::Sleeping => return Err(Error::Sleeping(self.entry.id.clone())),
            _ => return Err(self.no_work()),
        }
        let begun = Instant::now();
        let entry = Arc::clone(&self.entry);
        // While it is held, no scope starts.
        let _turn = entry.scopes.turn.lock().await;
        let clocks = self.stop_clocks().await?;
        let old = self.record.clone();
        self.shift(Transition::Pause)?;
        if let Err(error) = self.write(None).await {
            self.record = old;
            return Err(error);
        }
        let frozen = match pass("pause.recorded").await {
            Ok(()) => self.freeze_processes().await,
            Err(error) => Err(error),
        };
        if let Err(error) = frozen {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "not paused");
            self.record = old;
            self.settle_record().await;
            return Err(error);
        }
        let _ = pass("pause.frozen").await;
        self.clocks = clocks;
        let ms = begun.elapsed().as_micros() as f64 / 1000.0;
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, ms, "paused");
        self.publish(None);
        Ok(self.record.info())
    }

    /// Lets the processes of a paused sandbox continue. If that fails, it stays paused, and a lifetime
    /// that was stopped stays so.
    pub(crate) async fn resume(&mut self, resumed_for: ResumedFor) -> Result<SandboxInfo, Error> {
        match self.record.state {
            State::Paused => {}
            State::Running | State::Sleeping => return Ok(self.record.info()),
            _ => return Err(self.no_work()),
        }
        let old = self.record.clone();
        self.shift(Transition::Resume)?;
        if resumed_for == ResumedFor::Client {
            self.restart_lifetime();
        }
        let thawed = async {
            self.write(None).await?;
            pass("resume.recorded").await?;
            self.thaw_processes().await
        };
        if let Err(error) = thawed.await {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "not resumed");
            self.reset_record(old);
            self.settle_record().await;
            return Err(error);
        }
        self.clocks.clear();
        if self.watch.is_none() {
            self.find_after_pause().await?;
        }
        self.entry.sessions.restart_idle_times();
        self.entry.activity.open();
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "resumed");
        self.publish(None);
        if std::mem::take(&mut self.trust_pending) {
            self.trust().await;
        }
        Ok(self.record.info())
    }

    /// Connects to the agents of a sandbox that the previous server paused.
    async fn find_after_pause(&mut self) -> Result<(), Error> {
        self.reconnect(AgentError::Ended).await;
        if self.record.state != State::Running {
            return Err(self.no_work());
        }
        self.find_scopes();
        self.trust_pending = true;
        Ok(())
    }

    /// Freezes a sandbox again whose driver panicked while it was paused.
    pub(crate) async fn pause_again(&mut self) {
        if let Err(error) = self.freeze_processes().await {
            warn!(sandbox = %self.entry.id, %error, "some processes of a paused sandbox still run");
        }
        self.settle_record().await;
    }

    /// Stops the clocks of all agents. Requires that no scope starts.
    async fn stop_clocks(&self) -> Result<Vec<StoppedClock>, Error> {
        let mut clocks =
            vec![StoppedClock::stop(&self.entry.directory, &self.entry.pool.version).await?];
        for (_, scope) in self.entry.scopes.all() {
            match StoppedClock::stop(&scope.directory, &scope.pool.version).await {
                Ok(clock) => clocks.push(clock),
                Err(error @ AgentError::TooOld { .. }) => return Err(error.into()),
                // The agent of a scope may just have ended with its session.
                Err(error) => {
                    info!(sandbox = %self.entry.id, %error, "clock of a scope is not stopped");
                }
            }
        }
        Ok(clocks)
    }

    async fn freeze_processes(&self) -> Result<(), Error> {
        let handle = self.handle();
        let frozen =
            blocking(move || isolet_jail::freeze_processes(&handle.open(), FREEZE_WAIT)).await?;
        frozen.map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::TimedOut => {
                    format!("a process did not stop within {} s", FREEZE_WAIT.as_secs())
                }
                _ => error.to_string(),
            };
            Error::NotPaused { id: self.entry.id.clone(), reason }
        })
    }

    async fn thaw_processes(&self) -> Result<(), Error> {
        let handle = self.handle();
        let thawed = blocking(move || handle.open().freeze(false)).await?;
        thawed.map_err(|error| {
            Error::Fault(format!("processes of sandbox {} stay frozen: {error}", self.entry.id))
        })
    }
}
