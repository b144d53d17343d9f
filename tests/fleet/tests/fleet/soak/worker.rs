//! A busy sandbox: it writes and reads files through random nodes, and knows what must be there.

use super::Field;
use super::random::Random;
use super::recorder::Recorder;
use isolet_kit::{LONG, Reply, Sandbox, json, wait_until};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of file names of a sandbox.
const NAMES: usize = 8;
/// The size of a file, in bytes.
const BYTES: usize = 20_000;
/// Errors that a fault may cause.
const EXPECTED: [&str; 3] = ["node_unreachable", "fleet_unavailable", "owner_moved"];

/// The id of a sandbox.
pub(super) fn id(number: usize) -> String {
    format!("busy-{number}")
}

/// What workers have done.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Files whose write was acknowledged.
    pub(super) written: usize,
    /// Files that were read and compared.
    pub(super) checked: usize,
    /// Requests that a fault refused or cut off.
    pub(super) refused: BTreeMap<String, usize>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.checked += other.checked;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files written {}, checked {}; ", self.written, self.checked)?;
        write!(f, "refused {:?}", self.refused)
    }
}

pub(super) struct Worker {
    field: Arc<Field>,
    id: String,
    random: Random,
    /// What each file may contain: one content, or more after an answer that was lost.
    files: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The pid of its shell and a variable.
    shell: String,
    tally: Tally,
}

impl Worker {
    /// Creates the sandbox and starts the program that the recorder hears.
    pub(super) fn create(field: &Arc<Field>, number: usize, seed: u64) -> Self {
        let id = id(number);
        let http = &field.nodes[number % field.nodes.len()];
        let mut spec = json!({
            "id": id, "memory_mib": 64, "sleep_after_s": 0,
            "network": {"allow": [Recorder::rule()]},
        });
        if field.class != "node" {
            spec["class"] = field.class.as_str().into();
        }
        http.post("/v1/sandboxes", &spec).expect(201);
        let sandbox = Sandbox { id: id.clone(), http: http.clone() };
        sandbox.background(&Recorder::program(number));
        sandbox.command("dev", &format!("x={number}"));
        let shell = sandbox.command("dev", "echo $$ $x")["stdout"].to_string();
        let random = Random::new(seed.wrapping_add(1 + number as u64));
        let files = BTreeMap::new();
        Self { field: Arc::clone(field), id, random, files, shell, tally: Tally::default() }
    }

    /// Works until the faults are over, then checks everything.
    pub(super) fn work(mut self) -> Tally {
        while !self.field.over.load(Ordering::SeqCst) && !self.field.found.load(Ordering::SeqCst) {
            let name = self.random.below(NAMES);
            match self.random.below(3) {
                0 => self.write(name),
                1 => self.read(name),
                _ => self.run(),
            }
            std::thread::sleep(std::time::Duration::from_millis(
                20 + self.random.below(200) as u64,
            ));
        }
        for name in 0..NAMES {
            wait_until("the file can be read", LONG, || {
                let before = self.tally.checked;
                self.read(name);
                (self.tally.checked > before || !self.files.contains_key(&name)).then_some(())
            });
        }
        let sandbox = self.through();
        if self.field.class == "node" {
            let shell = sandbox.command("dev", "echo $$ $x")["stdout"].to_string();
            assert_eq!(shell, self.shell, "{}: another shell", self.id);
        }
        self.tally
    }

    /// The sandbox, through a random node.
    fn through(&mut self) -> Sandbox {
        let node = self.random.below(self.field.nodes.len());
        Sandbox { id: self.id.clone(), http: self.field.nodes[node].clone() }
    }

    /// Sends a request. `None` after an error that a fault may cause.
    fn send(&mut self, method: &str, rest: &str, body: Option<&[u8]>) -> Option<Reply> {
        let sandbox = self.through();
        let reply = match sandbox.http.try_send(method, &sandbox.path(rest), body) {
            Ok(reply) => reply,
            Err(error) => {
                *self.tally.refused.entry(format!("{:?}", error.kind())).or_default() += 1;
                return None;
            }
        };
        if reply.status < 300 {
            return Some(reply);
        }
        let error = reply.error();
        let expected = reply.status == 503 && EXPECTED.contains(&error.as_str());
        assert!(expected, "{} {method} {rest}: {} {}", self.id, reply.status, reply.text());
        *self.tally.refused.entry(error).or_default() += 1;
        None
    }

    fn write(&mut self, name: usize) {
        let bytes = self.random.bytes(BYTES);
        match self.send("PUT", &format!("/files/f{name}"), Some(&bytes)) {
            Some(_) => {
                self.files.insert(name, vec![bytes]);
                self.tally.written += 1;
            }
            // It may have been written. Without an acknowledged content, the file may be missing.
            None => {
                if let Some(contents) = self.files.get_mut(&name) {
                    contents.push(bytes);
                }
            }
        }
    }

    fn read(&mut self, name: usize) {
        if !self.files.contains_key(&name) {
            return;
        }
        let Some(reply) = self.send("GET", &format!("/files/f{name}"), None) else { return };
        let known = self.files[&name].iter().position(|content| *content == reply.body);
        let Some(known) = known else {
            panic!("{} f{name}: {} bytes that nobody wrote", self.id, reply.body.len())
        };
        // From now on it is what was read: a write that was lost on its way cannot arrive later,
        // because its connection has ended.
        if self.files[&name].len() > 1 {
            let content = self.files[&name][known].clone();
            let others = self.files[&name].clone();
            self.files.insert(name, [vec![content], others].concat());
        }
        self.tally.checked += 1;
    }

    fn run(&mut self) {
        let body = json!({"command": "echo $$ $x"}).to_string();
        let Some(reply) = self.send("POST", "/sessions/dev/exec", Some(body.as_bytes())) else {
            return;
        };
        let said = reply.json()["stdout"].to_string();
        if self.field.class == "node" {
            assert_eq!(said, self.shell, "{}: another shell", self.id);
        }
    }
}
