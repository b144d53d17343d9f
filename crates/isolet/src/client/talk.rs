//! A conversation with one shell: commands go out one by one, what they say is written on.

use super::{
    OWN,
    network::refusals,
    refused::Refused,
    socket::{Frame, Socket},
    speak::{plain, say, write},
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
pub(super) struct Talk {
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

impl Talk {
    /// With a shell of sandbox `id`.
    pub(super) fn new(socket: Socket, id: String, private: bool, person: bool) -> Self {
        Self { socket, commands: 0, running: false, private, person, id }
    }

    /// Says how to come back.
    pub(super) fn lost(&self) -> ExitCode {
        let (id, shell) = (&self.id, &self.socket.shell);
        say(format_args!("the connection is lost; go on with: isolet shell {id} --resume {shell}"));
        ExitCode::from(OWN)
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
                        Frame::Said(said) if said["type"] == "shell_exit" && said["id"] == id => {
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
                    if let Some(outcome) = self.heard(frame, Some(&id))? {
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
    pub(super) fn heard(&self, frame: Frame, id: Option<&str>) -> Result<Option<Outcome>> {
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
                    say(plain(&reason));
                }
                return Ok(Some(Outcome::Lost));
            }
            Frame::Said(said) => said,
        };
        match said["type"].as_str().unwrap_or_default() {
            "shell_exit" if said["id"].as_str() == id => {
                let code = said["code"].as_i64().unwrap_or(1);
                refusals(&said, &self.id);
                self.note(&said, code);
                return Ok(Some(Outcome::Code(code)));
            }
            "shell_error" => {
                say(Refused::read(&said, &self.id));
                return Ok(id.map(|_| Outcome::Code(OWN.into())));
            }
            "shell_gap" => say("output was not read in time and is lost"),
            "shell_closed" if said["error"].is_string() => {
                let cause = plain(said["cause"].as_str().unwrap_or_default());
                say(format_args!("the shell has ended: {cause}"));
                return Ok(Some(Outcome::Gone));
            }
            "shell_closed" => {
                let how = match (said["code"].as_i64(), said["signal"].as_i64()) {
                    (Some(code), _) => format!("exit {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => plain(said["cause"].as_str().unwrap_or_default()),
                };
                let next = if self.private { "" } else { "; the next command opens a fresh one" };
                say(format_args!("the shell has ended ({how}){next}"));
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
            say("this was a fresh shell; the one before had ended");
        }
        if code != 0 {
            let _ = writeln!(std::io::stderr(), "[exit {code}]");
        }
    }
}
