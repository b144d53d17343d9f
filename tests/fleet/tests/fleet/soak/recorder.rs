//! Hears every sandbox from outside: each sends its number, when its program began, and a counter. The
//! source address names the node.

use super::worker;
use isolet_fleet_tests::LocalFleet;
use isolet_fleet_tests::addresses::{PUBLIC, node};
use isolet_kit::{LONG, wait_until};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The port that sandboxes send to.
const PORT: u16 = 9000;
/// How recently a running sandbox was heard.
const RECENT: Duration = Duration::from_secs(3);

/// A program of a sandbox on one node, without interruption by another one.
#[derive(Debug, Clone)]
struct Run {
    node: usize,
    /// When the program began, by the clock of its sandbox.
    began: String,
    first: Instant,
    last: Instant,
    counter: u64,
}

type Runs = BTreeMap<usize, Vec<Run>>;

pub(super) struct Recorder {
    runs: Arc<Mutex<Runs>>,
    ended: Arc<AtomicBool>,
    hearing: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Where sandboxes send to, as a rule of their network.
    pub(super) fn rule() -> String {
        format!("{PUBLIC}:{PORT}")
    }

    /// The program of a sandbox.
    pub(super) fn program(number: usize) -> String {
        format!(
            "began=$(date +%s%N); i=0; while :; do i=$((i + 1)); \
             echo {number} $began $i >/dev/udp/{PUBLIC}/{PORT}; sleep 0.2; done"
        )
    }

    pub(super) fn start() -> Self {
        let socket = UdpSocket::bind((PUBLIC, PORT)).expect("the clients' namespace has it");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
        let runs = Arc::<Mutex<Runs>>::default();
        let ended = Arc::<AtomicBool>::default();
        let hearing = {
            let runs = Arc::clone(&runs);
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || hear(&socket, &runs, &ended))
        };
        Self { runs, ended, hearing: Some(hearing) }
    }

    /// Waits until `count` sandboxes were heard from now on.
    pub(super) fn wait_for(&self, count: usize) {
        let from = Instant::now();
        wait_until("every sandbox is heard", LONG, || {
            let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let heard = runs.values().filter(|all| all.last().is_some_and(|run| run.last >= from));
            (heard.count() >= count).then_some(())
        });
    }

    /// Checks that no sandbox ran on two nodes at overlapping times, that its program was never run
    /// again unless its class allows that, and that it runs where etcd says.
    pub(super) fn check(&self, class: &str, fleet: &LocalFleet) {
        self.wait_for(super::SANDBOXES);
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let silent = |all: &Vec<Run>| all.last().is_none_or(|run| run.last.elapsed() > RECENT);
        let silent: Vec<_> = runs.iter().filter(|(_, all)| silent(all)).collect();
        assert!(silent.is_empty(), "sandboxes are silent: {silent:?}");
        for (number, all) in &runs {
            let id = worker::id(*number);
            for pair in all.windows(2) {
                assert!(pair[0].last <= pair[1].first, "{id} ran twice at a time: {pair:?}");
            }
            if class == "node" {
                assert_eq!(all.len(), 1, "{id} was started again: {all:?}");
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

fn hear(socket: &UdpSocket, runs: &Mutex<Runs>, ended: &AtomicBool) {
    let mut buffer = [0; 256];
    while !ended.load(Ordering::SeqCst) {
        let Ok((count, from)) = socket.recv_from(&mut buffer) else { continue };
        let nodes = (0..3_u8).position(|index| from.ip() == node(index));
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let (Some(node), &[number, began, counter]) = (nodes, words.as_slice()) else { continue };
        let (Ok(number), Ok(counter)) = (number.parse(), counter.parse()) else { continue };
        let now = Instant::now();
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        let all: &mut Vec<Run> = runs.entry(number).or_default();
        let same = |run: &&mut Run| run.node == node && run.began == began;
        match all.iter_mut().rev().find(same) {
            // A run that continues after another one began overlaps it, which `check` finds.
            Some(run) => {
                run.last = now;
                run.counter = run.counter.max(counter);
            }
            None => all.push(Run { node, began: began.to_owned(), first: now, last: now, counter }),
        }
    }
}
