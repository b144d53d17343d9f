//! One sandbox, seen by one client.

use crate::{Http, Outcome, Reply, Shell, Start, Value, json};

/// A sandbox of a [`crate::Server`].
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Who speaks.
    pub http: Http,
}

impl Sandbox {
    /// `/v1/sandboxes/{id}` and what follows it.
    #[must_use]
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.id)
    }

    /// POST below its path.
    #[track_caller]
    pub fn post(&self, rest: &str, body: &Value) -> Reply {
        self.http.post(&self.path(rest), body)
    }

    /// A command line without a shell behind it; the answer's JSON.
    #[track_caller]
    pub fn exec(&self, command: &str) -> Value {
        self.post("/exec", &json!({ "command": command })).expect(200).json()
    }

    /// What a command line wrote to standard output.
    #[track_caller]
    pub fn says(&self, command: &str) -> String {
        self.exec(command)["stdout"].as_str().unwrap_or_default().to_owned()
    }

    /// One command in a session's shell by HTTP; the answer's JSON.
    #[track_caller]
    pub fn command(&self, session: &str, command: &str) -> Value {
        self.post(&format!("/sessions/{session}/exec"), &json!({ "command": command }))
            .expect(200)
            .json()
    }

    /// A shell of this client's own.
    #[track_caller]
    #[must_use]
    pub fn shell(&self) -> Shell {
        self.open("")
    }

    /// A client of a session's shell.
    #[track_caller]
    #[must_use]
    pub fn session(&self, session: &str) -> Shell {
        self.open(&format!("session={session}"))
    }

    /// A shell by its query.
    #[track_caller]
    #[must_use]
    pub fn open(&self, query: &str) -> Shell {
        match self.try_open(query) {
            Ok(shell) => shell,
            Err(status) => panic!("shell of {} with {query:?}: status {status}", self.id),
        }
    }

    /// A shell by its query, or the status of the refusal.
    ///
    /// # Errors
    /// The status; 0 where there was no answer.
    pub fn try_open(&self, query: &str) -> Result<Shell, u16> {
        let mark = if query.is_empty() { "" } else { "?" };
        Shell::open(&self.http, &self.path(&format!("/shell{mark}{query}")))
    }

    /// One command in a new private shell.
    #[track_caller]
    pub fn run(&self, text: &str) -> Outcome {
        self.shell().run(text)
    }

    /// One command with its fields in a new private shell.
    #[track_caller]
    pub fn run_with(&self, start: Start) -> Outcome {
        self.shell().run_with(start)
    }

    /// What is known of it.
    #[track_caller]
    #[must_use]
    pub fn info(&self) -> Value {
        self.http.get(&self.path("")).expect(200).json()
    }

    /// Ends it.
    #[track_caller]
    pub fn delete(&self) {
        let reply = self.http.delete(&self.path(""));
        assert!(matches!(reply.status, 200 | 204), "{}: {}", reply.status, reply.text());
    }
}
