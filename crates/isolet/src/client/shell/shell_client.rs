//! A client of one shell: sends commands one by one and writes their output.

use crate::client::EXIT_CLIENT_ERROR;
use crate::client::network::refusals;
use crate::client::output::{print_message, sanitize, write};
use crate::client::server_error::ServerError;
use crate::client::socket::{ShellFrame, ShellSocket};
use anyhow::Result;
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::Signal;
use tokio::time::timeout;

/// How long the server may take to confirm a cancel after the output was closed.
const LEAVE: Duration = Duration::from_secs(1);

/// Close reasons of a shell whose session or sandbox was deleted, or was put to sleep by force.
const GONE: [&str; 3] = ["sandbox_destroyed", "sandbox_slept", "session_ended"];

/// The result of waiting for a command or a line.
pub(in crate::client) enum WaitOutcome {
    /// The command's exit code.
    Code(i64),
    /// The shell ended. The next command of a session opens a new one.
    Ended,
    /// The shell ended with its session or sandbox; it cannot be continued.
    Gone,
    /// The connection was lost.
    Lost,
}

/// A client of one shell.
pub(in crate::client) struct ShellClient {
    pub(in crate::client) socket: ShellSocket,
    /// The number of sent commands, and whether the last one is running.
    commands: u64,
    running: bool,
    /// The shell belongs to this client alone, so the client ends with it.
    private: bool,
    /// Output goes to a terminal.
    person: bool,
    /// The id of the sandbox.
    id: String,
    /// The last output on this terminal did not end its line.
    line_open: Cell<bool>,
}

impl ShellClient {
    /// A client of a shell in sandbox `id`.
    pub(in crate::client) fn new(
        socket: ShellSocket,
        id: String,
        private: bool,
        person: bool,
    ) -> Self {
        Self {
            socket,
            commands: 0,
            running: false,
            private,
            person,
            id,
            line_open: Cell::new(false),
        }
    }

    /// Whether the cursor is behind output without an end of line. Asking again answers no.
    pub(in crate::client) fn line_open(&self) -> bool {
        self.line_open.take()
    }

    /// Prints the command that resumes the shell.
    pub(in crate::client) fn report_lost(&self) -> ExitCode {
        let id = &self.id;
        let shell = &self.socket.shell;
        print_message(format_args!(
            "connection lost; resume with: isolet shell {id} --resume {shell}"
        ));
        ExitCode::from(EXIT_CLIENT_ERROR)
    }

    /// Cancels the running command and leaves, because the output was closed or a signal ended this program.
    pub(in crate::client) async fn leave(mut self) {
        let id = format!("c{}", self.commands);
        let gone = async {
            if self.running {
                let _ = self.socket.send(&json!({"type": "shell_cancel", "id": id})).await;
                // Closing a socket with unread output resets it, and the server would not
                // read the cancel.
                loop {
                    match self.socket.next().await {
                        ShellFrame::Json(said)
                            if said["type"] == "shell_exit" && said["id"] == id =>
                        {
                            break;
                        }
                        ShellFrame::Closed(_) => break,
                        _ => {}
                    }
                }
            }
            self.socket.close().await;
        };
        let _ = timeout(LEAVE, gone).await;
    }

    /// Runs one command to its end.
    pub(in crate::client) async fn command(
        &mut self,
        text: &str,
        interrupt: &mut Signal,
    ) -> Result<WaitOutcome> {
        self.commands += 1;
        let id = format!("c{}", self.commands);
        let sent = self.socket.send(&json!({"type": "shell_run", "id": id, "command": text})).await;
        if sent.is_err() {
            return Ok(WaitOutcome::Lost);
        }
        self.running = true;
        loop {
            tokio::select! {
                frame = self.socket.next() => {
                    if let Some(outcome) = self.handle_frame(frame, Some(&id))? {
                        self.running = false;
                        return Ok(outcome);
                    }
                }
                _ = interrupt.recv() => {
                    let cancel = json!({"type": "shell_cancel", "id": id});
                    if self.socket.send(&cancel).await.is_err() {
                        return Ok(WaitOutcome::Lost);
                    }
                }
            }
        }
    }

    /// Shows a frame. Returns the result if it ends the wait.
    pub(in crate::client) fn handle_frame(
        &self,
        frame: ShellFrame,
        id: Option<&str>,
    ) -> Result<Option<WaitOutcome>> {
        let said = match frame {
            ShellFrame::Data { stream, bytes, .. } => {
                write(stream == 1, &bytes)?;
                self.line_open.set(bytes.last().is_some_and(|last| *last != b'\n'));
                return Ok(None);
            }
            ShellFrame::Closed(reason) if reason == "the shell has ended" => {
                return Ok(Some(WaitOutcome::Ended));
            }
            ShellFrame::Closed(reason) if GONE.contains(&reason.as_str()) => {
                return Ok(Some(WaitOutcome::Gone));
            }
            ShellFrame::Closed(reason) => {
                if !reason.is_empty() {
                    print_message(sanitize(&reason));
                }
                return Ok(Some(WaitOutcome::Lost));
            }
            ShellFrame::Json(said) => said,
        };
        match said["type"].as_str().unwrap_or_default() {
            "shell_exit" if said["id"].as_str() == id => {
                let code = said["code"].as_i64().unwrap_or(1);
                refusals(&said, &self.id);
                if said["timed_out"] == true {
                    print_message("the command timed out");
                }
                self.note(&said, code);
                return Ok(Some(WaitOutcome::Code(code)));
            }
            "shell_error" => {
                print_message(ServerError::from_event(&said, &self.id));
                return Ok(id.map(|_| WaitOutcome::Code(EXIT_CLIENT_ERROR.into())));
            }
            "shell_gap" => print_message("output was lost because it was not read in time"),
            "shell_closed" if said["error"].is_string() => {
                let cause = sanitize(said["cause"].as_str().unwrap_or_default());
                print_message(format_args!("the shell ended: {cause}"));
                return Ok(Some(WaitOutcome::Gone));
            }
            "shell_closed" => {
                let how = match (said["code"].as_i64(), said["signal"].as_i64()) {
                    (Some(code), _) => format!("exit {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => sanitize(said["cause"].as_str().unwrap_or_default()),
                };
                let next = if self.private { "" } else { "; the next command opens a new one" };
                print_message(format_args!("the shell ended ({how}){next}"));
                if id.is_none() && self.private {
                    return Ok(Some(WaitOutcome::Ended));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn note(&self, said: &Value, code: i64) {
        if !self.person {
            return;
        }
        if said["fresh"] == true {
            print_message("this command ran in a new shell, because the previous one had ended");
        }
        if code != 0 {
            let open = if self.line_open.take() { "\n" } else { "" };
            let _ = writeln!(std::io::stderr(), "{open}[exit {code}]");
        }
    }
}
