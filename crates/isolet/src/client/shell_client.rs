//! A client of one shell: sends commands one by one, and writes their output.

use super::{
    EXIT_CLIENT_ERROR,
    network::refusals,
    output::{print_message, sanitize, write},
    server_error::ServerError,
    socket::{Frame, Socket},
};
use anyhow::Result;
use serde_json::{Value, json};
use std::{io::Write, process::ExitCode, time::Duration};
use tokio::{signal::unix::Signal, time::timeout};

/// How long a shell that nobody reads any more may take to let go.
const LEAVE: Duration = Duration::from_secs(1);

/// Why the server closes the connection of a shell that has ended with what it belonged to.
const GONE: [&str; 2] = ["sandbox_destroyed", "session_ended"];

/// What a wait for a command or a line brought.
pub(super) enum Outcome {
    /// The command's exit code.
    Code(i64),
    /// The shell has ended. A session's next command opens a fresh one.
    Ended,
    /// The shell has ended with its session or sandbox: there is nothing to go on with.
    Gone,
    /// The connection is lost.
    Lost,
}

/// A client of one shell.
pub(super) struct ShellClient {
    /// The shell.
    pub(super) socket: Socket,
    /// How many commands were sent, and whether the last of them runs.
    commands: u64,
    running: bool,
    /// The shell is this client's own: when it ends, nothing is left to talk to.
    private: bool,
    /// A person reads what is said.
    person: bool,
    /// Which sandbox.
    id: String,
}

impl ShellClient {
    /// With a shell of sandbox `id`.
    pub(super) fn new(socket: Socket, id: String, private: bool, person: bool) -> Self {
        Self { socket, commands: 0, running: false, private, person, id }
    }

    /// Says how to come back.
    pub(super) fn report_lost(&self) -> ExitCode {
        let id = &self.id;
        let shell = &self.socket.shell;
        print_message(format_args!(
            "the connection is lost; go on with: isolet shell {id} --resume {shell}"
        ));
        ExitCode::from(EXIT_CLIENT_ERROR)
    }

    /// Leaves in the middle, because nobody reads or this program is to end: what runs is cancelled.
    pub(super) async fn leave(mut self) {
        let id = format!("c{}", self.commands);
        let gone = async {
            if self.running {
                let _ = self.socket.send(&json!({"type": "shell_cancel", "id": id})).await;
                // A socket that is closed with output unread is reset, and the server would not
                // read the cancel.
                loop {
                    match self.socket.next().await {
                        Frame::Json(said) if said["type"] == "shell_exit" && said["id"] == id => {
                            break;
                        }
                        Frame::Closed(_) => break,
                        _ => {}
                    }
                }
            }
            self.socket.close().await;
        };
        let _ = timeout(LEAVE, gone).await;
    }

    /// Runs one command to its end.
    pub(super) async fn command(&mut self, text: &str, interrupt: &mut Signal) -> Result<Outcome> {
        self.commands += 1;
        let id = format!("c{}", self.commands);
        let sent = self.socket.send(&json!({"type": "shell_run", "id": id, "command": text})).await;
        if sent.is_err() {
            return Ok(Outcome::Lost);
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
                        return Ok(Outcome::Lost);
                    }
                }
            }
        }
    }

    /// Shows one frame; says when the wait is over.
    pub(super) fn handle_frame(&self, frame: Frame, id: Option<&str>) -> Result<Option<Outcome>> {
        let said = match frame {
            Frame::Data { stream, bytes, .. } => {
                write(stream == 1, &bytes)?;
                return Ok(None);
            }
            Frame::Closed(reason) if reason == "the shell has ended" => {
                return Ok(Some(Outcome::Ended));
            }
            Frame::Closed(reason) if GONE.contains(&reason.as_str()) => {
                return Ok(Some(Outcome::Gone));
            }
            Frame::Closed(reason) => {
                if !reason.is_empty() {
                    print_message(sanitize(&reason));
                }
                return Ok(Some(Outcome::Lost));
            }
            Frame::Json(said) => said,
        };
        match said["type"].as_str().unwrap_or_default() {
            "shell_exit" if said["id"].as_str() == id => {
                let code = said["code"].as_i64().unwrap_or(1);
                refusals(&said, &self.id);
                self.note(&said, code);
                return Ok(Some(Outcome::Code(code)));
            }
            "shell_error" => {
                print_message(ServerError::from_event(&said, &self.id));
                return Ok(id.map(|_| Outcome::Code(EXIT_CLIENT_ERROR.into())));
            }
            "shell_gap" => print_message("output was not read in time and is lost"),
            "shell_closed" if said["error"].is_string() => {
                let cause = sanitize(said["cause"].as_str().unwrap_or_default());
                print_message(format_args!("the shell has ended: {cause}"));
                return Ok(Some(Outcome::Gone));
            }
            "shell_closed" => {
                let how = match (said["code"].as_i64(), said["signal"].as_i64()) {
                    (Some(code), _) => format!("exit {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => sanitize(said["cause"].as_str().unwrap_or_default()),
                };
                let next = if self.private { "" } else { "; the next command opens a fresh one" };
                print_message(format_args!("the shell has ended ({how}){next}"));
                if id.is_none() && self.private {
                    return Ok(Some(Outcome::Ended));
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
            print_message("this was a fresh shell; the one before had ended");
        }
        if code != 0 {
            let _ = writeln!(std::io::stderr(), "[exit {code}]");
        }
    }
}
