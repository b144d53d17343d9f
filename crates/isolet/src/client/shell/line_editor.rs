//! Line editing and history at a terminal. The editor blocks, so a thread of its own runs it.

use super::history::{self, ENTRIES_MAX, ENTRY_BYTES_MAX};
use crate::client::output::{print_message, write};
use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::{ReadlineError, Signal};
use rustyline::history::FileHistory;
use rustyline::{Config, Editor, ExternalPrinter};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::mpsc;

/// How many requests wait for the thread.
const REQUESTS_MAX: usize = 4;

/// Shows text above the line that is being typed.
type Printer = Box<dyn ExternalPrinter + Send>;

/// What a person typed.
pub(super) enum Typed {
    /// A line, with its end.
    Line(String),
    /// Ctrl-C: the text so far is dropped.
    Interrupted,
    /// Ctrl-D, or the terminal has gone.
    End,
}

/// A request to the thread of the editor.
enum Request {
    /// Read a line behind a prompt.
    Read {
        /// The prompt without style.
        plain: String,
        /// The same characters with style.
        styled: String,
    },
    /// Remember a command.
    Remember(String),
}

/// The editor of the terminal. Dropping it restores the modes of the terminal, also while a line is read.
pub(super) struct LineEditor {
    requests: SyncSender<Request>,
    typed: mpsc::Receiver<Typed>,
    printer: Option<Printer>,
    reading: bool,
    modes: Termios,
}

impl LineEditor {
    /// Starts the thread.
    ///
    /// # Errors
    /// When standard input is no terminal.
    pub(super) fn start() -> Result<Self> {
        let modes = tcgetattr(std::io::stdin()).context("cannot read the terminal's settings")?;
        let (requests, receiver) = sync_channel(REQUESTS_MAX);
        let (sender, typed) = mpsc::channel(1);
        let (made, printers) = sync_channel(1);
        std::thread::spawn(move || match editor() {
            Ok((mut editor, file)) => {
                let printer = editor.create_external_printer().ok();
                let _ = made.send(Ok(printer.map(|printer| Box::new(printer) as Printer)));
                edit(editor, file, &receiver, &sender);
            }
            Err(error) => drop(made.send(Err(error))),
        });
        let printer = printers.recv().context("the line editor has ended")??;
        Ok(Self { requests, typed, printer, reading: false, modes })
    }

    /// Asks for a line, if none is being read.
    pub(super) fn ask(&mut self, plain: &str, styled: &str) {
        if !self.reading {
            let request = Request::Read { plain: plain.to_owned(), styled: styled.to_owned() };
            self.reading = self.requests.send(request).is_ok();
        }
    }

    /// The line that was asked for. Cancel safe.
    pub(super) async fn next(&mut self) -> Typed {
        let typed = self.typed.recv().await.unwrap_or(Typed::End);
        self.reading = false;
        typed
    }

    /// Remembers a command. One that begins with a space, or repeats the last one, is left out.
    pub(super) fn remember(&self, command: &str) {
        if command.len() <= ENTRY_BYTES_MAX {
            let _ = self.requests.send(Request::Remember(command.to_owned()));
        }
    }

    /// Shows output above the line that is being typed.
    pub(super) fn print(&mut self, out: bool, bytes: &[u8]) -> Result<()> {
        match &mut self.printer {
            Some(printer) if self.reading => {
                let text = String::from_utf8_lossy(bytes).replace('\n', "\r\n");
                printer.print(text).context("cannot write the output")
            }
            _ => write(out, bytes),
        }
    }
}

impl Drop for LineEditor {
    fn drop(&mut self) {
        if self.reading {
            // The thread still waits for a key: switch off what it has switched on.
            let _ = write(true, b"\x1b[?2004l\r\n");
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.modes);
        }
    }
}

/// An editor with the history of this user, and the file of that.
fn editor() -> Result<(Editor<(), FileHistory>, Option<PathBuf>)> {
    let config = Config::builder()
        .max_history_size(ENTRIES_MAX)?
        .history_ignore_dups(true)?
        .history_ignore_space(true)
        .auto_add_history(false)
        .build();
    let mut editor = Editor::<(), FileHistory>::with_config(config)?;
    let file = history::file();
    if let Some(file) = file.as_ref().filter(|file| file.try_exists().unwrap_or(true))
        && let Err(error) = editor.load_history(file)
    {
        print_message(format_args!("cannot read the history in {}: {error}", file.display()));
    }
    Ok((editor, file))
}

/// Serves requests until the sender has gone.
fn edit(
    mut editor: Editor<(), FileHistory>,
    file: Option<PathBuf>,
    requests: &Receiver<Request>,
    typed: &mpsc::Sender<Typed>,
) {
    while let Ok(request) = requests.recv() {
        match request {
            Request::Remember(command) => remember(&mut editor, file.as_deref(), command),
            Request::Read { plain, styled } => {
                let line = match editor.readline(&(plain, styled)) {
                    Ok(line) => Typed::Line(line + "\n"),
                    Err(ReadlineError::Interrupted | ReadlineError::Signal(Signal::Interrupt)) => {
                        Typed::Interrupted
                    }
                    Err(_) => Typed::End,
                };
                if typed.blocking_send(line).is_err() {
                    return;
                }
            }
        }
    }
}

/// Adds a command to the file, whose mode is 0600. A file that cannot be written is no reason to fail.
fn remember(editor: &mut Editor<(), FileHistory>, file: Option<&std::path::Path>, command: String) {
    if let (Ok(true), Some(file)) = (editor.add_history_entry(command), file) {
        let _ = editor.append_history(file);
    }
}
