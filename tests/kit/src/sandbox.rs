//! One sandbox as one client sees it.

use crate::{Http, LONG, Outcome, Reply, Shell, Start, Value, json, wait_until};

/// A sandbox of a [`crate::Server`] and a client for it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// The id, as it appears in paths.
    pub id: String,
    /// The client that calls the server.
    pub http: Http,
}

impl Sandbox {
    /// The path `/v1/sandboxes/{id}` followed by `rest`.
    #[must_use]
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.id)
    }

    /// Sends a POST request below the sandbox's path.
    #[track_caller]
    pub fn post(&self, rest: &str, body: &Value) -> Reply {
        self.http.post(&self.path(rest), body)
    }

    /// Runs a command line through `exec` and returns the answer's JSON.
    #[track_caller]
    pub fn exec(&self, command: &str) -> Value {
        self.post("/exec", &json!({ "command": command })).expect(200).json()
    }

    /// Runs a command line through `exec` and returns its standard output.
    #[track_caller]
    pub fn says(&self, command: &str) -> String {
        self.exec(command)["stdout"].as_str().unwrap_or_default().to_owned()
    }

    /// Runs one command in a session's shell over HTTP and returns the answer's JSON.
    #[track_caller]
    pub fn command(&self, session: &str, command: &str) -> Value {
        self.post(&format!("/sessions/{session}/exec"), &json!({ "command": command }))
            .expect(200)
            .json()
    }

    /// Opens a private shell for this client.
    #[track_caller]
    #[must_use]
    pub fn shell(&self) -> Shell {
        self.open("")
    }

    /// Attaches to a session's shell.
    #[track_caller]
    #[must_use]
    pub fn session(&self, session: &str) -> Shell {
        self.open(&format!("session={session}"))
    }

    /// Opens a shell with this query string.
    #[track_caller]
    #[must_use]
    pub fn open(&self, query: &str) -> Shell {
        match self.try_open(query) {
            Ok(shell) => shell,
            Err(status) => panic!("shell of {} with {query:?}: status {status}", self.id),
        }
    }

    /// Opens a shell with this query string.
    ///
    /// # Errors
    /// The status of a refusal; 0 without an answer.
    pub fn try_open(&self, query: &str) -> Result<Shell, u16> {
        let mark = if query.is_empty() { "" } else { "?" };
        Shell::open(&self.http, &self.path(&format!("/shell{mark}{query}")))
    }

    /// Runs one command in a new private shell.
    #[track_caller]
    pub fn run(&self, text: &str) -> Outcome {
        self.shell().run(text)
    }

    /// Runs one command with further fields in a new private shell.
    #[track_caller]
    pub fn run_with(&self, start: Start) -> Outcome {
        self.shell().run_with(start)
    }

    /// The record that `GET /v1/sandboxes/{id}` answers.
    #[track_caller]
    #[must_use]
    pub fn info(&self) -> Value {
        self.http.get(&self.path("")).expect(200).json()
    }

    /// Deletes the sandbox through the API, again if the server says that it needs more time: while a
    /// disk is busy, a process that was killed ends late.
    #[track_caller]
    pub fn delete(&self) {
        let mut is_late = false;
        wait_until("the sandbox is deleted", LONG, || {
            let reply = self.http.delete(&self.path(""));
            if reply.status == 504 {
                is_late = true;
                return None;
            }
            let is_gone = matches!(reply.status, 200 | 204) || (is_late && reply.status == 404);
            assert!(is_gone, "{}: {}", reply.status, reply.text());
            Some(())
        });
    }
}
