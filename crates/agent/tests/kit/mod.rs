//! A real agent with its own socket, and a simple client.
#![allow(unreachable_pub, dead_code, reason = "each test program uses its own part")]

pub mod freezer;
pub mod terminal;

use bytes::BytesMut;
use isolet_wire::VERSION;
use isolet_wire::frame::{self, AGENT_FRAME_BYTES_MAX, DataFrame, Frame};
use isolet_wire::request::{AgentRequest, AttachShell, OpenShell, RunCommand, ShellPosition};
use isolet_wire::response::{AgentResponse, CommandExit, STDOUT};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No answer takes longer than this, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that is removed when it is dropped.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("isolet-agent-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Agent {
    pub child: Child,
    pub dir: Dir,
}

impl Agent {
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(args: &[&str]) -> Self {
        let dir = Dir::new();
        let listen = UnixListener::bind(dir.0.join("agent.sock")).expect("bind");
        let child = Command::new(env!("CARGO_BIN_EXE_isolet-agent"))
            .args(["--listen", "0"])
            .args(args)
            .stdin(Stdio::from(OwnedFd::from(listen)))
            .spawn()
            .expect("the agent starts");
        Self { child, dir }
    }

    /// A connection without a greeting.
    pub fn silent(&self) -> Client {
        let stream = UnixStream::connect(self.dir.0.join("agent.sock")).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client::of(stream)
    }

    pub fn connect(&self) -> Client {
        let mut client = self.silent();
        client.request(&AgentRequest::Hello { version: VERSION });
        assert_eq!(client.response(), AgentResponse::Hello { version: VERSION });
        client
    }

    pub fn attach(&self, shell: &str, owner: &str, since: Option<ShellPosition>) -> Client {
        let mut client = self.connect();
        client.attach(shell, owner, since);
        client
    }

    /// A client of a new private shell.
    pub fn shell(&self) -> Client {
        self.attach("p/test", "me", None)
    }

    /// Memory in KiB, and number of open descriptors.
    pub fn size(&self) -> (u64, usize) {
        let pid = self.child.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let rss = line.trim().trim_end_matches(" kB").parse().expect("a number");
        (rss, std::fs::read_dir(format!("/proc/{pid}/fd")).expect("alive").count())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Data(DataFrame),
    Response(AgentResponse),
}

pub struct Client {
    pub stream: UnixStream,
    input: BytesMut,
    buffer: Vec<u8>,
}

/// The output and result of a command.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub exit: CommandExit,
}

impl Outcome {
    pub fn out(&self) -> &str {
        std::str::from_utf8(&self.out).expect("UTF-8")
    }

    pub fn err(&self) -> &str {
        std::str::from_utf8(&self.err).expect("UTF-8")
    }
}

pub fn open() -> OpenShell {
    let path = std::env::var("PATH").expect("PATH");
    let env = BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), "/root".to_owned())]);
    OpenShell { cwd: "/tmp".into(), env, ..OpenShell::default() }
}

pub fn run(id: &str, text: &str) -> RunCommand {
    RunCommand { id: id.into(), text: text.into(), ..RunCommand::default() }
}

impl Client {
    pub fn of(stream: UnixStream) -> Self {
        Self { stream, input: BytesMut::new(), buffer: vec![0; 256 * 1024] }
    }

    pub fn request(&mut self, request: &AgentRequest) {
        let mut out = Vec::new();
        frame::put(&mut out, request);
        self.stream.write_all(&out).expect("the agent reads");
    }

    pub fn try_event(&mut self) -> Option<Event> {
        loop {
            match frame::next(&mut self.input, AGENT_FRAME_BYTES_MAX).expect("a frame") {
                Some(Frame::Data(body)) => {
                    return Some(Event::Data(DataFrame::parse(body).expect("data")));
                }
                Some(Frame::Message(body)) => {
                    return Some(Event::Response(frame::decode(&body).expect("a message")));
                }
                None => {}
            }
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&self.buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer in time: {error}"),
            }
        }
    }

    pub fn event(&mut self) -> Event {
        self.try_event().expect("the connection is open")
    }

    /// The next message; panics on data.
    pub fn response(&mut self) -> AgentResponse {
        match self.event() {
            Event::Response(response) => response,
            Event::Data(data) => panic!("unexpected {data:?}"),
        }
    }

    /// The next matching message; skips output and other messages.
    pub fn skip_to(&mut self, wanted: impl Fn(&AgentResponse) -> bool) -> AgentResponse {
        loop {
            if let Event::Response(response) = self.event()
                && wanted(&response)
            {
                return response;
            }
        }
    }

    pub fn attach(
        &mut self,
        shell: &str,
        owner: &str,
        since: Option<ShellPosition>,
    ) -> AgentResponse {
        self.request(&AgentRequest::Attach(AttachShell {
            shell: shell.parse().expect("a shell's name"),
            open: Some(open()),
            owner: owner.into(),
            watch: false,
            since,
        }));
        let response = self.response();
        assert!(matches!(response, AgentResponse::Attached { .. }), "{response:?}");
        response
    }

    pub fn run(&mut self, text: &str) -> Outcome {
        self.run_with(run("r", text))
    }

    pub fn run_with(&mut self, run: RunCommand) -> Outcome {
        let id = run.id.clone();
        self.request(&AgentRequest::Run(run));
        self.outcome(&id)
    }

    /// Collects everything up to the command's exit.
    pub fn outcome(&mut self, id: &str) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            match self.event() {
                Event::Data(data) if data.id == id => {
                    let to =
                        if data.stream == STDOUT { &mut outcome.out } else { &mut outcome.err };
                    to.extend_from_slice(&data.bytes);
                }
                Event::Response(AgentResponse::Exit(exit)) if exit.id == id => {
                    outcome.exit = exit;
                    return outcome;
                }
                Event::Response(AgentResponse::Refused { id: of, reason, message }) => {
                    panic!("refused {of:?}: {reason:?} {message}")
                }
                Event::Response(AgentResponse::Closed(closed)) => panic!("closed: {closed:?}"),
                _ => {}
            }
        }
    }
}

/// Waits for a state that no event reports.
pub fn until(description: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {description}");
        std::thread::yield_now();
    }
}

/// Whether a path exists.
pub fn there(path: impl AsRef<std::path::Path>) -> bool {
    path.as_ref().try_exists().expect("the directory can be read")
}
