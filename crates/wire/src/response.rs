//! What an agent says to a server. Never trusted: a server parses it as it would a stranger's.

pub use crate::activity::Closed;
use crate::activity::{Activity, ShellKey};
use serde::{Deserialize, Serialize};

/// Stream number of standard output.
pub const STDOUT: u8 = 1;
/// Stream number of standard error.
pub const STDERR: u8 = 2;

/// Every message that an agent sends. New ones are added at the end: postcard counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentResponse {
    /// Answer to `AgentRequest::Hello`.
    Hello {
        /// [`crate::VERSION`] of the agent; it serves no other.
        version: u16,
    },
    /// Answer to `Ping`.
    Pong(u64),
    /// Answer to `Watch`: all that runs now.
    Inventory {
        /// Shells, terminals, code contexts and the spare kernel.
        activities: Vec<Activity>,
        /// Programs without a shell.
        execs: u32,
    },
    /// One activity changed or ended, or only the number of programs changed (`activity: None`).
    Changed {
        /// The activity as it is now.
        activity: Option<Activity>,
        /// Programs without a shell.
        execs: u32,
    },
    /// Answer to `Attach`.
    Attached {
        /// Process id of its bash, as seen inside the sandbox.
        pid: i32,
        /// It was opened by this call.
        fresh: bool,
        /// End of each stream and the last exit's number, at this moment.
        at: crate::request::Since,
    },
    /// A command has begun to run (sent to its owner; to watchers goes [`AgentResponse::Began`]).
    Started {
        /// Its id.
        id: String,
    },
    /// A command of the attached shell, or the program of an exec connection, has ended. All of
    /// its foreground output was sent before.
    Exit(Exit),
    /// Bytes that this client has not read are no longer held.
    Gap {
        /// Which stream.
        stream: u8,
        /// First byte that is missing.
        from: u64,
        /// First byte that is there again.
        to: u64,
    },
    /// The attached shell has ended. Said once to every client; the connection is then detached.
    Closed(Closed),
    /// What was asked cannot be done.
    Refused {
        /// The command it is about, where it is about one.
        id: Option<String>,
        /// Why, for programs.
        why: RefusalReason,
        /// Why, for people.
        message: String,
    },
    /// What was asked is done.
    Done,
    /// What is known of a file.
    FileStat(Stat),
    /// Part of a directory's entries.
    FileList(Vec<Entry>),
    /// Part of what a `Walk` found, or what a `Look` was about.
    FileFound(Vec<Found>),
    /// A file is written.
    FileSaved {
        /// As it is now.
        stat: Stat,
        /// There was none of this name.
        created: bool,
    },
    /// About what a session's shell holds: variables, functions, directory, options.
    Saved {
        /// The shell's name.
        shell: ShellKey,
        /// What of it.
        what: Saved,
    },
    /// Part of what a `Search` found.
    FileLines(Vec<Line>),
    /// How a `Search` ended.
    FileSearched(Searched),
    /// A `Watch` has begun.
    FileWatched {
        /// Directories that are watched.
        directories: u32,
    },
    /// What a `Watch` has seen.
    FileChanged(Vec<Change>),
    /// Answer to `AgentRequest::Terminal`.
    TerminalAttached(crate::terminal::Attached),
    /// All that stood when the client attached was sent; what follows is as it is written.
    TerminalReady,
    /// This client fell behind, or what it had is no longer right: a snapshot follows.
    TerminalSnapshot(crate::terminal::Snapshot),
    /// The terminal has another size now. Its bytes from the next frame on are drawn for it.
    TerminalSize(crate::terminal::Size),
    /// Who is attached now; to those that asked for events.
    TerminalClients(Vec<crate::terminal::Client>),
    /// The terminal's program has ended; all that it wrote was sent. The connection is then free
    /// for another use.
    TerminalExit(Closed),
    /// Answer to `AgentRequest::Terminals`.
    Terminals(Vec<crate::terminal::Terminal>),
    /// A command has begun to run: what a client is told that watches.
    Began {
        /// Its id; of another owner's command `owner/id`.
        id: String,
        /// The beginning of its text, at most 1 KiB.
        command: String,
    },
    /// Answer to `AgentRequest::Dial`: the socket comes with this frame.
    Dialed,
    /// Answer to `AgentRequest::Listening`, sorted; at most [`crate::port::LISTENERS_MAX`].
    Listening(Vec<crate::port::Listener>),
    /// A process as it is; the last word to a connection that followed it.
    Process(crate::process::Process),
    /// Some of all processes.
    Processes(Vec<crate::process::Process>),
    /// A log begins; see [`crate::process`].
    ProcessLog(crate::process::Log),
    /// These positions of the log are no longer held.
    ProcessGap {
        /// First missing.
        from: u64,
        /// First that is there again.
        to: u64,
    },
    /// About code contexts; see [`crate::context`].
    Context(crate::context::ContextResponse),
    /// Of a `Walk`: nothing is told of what this directory holds. It is in a `FileFound` as well.
    FileUnread {
        /// Bytes; below the directory of the `Walk`.
        path: Vec<u8>,
        /// Why not.
        why: RefusalReason,
    },
}

/// The longest state of a shell, in bytes. A usual one has five thousand.
pub const STATE_BYTES_MAX: usize = 1024 * 1024;

/// What an agent tells of a shell's state. It is the tenant's: a server keeps it, bounded, and gives
/// it back to a shell of the same session, and never reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saved {
    /// The next bytes of it, at most 64 KiB.
    Part(Vec<u8>),
    /// All parts were told; together at most [`STATE_BYTES_MAX`].
    Whole {
        /// Counts the ended commands of this bash; said back in `AgentRequest::Kept`.
        number: u64,
    },
    /// It could not be saved as it is after the last command.
    Not(Unsaved),
    /// The shell has ended, and what was saved of it with it.
    Gone,
    /// Something of what was to be restored could not be.
    Unrestored,
}

/// Why a shell's state was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsaved {
    /// It is larger than [`STATE_BYTES_MAX`].
    TooLarge,
    /// Bash did not say it in time.
    NoAnswer,
}

/// A line of a file that was searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Which file: below the directory of the `Search`, or empty where that was a file.
    pub path: Vec<u8>,
    /// Its number, from 1 on.
    pub number: u64,
    /// Its bytes, without its end; the first of them where it is long.
    pub text: Vec<u8>,
    /// There was more than `text`.
    pub cut: bool,
    /// What matched, as positions in `text`; none of a line beside a match.
    pub spans: Vec<(u32, u32)>,
    /// It stands beside a match, and is none.
    pub context: bool,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Searched {
    /// Files that were searched.
    pub files: u64,
    /// Of these, binary ones: searched up to their first NUL.
    pub binary: u64,
    /// Files that could not be read, or hold a line that is too long.
    pub unread: u64,
    /// There is more than was told.
    pub more: bool,
}

/// What happened in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What.
    pub what: Happened,
    /// To what: below the directory of the `Watch`.
    pub path: Vec<u8>,
    /// Where a moved one is now.
    pub to: Option<Vec<u8>>,
    /// It is a directory.
    pub directory: bool,
}

/// Kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happened {
    /// A new name.
    Created,
    /// Contents or attributes.
    Modified,
    /// Another name, both within what is watched.
    Moved,
    /// A name is gone.
    Deleted,
    /// More has happened than could be told: look anew.
    Overflow,
    /// More directories than may be watched: what happens in this one is not told.
    Unwatched,
    /// The watched directory itself is gone, or has another name. The last one.
    Gone,
}

/// How a command or program ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The command's id; empty for an exec.
    pub id: String,
    /// Exit code; 128 + signal where a signal ended it.
    pub code: i32,
    /// The signal that ended the program (exec), or the shell itself (shell).
    pub signal: Option<i32>,
    /// The timeout ended it.
    pub timed_out: bool,
    /// A cancel ended it, or took it out of the queue before it ran.
    pub cancelled: bool,
    /// The kernel killed something of the sandbox for memory while it ran.
    pub oom: bool,
    /// This command was the first of a shell opened to replace one that had ended.
    pub fresh: bool,
    /// Bytes of standard output it wrote.
    pub out: u64,
    /// Bytes of standard error it wrote.
    pub err: u64,
    /// Of these, bytes that were overwritten before this client had them.
    pub lost: u64,
    /// Time from its start to its end, in microseconds.
    pub micros: u64,
    /// Counts the ended commands of this shell, from 1; 0 for an exec.
    pub seq: u64,
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// The message makes no sense here (wrong order, unknown command id, bad number).
    BadAsk,
    /// No such shell, and none was to be opened.
    NoShell,
    /// The shell's queue of commands is full.
    QueueFull,
    /// A command of this owner with this id is queued or running.
    IdInUse,
    /// More shells, clients or programs than the agent takes.
    TooMany,
    /// The start directory does not exist or is none.
    BadCwd,
    /// The program was not found.
    NotFound,
    /// It is there, and the user may not.
    Denied,
    /// A process could not be started (limits).
    NoProcess,
    /// Not a regular file, or not a directory, as needed.
    WrongKind,
    /// More than was asked for or is allowed.
    TooLarge,
    /// The disk is full.
    NoSpace,
    /// Anything else; the message names it.
    Failed,
    /// The name is taken.
    Exists,
    /// The directory holds something.
    NotEmpty,
    /// Nothing in the sandbox listens on the port.
    NotListening,
    /// What listens takes no connection in time.
    NoAnswer,
    /// Descriptors or memory are short at this moment.
    Short,
    /// No process of this id, or none any more.
    NoSuchProcess,
    /// The process has ended, or takes no input.
    Ended,
    /// What is needed for it is not in the image.
    Unable,
}

/// What kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// FIFO, socket or device.
    Other,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Its kind.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change, milliseconds since 1970.
    pub modified_ms: i64,
    /// Inode number, for entity tags.
    pub inode: u64,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name, as bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub stat: Stat,
}

/// A file, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Bytes; below the directory of a `Walk`, as asked of a `Look`.
    pub path: Vec<u8>,
    /// What it is.
    pub stat: Stat,
    /// What a symbolic link says.
    pub target: Option<Vec<u8>>,
}
