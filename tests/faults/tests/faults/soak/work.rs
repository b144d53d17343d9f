//! One busy sandbox: files, commands and programs, and what must be true of them afterwards.

use super::random::Random;
use super::tally::Tally;
use super::{Field, network, stream};
use isolet_kit::net::OTHER;
use isolet_kit::{LONG, Reply, Sandbox, Value, json, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The number of file names that are written repeatedly.
const NAMES: usize = 12;
/// The pause between two attempts of the same call.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// The agent of the sandbox was killed.
#[derive(Debug)]
pub(super) struct Gone;

/// What a file may contain.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Whether one of the contents was acknowledged, so that the file must exist.
    pub(super) acknowledged: bool,
    /// Hashes of possible contents; several when an answer was lost, and then the file is not
    /// written again.
    pub(super) hashes: BTreeSet<u64>,
}

pub(super) struct Worker {
    pub(super) field: Arc<Field>,
    worker: usize,
    generation: usize,
    pub(super) egress: bool,
    pub(super) random: Random,
    pub(super) sandbox: Sandbox,
    /// The name of its directory, which the server chose.
    pub(super) directory: String,
    pub(super) files: BTreeMap<String, Contents>,
    /// Command numbers, and whether each command is known to have run.
    pub(super) ledger: BTreeMap<u64, bool>,
    count: u64,
    pub(super) tally: Tally,
}

pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Worker {
    pub(super) fn start(field: &Arc<Field>, worker: usize, egress: bool, random: Random) -> Self {
        let sandbox = Sandbox { id: String::new(), http: field.http.clone() };
        let mut worker = Self {
            field: Arc::clone(field),
            worker,
            generation: 0,
            egress,
            random,
            sandbox,
            directory: String::new(),
            files: BTreeMap::new(),
            ledger: BTreeMap::new(),
            count: 0,
            tally: Tally::default(),
        };
        worker.begin();
        worker
    }

    /// Creates a sandbox with an id that was never used.
    fn begin(&mut self) {
        self.files.clear();
        self.ledger.clear();
        while !self.made() {
            // The agent was killed before the directory was known.
            self.delete();
        }
    }

    /// Whether the next sandbox was created and its directory is known.
    fn made(&mut self) -> bool {
        self.generation += 1;
        self.directory = String::new();
        self.sandbox.id = format!("w{}g{}", self.worker, self.generation);
        let id = self.sandbox.id.clone();
        let mut spec = json!({"id": id, "sleep_after_s": 0});
        if self.egress {
            spec["network"] = network();
        }
        let end = Instant::now() + LONG;
        loop {
            assert!(Instant::now() < end, "{id} is not created after {LONG:?}: {}", self.tally);
            let text = spec.to_string();
            let made = self.field.http.try_send("POST", "/v1/sandboxes", Some(text.as_bytes()));
            let state = match made {
                Ok(made) if made.status == 201 => "running".to_owned(),
                Ok(refused) => {
                    self.tally.refuse(&format!("create {} {}", refused.status, refused.error()));
                    self.state()
                }
                Err(_) => String::new(),
            };
            if state == "failed" {
                return false;
            }
            let me = self.field.http.try_send(
                "PUT",
                &self.sandbox.path("/files/me"),
                Some(id.as_bytes()),
            );
            if state == "running"
                && me.is_ok_and(|me| me.status < 300)
                && let Some(directory) = self.find()
            {
                self.directory = directory;
                return true;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Finds its directory by the file that it wrote.
    fn find(&self) -> Option<String> {
        let all = fs::read_dir(self.field.data.join("sandboxes")).ok()?.flatten();
        let own = |folder: &PathBuf| {
            let me = fs::read_to_string(folder.join("workspace/me"));
            me.is_ok_and(|me| me == self.sandbox.id)
        };
        let found = all.map(|entry| entry.path()).find(own)?;
        Some(found.file_name()?.to_string_lossy().into_owned())
    }

    /// Its state; empty when there is no answer.
    pub(super) fn state(&self) -> String {
        let reported = self.field.http.try_send("GET", &self.sandbox.path(""), None);
        let state = reported.map_or(Value::Null, |reported| reported.json()["state"].clone());
        state.as_str().unwrap_or_default().to_owned()
    }

    /// A number that is unique among the commands of the run.
    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.worker as u64 * 1_000_000_000 + self.count
    }

    pub(super) fn check(&self) -> Result<(), Gone> {
        if self.field.killed().contains(&self.directory) { Err(Gone) } else { Ok(()) }
    }

    /// Reports something that may only happen when the agent was killed.
    ///
    /// # Panics
    /// When the agent was not killed.
    pub(super) fn unless_gone(&self, what: &str) -> Result<(), Gone> {
        self.check()?;
        panic!("{}: {what}", self.sandbox.id);
    }

    /// Makes one call; `None` when the answer was lost or the server could not carry the call out
    /// now.
    pub(super) fn call(
        &mut self,
        method: &str,
        rest: &str,
        body: Option<&[u8]>,
    ) -> Result<Option<Reply>, Gone> {
        self.check()?;
        let reply = match self.sandbox.http.try_send(method, &self.sandbox.path(rest), body) {
            Ok(reply) => reply,
            Err(_) => return self.check().map(|()| None),
        };
        if reply.status < 300 || reply.status == 404 {
            return Ok(Some(reply));
        }
        self.check()?;
        let code = reply.error();
        self.tally.refuse(&format!("{} {code}", reply.status));
        if code == "id_in_use" {
            // The server was killed between starting a process and writing its note, which contains
            // the idempotency key: the process runs, and the key is unknown.
            return Ok(Some(reply));
        }
        if reply.status != 503 {
            self.unless_gone(&format!("{method} {rest}: {} {}", reply.status, reply.text()))?;
        }
        Ok(None)
    }

    fn post(&mut self, rest: &str, body: &Value) -> Result<Option<Reply>, Gone> {
        self.call("POST", rest, Some(body.to_string().as_bytes()))
    }

    /// Works until the kills are over, then checks that everything is there.
    pub(super) fn work(&mut self) {
        while !self.field.over.load(Ordering::Relaxed) {
            if self.step().is_err() {
                self.bury();
                self.begin();
            }
            self.random.rest(10, 200);
        }
        if self.finish().is_err() {
            self.bury();
        }
    }

    fn step(&mut self) -> Result<(), Gone> {
        match self.random.below(if self.egress { 12 } else { 10 }) {
            0..=2 => stream::stream(self),
            3 | 4 => self.command(),
            5 => self.process(),
            6 | 7 => self.write(),
            8 | 9 => self.read(),
            _ => self.connect().map(drop),
        }
    }

    pub(super) fn command(&mut self) -> Result<(), Gone> {
        let number = self.number();
        self.ledger.insert(number, false);
        let text = format!("echo {number} >>/workspace/ledger; echo {number}");
        let Some(reported) = self.post("/sessions/cmd/exec", &json!({"command": text}))? else {
            return Ok(());
        };
        let reported = reported.json();
        if reported["stdout"] != format!("{number}\n") || reported["exit_code"] != 0 {
            return self.unless_gone(&format!("command {number} answered {reported}"));
        }
        self.ledger.insert(number, true);
        self.tally.commands += 1;
        Ok(())
    }

    /// Repeats a start with its idempotency key until it is answered; the process runs once.
    fn process(&mut self) -> Result<(), Gone> {
        let number = self.number();
        self.ledger.insert(number, false);
        let id = format!("p{number}");
        let text = format!("echo {number} >>/workspace/ledger");
        let body = json!({"id": id, "command": text});
        let plain = self.sandbox.http.clone();
        self.sandbox.http = plain.with("idempotency-key", &id);
        let started = self.until(|it| it.post("/processes", &body));
        self.sandbox.http = plain;
        started?;
        let wait = json!({"exit": true, "timeout_ms": 10_000});
        let reported = self.until(|it| it.post(&format!("/processes/{id}/wait"), &wait))?;
        if reported.json()["process"]["exit_code"] != 0 {
            return self.unless_gone(&format!("process {id}: {}", reported.text()));
        }
        self.ledger.insert(number, true);
        self.tally.commands += 1;
        self.until(|it| it.call("DELETE", &format!("/processes/{id}"), None)).map(drop)
    }

    /// Repeats a call until there is an answer.
    pub(super) fn until(
        &mut self,
        mut call: impl FnMut(&mut Self) -> Result<Option<Reply>, Gone>,
    ) -> Result<Reply, Gone> {
        let end = Instant::now() + LONG;
        loop {
            if let Some(reply) = call(self)? {
                return Ok(reply);
            }
            if Instant::now() > end {
                self.unless_gone(&format!("no answer within {LONG:?}: {}", self.tally))?;
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn write(&mut self) -> Result<(), Gone> {
        let mut name = format!("f{}", self.random.below(NAMES));
        while self.files.get(&name).is_some_and(|file| file.hashes.len() > 1 || !file.acknowledged)
        {
            name.push('x');
        }
        let most = if self.random.below(10) == 0 { 400_000 } else { 20_000 };
        let count = self.random.below(most);
        let bytes = self.random.bytes(count);
        self.files.entry(name.clone()).or_default().hashes.insert(hash(&bytes));
        let reported = self.call("PUT", &format!("/files/{name}"), Some(&bytes))?;
        if reported.is_some_and(|reported| reported.status < 300) {
            let hashes = [hash(&bytes)].into();
            self.files.insert(name, Contents { acknowledged: true, hashes });
            self.tally.files += 1;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Gone> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let Some(name) = names.get(self.random.below(names.len())) else { return Ok(()) };
        let Some(reported) = self.call("GET", &format!("/files/{name}"), None)? else {
            return Ok(());
        };
        let bytes = (reported.status == 200).then_some(&reported.body[..]);
        match self.wrong(name, bytes) {
            Some(wrong) => self.unless_gone(&wrong),
            None => Ok(()),
        }
    }

    /// Connects to the allowed host and to another; returns whether the allowed host was reached.
    pub(super) fn connect(&mut self) -> Result<bool, Gone> {
        // A host of the simulated internet answers with its name. An open connection alone proves
        // nothing: the egress proxy accepts it, and closes it when the policy denies it.
        let text = format!(
            "curl -sS -m 5 http://web.example/ 2>/dev/null; timeout 1 bash -c 'cat </dev/tcp/{OTHER}/8000' 2>/dev/null; :"
        );
        let Some(reported) = self.post("/exec", &json!({"command": text}))? else {
            return Ok(false);
        };
        let reported = reported.json();
        let said = reported["stdout"].as_str().unwrap_or_default();
        let page = said.starts_with("web.example ");
        if said.contains(&OTHER.to_string()) || !(page || said.is_empty()) {
            self.unless_gone(&format!("a connection answered {reported}"))?;
        }
        self.tally.reached += usize::from(page);
        Ok(page)
    }

    pub(super) fn delete(&mut self) {
        let path = self.sandbox.path("");
        wait_until(&format!("{path} is deleted"), LONG, || {
            let _ = self.field.http.try_send("DELETE", &path, None);
            let gone = self.field.http.try_send("GET", &path, None);
            gone.is_ok_and(|gone| gone.status == 404).then_some(())
        });
    }
}
