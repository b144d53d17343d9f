//! `isolet shell`: line by line, each a command of one shell that stays.

use super::{
    Server,
    exec::write,
    exit, id,
    socket::{Frame, Socket},
};
use anyhow::Result;
use clap::Parser;
use serde_json::{Value, json};
use std::{
    io::{BufRead, IsTerminal, Write},
    process::ExitCode,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

/// Flags of `isolet shell`.
#[derive(Parser)]
#[command(after_help = "\
Ctrl-C ends the running command, Ctrl-D leaves. Without --session the shell ends when you leave.

  isolet shell demo
  isolet shell demo --session work      its directory, variables and jobs stay
  isolet shell demo <script.sh          line by line; ends with the last exit code")]
pub(crate) struct Args {
    /// Which sandbox; made where it is not there
    #[arg(value_parser = id)]
    id: String,
    /// A session's shell, which stays when you leave
    #[arg(long, short, value_parser = id)]
    session: Option<String>,
    /// A shell that lost its connection, as it was named then
    #[arg(long, conflicts_with = "session")]
    resume: Option<String>,
}

/// What a wait for a command or a line brought.
enum Outcome {
    Code(i64),
    Ended,
    Lost,
}

struct Talk {
    socket: Socket,
    prompt: Option<String>,
    commands: u64,
    /// The shell is this client's own: when it ends, nothing is left to talk to.
    private: bool,
    id: String,
}

/// Carries out `isolet shell`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = Server::find()?;
    let query = match (&args.session, &args.resume) {
        (Some(session), _) => format!("&session={session}"),
        (None, Some(resume)) => format!("&resume={resume}"),
        (None, None) => String::new(),
    };
    let socket = Socket::open(&server, &args.id, &query).await?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let place = args.session.as_ref().map_or(args.id.clone(), |s| format!("{}/{s}", args.id));
    let prompt = terminal.then(|| format!("\x1b[1m{place}\x1b[0m$ "));
    if terminal {
        eprintln!("a shell in sandbox {}: Ctrl-C ends a command, Ctrl-D leaves", args.id);
    }
    let talk = Talk { socket, prompt, commands: 0, private: args.session.is_none(), id: args.id };
    talk.run().await
}

/// Lines of standard input, read by a thread of their own: a terminal cannot be waited for.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut line = Vec::new();
        while matches!(stdin.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&line);
            let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
            if sender.blocking_send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

impl Talk {
    async fn run(mut self) -> Result<ExitCode> {
        let mut lines = lines();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut code = 0;
        loop {
            self.ask();
            let line = tokio::select! {
                line = lines.recv() => line,
                _ = interrupt.recv(), if self.prompt.is_some() => {
                    println!();
                    continue;
                }
                frame = self.socket.next() => match self.heard(frame, None)? {
                    None => continue,
                    Some(Outcome::Lost) => return Ok(self.lost()),
                    Some(_) if self.private => return Ok(exit(code)),
                    Some(_) => continue,
                },
            };
            let Some(line) = line else { break };
            if line.trim().is_empty() {
                continue;
            }
            match self.command(&line, &mut interrupt).await? {
                Outcome::Code(new) => code = new,
                Outcome::Ended if self.private => return Ok(exit(code)),
                Outcome::Ended => {}
                Outcome::Lost => return Ok(self.lost()),
            }
        }
        if self.prompt.is_some() {
            println!();
        }
        self.socket.close().await;
        Ok(exit(code))
    }

    fn ask(&self) {
        if let Some(prompt) = &self.prompt {
            print!("{prompt}");
            let _ = std::io::stdout().flush();
        }
    }

    fn lost(&self) -> ExitCode {
        let (id, shell) = (&self.id, &self.socket.shell);
        eprintln!("isolet: the connection is lost; go on with: isolet shell {id} --resume {shell}");
        ExitCode::FAILURE
    }

    /// Runs one command to its end.
    async fn command(&mut self, line: &str, interrupt: &mut Signal) -> Result<Outcome> {
        self.commands += 1;
        let id = format!("c{}", self.commands);
        let sent = self.socket.send(&json!({"type": "shell_run", "id": id, "command": line})).await;
        if sent.is_err() {
            return Ok(Outcome::Lost);
        }
        loop {
            tokio::select! {
                frame = self.socket.next() => {
                    if let Some(outcome) = self.heard(frame, Some(&id))? {
                        return Ok(outcome);
                    }
                }
                _ = interrupt.recv() => {
                    self.socket.send(&json!({"type": "shell_cancel", "id": id})).await?;
                }
            }
        }
    }

    /// Shows one frame; says when the wait is over.
    fn heard(&self, frame: Frame, id: Option<&str>) -> Result<Option<Outcome>> {
        let said = match frame {
            Frame::Data { stream, bytes, .. } => {
                write(stream == 1, &bytes)?;
                return Ok(None);
            }
            Frame::Closed(reason) if reason == "the shell has ended" => {
                return Ok(Some(Outcome::Ended));
            }
            Frame::Closed(reason) => {
                if !reason.is_empty() {
                    eprintln!("isolet: {}", super::plain(&reason));
                }
                return Ok(Some(Outcome::Lost));
            }
            Frame::Said(said) => said,
        };
        match said["type"].as_str().unwrap_or_default() {
            "shell_exit" if said["id"].as_str() == id => {
                let code = said["code"].as_i64().unwrap_or(1);
                self.note(&said, code);
                return Ok(Some(Outcome::Code(code)));
            }
            "shell_error" => {
                eprintln!("isolet: {} ({})", text(&said["message"]), text(&said["hint"]));
                return Ok(id.map(|_| Outcome::Code(1)));
            }
            "shell_gap" => eprintln!("isolet: output was not read in time and is lost"),
            "shell_closed" => {
                let how = match (said["code"].as_i64(), said["signal"].as_i64()) {
                    (Some(code), _) => format!("exit {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => text(&said["cause"]),
                };
                let next = if self.private { "" } else { "; the next command opens a fresh one" };
                eprintln!("isolet: the shell has ended ({how}){next}");
                if id.is_none() && self.private {
                    return Ok(Some(Outcome::Ended));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn note(&self, said: &Value, code: i64) {
        if self.prompt.is_none() {
            return;
        }
        if said["fresh"] == true {
            eprintln!("isolet: this was a fresh shell; the one before had ended");
        }
        if code != 0 {
            eprintln!("[exit {code}]");
        }
    }
}

fn text(value: &Value) -> String {
    super::plain(value.as_str().unwrap_or_default())
}
