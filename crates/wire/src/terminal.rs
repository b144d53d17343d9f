//! Messages about terminals: a session's PTY and its clients.
//!
//! A connection becomes a client with [`crate::request::AgentRequest::Terminal`]. The agent answers
//! with [`Attached`] and sends data frames with empty ids. Stream [`SNAPSHOT`] carries the bytes
//! that draw the current screen (offsets count from 0 within the snapshot), and stream [`OUTPUT`]
//! carries the output of the program (offsets count from the terminal's beginning). When the client
//! has caught up, the agent sends [`crate::response::AgentResponse::TerminalReady`] and from then
//! on forwards output as the program writes it. A client that falls behind the ring buffer receives
//! another [`Snapshot`] and continues after it.

use crate::activity::ShellKey;
use serde::{Deserialize, Serialize};

/// Stream number of the program's output.
pub const OUTPUT: u8 = 1;
/// Stream number of a snapshot.
pub const SNAPSHOT: u8 = 3;
/// Maximum width of a terminal, in columns. The agent reduces a larger size to it.
pub const COLS_MAX: u16 = 1000;
/// Maximum height of a terminal, in rows. The agent reduces a larger size to it.
pub const ROWS_MAX: u16 = 400;
/// Size of the ring buffer from which a reconnecting client receives missed output, in bytes.
pub const RING_BYTES: usize = 2 * 1024 * 1024;
/// Maximum size of one input message, in bytes.
pub const TYPE_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a client's name, in bytes.
pub const CLIENT_BYTES_MAX: usize = 64;

/// A request to become a client of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachTerminal {
    /// The terminal's name: [`ShellKey::Terminal`].
    pub terminal: ShellKey,
    /// How to open the terminal if none runs; with `None`, the agent refuses with `NoShell`
    /// instead.
    pub open: Option<OpenTerminal>,
    /// The size of the client's window. A client without a window (`None`) never resizes the
    /// terminal.
    pub size: Option<Size>,
    /// Where the client stopped reading. The agent sends the output from there if the ring buffer
    /// still has it; otherwise, it sends a snapshot.
    pub since: Option<TerminalPosition>,
    /// The client may only watch: the agent refuses its input and resize requests with `Denied`.
    pub view: bool,
    /// Also send [`crate::response::AgentResponse::TerminalSize`] and
    /// [`crate::response::AgentResponse::TerminalClients`].
    pub events: bool,
    /// The name that other clients see, at most [`CLIENT_BYTES_MAX`] bytes.
    pub client: String,
    /// Other clients do not see this client, and it does not count as attached. A recorder is one.
    pub hidden: bool,
}

impl AttachTerminal {
    /// A client without a window or a name, which receives no events and opens no terminal.
    #[must_use]
    pub fn new(terminal: ShellKey) -> Self {
        Self {
            terminal,
            open: None,
            size: None,
            since: None,
            view: false,
            events: false,
            client: String::new(),
            hidden: false,
        }
    }
}

/// The parameters of a new terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTerminal {
    /// Program and arguments; the program is looked up in `PATH`. Empty means bash.
    pub argv: Vec<String>,
    /// The directory in which the program starts.
    pub cwd: String,
    /// The complete environment. The agent adds `TERM` and `COLORTERM` if they are missing.
    pub env: std::collections::BTreeMap<String, String>,
}

/// The size of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Number of columns, 1 to [`COLS_MAX`].
    pub cols: u16,
    /// Number of rows, 1 to [`ROWS_MAX`].
    pub rows: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { cols: 80, rows: 24 }
    }
}

/// A client's position in the output of a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalPosition {
    /// The [`Attached::id`] of the terminal. The offset has no meaning for another one.
    pub id: String,
    /// Number of output bytes that the client has received.
    pub offset: u64,
}

/// The answer to `AgentRequest::Terminal`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Random id of this run of the terminal, 16 letters in base32. The next run has another id.
    pub id: String,
    /// Number of this client; see [`TerminalClientInfo::number`].
    pub number: u32,
    /// Process id of the terminal's program inside the sandbox.
    pub pid: i32,
    /// This request opened the terminal.
    pub fresh: bool,
    /// The current size of the terminal.
    pub size: Size,
    /// The offset at which output continues; with a snapshot, the offset that the snapshot shows.
    pub offset: u64,
    /// Set if a snapshot comes before the output.
    pub snapshot: Option<Snapshot>,
}

/// Announces a snapshot: `bytes` of stream [`SNAPSHOT`], then output from `offset` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Length of the snapshot.
    pub bytes: u32,
    /// The snapshot shows the effect of all output before this offset.
    pub offset: u64,
    /// Bytes of output that this client does not receive because of the snapshot; 0 if the client
    /// asked for no offset.
    pub missed: u64,
}

/// A client of a terminal, as other clients see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalClientInfo {
    /// Number of the client in its terminal, counted from 1.
    pub number: u32,
    /// The name that the client gave in [`AttachTerminal::client`].
    pub name: String,
    /// The client may only watch.
    pub view: bool,
    /// The size of the client's window, if it has one.
    pub size: Option<Size>,
    /// The client typed last, and the terminal has the size of its window.
    pub typing: bool,
}

/// A running terminal in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalStatus {
    /// Its name, as attached.
    pub name: ShellKey,
    /// Random id of this run; see [`Attached::id`].
    pub id: String,
    /// Process id of the terminal's program inside the sandbox.
    pub pid: i32,
    /// The program with its arguments.
    pub argv: Vec<String>,
    /// The current size of the terminal.
    pub size: Size,
    /// Number of output bytes so far.
    pub offset: u64,
    /// The title that the program set, at most 256 bytes. The tenant controls it, so it is not
    /// trusted.
    pub title: String,
    /// The visible clients of the terminal.
    pub clients: Vec<TerminalClientInfo>,
    /// Time since the terminal was opened, in milliseconds.
    pub age_ms: u64,
}
