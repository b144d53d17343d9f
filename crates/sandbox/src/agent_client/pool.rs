//! Idle connections to the agent of one sandbox, reused because connecting costs more than a
//! request.
//!
//! An agent sends nothing on an idle connection, so it stays valid until its next use. The client
//! of a shell receives the output of background jobs, and one that does not read would block the
//! shell. The pool therefore checks idle shell connections every [`LOOK`], and closes those that
//! have received anything.

use crate::{
    agent_client::{link::ShellLink, wire::Wire},
    model::ids::SessionId,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The most idle connections of one sandbox, of both kinds together.
const IDLE_MAX: usize = 8;
/// How often parked shell links are looked through.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// How long one stays.
const STAY: Duration = Duration::from_secs(30);

/// What is idle.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    watch: Arc<Watched>,
}

#[derive(Debug, Default)]
struct Idle {
    wires: Vec<Wire>,
    shells: Vec<(Instant, ShellLink)>,
    watched: bool,
}

/// The pools that hold shell links, for the one task that looks them through.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pools: Mutex<Vec<Weak<Pool>>>,
    more: Notify,
}

impl Pool {
    pub(crate) fn new(watch: Arc<Watched>) -> Self {
        Self { idle: Mutex::default(), watch }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that still stands, where one is idle.
    pub(crate) fn take(&self) -> Option<Wire> {
        loop {
            let wire = self.lock().wires.pop()?;
            // Anything but silence (its end, words nobody asked for) makes it useless.
            if wire.quiet() {
                return Some(wire);
            }
        }
    }

    /// Keeps a connection on which nothing is open.
    pub(crate) fn park(&self, mut wire: Wire) {
        wire.awake = None;
        let mut idle = self.lock();
        if idle.wires.len() + idle.shells.len() < IDLE_MAX {
            idle.wires.push(wire);
        }
    }

    /// A client of this session's shell that has heard nothing since its last command.
    pub(crate) fn take_shell(&self, session: &SessionId) -> Option<ShellLink> {
        loop {
            let mut idle = self.lock();
            let at =
                idle.shells.iter().rposition(|(_, link)| link.shell_id() == session.as_str())?;
            let (_, link) = idle.shells.swap_remove(at);
            drop(idle);
            if link.quiet() {
                return Some(link);
            }
        }
    }

    /// How many links of this session's shell wait here.
    pub(crate) fn parked(&self, session: &SessionId) -> usize {
        let idle = self.lock();
        idle.shells.iter().filter(|(_, link)| link.shell_id() == session.as_str()).count()
    }

    pub(crate) fn park_shell(self: Arc<Self>, mut link: ShellLink) {
        link.awake(None);
        let mut idle = self.lock();
        if idle.wires.len() + idle.shells.len() >= IDLE_MAX {
            return;
        }
        idle.shells.push((Instant::now(), link));
        if !std::mem::replace(&mut idle.watched, true) {
            drop(idle);
            self.watch.pools().push(Arc::downgrade(&self));
            self.watch.more.notify_one();
        }
    }

    /// Lets go of a session's links, or of all connections.
    pub(crate) fn drop_links(&self, session: Option<&SessionId>) {
        let mut idle = self.lock();
        match session {
            Some(id) => idle.shells.retain(|(_, link)| link.shell_id() != id.as_str()),
            None => (idle.wires, idle.shells) = (Vec::new(), Vec::new()),
        }
    }

    /// Lets go of links that have heard something or waited long; false when none is left.
    fn look(&self) -> bool {
        let mut idle = self.lock();
        idle.shells.retain(|(since, link)| since.elapsed() < STAY && link.quiet());
        idle.watched = !idle.shells.is_empty();
        idle.watched
    }
}

impl Watched {
    fn pools(&self) -> MutexGuard<'_, Vec<Weak<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks pools through for as long as there are any that hold links; runs until dropped.
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
