//! What a server says to an agent.
//!
//! A connection begins with [`AgentRequest::Hello`]. After that it serves one purpose at a time: the first
//! message that opens something decides it.
//! - `Attach`: the connection is a client of one shell. Output frames come back until it closes.
//! - `Exec`: the connection belongs to one program without a shell; after its [`crate::response::AgentResponse::Exit`]
//!   the connection may be used for the next one.
//! - `File`: the connection is handed to a worker for one file call, and ends with it.
//! - `Terminal`: the connection is a client of one terminal, until that ends or it closes.
//! - `Process` that follows: the connection is sent one process's log, until its end or it closes.
//!   Other orders about processes are answered at once, or when they are done.
//! - `Watch`, `Ping`: the connection of the server's driver.
//!
//! One connection per client is on purpose: a client that does not read fills its own socket and
//! nobody else's, and what it has not read stays in the shell's log.

use crate::activity::ShellKey;
pub use crate::program::What;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every message that a server sends. New ones are added at the end: postcard counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentRequest {
    /// First on every connection.
    Hello {
        /// [`crate::VERSION`] of the server.
        version: u16,
    },
    /// Answered by `Pong` with the same number.
    Ping(u64),
    /// Answered by `Inventory`, then by one `Changed` whenever a shell opens, ends, begins or ends a command,
    /// or an exec does.
    Watch,
    /// Become a client of a shell. Answered by `Attached` or `Refused`.
    Attach(Attach),
    /// Run a command in the attached shell.
    Run(Run),
    /// Bytes for the standard input of a command or program that asked for it.
    Stdin {
        /// Which command; empty on an exec connection.
        id: String,
        /// At most 64 KiB.
        data: Vec<u8>,
        /// No more will come.
        eof: bool,
    },
    /// Send a signal to what the command runs in the foreground, or to the exec's process group.
    Signal {
        /// Which command; empty on an exec connection.
        id: String,
        /// 1 to 64.
        signal: i32,
    },
    /// End a command: taken out of the queue, or interrupted by the ladder. For an exec: killed whole.
    Cancel {
        /// Which command; empty on an exec connection.
        id: String,
    },
    /// End a shell and everything it started: hang up, then kill. Answered by `Done` once it is gone,
    /// also when there was none.
    Close {
        /// The name of a shell or a terminal.
        key: ShellKey,
    },
    /// Start a program.
    Exec(Exec),
    /// Do one thing with a file, as the session's user.
    File(File),
    /// On a connection that watches: save what the shells of sessions hold and nobody keeps yet.
    /// Told to all who watch as [`crate::response::AgentResponse::Saved`]; then answered by `Done`.
    Save,
    /// On a connection that watches: what was saved of this shell under this number is kept.
    Kept {
        /// The shell's name.
        shell: ShellKey,
        /// As in [`crate::response::Saved::Whole`].
        number: u64,
    },
    /// Become a client of a session's terminal. Answered by `TerminalAttached` or `Refused`; see
    /// [`crate::terminal`].
    Terminal(crate::terminal::Attach),
    /// What was typed, as bytes; at most [`crate::terminal::TYPE_BYTES_MAX`].
    Type(Vec<u8>),
    /// The client's window has another size. Taken over where nobody else typed later.
    Resize(crate::terminal::Size),
    /// Answered by `Terminals`: all that run. `Close` with a terminal's name ends one.
    Terminals,
    /// Connect to a TCP port of the sandbox's own loopback. Answered by `Dialed`, or `Refused` with
    /// `NotListening` or `Failed`; see [`crate::port`].
    Dial {
        /// 1 to 65535.
        port: u16,
    },
    /// Answered by `Listening`: where programs in the sandbox listen.
    Listening,
    /// About processes that run in the background; see [`crate::process`].
    Process(crate::process::ProcessRequest),
    /// About code contexts; see [`crate::context`].
    Context(crate::context::ContextRequest),
}

/// Who wants to be a client of which shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The shell's name: [`ShellKey::Session`] or [`ShellKey::Private`].
    pub shell: ShellKey,
    /// How to open it where it is not there; `None` refuses with `NoShell` instead.
    pub open: Option<Open>,
    /// Whose commands these are: ids are per owner, and a client that comes back names the same owner.
    pub owner: String,
    /// Also see the output and exits of other owners' commands (their ids come as `owner/id`).
    pub watch: bool,
    /// Where to go on; `None` begins with what comes from now on.
    pub since: Option<Since>,
}

/// How far a client has read: everything before these positions is not sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// Bytes of standard output, counted from the shell's beginning.
    pub out: u64,
    /// Bytes of standard error, likewise.
    pub err: u64,
    /// Commands whose end was seen: the `seq` of the last exit.
    pub seq: u64,
}

/// How a shell is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Start directory. One that cannot be entered refuses with `BadCwd`; a session's shell then
    /// starts in the nearest directory above it that can, and tells its first command.
    pub cwd: String,
    /// The whole environment; what the shell itself needs is put over it.
    pub env: BTreeMap<String, String>,
    /// How long it stays with no client attached, in ms; `None`: as long as the sandbox.
    pub linger_ms: Option<u64>,
    /// What it holds is saved while it is idle; a session's shell only.
    pub save: bool,
    /// What an earlier shell of this name held, as it was told in `Saved` parts.
    pub restore: Option<Vec<u8>>,
    /// An earlier shell of this name was lost with the agent that had it: the first command is told.
    pub again: bool,
}

/// One command for a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The client's name for it; unique among this owner's queued and running commands.
    pub id: String,
    /// The text, as it would be typed. No NUL. At most 1 MiB.
    pub text: String,
    /// Interrupted by the ladder after this many ms of running; 0 never.
    pub timeout_ms: u64,
    /// Directory for this command only.
    pub cwd: Option<String>,
    /// Environment for this command only; `None` unsets.
    pub env: BTreeMap<String, Option<String>>,
    /// Whether `Stdin` will follow; otherwise the command reads end of file.
    pub stdin: bool,
    /// Standard error goes to standard output.
    pub merge: bool,
}

/// One program without a shell behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// What to run.
    pub what: What,
    /// Start directory.
    pub cwd: String,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Whether `Stdin` will follow; otherwise it reads end of file.
    pub stdin: bool,
    /// Killed whole after this many ms; 0 never.
    pub timeout_ms: u64,
    /// User and group inside, 0 to 65533.
    pub uid: u32,
}

/// One thing to do with a file. Paths are bytes, absolute or below `/workspace`, resolved inside
/// the sandbox as its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum File {
    /// Answered by `FileStat`, then data frames, then `Done`.
    Read {
        /// Which file.
        path: Vec<u8>,
        /// First byte.
        offset: u64,
        /// At most this many bytes; `None` to the end.
        limit: Option<u64>,
    },
    /// Data frames follow, then `FileEnd`; answered by `Done` when the name stands (temporary
    /// name, then rename; parents are created).
    Write {
        /// Which file.
        path: Vec<u8>,
        /// Permission bits of a new file; an old one keeps its own.
        mode: u32,
    },
    /// All bytes of a `Write` were sent.
    End,
    /// Answered by `FileList` messages, then `Done`.
    List {
        /// Which directory.
        path: Vec<u8>,
        /// At most this many entries; more is refused with `TooLarge`.
        max: u32,
    },
    /// Answered by `FileStat`, then `Done`.
    Stat {
        /// Which file; a symbolic link is not followed.
        path: Vec<u8>,
    },
    /// With its parents; no error when it is there. Answered by `Done`.
    MakeDir {
        /// Which directory.
        path: Vec<u8>,
    },
    /// Answered by `Done`.
    Remove {
        /// What to remove.
        path: Vec<u8>,
        /// A directory with all it holds.
        recursive: bool,
    },
    /// Answered by `FileStat` (links are followed), then the data frames of a regular file, then
    /// `Done`. A directory has no data; anything else is refused with `WrongKind`.
    Fetch {
        /// Which file.
        path: Vec<u8>,
        /// Which part of it.
        span: Span,
    },
    /// Data frames follow, then `End`; answered by `FileSaved`, then `Done`. Parents are created.
    Save {
        /// Which file.
        path: Vec<u8>,
        /// How.
        how: Save,
    },
    /// Answered by `FileFound` messages, sorted by the parts of their paths, with `FileUnread`
    /// among them, then `Done`.
    Walk {
        /// Which directory.
        path: Vec<u8>,
        /// What of it.
        wish: Walk,
    },
    /// Answered by `FileFound` with one entry, then `Done`.
    Look {
        /// Which file.
        path: Vec<u8>,
        /// What a symbolic link leads to, rather than the link.
        follow: bool,
    },
    /// Gives another name; parents of the new one are created. Answered by `Done`.
    Move(Pair),
    /// Copies a file or a link, or a directory with all it holds. Answered by `Done`.
    Copy(Pair),
    /// Sets the permission bits of what the name leads to. Answered by `Done`.
    Chmod {
        /// Which file.
        path: Vec<u8>,
        /// 0 to 0o7777.
        mode: u32,
    },
    /// Answered by `FileStat` of the directory, then its tar archive as data frames, then `Done`; or
    /// by a refusal instead of the archive's end, where something cannot be read.
    Pack {
        /// Which directory.
        path: Vec<u8>,
    },
    /// Data frames of a tar archive follow, then `End`; answered by `Done`. What is there under
    /// the same names is replaced as the archive comes.
    Unpack {
        /// Which directory; made where it is not there.
        path: Vec<u8>,
    },
    /// Answered by `FileLines` messages, in the order of paths, then `FileSearched`, then `Done`.
    Search {
        /// Which file, or the directory whose files are searched.
        path: Vec<u8>,
        /// For what.
        wish: Search,
    },
    /// Answered by `FileWatched` once nothing is missed any more, then by `FileChanged` messages
    /// until the connection ends, or by `Done` when the directory is gone.
    Watch {
        /// Which directory.
        path: Vec<u8>,
        /// Also what happens in its directories; symbolic links are not followed.
        recursive: bool,
    },
    /// As `Pack`, compressed with zstd.
    PackZstd {
        /// Which directory.
        path: Vec<u8>,
    },
    /// As `Pack`, without some of what lies there.
    PackBut {
        /// Which directory.
        path: Vec<u8>,
        /// Left out with all they hold: paths below the directory.
        without: Vec<Vec<u8>>,
    },
}

/// What to look for in files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// A regular expression, or with `literal` a text.
    pub pattern: String,
    /// The pattern means itself.
    pub literal: bool,
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Also what `.gitignore` and `.ignore` files leave out.
    pub ignored: bool,
    /// Only files that match: by name, or by path below the directory where it holds a slash.
    pub glob: Option<Vec<u8>>,
    /// So many lines before and after each match.
    pub context: u32,
    /// At most this many matching lines.
    pub max: u32,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Span {
    /// From a byte on.
    From {
        /// First byte.
        offset: u64,
        /// At most this many bytes; `None` to the end.
        limit: Option<u64>,
    },
    /// The last bytes, at most this many.
    Last(u64),
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Save {
    /// Permission bits that it has afterwards. `None`: an old file keeps its own, a new one gets
    /// 0o644.
    pub mode: Option<u32>,
    /// At the end of what is there, as the bytes come; otherwise the whole file under a temporary
    /// name, then renamed.
    pub append: bool,
    /// On the disk, and not only in the kernel's memory, before it is answered.
    pub sync: bool,
}

/// What to tell of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// Also what lies in its directories; symbolic links are not followed.
    pub recursive: bool,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Only what matches: its name, or its whole path where the pattern holds a slash.
    pub glob: Option<Vec<u8>>,
    /// Only what comes after this path.
    pub after: Option<Vec<u8>>,
    /// At most this many entries.
    pub max: u32,
}

/// From where to where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// What is there; a symbolic link is not followed.
    pub from: Vec<u8>,
    /// What it is to be called.
    pub to: Vec<u8>,
    /// A file in the way is replaced; otherwise refused with `Exists`.
    pub replace: bool,
}
