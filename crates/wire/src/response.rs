//! Messages from an agent to a server. Agents run beside tenants' programs, so the server never
//! trusts what they send.

pub use crate::activity::Closed;
use crate::activity::{Activity, ShellKey};
use serde::{Deserialize, Serialize};

/// Stream number of standard output.
pub const STDOUT: u8 = 1;
/// Stream number of standard error.
pub const STDERR: u8 = 2;

/// Every message that an agent sends. Within a protocol version, no message changes, and new ones are
/// added at the end, because postcard encodes a variant by its position; see [`crate::version`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentResponse {
    /// The first answer on a connection, to `AgentRequest::Hello`.
    Hello {
        /// The version of the connection; see [`crate::version::answer`].
        version: u16,
    },
    /// Answer to `Ping`, with the same number.
    Pong(u64),
    /// Answer to `Watch`: everything that runs now.
    Inventory {
        /// Shells, terminals, code contexts and the spare kernel.
        activities: Vec<Activity>,
        /// Number of programs without a shell.
        execs: u32,
    },
    /// One activity changed or ended, or only the number of programs changed (`activity: None`).
    Changed {
        /// The activity as it is now.
        activity: Option<Activity>,
        /// Number of programs without a shell.
        execs: u32,
    },
    /// Answer to `Attach`: the client is attached to the shell.
    Attached {
        /// Process id of bash inside the sandbox.
        pid: i32,
        /// This request opened the shell.
        fresh: bool,
        /// The current end of each stream and number of the last ended command.
        at: crate::request::ShellPosition,
    },
    /// A command has started.
    Started {
        /// The id of the command; `owner/id` for a command of another owner.
        id: String,
        /// The beginning of the command's text, at most 1 KiB; only for clients that watch.
        command: Option<String>,
    },
    /// A command of the attached shell, or the program of an exec connection, has ended. The agent
    /// has already sent all of its foreground output.
    Exit(CommandExit),
    /// The log no longer holds some bytes that this client has not received.
    Gap {
        /// The stream of the bytes: [`STDOUT`] or [`STDERR`].
        stream: u8,
        /// Offset of the first missing byte.
        from: u64,
        /// Offset of the next byte that the log still holds.
        to: u64,
    },
    /// The attached shell has ended. The agent sends this once to every client and then detaches
    /// the client.
    Closed(Closed),
    /// The agent refuses a request.
    Refused {
        /// The id of the command, if the request was about one.
        id: Option<String>,
        /// The reason, for programs.
        reason: RefusalReason,
        /// The reason, for people.
        message: String,
    },
    /// The request was carried out.
    Done,
    /// The metadata of a file.
    FileStat(FileStat),
    /// A part of the result of a `Walk`, or the result of `Metadata`.
    FileFound(Vec<FoundFile>),
    /// A file was written.
    FileSaved {
        /// The new metadata of the file.
        stat: FileStat,
        /// The file did not exist before.
        created: bool,
    },
    /// A message about the variables, functions, directory and options of a session's shell.
    ShellState {
        /// The name of the shell.
        shell: ShellKey,
        /// The part, the end, or the failure of the save.
        update: SavedState,
    },
    /// A part of the matches of a `Search`.
    FileLines(Vec<SearchLine>),
    /// The end of a `Search`.
    FileSearched(SearchSummary),
    /// A `Watch` has started.
    FileWatched {
        /// Number of watched directories.
        directories: u32,
    },
    /// Changes that a `Watch` observed.
    FileChanged(Vec<FileChange>),
    /// Answer to `AgentRequest::Terminal`: the client is attached.
    TerminalAttached(crate::terminal::Attached),
    /// The client has received everything up to now. From here on, output follows as the program
    /// writes it.
    TerminalReady,
    /// This client fell behind, or its screen is no longer correct. A snapshot follows.
    TerminalSnapshot(crate::terminal::Snapshot),
    /// The terminal has been resized. The output in the following frames is drawn for the new size.
    TerminalSize(crate::terminal::Size),
    /// The current clients of the terminal, for clients that asked for events.
    TerminalClients(Vec<crate::terminal::TerminalClientInfo>),
    /// The terminal's program has ended, and all of its output has been sent. The connection is
    /// free for another request.
    TerminalExit(Closed),
    /// Answer to `AgentRequest::Terminals`: all open terminals.
    Terminals(Vec<crate::terminal::TerminalStatus>),
    /// Answer to `AgentRequest::Dial`. The connected socket comes with this frame.
    Dialed,
    /// Answer to `AgentRequest::Listening`, sorted; at most [`crate::port::LISTENERS_MAX`].
    Listening(Vec<crate::port::Listener>),
    /// The status of a process. A connection that follows the process receives it last.
    Process(crate::process::ProcessStatus),
    /// A part of the list of processes.
    Processes(Vec<crate::process::ProcessStatus>),
    /// The beginning of a log; see [`crate::process`].
    ProcessLog(crate::process::ProcessLogStart),
    /// The log no longer holds these positions.
    ProcessGap {
        /// The first missing position.
        from: u64,
        /// The next position that the log still holds.
        to: u64,
    },
    /// A message about code contexts; see [`crate::context`].
    Context(crate::context::ContextResponse),
    /// A `Walk` could not read this directory. The directory itself is also part of a `FileFound`.
    FileUnread {
        /// Path in bytes, relative to the directory of the `Walk`.
        path: Vec<u8>,
        /// Why the directory could not be read.
        reason: RefusalReason,
    },
    /// A part of the answer to `Attributes`, in the order of the paths.
    FileAttributes(Vec<crate::request::FileAttributes>),
    /// A part of the answer to `Fingerprints`.
    FileFingerprints(Vec<FileFingerprint>),
}

/// Maximum size of a shell's saved state, in bytes. A typical state has 5000 bytes.
pub const STATE_BYTES_MAX: usize = 1024 * 1024;

/// A message about the saved state of a shell. The state belongs to the tenant: the server stores
/// it up to a limit, returns it to a later shell of the same session, and never reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedState {
    /// The next bytes of the state, at most 64 KiB.
    Part(Vec<u8>),
    /// All parts have been sent; together they have at most [`STATE_BYTES_MAX`].
    Complete {
        /// Number of commands that have ended in this bash, which the server repeats in
        /// `AgentRequest::StateStored`.
        number: u64,
    },
    /// The state after the last command could not be saved.
    Failed(SaveFailure),
    /// The shell has ended, and its saved state is obsolete.
    Gone,
    /// A part of the saved state could not be restored.
    NotRestored,
}

/// Why the state of a shell was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaveFailure {
    /// The state is larger than [`STATE_BYTES_MAX`].
    TooLarge,
    /// Bash did not report its state in time.
    NoAnswer,
}

/// A matching line of a searched file, or a line of its context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchLine {
    /// Path of the file relative to the directory of the `Search`; empty if the search was for one
    /// file.
    pub path: Vec<u8>,
    /// The line number, from 1.
    pub number: u64,
    /// The line without its line break; only the beginning of a long line.
    pub text: Vec<u8>,
    /// The line is longer than `text`.
    pub cut: bool,
    /// Byte ranges of the matches in `text`; empty for a line of context.
    pub spans: Vec<(u32, u32)>,
    /// The line is context and does not match itself.
    pub context: bool,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchSummary {
    /// Number of files that were searched.
    pub files: u64,
    /// Number of these that are binary. They were searched up to their first NUL byte.
    pub binary: u64,
    /// Number of files that could not be read or that contain a line above the length limit.
    pub unread: u64,
    /// The search stopped at the limit, and there are more matches.
    pub more: bool,
}

/// A change in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The kind of change.
    pub kind: FileChangeKind,
    /// Path of the changed file, relative to the watched directory.
    pub path: Vec<u8>,
    /// The new path of a moved file.
    pub to: Option<Vec<u8>>,
    /// The changed file is a directory.
    pub directory: bool,
}

/// The kinds of changes in a watched directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileChangeKind {
    /// A file was created.
    Created,
    /// The contents or attributes of a file changed.
    Modified,
    /// A file was renamed within the watched directories.
    Moved,
    /// A file was deleted.
    Deleted,
    /// Events were lost. The client must read the directory again.
    Overflow,
    /// The watch limit is reached, so changes in this directory are not reported.
    Unwatched,
    /// The watched directory itself was deleted or renamed. No other change follows.
    Gone,
}

/// What tells two versions of a file apart. No program in a sandbox can set these fields back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFingerprint {
    /// Path relative to the directory of the request.
    pub path: Vec<u8>,
    /// The type of the file.
    pub kind: FileKind,
    /// Inode number; 0 for a directory.
    pub inode: u64,
    /// Time of the last change of content or attributes, in nanoseconds since 1970. Of a directory,
    /// a number made of owner, group and mode, because its time also changes with its entries.
    pub stamp: u128,
    /// A later change may have the same stamp, because the kernel's clock has not advanced since the
    /// last one.
    pub unsettled: bool,
}

/// The result of a command or a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandExit {
    /// The id of the command; empty for a program without a shell.
    pub id: String,
    /// The exit code; 128 + signal if a signal ended the program.
    pub code: i32,
    /// The signal that ended the program or, for a command, the shell itself.
    pub signal: Option<i32>,
    /// The timeout ended the command.
    pub timed_out: bool,
    /// The command was cancelled while it ran or while it was in the queue.
    pub cancelled: bool,
    /// The kernel killed a process of the sandbox for lack of memory during the command.
    pub oom: bool,
    /// The command was the first one of a shell that replaced an ended shell.
    pub fresh: bool,
    /// The shell has ended with the command.
    pub ends_shell: bool,
    /// Bytes of standard output that the command wrote.
    pub out: u64,
    /// Bytes of standard error that the command wrote.
    pub err: u64,
    /// How many of those bytes were overwritten before this client received them.
    pub lost: u64,
    /// Duration of the command, in microseconds.
    pub micros: u64,
    /// Number of this command among the ended commands of the shell, from 1; 0 for a program
    /// without a shell.
    pub seq: u64,
}

/// Why the agent refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// The request is invalid or not allowed in the current state of the connection.
    BadRequest,
    /// The shell does not exist, and the request did not ask to open it.
    NoShell,
    /// The command queue of the shell is full.
    QueueFull,
    /// A command of this owner with this id is already queued or running.
    IdInUse,
    /// The agent has reached its limit of shells, clients or programs.
    TooMany,
    /// The start directory does not exist or is not a directory.
    BadCwd,
    /// The program was not found.
    NotFound,
    /// The user has no permission.
    Denied,
    /// No process could be started because of a resource limit.
    NoProcess,
    /// The path is not a regular file or not a directory, as the request needs.
    WrongKind,
    /// The data is larger than requested or allowed.
    TooLarge,
    /// The disk is full.
    NoSpace,
    /// Another error, which the message describes.
    Failed,
    /// The name already exists.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// No program in the sandbox listens on the port.
    NotListening,
    /// The program that listens did not accept the connection in time.
    NoAnswer,
    /// The agent is out of descriptors or memory at the moment.
    ResourcesExhausted,
    /// No process has this id.
    NoSuchProcess,
    /// The process has ended or does not accept input.
    Ended,
    /// The image does not contain what the request needs.
    Unsupported,
    /// The file is not the one that a conditional write expects.
    Changed,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file, of any content.
    File,
    /// A directory, not a link to one.
    Directory,
    /// A symbolic link, whatever it points to.
    Symlink,
    /// A FIFO, a socket or a device.
    Other,
}

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// The type of the file.
    pub kind: FileKind,
    /// The size, in bytes.
    pub size: u64,
    /// The permission bits, without the file type.
    pub mode: u32,
    /// Time of the last modification, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Inode number, which is part of entity tags.
    pub inode: u64,
}

impl FileStat {
    /// The version of the file at the time of this metadata.
    #[must_use]
    pub fn version(&self) -> crate::request::FileVersion {
        crate::request::FileVersion {
            inode: self.inode,
            size: self.size,
            modified_ms: self.modified_ms,
        }
    }
}

/// A file with its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Path in bytes: relative to the directory of a `Walk`, or as given to `Metadata`.
    pub path: Vec<u8>,
    /// The metadata of the file.
    pub stat: FileStat,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
}
