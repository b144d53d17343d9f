//! A client of a terminal that records the position of each byte.

use super::{Agent, Client, Event, open};
use isolet_wire::activity::ShellKey;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, Closed};
use isolet_wire::terminal::{
    AttachTerminal, Attached, OUTPUT, OpenTerminal, SNAPSHOT, Size, Snapshot,
    TerminalClientInfo as Seen, TerminalPosition,
};
use std::time::Duration;

pub struct Screen {
    pub client: Client,
    pub attached: Attached,
    /// All output, and the offset of its first byte.
    pub from: u64,
    pub out: Vec<u8>,
    pub snapshot: Vec<u8>,
    pub snapshots: Vec<Snapshot>,
    pub ready: bool,
    /// Sizes, and the offsets at which they were reported.
    pub sizes: Vec<(u64, Size)>,
    pub seen: Vec<Seen>,
    pub refused: Vec<String>,
    pub exit: Option<Closed>,
}

/// The options for a bash with a known prompt and without the machine's startup files.
pub fn bash() -> OpenTerminal {
    let mut env = open().env;
    env.insert("PS1".into(), "$ ".into());
    env.insert("HISTFILE".into(), String::new());
    let argv = ["bash", "--norc", "--noprofile"].map(str::to_owned).to_vec();
    OpenTerminal { argv, cwd: "/tmp".into(), env }
}

pub fn attach_options(open: OpenTerminal) -> AttachTerminal {
    AttachTerminal {
        open: Some(open),
        size: Some(Size { cols: 80, rows: 24 }),
        events: true,
        client: "me".into(),
        ..AttachTerminal::new(ShellKey::Terminal("test".to_owned()))
    }
}

/// Removes carriage returns and readline's sequences for bracketed paste.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\r', "");
    text.replace("\x1b[?2004h", "").replace("\x1b[?2004l", "")
}

impl Agent {
    pub fn screen(&self, attach_options: AttachTerminal) -> Screen {
        Screen::attach(self.connect(), attach_options)
    }

    /// A bash in a terminal, at its prompt.
    pub fn bash(&self) -> Screen {
        let mut screen = self.screen(attach_options(bash()));
        screen.until("$ ");
        screen
    }
}

impl Screen {
    pub fn attach(mut client: Client, attach_options: AttachTerminal) -> Self {
        client.request(&AgentRequest::Terminal(attach_options));
        match client.response() {
            AgentResponse::TerminalAttached(attached) => Self {
                client,
                from: attached.offset,
                out: Vec::new(),
                snapshot: Vec::new(),
                snapshots: attached.snapshot.into_iter().collect(),
                ready: false,
                sizes: Vec::new(),
                seen: Vec::new(),
                refused: Vec::new(),
                exit: None,
                attached,
            },
            other => panic!("{other:?}"),
        }
    }

    /// Attaches again on the same connection.
    pub fn again(&mut self, attach_options: AttachTerminal) -> Self {
        let stream = self.client.stream.try_clone().expect("a copy");
        Self::attach(Client::of(stream), attach_options)
    }

    pub fn head(&self) -> u64 {
        self.from + self.out.len() as u64
    }

    pub fn since(&self) -> Option<TerminalPosition> {
        Some(TerminalPosition { id: self.attached.id.clone(), offset: self.head() })
    }

    pub fn text(&self) -> String {
        plain(&self.out)
    }

    pub fn type_in(&mut self, text: &str) {
        self.client.request(&AgentRequest::Type(text.as_bytes().to_vec()));
    }

    pub fn resize(&mut self, cols: u16, rows: u16) {
        self.client.request(&AgentRequest::Resize(Size { cols, rows }));
    }

    /// Handles the next event.
    pub fn step(&mut self) {
        match self.client.event() {
            Event::Data(data) if data.stream == OUTPUT => {
                assert_eq!(data.offset, self.head(), "a byte is missing or doubled");
                self.out.extend_from_slice(&data.bytes);
            }
            Event::Data(data) if data.stream == SNAPSHOT => {
                assert_eq!(data.offset, self.snapshot.len() as u64);
                self.snapshot.extend_from_slice(&data.bytes);
            }
            Event::Response(AgentResponse::TerminalReady) => self.ready = true,
            Event::Response(AgentResponse::TerminalSize(size)) => {
                self.sizes.push((self.head(), size))
            }
            Event::Response(AgentResponse::TerminalClients(seen)) => self.seen = seen,
            Event::Response(AgentResponse::TerminalExit(closed)) => self.exit = Some(closed),
            Event::Response(AgentResponse::Refused { message, .. }) => self.refused.push(message),
            Event::Response(AgentResponse::TerminalSnapshot(snapshot)) => {
                assert_eq!(snapshot.offset, self.head() + snapshot.missed);
                self.from = snapshot.offset;
                self.out.clear();
                self.snapshot.clear();
                self.snapshots.push(snapshot);
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn wait(&mut self, description: &str, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            assert!(self.exit.is_none(), "never {description}: {}", self.text());
            self.step();
        }
    }

    /// Reads until the output contains a text, and removes and returns the output up to it.
    pub fn until(&mut self, text: &str) -> String {
        self.wait(text, |screen| screen.text().contains(text));
        let mut low = 0;
        let mut high = self.out.len();
        while low < high {
            let middle = (low + high) / 2;
            if plain(&self.out[..middle]).contains(text) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.from += low as u64;
        plain(&self.out.drain(..low).collect::<Vec<_>>())
    }

    /// Types a line and returns the output up to the next prompt.
    pub fn line(&mut self, line: &str) -> String {
        // The marker differs from the echoed line.
        self.type_in(&format!("{line}; echo 'do''ne'\n"));
        let said = self.until("done\n$ ");
        let begin = said.find('\n').map_or(0, |at| at + 1);
        said[begin..].trim_end_matches("done\n$ ").to_owned()
    }

    pub fn end(&mut self) -> Closed {
        while self.exit.is_none() {
            self.step();
        }
        self.exit.take().expect("an exit")
    }

    /// Whether nothing arrives for a while.
    pub fn silent(&mut self) -> bool {
        let wait = Some(Duration::from_millis(100));
        self.client.stream.set_read_timeout(wait).expect("a timeout");
        let mut byte = [0];
        let quiet = std::io::Read::read(&mut self.client.stream, &mut byte).is_err();
        self.client.stream.set_read_timeout(Some(super::PATIENCE)).expect("a timeout");
        quiet
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("client {} had read {:?}", self.attached.number, self.text());
        }
    }
}
