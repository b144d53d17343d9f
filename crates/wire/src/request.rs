//! Messages from a server to an agent.
//!
//! A connection begins with [`AgentRequest::Hello`]. After that, it serves one purpose at a time,
//! which the first request determines:
//! - `Attach`: the connection is a client of one shell and receives output until it closes.
//! - `Exec`: the connection belongs to one program without a shell. After
//!   [`crate::response::AgentResponse::Exit`], it is free for the next request.
//! - `File`: a worker process takes over the connection for one file request and closes it at the
//!   end.
//! - `Terminal`: the connection is a client of one terminal until the terminal ends or the
//!   connection closes.
//! - `Process` with `Follow`: the connection receives the log of one process until the process ends
//!   or the connection closes. The agent answers other process requests without changing the
//!   purpose.
//! - `Watch`, `Ping`: the connection of the server's driver.
//! - `StopClock`: the connection stops the agent's clock until it closes.
//!
//! Every client has its own connection on purpose: a client that does not read fills only its own
//! socket, and the output that it has not read stays in the shell's log.

use crate::activity::ShellKey;
pub use crate::program::Invocation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every message that a server sends. Within a protocol version, no message changes, and new ones are
/// added at the end, because postcard encodes a variant by its position; see [`crate::version`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentRequest {
    /// Must be the first message on every connection.
    Hello {
        /// The highest version that the server speaks; see [`crate::version`].
        version: u16,
    },
    /// Answered by `Pong` with the same number.
    Ping(u64),
    /// Answered by `Inventory`, then by one `Changed` for every change of an activity or of the
    /// number of programs.
    Watch,
    /// Become a client of a shell. Answered by `Attached` or `Refused`.
    Attach(AttachShell),
    /// Run a command in the attached shell.
    Run(RunCommand),
    /// Write to the standard input of a command or program that was started with `stdin`.
    Stdin {
        /// The id of the command; empty on an exec connection.
        id: String,
        /// The input, at most 64 KiB.
        data: Vec<u8>,
        /// Close standard input after these bytes.
        eof: bool,
    },
    /// Send a signal to the foreground processes of a command, or to the process group of an exec.
    Signal {
        /// The id of the command; empty on an exec connection.
        id: String,
        /// The signal number, 1 to 64.
        signal: i32,
    },
    /// End a command: remove it from the queue, or interrupt it with escalating signals. The
    /// program of an exec is killed with its descendants.
    Cancel {
        /// The id of the command; empty on an exec connection.
        id: String,
    },
    /// End a shell or a terminal with everything that it started: SIGHUP first, then SIGKILL.
    /// Answered by `Done` when it is gone, also if there was none.
    Close {
        /// The name of a shell or a terminal.
        key: ShellKey,
    },
    /// Start a program without a shell.
    Exec(StartExec),
    /// Carry out one file operation as the session's user.
    File(FileRequest),
    /// On a watching connection: save the state of every session shell that the server has not
    /// stored yet. The agent sends the states to all watchers as
    /// [`crate::response::AgentResponse::ShellState`], then `Done`.
    SaveStates,
    /// On a watching connection: the server has stored the state of this shell with this number.
    StateStored {
        /// The name of the shell.
        shell: ShellKey,
        /// The number from [`crate::response::SavedState::Complete`].
        number: u64,
    },
    /// Become a client of a session's terminal. Answered by `TerminalAttached` or `Refused`; see
    /// [`crate::terminal`].
    Terminal(crate::terminal::AttachTerminal),
    /// Keyboard input, at most [`crate::terminal::TYPE_BYTES_MAX`] bytes.
    Type(Vec<u8>),
    /// The client's window has a new size, which becomes the terminal's size unless another client
    /// typed later.
    Resize(crate::terminal::Size),
    /// List all running terminals. Answered by `Terminals`.
    Terminals,
    /// Connect to a TCP port of the sandbox's own loopback. Answered by `Dialed`, or `Refused` with
    /// `NotListening` or `Failed`; see [`crate::port`].
    Dial {
        /// The port number, 1 to 65535.
        port: u16,
    },
    /// List the sockets on which programs in the sandbox listen. Answered by `Listening`.
    Listening,
    /// A request about background processes; see [`crate::process`].
    Process(crate::process::ProcessRequest),
    /// A request about code contexts; see [`crate::context`].
    Context(crate::context::ContextRequest),
    /// Stop the agent's clock until this connection closes, so that the time in between counts for
    /// no timeout and no stall. Answered by `Done`.
    ///
    /// The server sends it before it freezes the sandbox and closes the connection after the
    /// thaw. If the server is killed in between, the kernel closes the connection, which a frozen
    /// agent notices when it continues.
    StopClock,
}

/// A request to become a client of a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachShell {
    /// The shell's name: [`ShellKey::Session`] or [`ShellKey::Private`].
    pub shell: ShellKey,
    /// How to open the shell if it does not exist; with `None`, the agent refuses with `NoShell`
    /// instead.
    pub open: Option<OpenShell>,
    /// The owner of the client's commands. Ids are unique per owner, and a reconnecting client
    /// repeats the owner.
    pub owner: String,
    /// Also receive the output and exits of other owners' commands, whose ids have the form
    /// `owner/id`.
    pub watch: bool,
    /// Where the client stopped reading; `None` means only new output.
    pub since: Option<ShellPosition>,
}

/// A client's position in the log of a shell. Nothing before it is sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellPosition {
    /// Bytes of standard output since the shell was opened.
    pub out: u64,
    /// Bytes of standard error since the shell was opened.
    pub err: u64,
    /// The `seq` of the last exit that the client received.
    pub seq: u64,
}

/// The parameters of a new shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenShell {
    /// The directory in which bash starts. If bash cannot enter it, a private shell is refused with
    /// `BadCwd`, and a session's shell starts in the nearest accessible parent and writes a notice
    /// to its first command.
    pub cwd: String,
    /// The complete environment. The agent overrides the variables that it needs itself.
    pub env: BTreeMap<String, String>,
    /// How long the shell lives without a client, in ms; `None` means as long as the sandbox.
    pub linger_ms: Option<u64>,
    /// Save the state while the shell is idle. Only for a session's shell.
    pub save: bool,
    /// The saved state of an earlier shell of this name, as its `ShellState` parts delivered it.
    pub restore: Option<Vec<u8>>,
    /// An earlier shell of this name was lost together with its agent. The first command reports
    /// this.
    pub replaces_lost: bool,
}

/// A command for a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommand {
    /// The id of the command, unique among the owner's queued and running commands.
    pub id: String,
    /// The text of the command as a user would type it, at most 1 MiB without NUL bytes.
    pub text: String,
    /// Time after which the command is interrupted, in ms; 0 means never.
    pub timeout_ms: u64,
    /// The working directory of this command only.
    pub cwd: Option<String>,
    /// Environment variables of this command only; `None` unsets a variable.
    pub env: BTreeMap<String, Option<String>>,
    /// Keep standard input open for `Stdin`; otherwise, the command reads end of file.
    pub stdin: bool,
    /// Redirect standard error to standard output.
    pub merge: bool,
}

/// The parameters of a program without a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartExec {
    /// The program to run.
    pub program: Invocation,
    /// The directory in which the program starts.
    pub cwd: String,
    /// The complete environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Keep standard input open for `Stdin`; otherwise, the program reads end of file.
    pub stdin: bool,
    /// Time after which the program and its descendants are killed, in ms; 0 means never.
    pub timeout_ms: u64,
    /// User id and group id inside the sandbox, 0 to 65533.
    pub uid: u32,
}

/// File operations. A path is a sequence of bytes, absolute or relative to `/workspace`, and is
/// resolved inside the sandbox as its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Answered by `FileStat` (symbolic links are followed), then the data frames of a regular
    /// file, then `Done`. A directory has no data, and other types are refused with `WrongKind`.
    Read {
        /// The path of the file.
        path: Vec<u8>,
        /// The part of the file to send.
        range: ByteRange,
    },
    /// Write a file. Data frames follow, then `End`; answered by `FileSaved`, then `Done`. Missing
    /// parents are created.
    Write {
        /// The path of the file.
        path: Vec<u8>,
        /// How to write the file.
        options: WriteOptions,
        /// Only replace this file: if the name has another one when the content is complete, the
        /// write is refused with `Changed`. Appending is refused then.
        expected: Option<ExpectedFile>,
    },
    /// The end of the data of a `Write` or `Unpack`.
    End,
    /// Create a directory with its parents; it may already exist. Answered by `Done`.
    MakeDir {
        /// The path of the directory.
        path: Vec<u8>,
    },
    /// Remove a file or a directory. Answered by `Done`.
    Remove {
        /// The path to remove.
        path: Vec<u8>,
        /// Also remove a directory with its contents.
        recursive: bool,
    },
    /// List a directory tree. Answered by `FileFound` messages, sorted by the components of their
    /// paths, with `FileUnread` among them, then `Done`.
    Walk {
        /// The path of the directory.
        path: Vec<u8>,
        /// Which entries to list, and how many.
        options: WalkOptions,
    },
    /// Answered by `FileFound` with one entry, then `Done`.
    Metadata {
        /// The path of the file.
        path: Vec<u8>,
        /// Follow a symbolic link.
        follow: bool,
    },
    /// Rename a file or a directory. Missing parents of the new name are created. Answered by
    /// `Done`.
    Move(PathPair),
    /// Copy a file, a symbolic link, or a directory with its contents. Answered by `Done`.
    Copy(PathPair),
    /// Set permission bits; symbolic links are followed. Answered by `Done`.
    Chmod {
        /// The path of the file.
        path: Vec<u8>,
        /// The permission bits, 0 to 0o7777.
        mode: u32,
    },
    /// Send a directory as a tar archive. Answered by `FileStat` of the directory, then data
    /// frames, then `Done`, or by `Refused` instead of the archive's end if a file cannot be read.
    Pack {
        /// The path of the directory.
        path: Vec<u8>,
        /// Compress the archive with zstd.
        zstd: bool,
        /// Paths relative to the directory that are left out with everything below them.
        without: Vec<Vec<u8>>,
    },
    /// Extract a tar archive. Data frames follow, then `End`; answered by `Done`. Existing files of
    /// the same names are replaced.
    Unpack {
        /// The path of the directory, which is created if it is missing.
        path: Vec<u8>,
    },
    /// Search the contents of files. Answered by `FileLines` messages in the order of paths, then
    /// `FileSearched`, then `Done`.
    Search {
        /// The path of a file, or of a directory whose files are searched.
        path: Vec<u8>,
        /// What to search for.
        query: SearchQuery,
    },
    /// Watch a directory. Answered by `FileWatched` when every later change will be seen, then by
    /// `FileChanged` messages until the connection ends, or by `Done` if the directory is gone.
    Watch {
        /// The path of the directory.
        path: Vec<u8>,
        /// Also watch directories below it. Symbolic links are not followed.
        recursive: bool,
    },
    /// Get extended attributes of files. Answered by `FileAttributes` messages with one entry for
    /// each path, then `Done`. Symbolic links are followed, and a path that cannot be read has none.
    Attributes {
        /// The paths of at most [`ATTRIBUTE_PATHS_MAX`] files.
        paths: Vec<Vec<u8>>,
        /// The beginning of the attributes' names, which begins with `user.`.
        prefix: String,
    },
    /// Replace all extended attributes of a file whose names begin with `prefix`. Answered by
    /// `Done`.
    SetAttributes {
        /// The path of the file.
        path: Vec<u8>,
        /// The beginning of the attributes' names, which begins with `user.`.
        prefix: String,
        /// The attributes, without the prefix.
        attributes: FileAttributes,
    },
    /// Get a fingerprint of every file in a directory, to find out later what changed. Answered by
    /// `FileFingerprints` messages in no order, then `Done`. A directory that cannot be read, or one
    /// with more than [`FINGERPRINTS_MAX`] files, is refused.
    Fingerprints {
        /// The path of the directory.
        path: Vec<u8>,
        /// Also directories below it. Symbolic links are not followed.
        recursive: bool,
    },
}

/// What tells two versions of a file apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// Inode number: each replacement has its own.
    pub inode: u64,
    /// The size, in bytes.
    pub size: u64,
    /// Time of the last modification, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// The file that a conditional write may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpectedFile {
    /// Any file that exists.
    Any,
    /// A file that nobody has written since a client read it.
    Version(FileVersion),
}

/// Maximum number of files of one `Fingerprints` request.
pub const FINGERPRINTS_MAX: usize = 100_000;

/// Extended attributes of a file by their names without a prefix: text, because clients see them as
/// JSON. Together at most [`ATTRIBUTES_BYTES_MAX`] of names and values.
pub type FileAttributes = BTreeMap<String, String>;

/// Maximum number of files of one `Attributes` request.
pub const ATTRIBUTE_PATHS_MAX: usize = 1000;

/// Maximum size of the attributes of one file, in bytes of names with their prefix and of values:
/// what file systems store for one file at least.
pub const ATTRIBUTES_BYTES_MAX: usize = 4096;

/// The parameters of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchQuery {
    /// A regular expression, or a literal text with `literal`.
    pub pattern: String,
    /// The pattern is a literal text.
    pub literal: bool,
    /// Match letters of either case.
    pub ignore_case: bool,
    /// Also search hidden files, whose names begin with a dot.
    pub hidden: bool,
    /// Also search files that `.gitignore` and `.ignore` files exclude.
    pub ignored: bool,
    /// Only search files that match this pattern: by name, or by relative path if the pattern
    /// contains a slash.
    pub glob: Option<Vec<u8>>,
    /// Number of lines of context before and after each match.
    pub context: u32,
    /// Maximum number of matching lines.
    pub max: u32,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByteRange {
    /// The bytes from an offset on.
    From {
        /// Offset of the first byte.
        offset: u64,
        /// Maximum number of bytes; `None` means up to the end.
        limit: Option<u64>,
    },
    /// The last bytes of the file, at most this many.
    Last(u64),
}

impl ByteRange {
    /// All bytes.
    pub const WHOLE: Self = Self::From { offset: 0, limit: None };
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// Permission bits of the file afterwards. With `None`, an existing file keeps its own, and a
    /// new file gets 0o644.
    pub mode: Option<u32>,
    /// Append the bytes as they arrive; otherwise, write the whole file to a temporary name and
    /// rename it.
    pub append: bool,
    /// Flush the file to the disk before the answer.
    pub sync: bool,
}

/// What a `Walk` lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkOptions {
    /// Also list directories below it. Symbolic links are not followed.
    pub recursive: bool,
    /// Also list hidden files, whose names begin with a dot.
    pub hidden: bool,
    /// Only list files that match this pattern: by name, or by relative path if the pattern
    /// contains a slash.
    pub glob: Option<Vec<u8>>,
    /// Only list paths after this one.
    pub after: Option<Vec<u8>>,
    /// Maximum number of entries.
    pub max: u32,
}

/// The source and the target of a move or a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathPair {
    /// The existing path. A symbolic link is not followed.
    pub from: Vec<u8>,
    /// The path that the file gets.
    pub to: Vec<u8>,
    /// Replace an existing file; otherwise, the agent refuses with `Exists`.
    pub replace: bool,
}
