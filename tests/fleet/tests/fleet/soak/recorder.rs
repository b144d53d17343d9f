//! Hears every sandbox from outside of the nodes: each sends its number, when its program began, and a
//! counter. The source address names the node, and [`Owners`] adds the epoch at which a node owns the
//! sandbox.
//!
//! A *fenced time* of a sandbox on a node is from the epoch at which the node became its owner to the
//! next epoch of another node. A program that advances its counter on one node after the epoch of another
//! one has begun ran at an overlapping fenced time. Clocks are not needed to find that: a change of owner
//! counts once all packets were read that had arrived when the recorder learned of the change, which is
//! after etcd committed it. So a packet that is read later was sent after the epoch had begun.

use super::owners::{OwnerChange, Owners};
use super::worker;
use super::worker::Class;
use isolet_fleet_tests::LocalFleet;
use isolet_fleet_tests::addresses::{PUBLIC, node};
use isolet_kit::{LONG, wait_until};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The port that sandboxes send to.
const PORT: u16 = 9000;
/// How recently a running sandbox was heard.
const RECENT: Duration = Duration::from_secs(3);
/// The pause after all packets were read.
const PAUSE: Duration = Duration::from_millis(3);
/// Maximum number of violations that are noted.
const VIOLATIONS_MAX: usize = 20;

/// A program of a sandbox on one node, without interruption by another one.
#[derive(Debug, Clone)]
struct Run {
    node: usize,
    /// The epoch of the owner when it was heard last.
    epoch: u64,
    /// When the program began, by the clock of its sandbox.
    began: String,
    first: Instant,
    last: Instant,
    counter: u64,
}

#[derive(Default)]
struct Heard {
    runs: BTreeMap<usize, Vec<Run>>,
    owners: BTreeMap<usize, OwnerChange>,
    /// The changes of a sandbox's epoch.
    epochs: BTreeMap<usize, usize>,
    violations: Vec<String>,
}

pub(super) struct Recorder {
    heard: Arc<Mutex<Heard>>,
    ended: Arc<AtomicBool>,
    hearing: Option<JoinHandle<()>>,
    _owners: Owners,
}

impl Recorder {
    /// Where sandboxes send to, as a rule of their network.
    pub(super) fn rule() -> String {
        format!("{PUBLIC}:{PORT}")
    }

    /// A command that starts the program of a sandbox, if it does not run.
    pub(super) fn program(number: usize) -> String {
        format!(
            "setsid flock -n /tmp/heard bash -c 'began=$(date +%s%N); i=0; while :; do i=$((i + 1)); \
             echo {number} $began $i >/dev/udp/{PUBLIC}/{PORT}; sleep 0.2; done' \
             </dev/null >/dev/null 2>&1 &"
        )
    }

    pub(super) fn start(fleet: &LocalFleet) -> Self {
        let socket = UdpSocket::bind((PUBLIC, PORT)).expect("the clients' namespace has it");
        socket.set_nonblocking(true).expect("a socket");
        let (owners, changes) = Owners::follow(fleet.etcd().client());
        let heard = Arc::<Mutex<Heard>>::default();
        let ended = Arc::<AtomicBool>::default();
        let hearing = {
            let heard = Arc::clone(&heard);
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || hear(&socket, &changes, &heard, &ended))
        };
        Self { heard, ended, hearing: Some(hearing), _owners: owners }
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the epoch of a sandbox has changed.
    pub(super) fn epochs(&self, number: usize) -> usize {
        self.lock().epochs.get(&number).copied().unwrap_or_default()
    }

    /// The index of the node that owns a sandbox.
    pub(super) fn owner(&self, number: usize) -> Option<usize> {
        self.lock().owners.get(&number)?.node
    }

    /// Waits until `count` sandboxes were heard from now on.
    pub(super) fn wait_for(&self, count: usize) {
        let from = Instant::now();
        let recent = |all: &Vec<Run>| all.last().is_some_and(|run| run.last >= from);
        let mut silent = Vec::new();
        let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("every sandbox is heard", LONG, || {
                let heard = self.lock();
                silent = (0..count)
                    .filter(|number| !heard.runs.get(number).is_some_and(&recent))
                    .collect();
                silent.is_empty().then_some(())
            });
        }));
        assert!(heard.is_ok(), "sandboxes are silent: {silent:?}");
    }

    /// What must not have happened.
    pub(super) fn violations(&self) -> Vec<String> {
        let heard = self.lock();
        heard.violations.clone()
    }

    /// Checks that no sandbox ran on two nodes at overlapping times, that its program was never run
    /// again unless its class or the loss of a machine allows that, and that it runs where etcd says.
    /// `deaths` counts the losses of each node's machine.
    pub(super) fn check(&self, fleet: &LocalFleet, deaths: [usize; 3]) {
        self.wait_for(super::SANDBOXES);
        assert_eq!(self.violations(), Vec::<String>::new());
        let runs = self.lock().runs.clone();
        let silent = |all: &Vec<Run>| all.last().is_none_or(|run| run.last.elapsed() > RECENT);
        let silent: Vec<_> = runs.iter().filter(|(_, all)| silent(all)).collect();
        assert!(silent.is_empty(), "sandboxes are silent: {silent:?}");
        for (number, all) in &runs {
            let id = worker::id(*number);
            for pair in all.windows(2) {
                assert!(pair[0].last <= pair[1].first, "{id} ran twice at a time: {pair:?}");
            }
            if Class::of(*number) == Class::Node {
                let most = 1 + deaths[all[0].node];
                assert!(all.len() <= most, "{id} was started again: {all:?}");
            }
            let last = all.last().expect("at least one");
            assert_eq!(fleet.owner(&id).as_deref(), Some(crate::NODES[last.node]), "{id}");
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(hearing) = self.hearing.take() {
            let _ = hearing.join();
        }
    }
}

fn hear(
    socket: &UdpSocket,
    changes: &Receiver<OwnerChange>,
    heard: &Mutex<Heard>,
    ended: &AtomicBool,
) {
    let mut buffer = [0; 256];
    while !ended.load(Ordering::SeqCst) {
        let changes: Vec<OwnerChange> = changes.try_iter().collect();
        // All that was sent before those changes were received.
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.packet(&String::from_utf8_lossy(&buffer[..count]), from);
        }
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        changes.into_iter().for_each(|change| heard.changed(change));
        drop(heard);
        std::thread::park_timeout(PAUSE);
    }
}

impl Heard {
    fn changed(&mut self, change: OwnerChange) {
        let former = self.owners.insert(change.number, change);
        match former {
            // A list after an interrupted watch.
            Some(former) if former.epoch >= change.epoch => {
                self.owners.insert(change.number, former);
            }
            Some(_) => *self.epochs.entry(change.number).or_default() += 1,
            None => {}
        }
    }

    fn packet(&mut self, text: &str, from: SocketAddr) {
        let node = (0..3_u8).position(|index| from.ip() == node(index));
        let words: Vec<&str> = text.split_whitespace().collect();
        let (Some(node), &[number, began, counter]) = (node, words.as_slice()) else { return };
        let (Ok(number), Ok(counter)) = (number.parse::<usize>(), counter.parse::<u64>()) else {
            return;
        };
        let owner = self.owners.get(&number).copied();
        let epoch = owner.map_or(0, |owner| owner.epoch);
        if let Some(owner) = owner.filter(|owner| owner.node != Some(node)) {
            self.violated(format!(
                "{}: counter {counter} on node {} after the epoch of another one: {owner:?}",
                worker::id(number),
                crate::NODES[node]
            ));
        }
        let now = Instant::now();
        let all: &mut Vec<Run> = self.runs.entry(number).or_default();
        let same = |run: &Run| run.node == node && run.began == began;
        match all.iter().position(same) {
            // A run that continues after another one began overlaps it.
            Some(at) => {
                let overlaps = at + 1 < all.len();
                let run = &mut all[at];
                run.last = now;
                run.epoch = epoch;
                run.counter = run.counter.max(counter);
                if overlaps {
                    let text = format!("{} ran twice at a time: {all:?}", worker::id(number));
                    self.violated(text);
                }
            }
            None => {
                let began = began.to_owned();
                all.push(Run { node, epoch, began, first: now, last: now, counter });
            }
        }
    }

    fn violated(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            println!("VIOLATION: {text}");
            self.violations.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(by: usize, epoch: u64) -> OwnerChange {
        OwnerChange { number: 1, node: Some(by), epoch }
    }

    fn from(index: u8) -> SocketAddr {
        (node(index), 1).into()
    }

    #[test]
    fn a_counter_that_advances_after_the_epoch_of_another_node_is_a_violation() {
        let mut heard = Heard::default();
        heard.changed(owned(0, 5));
        heard.packet("1 100 1", from(0));
        heard.changed(owned(1, 7));
        heard.changed(owned(0, 5));
        assert_eq!((heard.violations.len(), heard.epochs[&1]), (0, 1), "an old list");
        heard.packet("1 200 1", from(1));
        assert_eq!(heard.violations.len(), 0);
        heard.packet("1 100 2", from(0));
        assert_eq!(heard.violations.len(), 2, "{:?}", heard.violations);
    }

    #[test]
    fn two_programs_of_one_sandbox_at_a_time_are_a_violation() {
        let mut heard = Heard::default();
        heard.changed(owned(0, 5));
        heard.packet("1 100 1", from(0));
        heard.packet("1 200 1", from(0));
        assert!(heard.violations.is_empty(), "one after the other");
        heard.packet("1 100 2", from(0));
        assert_eq!(heard.violations.len(), 1);
    }
}
