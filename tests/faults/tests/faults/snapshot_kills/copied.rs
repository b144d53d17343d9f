//! The sandboxes that are copied while processes are killed, and what must be true of them and of their
//! copies.
//!
//! Each change writes the same number into files of the three directories that a sandbox stores apart,
//! and into a variable of a shell. A snapshot has the number in its metadata.

use super::operations::Operation;
use isolet_kit::{Http, LONG, Reply, Sandbox, Server, Value, json, wait_until};
use std::collections::BTreeSet;
use std::fmt;

/// The most snapshots of one sandbox, so that the disk does not fill.
const SNAPSHOTS_MAX: usize = 6;
/// The shell that has the number.
const SESSION: &str = "g";
const LOOK: &str = "cat /workspace/number /opt/number /usr/local/number; echo $NUMBER";

/// One sandbox that is copied.
pub(crate) struct Original {
    http: Http,
    id: String,
    /// The numbers that it may have: several if the answer to a change was lost.
    numbers: BTreeSet<u64>,
    last: u64,
    done: usize,
}

/// All of them.
pub(crate) struct Copied {
    originals: Vec<Original>,
    restored: usize,
    checks: usize,
}

/// What every file and the variable say, if they agree.
fn number(sandbox: &Sandbox) -> Option<u64> {
    let reply = look(sandbox)?;
    let said: BTreeSet<&str> = reply["stdout"].as_str()?.lines().collect();
    (said.len() == 1).then(|| said.first()?.parse().ok()).flatten()
}

/// What they say.
fn look(sandbox: &Sandbox) -> Option<Value> {
    let body = json!({"command": LOOK});
    let path = sandbox.path(&format!("/sessions/{SESSION}/exec"));
    let reply = sandbox.http.try_send("POST", &path, Some(body.to_string().as_bytes())).ok()?;
    Some(reply.json())
}

/// The listed snapshots, oldest first: id, sandbox and number. One that was taken by a deletion has no
/// number.
fn listed(http: &Http) -> Vec<(String, String, Option<u64>)> {
    let Ok(all) = http.try_send("GET", "/v1/snapshots", None) else { return Vec::new() };
    let all = all.json();
    let all = all["snapshots"].as_array().cloned().unwrap_or_default();
    let mut all: Vec<_> = all
        .iter()
        .map(|one| {
            let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            let number = one["metadata"]["number"].as_u64();
            (one["created_at_ms"].as_u64(), (text("id"), text("sandbox"), number))
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, one)| one).collect()
}

impl Original {
    /// Sends a request; `None` if the answer was lost.
    fn send(&self, method: &str, path: &str, body: &Value) -> Option<Reply> {
        let text = body.to_string();
        let body = (!body.is_null()).then_some(text.as_bytes());
        self.http.try_send(method, path, body).ok()
    }

    fn post(&self, rest: &str, body: &Value) -> Option<Reply> {
        self.send("POST", &format!("/v1/sandboxes/{}/{rest}", self.id), body)
    }

    pub(crate) fn carry_out(&mut self, operation: Operation) {
        self.done += 1;
        match operation {
            Operation::Change => self.change(),
            Operation::Snapshot => self.snapshot(),
            Operation::SnapshotAsleep => {
                self.post("sleep", &json!({}));
                self.snapshot();
                self.post("exec", &json!({"command": "true"}));
            }
            Operation::Create => {
                if let Some((from, ..)) = self.own().last() {
                    self.send("POST", "/v1/sandboxes", &json!({"snapshot": from}));
                }
            }
            Operation::Fork => drop(self.post("fork", &json!({"count": 2}))),
            Operation::Restore => self.restore(),
            Operation::Image => {
                if let Some((from, ..)) = self.own().last() {
                    let name = format!("made-{}", self.id);
                    let copy = format!("image-{}", self.id);
                    self.send("POST", "/v1/images", &json!({"snapshot": from, "name": name}));
                    self.send("POST", "/v1/sandboxes", &json!({"id": copy, "image": name}));
                    self.send("DELETE", &format!("/v1/sandboxes/{copy}"), &Value::Null);
                    self.send("DELETE", &format!("/v1/images/{name}"), &Value::Null);
                }
            }
            Operation::Destroy => {
                if let Some((from, ..)) = self.own().last() {
                    let id = format!("destroyed-{}", self.id);
                    let spec = json!({"id": id, "snapshot": from, "snapshot_on_destroy": true});
                    self.send("POST", "/v1/sandboxes", &spec);
                    self.send("DELETE", &format!("/v1/sandboxes/{id}"), &Value::Null);
                }
            }
            Operation::DeleteSnapshot => {
                for (id, of, _) in listed(&self.http) {
                    if of == format!("destroyed-{}", self.id) {
                        self.send("DELETE", &format!("/v1/snapshots/{id}"), &Value::Null);
                    }
                }
                let own = self.own();
                if own.len() > 1 {
                    self.send("DELETE", &format!("/v1/snapshots/{}", own[0].0), &Value::Null);
                }
            }
            Operation::DeleteCopies => self.delete_copies(),
            Operation::Pause => {
                self.post("pause", &json!({}));
                self.post("resume", &json!({}));
            }
        }
    }

    /// The snapshots of this sandbox.
    fn own(&self) -> Vec<(String, String, u64)> {
        let all = listed(&self.http).into_iter().filter(|(_, of, _)| *of == self.id);
        all.filter_map(|(id, of, number)| Some((id, of, number?))).collect()
    }

    /// Writes the next number.
    fn change(&mut self) {
        self.last += 1;
        let next = self.last;
        self.numbers.insert(next);
        let command = format!(
            "NUMBER={next}; for d in /workspace /opt /usr/local; do echo {next} >$d/new && mv $d/new $d/number; done"
        );
        let answer = self.post(&format!("sessions/{SESSION}/exec"), &json!({"command": command}));
        if answer.is_some_and(|answer| answer.status == 200 && answer.json()["exit_code"] == 0) {
            self.numbers = [next].into();
        }
    }

    fn snapshot(&mut self) {
        if self.numbers.len() > 1 {
            self.change();
        }
        if self.numbers.len() == 1 && self.own().len() < SNAPSHOTS_MAX {
            let number = self.numbers.first();
            self.post("snapshots", &json!({"metadata": {"number": number}}));
        }
    }

    /// Restores in place, to the oldest snapshot.
    fn restore(&mut self) {
        let Some((from, _, number)) = self.own().first().cloned() else { return };
        let before = self.numbers.clone();
        self.numbers.insert(number);
        match self.post("restore", &json!({"snapshot": from})) {
            Some(answer) if answer.status == 200 => self.numbers = [number].into(),
            Some(answer) if (400..500).contains(&answer.status) => self.numbers = before,
            _ => {}
        }
    }

    fn delete_copies(&self) {
        let all = self.send("GET", "/v1/sandboxes?limit=1000", &Value::Null).map(|all| all.json());
        let all = all.and_then(|all| all.as_array().cloned()).unwrap_or_default();
        for id in
            all.iter().filter_map(|one| one["id"].as_str()).filter(|id| !id.starts_with("original"))
        {
            self.send("DELETE", &format!("/v1/sandboxes/{id}"), &Value::Null);
        }
    }
}

impl Copied {
    pub(crate) fn new(server: &Server) -> Self {
        let create = |(at, disk_mib): (usize, u64)| {
            let id = format!("original-{at}");
            let spec = json!({"id": id, "disk_mib": disk_mib, "sleep_after_s": 0});
            let sandbox = server.sandbox_with(&spec);
            let numbers = BTreeSet::new();
            let last = at as u64 * 1_000_000_000;
            let mut one = Original { http: server.http(), id: sandbox.id, numbers, last, done: 0 };
            one.change();
            assert_eq!(one.numbers.len(), 1);
            one.snapshot();
            one
        };
        let originals = [0, 64].into_iter().enumerate().map(create).collect();
        Self { originals, restored: 0, checks: 0 }
    }

    /// Carries out an operation of every sandbox, one after the other.
    pub(crate) fn carry_out(&mut self, operation: Operation) {
        self.originals.iter_mut().for_each(|one| one.carry_out(operation));
    }

    /// Takes the sandboxes out, so that each can be used by a thread.
    pub(crate) fn apart(&mut self) -> Vec<Original> {
        std::mem::take(&mut self.originals)
    }

    pub(crate) fn join(&mut self, originals: Vec<Original>) {
        self.originals = originals;
    }

    /// Checks the originals, all other sandboxes, what is on the disk, and the newest `restores`
    /// snapshots.
    pub(crate) fn check(&mut self, server: &Server, restores: usize) {
        self.checks += 1;
        let http = server.http();
        for one in &mut self.originals {
            let sandbox = server.named(&one.id);
            let what = format!("{} has one of the numbers {:?}", one.id, one.numbers);
            let state = sandbox.info()["state"].clone();
            if state == "paused" {
                sandbox.post("/resume", &json!({}));
            }
            let seen =
                wait_until(&what, LONG, || number(&sandbox).filter(|n| one.numbers.contains(n)));
            one.numbers = [seen].into();
        }
        let copies: Vec<_> =
            server.ids(&http).into_iter().filter(|id| !id.starts_with("original")).collect();
        for id in copies {
            let copy = server.named(&id);
            wait_until(&format!("copy {id} is complete"), LONG, || {
                // One that was being deleted may disappear.
                let gone = http.get(&copy.path("")).status == 404;
                // An image has no state of shells.
                let complete = if id.starts_with("image-") {
                    copy.post("/exec", &json!({"command": "true"})).status == 200
                } else {
                    let complete = number(&copy).is_some();
                    if !complete {
                        eprintln!("copy {id}: {:?}, {}", look(&copy), copy.info());
                    }
                    complete
                };
                (gone || complete).then_some(())
            });
            let _ = http.delete(&copy.path(""));
        }
        server.wait_until_tidy();
        let all = listed(&http);
        wait_until("each snapshot has its files, and nothing else is left", LONG, || {
            (server.snapshot_files().len() == all.len()).then_some(())
        });
        wait_until("no restore is under way", LONG, || {
            let under_way = std::fs::read_dir(server.data().join("restores"));
            (under_way.map_or(0, Iterator::count) == 0).then_some(())
        });
        for (id, sandbox, wanted) in all.iter().rev().take(restores) {
            let spec = json!({"snapshot": id, "snapshot_on_destroy": false});
            let copy = server.sandbox_with(&spec);
            let seen = number(&copy);
            assert!(
                seen.is_some() && wanted.is_none_or(|number| seen == Some(number)),
                "{id} of {sandbox}: {seen:?}"
            );
            copy.delete();
            self.restored += 1;
        }
    }

    /// Deletes all snapshots and sandboxes.
    pub(crate) fn end(&self, server: &Server) {
        let http = server.http();
        for id in server.ids(&http) {
            server.named(&id).delete();
        }
        for (id, ..) in listed(&http) {
            http.delete(&format!("/v1/snapshots/{id}")).expect(200);
        }
    }
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done: usize = self.originals.iter().map(|one| one.done).sum();
        write!(f, "{done} operations, {} checks, {} snapshots restored", self.checks, self.restored)
    }
}
