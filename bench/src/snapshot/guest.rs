//! The sandbox that is copied.

use super::Data;
use crate::http::HttpClient;
use crate::server::BenchServer;
use anyhow::{Context, Result, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long preparing the data may take, in milliseconds.
const PREPARE_MS: u64 = 300_000;
/// How long a sandbox may refuse to sleep after its last use.
const DOZE: Duration = Duration::from_secs(20);
/// A program that changes 50 files of 100 KB again and again, a hundred times a second.
const WRITER: &str = "while :; do for i in {1..50}; do head -c 100000 /dev/urandom >/workspace/w$i; sleep 0.01; done; done";
const ID: &str = "copied";

pub(crate) struct Guest {
    pub(crate) client: HttpClient,
}

impl Guest {
    /// Creates a sandbox with data.
    pub(crate) fn create(server: &BenchServer, data: &Data) -> Result<Self> {
        let mut guest = Self { client: HttpClient::connect(server)? };
        guest.call(Method::POST, "/v1/sandboxes", &json!({"id": ID, "sleep_after_s": 0}))?;
        guest.run(&data.script(data.folder))?;
        Ok(guest)
    }

    fn call(&mut self, method: Method, path: &str, body: &Value) -> Result<Value> {
        self.client.call(method, path, Some(body))
    }

    fn own(&mut self, rest: &str, body: &Value) -> Result<Value> {
        self.call(Method::POST, &format!("/v1/sandboxes/{ID}/{rest}"), body)
    }

    fn run(&mut self, command: &str) -> Result<()> {
        let answer = self.own("exec", &json!({"command": command, "timeout_ms": PREPARE_MS}))?;
        ensure!(answer["exit_code"] == 0, "{command}: {answer}");
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.run("sync")
    }

    /// Starts or ends a program that writes.
    pub(crate) fn write(&mut self, start: bool) -> Result<()> {
        if start {
            self.own("processes", &json!({"id": "writer", "command": WRITER}))?;
            return self.run("until [ -e /workspace/w2 ]; do sleep 0.01; done");
        }
        let path = format!("/v1/sandboxes/{ID}/processes/writer");
        self.client.call(Method::DELETE, &path, None)?;
        self.run("rm -f /workspace/w*; sync")
    }

    pub(crate) fn sleep(&mut self) -> Result<()> {
        let until = Instant::now() + DOZE;
        while let Err(error) = self.own("sleep", &json!({})) {
            if Instant::now() > until {
                bail!("it does not sleep: {error}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(crate) fn wake(&mut self) -> Result<()> {
        self.run("true")
    }

    pub(crate) fn snapshot(&mut self) -> Result<Value> {
        self.own("snapshots", &json!({}))
    }

    pub(crate) fn remove_snapshot(&mut self, taken: &Value) -> Result<()> {
        let path = format!("/v1/snapshots/{}", id_of(taken)?);
        self.client.call(Method::DELETE, &path, None).map(drop)
    }

    /// Creates another sandbox. Returns its id.
    pub(crate) fn create_other(&mut self, spec: &Value) -> Result<String> {
        id_of(&self.call(Method::POST, "/v1/sandboxes", spec)?)
    }

    /// Returns the ids of the forks.
    pub(crate) fn fork(&mut self, count: usize) -> Result<Vec<String>> {
        let forked = self.own("fork", &json!({"count": count}))?;
        forked["forks"].as_array().context("a list")?.iter().map(id_of).collect()
    }

    pub(crate) fn delete(mut self) -> Result<()> {
        self.client.delete(ID)
    }
}

pub(crate) fn id_of(answer: &Value) -> Result<String> {
    Ok(answer["id"].as_str().with_context(|| format!("no id: {answer}"))?.to_owned())
}
