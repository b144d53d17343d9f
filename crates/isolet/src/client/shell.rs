//! `isolet shell`: runs commands in one persistent shell. At a terminal it sends command by command;
//! from a pipe or a file it sends the whole script, so that constructs over several lines work.

mod bash_syntax;
mod history;
mod line_editor;
mod shell_client;

use super::output::{self, supports_color};
use super::socket::{ShellFrame, ShellSocket};
use super::{ApiClient, EXIT_CLIENT_ERROR, id, to_exit_code};
use crate::client::args::complete;
use anyhow::{Context, Result, bail};
use clap::Parser;
use line_editor::{LineEditor, Typed};
use shell_client::{ShellClient, WaitOutcome};
use std::io::{BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// The longest script, in bytes: the limit of one command.
const SCRIPT_BYTES_MAX: u64 = 1024 * 1024;
/// The longest script as a JSON string, where quotes and newlines count twice: the limit of one message,
/// minus the rest of the frame.
const JSON_BYTES_MAX: usize = 2 * 1024 * 1024 - 1024;

/// Arguments of `isolet shell`.
#[derive(Parser)]
#[command(after_help = "\
Ctrl-C interrupts the running command, Ctrl-D exits. Without --session, the shell ends when you exit; a
session keeps its directory, variables and jobs. At a terminal, lines can be edited, and the arrow keys and
Ctrl-R find earlier commands. They are stored in ~/.local/state/isolet/shell_history, without those that
begin with a space; ISOLET_SHELL_HISTORY names another file, or none if it is empty.
Exits with the exit code of the last command, or with 125 if the server or this program refused.

  isolet shell demo
  isolet shell demo --session work      keep the directory, variables and jobs
  isolet shell demo <script.sh          run a script (at most 1 MiB), exit with its exit code")]
pub(crate) struct Args {
    /// Sandbox to use; created if it does not exist
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Use the shell of this session, which keeps running when you exit
    #[arg(long, short, value_parser = crate::client::session_id, add = complete::sessions())]
    session: Option<String>,
    /// Resume this shell after a lost connection
    #[arg(long, conflicts_with = "session")]
    resume: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let query = match (&args.session, &args.resume) {
        (Some(session), _) => format!("&session={session}"),
        (None, Some(resume)) => format!("&resume={resume}"),
        (None, None) => String::new(),
    };
    let typed = std::io::stdin().is_terminal();
    let script = if typed { String::new() } else { script(&args.id)? };
    let socket = ShellSocket::open(&server, &args.id, &query).await?;
    let person = typed && std::io::stderr().is_terminal();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut client = ShellClient::new(socket, args.id.clone(), args.session.is_none(), person);
    let ended = ended()?;
    let work = async {
        if !typed {
            return at_once(&mut client, &script, &mut interrupt).await;
        }
        let place = args.session.as_ref().map_or(args.id.clone(), |s| format!("{}/{s}", args.id));
        let prompts = person.then(|| Prompts::new(&args.id, &place));
        let input = Input::open(person)?;
        typing(&mut client, prompts, input, args.session.is_none(), &mut interrupt).await
    };
    let done = tokio::select! {
        done = work => done,
        code = ended => {
            client.leave().await;
            return Ok(to_exit_code(code));
        }
    };
    match done {
        Ok(Some(code)) => {
            client.socket.close().await;
            Ok(to_exit_code(code))
        }
        Ok(None) => Ok(client.report_lost()),
        Err(error) => {
            client.leave().await;
            Err(error)
        }
    }
}

/// Completes when a signal ends this program (`timeout`, a closed terminal), so that the command can be
/// cancelled. Returns the exit code.
fn ended() -> Result<impl Future<Output = i64>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => 128 + 15,
            _ = hangup.recv() => 128 + 1,
        }
    })
}

/// Reads all of standard input.
fn script(id: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut stdin = std::io::stdin().take(SCRIPT_BYTES_MAX + 1);
    stdin.read_to_end(&mut bytes).context("cannot read the script from standard input")?;
    let long = bytes.len() as u64 > SCRIPT_BYTES_MAX;
    let text = if long { Ok(String::new()) } else { String::from_utf8(bytes) };
    let text = text.ok().with_context(|| {
        format!(
            "the script is not UTF-8 text; pass it as input instead: isolet exec {id} --stdin bash"
        )
    })?;
    if long || serde_json::to_string(&text)?.len() > JSON_BYTES_MAX {
        bail!(
            "the script is larger than one command may be (1 MiB, or 2 MiB as JSON); write it into \
             the sandbox in parts (isolet exec {id} --stdin 'cat >>script.sh' <part) and run it \
             there (isolet exec {id} bash script.sh)"
        );
    }
    Ok(text)
}

/// Runs a script. Returns its exit code, or `None` if the connection was lost.
async fn at_once(
    client: &mut ShellClient,
    script: &str,
    interrupt: &mut Signal,
) -> Result<Option<i64>> {
    if script.trim().is_empty() {
        return Ok(Some(0));
    }
    Ok(match client.command(script, interrupt).await? {
        WaitOutcome::Code(code) => Some(code),
        WaitOutcome::Ended | WaitOutcome::Gone => Some(EXIT_CLIENT_ERROR.into()),
        WaitOutcome::Lost => None,
    })
}

/// The prompt of a command, with and without style.
struct Prompts {
    plain: String,
    styled: String,
}

impl Prompts {
    fn new(id: &str, place: &str) -> Self {
        let mut stderr = std::io::stderr();
        let _ =
            writeln!(stderr, "shell in sandbox {id}: Ctrl-C interrupts a command, Ctrl-D exits");
        let bold = supports_color(&stderr);
        let plain = format!("{place}$ ");
        let styled = if bold { format!("\x1b[1m{place}\x1b[0m$ ") } else { plain.clone() };
        Self { plain, styled }
    }
}

/// Where typed lines come from.
enum Input {
    /// An editor with a history.
    Edited(LineEditor),
    /// Standard input as it is.
    Plain(mpsc::Receiver<String>),
}

impl Input {
    /// Lines can be edited on a terminal that can move its cursor.
    fn open(person: bool) -> Result<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        if person && !dumb && std::io::stdout().is_terminal() {
            return LineEditor::start().map(Self::Edited);
        }
        Ok(Self::Plain(lines()))
    }

    /// Shows the prompt, or that of a further line of a command.
    fn ask(&mut self, prompts: &Prompts, more: bool, line_open: bool) {
        let (plain, styled) =
            if more { ("> ", "> ") } else { (prompts.plain.as_str(), prompts.styled.as_str()) };
        match self {
            Self::Plain(_) => {
                let _ = write!(std::io::stderr(), "{styled}");
            }
            Self::Edited(editor) => {
                // The editor would draw over output without an end of line.
                if line_open {
                    let _ = writeln!(std::io::stdout());
                }
                editor.ask(plain, styled);
            }
        }
    }

    /// The next line. Cancel safe.
    async fn next(&mut self) -> Typed {
        match self {
            Self::Plain(lines) => lines.recv().await.map_or(Typed::End, Typed::Line),
            Self::Edited(editor) => editor.next().await,
        }
    }

    /// Shows output that arrives while a line is typed.
    fn print(&mut self, out: bool, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Plain(_) => output::write(out, bytes),
            Self::Edited(editor) => editor.print(out, bytes),
        }
    }

    fn remember(&self, command: &str) {
        if let Self::Edited(editor) = self {
            editor.remember(command);
        }
    }
}

/// Lines of standard input. A separate thread reads them, because a read of a terminal blocks.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut line = Vec::new();
        while matches!(stdin.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.blocking_send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// Runs typed commands until the end of input. Returns the last exit code, or `None` if the connection was lost.
async fn typing(
    client: &mut ShellClient,
    prompts: Option<Prompts>,
    mut input: Input,
    private: bool,
    interrupt: &mut Signal,
) -> Result<Option<i64>> {
    let mut code = 0;
    let mut text = String::new();
    let mut asked = false;
    loop {
        if let Some(prompts) = prompts.as_ref().filter(|_| !asked) {
            input.ask(prompts, !text.is_empty(), client.line_open());
        }
        asked = false;
        let line = tokio::select! {
            typed = input.next() => match typed {
                Typed::Line(line) => Some(line),
                Typed::End => None,
                Typed::Interrupted => {
                    text.clear();
                    continue;
                }
            },
            _ = interrupt.recv() => {
                let _ = writeln!(std::io::stderr());
                text.clear();
                continue;
            }
            frame = client.socket.next() => {
                if let ShellFrame::Data { stream, bytes, .. } = &frame {
                    input.print(*stream == 1, bytes)?;
                    asked = true;
                    continue;
                }
                match client.handle_frame(frame, None)? {
                    None => { asked = true; continue }
                    Some(WaitOutcome::Lost) => return Ok(None),
                    Some(WaitOutcome::Gone) => return Ok(Some(EXIT_CLIENT_ERROR.into())),
                    Some(_) if private => return Ok(Some(code)),
                    Some(_) => continue,
                }
            }
        };
        let last = line.is_none();
        text.push_str(&line.unwrap_or_default());
        if text.trim().is_empty() {
            text.clear();
        } else if last
            || text.len() as u64 > SCRIPT_BYTES_MAX
            || bash_syntax::is_complete(text.strip_suffix('\n').unwrap_or(&text))
        {
            let command = text.trim_end_matches('\n');
            input.remember(command);
            match client.command(command, interrupt).await? {
                WaitOutcome::Code(new) => code = new,
                WaitOutcome::Ended if private => return Ok(Some(code)),
                WaitOutcome::Ended => {}
                WaitOutcome::Gone => return Ok(Some(EXIT_CLIENT_ERROR.into())),
                WaitOutcome::Lost => return Ok(None),
            }
            text.clear();
        }
        if last {
            if prompts.is_some() {
                let _ = writeln!(std::io::stderr());
            }
            return Ok(Some(code));
        }
    }
}
