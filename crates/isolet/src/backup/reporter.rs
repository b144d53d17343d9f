//! Shows the progress of a backup or a restore: a bar on a terminal, lines elsewhere, or JSON events
//! for programs.

use crate::client::output::{print_message, sanitize, write};
use isolet_backup::{Progress, ProgressEvent};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the bar is drawn, and how often a program gets the count of bytes.
const REDRAW: Duration = Duration::from_millis(200);
/// Width of the bar, in characters.
const WIDTH: usize = 30;
const MIB: f64 = 1024.0 * 1024.0;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Bar,
    Lines,
    Json,
}

/// The count of bytes, and the end, as JSON events.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum OwnEvent<'a> {
    Bytes { read: u64, of: u64 },
    Finished { state: &'a str, message: &'a str, read: u64, seconds: f64 },
}

/// Shows the progress of a backup or of its restoration.
pub(crate) struct Reporter {
    style: Style,
    begun: Instant,
    total: Cell<u64>,
    read: Cell<u64>,
    drawn: Cell<Option<Instant>>,
    last: RefCell<String>,
}

impl Reporter {
    pub(crate) fn new(json: bool) -> Self {
        let style = match json {
            true => Style::Json,
            false if std::io::stderr().is_terminal() => Style::Bar,
            false => Style::Lines,
        };
        Self {
            style,
            begun: Instant::now(),
            total: Cell::new(0),
            read: Cell::new(0),
            drawn: Cell::new(None),
            last: RefCell::default(),
        }
    }

    /// Shows the end of the work.
    pub(crate) fn finished(&self, state: &str, message: &str) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let read = self.read.get();
        if self.style == Style::Json {
            return json(&OwnEvent::Finished { state, message, read, seconds });
        }
        self.clear();
        let mib = read as f64 / MIB;
        let speed = mib / seconds.max(0.001);
        print_message(format_args!(
            "{state}: {message} ({mib:.0} MiB read in {seconds:.1} s, {speed:.0} MiB/s)"
        ));
    }

    /// Removes the progress bar from the terminal.
    fn clear(&self) {
        if self.style == Style::Bar && self.drawn.get().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            self.drawn.set(None);
        }
    }

    fn line(&self, text: &str) {
        self.clear();
        print_message(sanitize(text));
    }

    fn draw(&self) {
        let read = self.read.get();
        let of = self.total.get().max(read).max(1);
        let filled = usize::try_from(read.saturating_mul(WIDTH as u64) / of).unwrap_or(WIDTH);
        let bar = "#".repeat(filled) + &"-".repeat(WIDTH.saturating_sub(filled));
        let percent = read.saturating_mul(100) / of;
        let mib = read as f64 / MIB;
        let last = self.last.borrow();
        let _ = write!(std::io::stderr(), "\r\x1b[K[{bar}] {percent:3} % {mib:.0} MiB {last}");
    }
}

fn json(event: &impl Serialize) {
    if let Ok(mut text) = serde_json::to_vec(event) {
        text.push(b'\n');
        // A reader that is gone does not stop a backup.
        let _ = write(true, &text);
    }
}

impl Progress for Reporter {
    fn event(&self, event: &ProgressEvent) {
        if let ProgressEvent::Started { bytes, .. } = event {
            self.total.set(*bytes);
        }
        if self.style == Style::Json {
            return json(event);
        }
        match event {
            ProgressEvent::Started { bytes, sandboxes } => {
                let mib = bytes.div_ceil(1024 * 1024);
                self.line(&format!("{sandboxes} sandboxes, up to {mib} MiB to read"));
            }
            ProgressEvent::Sandbox { tenant, id, bytes, frozen_ms } => {
                let frozen = match frozen_ms {
                    Some(ms) => format!("frozen for {ms} ms"),
                    None => "not running".to_owned(),
                };
                let mib = *bytes as f64 / MIB;
                let text = format!("{tenant}/{id}: {mib:.1} MiB, {frozen}");
                if self.style == Style::Lines {
                    self.line(&text);
                }
                *self.last.borrow_mut() = sanitize(&text);
            }
            ProgressEvent::File { path, .. } => *self.last.borrow_mut() = sanitize(path),
            ProgressEvent::LeftOut { tenant, id, reason } => {
                self.line(&format!("{tenant}/{id} is left out: {reason}"));
            }
            ProgressEvent::Note { text } => self.line(text),
        }
    }

    fn bytes(&self, count: u64) {
        self.read.set(self.read.get() + count);
        if self.style == Style::Lines
            || self.drawn.get().is_some_and(|drawn| drawn.elapsed() < REDRAW)
        {
            return;
        }
        match self.style {
            Style::Json => json(&OwnEvent::Bytes { read: self.read.get(), of: self.total.get() }),
            _ => self.draw(),
        }
        self.drawn.set(Some(Instant::now()));
    }
}
