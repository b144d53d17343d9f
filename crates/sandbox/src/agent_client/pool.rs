//! A pool of idle connections to one agent. Reusing a connection is cheaper than opening one.
//!
//! An agent sends nothing on an idle connection without a shell. A parked client of a shell,
//! however, receives the output of background jobs, and it would block the shell because it does
//! not read. Parked shell connections are therefore checked every [`LOOK`], and a connection with
//! unread data is closed.

use crate::agent_client::agent_version::AgentVersion;
use crate::agent_client::connection::ShellConnection;
use crate::agent_client::wire::Wire;
use crate::model::ids::SessionId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Maximum number of idle connections of one agent, of both kinds together.
const IDLE_MAX: usize = 8;
/// Time between two checks of parked shell connections.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Maximum time that a shell connection stays in the pool.
const STAY: Duration = Duration::from_secs(30);

/// The idle connections of one agent.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    /// The protocol version of the agent.
    pub(crate) version: Arc<AgentVersion>,
    watch: Arc<Watched>,
}

#[derive(Debug, Default)]
struct Idle {
    wires: Vec<Wire>,
    shells: Vec<(Instant, ShellConnection)>,
    watched: bool,
}

/// All pools with parked shell connections, for the one task that checks them.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pools: Mutex<Vec<Weak<Pool>>>,
    more: Notify,
}

impl Pool {
    pub(crate) fn new(watch: Arc<Watched>) -> Self {
        Self { idle: Mutex::default(), version: Arc::default(), watch }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle connection that is still usable.
    pub(crate) fn take(&self) -> Option<Wire> {
        loop {
            let wire = self.lock().wires.pop()?;
            // Any unread data, including the end of the stream, makes the connection unusable.
            if wire.quiet() {
                return Some(wire);
            }
        }
    }

    /// Returns a connection without a purpose to the pool.
    pub(crate) fn park(&self, mut wire: Wire) {
        wire.awake = None;
        let mut idle = self.lock();
        if idle.wires.len() + idle.shells.len() < IDLE_MAX {
            idle.wires.push(wire);
        }
    }

    /// Takes a client of this session's shell that has received nothing since its last command.
    pub(crate) fn take_shell(&self, session: &SessionId) -> Option<ShellConnection> {
        loop {
            let mut idle = self.lock();
            let at = idle
                .shells
                .iter()
                .rposition(|(_, connection)| connection.shell_id() == session.as_str())?;
            let (_, connection) = idle.shells.swap_remove(at);
            drop(idle);
            if connection.quiet() {
                return Some(connection);
            }
        }
    }

    /// Number of parked clients of this session's shell.
    pub(crate) fn parked(&self, session: &SessionId) -> usize {
        let idle = self.lock();
        idle.shells
            .iter()
            .filter(|(_, connection)| connection.shell_id() == session.as_str())
            .count()
    }

    pub(crate) fn park_shell(self: Arc<Self>, mut connection: ShellConnection) {
        connection.awake(None);
        let mut idle = self.lock();
        if idle.wires.len() + idle.shells.len() >= IDLE_MAX {
            return;
        }
        idle.shells.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.watched, true) {
            drop(idle);
            self.watch.pools().push(Arc::downgrade(&self));
            self.watch.more.notify_one();
        }
    }

    /// Closes the connections of a session, or all connections.
    pub(crate) fn drop_links(&self, session: Option<&SessionId>) {
        let mut idle = self.lock();
        match session {
            Some(id) => idle.shells.retain(|(_, connection)| connection.shell_id() != id.as_str()),
            None => (idle.wires, idle.shells) = (Vec::new(), Vec::new()),
        }
    }

    /// Closes connections with unread data and those that are too old. Returns whether any is left.
    fn look(&self) -> bool {
        let mut idle = self.lock();
        idle.shells.retain(|(since, connection)| since.elapsed() < STAY && connection.quiet());
        idle.watched = !idle.shells.is_empty();
        idle.watched
    }
}

impl Watched {
    fn pools(&self) -> MutexGuard<'_, Vec<Weak<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the pools as long as any of them has shell connections. Runs until it is dropped.
    pub(crate) async fn run(&self) {
        loop {
            let mut pools = std::mem::take(&mut *self.pools());
            pools.retain(|pool| pool.upgrade().is_some_and(|pool| pool.look()));
            let some = {
                let mut held = self.pools();
                held.append(&mut pools);
                !held.is_empty()
            };
            if some {
                tokio::time::sleep(LOOK).await;
            } else {
                self.more.notified().await;
            }
        }
    }
}
