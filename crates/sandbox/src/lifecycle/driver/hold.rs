//! Standing still for a backup: the shells are saved, all processes are frozen, and the driver
//! waits, so that nothing wakes, changes or deletes the sandbox while its files are copied.

use crate::agent_client::watch::{AgentReports, watch_at};
use crate::lifecycle::driver::{Driver, REATTACH_WAIT};
use crate::live::state_receiver::StateReceiver;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::held::{self, HeldSandbox};
use crate::model::info::Lost;
use crate::model::state::State;
use isolet_jail::FrozenSandbox;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

/// How long saving all shells may take before the sandbox is frozen without it.
const SAVE_WAIT: Duration = Duration::from_secs(15);
/// How long freezing may take. A process that waits for a disk delays it.
const FREEZE_WAIT: Duration = Duration::from_secs(5);
/// The longest time that a sandbox stands still. A copy that takes longer is discarded.
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);

impl Driver {
    /// Stands still until the holder in the answer is dropped.
    pub(crate) async fn stand_still(
        &mut self,
        answer: oneshot::Sender<Result<HeldSandbox, Error>>,
    ) {
        let (frozen, holder) = match self.freeze().await {
            Ok((held, frozen, holder)) => {
                if answer.send(Ok(held)).is_err() {
                    return;
                }
                (frozen, holder)
            }
            Err(error) => {
                let _ = answer.send(Err(error));
                return;
            }
        };
        holder.wait(HOLD_MAX).await;
        drop(frozen);
        // The idle time does not count while nothing could be used.
        self.entry.activity.touch();
    }

    async fn freeze(
        &mut self,
    ) -> Result<(HeldSandbox, Option<FrozenSandbox>, held::Holder), Error> {
        let state = self.record.state;
        let unsaved = match state {
            State::Running => self.save_shells().await,
            State::Sleeping => {
                if self.cleanup_pending {
                    self.retry_cleanup().await;
                }
                Vec::new()
            }
            State::Unreachable | State::Failed => Vec::new(),
            State::Creating | State::Destroying | State::Destroyed => {
                return Err(Error::NoSandbox(self.entry.id.clone()));
            }
        };
        self.keep_activity().await;
        let handle = self.handle();
        let since = Instant::now();
        let frozen = blocking(move || FrozenSandbox::freeze(handle.open(), FREEZE_WAIT)).await?;
        let frozen = frozen.map_err(|error| {
            Error::Fault(format!("sandbox {} cannot be frozen: {error}", self.entry.id))
        })?;
        info!(sandbox = %self.entry.id, frozen = frozen.is_some(), "stands still for a backup");
        let (held, holder) = held::hold(state, frozen.is_some(), unsaved, since);
        Ok((held, frozen, holder))
    }

    /// Saves the state of all shells as for a sleep. A shell that does not answer keeps the state
    /// that was saved before.
    async fn save_shells(&mut self) -> Vec<Lost> {
        match timeout(SAVE_WAIT, self.save_every_shell()).await {
            Ok(Ok(unsaved)) => unsaved,
            Ok(Err(error)) => {
                warn!(sandbox = %self.entry.id, %error, "shells are not saved for the backup");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    async fn save_every_shell(&mut self) -> Result<Vec<Lost>, Error> {
        let mut unsaved = self.save_all().await?;
        for (id, scope) in self.entry.scopes.all() {
            let AgentReports { mut wire, .. } =
                watch_at(&scope.directory, &scope.pool.version, REATTACH_WAIT).await?;
            let mut saving = StateReceiver::new(&self.entry, Some(id));
            unsaved.extend(saving.all(&mut wire, |_, _| {}).await?);
        }
        Ok(unsaved)
    }
}
