//! Terminals: what a server and an agent say of a session's PTY.
//!
//! A connection becomes a client by [`crate::request::AgentRequest::Terminal`]. The agent answers with
//! [`Attached`], then sends data frames: on stream [`SNAPSHOT`] the screen as bytes that draw it
//! (offsets count from 0 within the snapshot), on stream [`OUTPUT`] what the program writes
//! (offsets count from the terminal's beginning). Ids of these frames are empty. Then comes
//! [`crate::response::AgentResponse::TerminalReady`], and from there on output as it is written. A client that
//! falls behind the ring is told [`Snapshot`] again and goes on behind it.

use crate::activity::ShellKey;
use serde::{Deserialize, Serialize};

/// Stream number of what the program writes.
pub const OUTPUT: u8 = 1;
/// Stream number of a snapshot's bytes.
pub const SNAPSHOT: u8 = 3;
/// The widest terminal, in columns. A wider wish is cut to it.
pub const COLS_MAX: u16 = 1000;
/// The highest terminal, in rows. A higher wish is cut to it.
pub const ROWS_MAX: u16 = 400;
/// Bytes of output that a terminal keeps for clients that come back.
pub const RING_BYTES: usize = 2 * 1024 * 1024;
/// The longest text typed at once, in bytes.
pub const TYPE_BYTES_MAX: usize = 64 * 1024;
/// The longest name of a client, in bytes.
pub const CLIENT_BYTES_MAX: usize = 64;

/// Who wants to be a client of which terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The terminal's name: [`ShellKey::Terminal`].
    pub terminal: ShellKey,
    /// How to open it where none runs; `None` refuses with `NoShell` instead.
    pub open: Option<Open>,
    /// The size of the client's window; `None`: it has none of its own, and never sets the size.
    pub size: Option<Size>,
    /// Where to go on: sent as output where it is held and of this terminal, else as a snapshot.
    pub since: Option<Since>,
    /// It only looks: what it types or resizes is refused with `Denied`.
    pub view: bool,
    /// Also told [`crate::response::AgentResponse::TerminalSize`] and [`crate::response::AgentResponse::TerminalClients`].
    pub events: bool,
    /// How others see it. At most [`CLIENT_BYTES_MAX`] bytes.
    pub client: String,
    /// Not shown to others, and not counted as somebody who watches (a recorder).
    pub hidden: bool,
}

impl Attach {
    /// A client of this terminal with no window and no name, which sees no events and opens nothing.
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

/// How a terminal is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Program and arguments, looked up in `PATH`; empty: bash.
    pub argv: Vec<String>,
    /// Start directory.
    pub cwd: String,
    /// The whole environment; `TERM` and `COLORTERM` are added where they are not set.
    pub env: std::collections::BTreeMap<String, String>,
}

/// A window's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns, 1 to [`COLS_MAX`].
    pub cols: u16,
    /// Rows, 1 to [`ROWS_MAX`].
    pub rows: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { cols: 80, rows: 24 }
    }
}

/// How far a client has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// [`Attached::id`] of the terminal that it read; of another one the offset means nothing.
    pub id: String,
    /// Bytes of output.
    pub offset: u64,
}

/// Answer to `AgentRequest::Terminal`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Names this run of the terminal; the next one has another. 16 letters of base32, made at random.
    pub id: String,
    /// Number of this client among the terminal's, as in [`Client::number`].
    pub number: u32,
    /// Process id of its program, inside.
    pub pid: i32,
    /// It was opened by this call.
    pub fresh: bool,
    /// Its size.
    pub size: Size,
    /// The offset at which output goes on; with `snapshot`, what that shows.
    pub offset: u64,
    /// A snapshot comes first.
    pub snapshot: Option<Snapshot>,
}

/// A snapshot follows: `bytes` of stream [`SNAPSHOT`], then output from `offset` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its length.
    pub bytes: u32,
    /// The offset of the output that it shows the effect of.
    pub offset: u64,
    /// Bytes of output that this client is not sent because of it; 0 for one that asked for no offset.
    pub missed: u64,
}

/// Somebody who is attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Counts the clients of the terminal, from 1.
    pub number: u32,
    /// As in [`Attach::client`].
    pub name: String,
    /// It only looks.
    pub view: bool,
    /// Its window, where it has one.
    pub size: Option<Size>,
    /// It typed last, and the terminal has its size.
    pub typing: bool,
}

/// A terminal that runs, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its name, as attached.
    pub name: ShellKey,
    /// As in [`Attached::id`].
    pub id: String,
    /// Process id of its program, inside.
    pub pid: i32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its size.
    pub size: Size,
    /// Bytes of output so far.
    pub offset: u64,
    /// The title that its program has set. At most 256 bytes; the tenant's, never trusted.
    pub title: String,
    /// Who is attached.
    pub clients: Vec<Client>,
    /// Milliseconds since it was opened.
    pub age_ms: u64,
}
