//! A busy sandbox: it writes, reads and pushes files through random nodes, and knows what must be there.

use super::Field;
use super::files::{self, Files, Loss};
use super::random::Random;
use super::recorder::Recorder;
use super::tally::Tally;
use isolet_kit::{LONG, Reply, Sandbox, Value, json, wait_until};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Errors that a fault may cause.
const EXPECTED: [&str; 7] = [
    "node_unreachable",
    "fleet_unavailable",
    "owner_moved",
    "suspended",
    "restoring",
    "not_restored",
    "sandbox_unreachable",
];
/// The pause between two calls of a worker, in ms.
const PAUSE_MS: (usize, usize) = (50, 500);
/// How often a sandbox of the class `store` is pushed without a request, in seconds.
const SNAPSHOT_EVERY_S: u64 = 60;
/// The number of files that are compared after a restore.
const COMPARED: usize = 5;

/// The class of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Node,
    Store,
}

impl Class {
    /// Every second sandbox is of the class `store`, unless `ISOLET_SOAK_CLASS` names one class for all.
    pub(super) fn of(number: usize) -> Self {
        match std::env::var("ISOLET_SOAK_CLASS").as_deref() {
            Ok("node") => Self::Node,
            Ok("store") => Self::Store,
            _ if number.is_multiple_of(2) => Self::Store,
            _ => Self::Node,
        }
    }
}

/// The id of a sandbox.
pub(super) fn id(number: usize) -> String {
    format!("busy-{number}")
}

/// The number of a sandbox with this id.
pub(super) fn number(id: &str) -> Option<usize> {
    id.strip_prefix("busy-")?.parse().ok()
}

pub(super) fn now_ms() -> i64 {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(passed.as_millis()).expect("before the year 200,000,000")
}

pub(super) struct Worker {
    field: Arc<Field>,
    number: usize,
    id: String,
    class: Class,
    random: Random,
    files: Files,
    /// What its shell says of itself: its pid and a variable.
    shell: String,
    /// When it was restored last, in milliseconds since 1970, and its epochs by then.
    restored_at_ms: i64,
    epochs: usize,
    /// The losses of its node's machine that are known.
    deaths: usize,
    /// An answer to a command has said that processes were lost, or was lost itself.
    reported: bool,
    pushed: Option<Pushed>,
    tally: Tally,
}

/// The newest snapshot that the worker has pushed.
struct Pushed {
    id: String,
    created_at_ms: i64,
}

impl Worker {
    /// Creates the sandbox and starts the program that the recorder hears.
    pub(super) fn create(field: &Arc<Field>, number: usize, seed: u64) -> Self {
        let id = id(number);
        let class = Class::of(number);
        let http = &field.nodes[number % field.nodes.len()];
        let mut spec = json!({
            "id": id, "memory_mib": 64, "sleep_after_s": 0,
            "network": {"allow": [Recorder::rule()]},
        });
        if class == Class::Store {
            spec["class"] = "store".into();
            spec["snapshot_every_s"] = SNAPSHOT_EVERY_S.into();
        }
        http.post("/v1/sandboxes", &spec).expect(201);
        let sandbox = Sandbox { id: id.clone(), http: http.clone() };
        sandbox.exec(&Recorder::program(number));
        sandbox.command("dev", &format!("x={number}"));
        let shell = sandbox.command("dev", "echo $$ $x")["stdout"].to_string();
        Self {
            field: Arc::clone(field),
            number,
            id,
            class,
            random: Random::new(seed.wrapping_add(1 + number as u64)),
            files: Files::default(),
            shell,
            restored_at_ms: 0,
            epochs: field.recorder.epochs(number),
            deaths: 0,
            reported: false,
            pushed: None,
            tally: Tally::default(),
        }
    }

    /// Waits until the sandbox can be restored on another node.
    pub(super) fn wait_until_pushed(&mut self) {
        if self.class == Class::Store {
            let sandbox = self.through();
            wait_until("its first snapshot is pushed", LONG, || {
                sandbox.info()["last_pushed_snapshot"].as_str().map(drop)
            });
        }
    }

    /// Works until the faults are over, then checks everything.
    pub(super) fn work(mut self) -> Tally {
        while !self.field.over.load(Ordering::SeqCst) && !self.field.found.load(Ordering::SeqCst) {
            match self.random.below(12) {
                0..=4 => self.write(),
                5..=7 => self.read(),
                8..=9 => self.run(),
                10 if self.class == Class::Store => self.push(),
                _ => drop(self.look()),
            }
            let pause = PAUSE_MS.0 + self.random.below(PAUSE_MS.1 - PAUSE_MS.0);
            std::thread::sleep(Duration::from_millis(pause as u64));
        }
        if self.field.found.load(Ordering::SeqCst) {
            return self.tally;
        }
        wait_until("its files can be compared", LONG, || self.look());
        for file in self.files.all() {
            wait_until("the file can be read", LONG, || self.compare(file));
        }
        self.tally
    }

    /// The sandbox, through a random node.
    fn through(&mut self) -> Sandbox {
        let node = self.random.below(self.field.nodes.len());
        Sandbox { id: self.id.clone(), http: self.field.nodes[node].clone() }
    }

    /// Sends a request to `path`. `None` after an error that a fault may cause.
    fn send(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> Option<Reply> {
        let sandbox = self.through();
        let reply = match sandbox.http.try_send(method, path, body) {
            Ok(reply) => reply,
            Err(error) => {
                self.tally.refused(format!("{:?}", error.kind()));
                return None;
            }
        };
        if let Some(snapshot) = reply.header("isolet-restored-from") {
            let lost = reply.header("isolet-lost").unwrap_or_default();
            assert!(
                snapshot.starts_with("snap_") && lost.contains("processes"),
                "{}: {:?}",
                self.id,
                reply.headers
            );
            self.tally.restored_in_headers += 1;
        }
        if reply.status < 300 {
            return Some(reply);
        }
        let error = reply.error();
        self.expects(&reply, &format!("{method} {path}"));
        self.tally.refused(error);
        None
    }

    /// Checks that a fault may cause this answer.
    fn expects(&self, reply: &Reply, what: &str) {
        let error = reply.error();
        let expected = reply.status == 503 && EXPECTED.contains(&error.as_str());
        assert!(expected, "{} {what}: {} {}", self.id, reply.status, reply.text());
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.id)
    }

    fn write(&mut self) {
        let file = self.files.take();
        let bytes = files::content(self.number, file);
        let path = self.path(&format!("/files/{}", files::name(file)));
        if self.send("PUT", &path, Some(&bytes)).is_none() {
            return;
        }
        self.tally.written += 1;
        if let Some(old) = self.files.acknowledge(file, now_ms()) {
            self.exec(&format!("rm -f /workspace/{old}"));
        }
    }

    fn read(&mut self) {
        if let Some(file) = self.files.any(&mut self.random) {
            self.compare(file);
        }
    }

    /// Compares one acknowledged file. `None`: it could not be read, or the sandbox was restored.
    fn compare(&mut self, file: usize) -> Option<()> {
        let path = self.path(&format!("/files/{}", files::name(file)));
        let sandbox = self.through();
        let reply = sandbox.http.try_send("GET", &path, None).ok()?;
        if reply.status == 404 && reply.error() != "no_sandbox" {
            // Lost with a restore, which a look finds or not.
            self.look()?;
            let is_expected = !self.files.all().contains(&file);
            assert!(is_expected, "{}: {} is missing", self.id, files::name(file));
            return Some(());
        }
        if reply.status != 200 {
            self.expects(&reply, &format!("GET {path}"));
            self.tally.refused(reply.error());
            return None;
        }
        let is_same = reply.body == files::content(self.number, file);
        assert!(is_same, "{}: {} has other bytes", self.id, files::name(file));
        self.tally.checked += 1;
        Some(())
    }

    /// Runs a command without a shell.
    fn exec(&mut self, command: &str) -> Option<Value> {
        let body = json!({"command": command}).to_string();
        self.command("/exec", &body)
    }

    /// Runs a command, and notes what its answer says of losses.
    fn command(&mut self, rest: &str, body: &str) -> Option<Value> {
        let path = self.path(rest);
        let Some(reply) = self.send("POST", &path, Some(body.as_bytes())) else {
            // Its answer may have been the first one after a loss.
            self.reported = true;
            return None;
        };
        let said = reply.json();
        if said["lost"].to_string().contains("processes") {
            self.reported = true;
            self.tally.losses_reported += 1;
        }
        Some(said)
    }

    /// Asks the shell of a session who it is.
    fn run(&mut self) {
        let deaths = self.machine_deaths();
        let body = json!({"command": format!("x=${{x:-{}}}; echo $$ $x", self.number)});
        let Some(said) = self.command("/sessions/dev/exec", &body.to_string()) else { return };
        let shell = said["stdout"].to_string();
        if shell == self.shell {
            return;
        }
        if self.class == Class::Node {
            let deaths_now = self.machine_deaths();
            assert!(
                deaths_now > self.deaths || deaths > self.deaths,
                "{}: another shell: {said}",
                self.id
            );
            self.deaths = deaths_now;
        }
        assert!(self.reported, "{}: the loss of a shell was not reported: {said}", self.id);
        self.reported = false;
        self.shell = shell;
    }

    /// How often the machine of its node was lost, for the class `node`, which never moves.
    fn machine_deaths(&self) -> usize {
        let node = self.field.recorder.owner(self.number);
        node.map_or(0, |node| self.field.deaths[node].load(Ordering::SeqCst))
    }

    /// The record of the sandbox.
    fn info(&mut self) -> Option<Value> {
        let path = self.path("");
        Some(self.send("GET", &path, None)?.json())
    }

    /// Compares the list of files with what must be there, and starts the program again that the
    /// recorder hears. `None`: not all of it could be read at one moment.
    fn look(&mut self) -> Option<()> {
        let epochs = self.field.recorder.epochs(self.number);
        let before = restored_at_ms(&self.info()?);
        let start = Recorder::program(self.number);
        let said = self.exec(&format!("{start} ls /workspace"))?;
        let info = self.info()?;
        if restored_at_ms(&info) != before || self.field.recorder.epochs(self.number) != epochs {
            return None;
        }
        let names = said["stdout"].as_str().unwrap_or_default().lines();
        let there: BTreeSet<usize> = names.filter_map(files::numbered).collect();
        let loss = self.loss(before, epochs, &info);
        let missing = self.files.compare(&there, loss);
        assert!(missing.is_empty(), "{}: {missing:?} are missing after {loss:?}: {info}", self.id);
        self.restored_at_ms = before;
        self.epochs = epochs;
        self.tally.looks += 1;
        if loss != Loss::None {
            for _ in 0..COMPARED {
                self.read();
            }
        }
        Some(())
    }

    /// What may be lost since the last look, by the record of the sandbox.
    fn loss(&mut self, restored_at_ms: i64, epochs: usize, info: &Value) -> Loss {
        if restored_at_ms == self.restored_at_ms {
            return Loss::None;
        }
        let from = &info["restored_from"];
        assert_eq!(self.class, Class::Store, "{}: {info}", self.id);
        let items = from["lost"]["items"].to_string();
        assert!(items.contains("processes"), "{}: the loss is not reported: {info}", self.id);
        let created_at_ms = from["created_at_ms"].as_i64().expect("a time");
        if let Some(pushed) = &self.pushed {
            assert!(
                created_at_ms >= pushed.created_at_ms,
                "{}: restored from an older snapshot than {}: {info}",
                self.id,
                pushed.id
            );
        }
        self.tally.restores += 1;
        if epochs == self.epochs + 1 { Loss::Since(created_at_ms) } else { Loss::Unknown }
    }

    /// Takes a snapshot and pushes it. Once that is acknowledged, no loss may reach its files.
    fn push(&mut self) {
        if self.look().is_none() {
            return;
        }
        let moment = self.files.moment();
        let path = self.path("/snapshots");
        let Some(taken) = self.try_push(&path) else { return };
        let id = taken["id"].as_str().expect("an id").to_owned();
        let created_at_ms = taken["created_at_ms"].as_i64().expect("a time");
        let done = self.try_push(&format!("/v1/snapshots/{id}/push"));
        let former = self.restored_at_ms;
        // A restore during the push may have been from an earlier snapshot.
        let holds = done.is_some() && self.look().is_some() && self.restored_at_ms == former;
        let mut unneeded = Some(id.clone());
        if holds {
            self.files.pushed(moment);
            self.tally.pushed += 1;
            unneeded = self.pushed.replace(Pushed { id, created_at_ms }).map(|former| former.id);
        }
        // Nobody needs an older one. What is not deleted stays until the end.
        for path in unneeded
            .iter()
            .flat_map(|id| [format!("/v1/snapshots/{id}"), format!("/v1/store/snapshots/{id}")])
        {
            let _ = self.through().http.try_send("DELETE", &path, None);
        }
    }

    /// Calls for a snapshot, which a fault may refuse in more ways than other calls.
    fn try_push(&mut self, path: &str) -> Option<Value> {
        match self.through().http.try_send("POST", path, Some(b"{}")) {
            Ok(reply) if reply.status < 300 => Some(reply.json()),
            Ok(reply) => {
                assert_ne!(reply.status, 500, "{} {path}: {}", self.id, reply.text());
                self.tally.refused(format!("push: {}", reply.error()));
                None
            }
            Err(error) => {
                self.tally.refused(format!("push: {:?}", error.kind()));
                None
            }
        }
    }
}

/// When the sandbox was restored last; 0: never.
fn restored_at_ms(info: &Value) -> i64 {
    info["restored_from"]["restored_at_ms"].as_i64().unwrap_or_default()
}
