//! The connection to the lease guard. A guard that has ended is replaced. All calls block.

use crate::model::info::ownership::GuardReport;
use isolet_jail::{Config, GuardError, LeaseGuard};
use isolet_wire::lease::{Epoch, LeaseDeadline};
use isolet_wire::lease_guard::GuardedSandbox;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::warn;

/// The guard of this server.
pub(crate) struct Guard {
    config: Config,
    state: Mutex<State>,
}

struct State {
    connection: Option<Arc<LeaseGuard>>,
    /// The deadline that was sent last, for a guard that replaces another.
    deadline: Option<LeaseDeadline>,
    connections: u64,
}

impl Guard {
    /// Finds the guard of the previous server, or starts one.
    pub(crate) fn start(config: Config) -> Result<Self, GuardError> {
        let state = State { connection: None, deadline: None, connections: 0 };
        let guard = Self { config, state: Mutex::new(state) };
        guard.connection()?;
        Ok(guard)
    }

    pub(crate) fn extend(&self, deadline: LeaseDeadline) -> Result<GuardReport, GuardError> {
        self.replace_if_later(deadline)?;
        self.lock().deadline = Some(deadline);
        let stopped = self.call(|guard| guard.extend(deadline))?;
        Ok(GuardReport { stopped, connections: self.lock().connections })
    }

    pub(crate) fn admit(&self, name: &str, registration: Epoch) -> Result<(), GuardError> {
        self.call(|guard| guard.admit(name, registration))
    }

    pub(crate) fn stop(&self, names: &[String]) -> Result<(), GuardError> {
        self.call(|guard| guard.stop(names))
    }

    pub(crate) fn free(&self, name: &str) -> Result<(), GuardError> {
        self.call(|guard| guard.free(name))
    }

    pub(crate) fn release(&self, name: &str) -> Result<(), GuardError> {
        self.call(|guard| guard.release(name))
    }

    pub(crate) fn list(&self) -> Result<Vec<GuardedSandbox>, GuardError> {
        self.call(LeaseGuard::list)
    }

    /// Registrations count up, so a guard that knows a later one heard of it from an etcd that has gone
    /// back in time since. It would ignore the deadline: another one takes its place.
    fn replace_if_later(&self, deadline: LeaseDeadline) -> Result<(), GuardError> {
        let connection = self.connection()?;
        let mut state = self.lock();
        let known = state.deadline.or(connection.found_deadline);
        if known.is_some_and(|known| known.registration > deadline.registration) {
            warn!("the lease guard knows a later registration: etcd has gone back in time");
            connection.end();
            state.connection = None;
            state.deadline = None;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the guard, and once more another one if it is gone.
    fn call<R>(
        &self,
        call: impl Fn(&LeaseGuard) -> Result<R, GuardError>,
    ) -> Result<R, GuardError> {
        let connection = self.connection()?;
        match call(&connection) {
            Err(GuardError::Gone(reason)) => {
                warn!(reason, "the lease guard is gone; connecting again");
                let mut state = self.lock();
                if state.connection.as_ref().is_some_and(|known| Arc::ptr_eq(known, &connection)) {
                    state.connection = None;
                }
                drop(state);
                drop(connection);
                call(&*self.connection()?)
            }
            done => done,
        }
    }

    fn connection(&self) -> Result<Arc<LeaseGuard>, GuardError> {
        let mut state = self.lock();
        if let Some(connection) = &state.connection {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(LeaseGuard::start(&self.config)?);
        if let Some(deadline) = state.deadline {
            connection.extend(deadline)?;
        }
        state.connections += 1;
        state.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }
}
