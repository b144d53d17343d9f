//! What a connection is used for.

/// What a request uses its connection for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionKind {
    /// Answered at once: create, list, delete.
    Call,
    /// Stays open until an event occurs: event streams, followed logs, watched directories, waits.
    EventStream,
    /// A WebSocket to a shell, a terminal or a TCP port.
    Socket,
    /// Runs a command, or code in a context, to its end.
    Exec,
    /// Receives files, archives or images; also pulls images.
    Upload,
    /// Sends files, archives or recordings.
    Download,
    /// A request or socket to a program in a sandbox, by key or by link.
    Port,
}

impl ConnectionKind {
    /// The number of kinds.
    pub const COUNT: usize = 7;
    /// All kinds, in the order of their indexes.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Call,
        Self::EventStream,
        Self::Socket,
        Self::Exec,
        Self::Upload,
        Self::Download,
        Self::Port,
    ];

    /// The index into an array with one entry per kind.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The divisor for a tenant's connections of this kind: with `n`, at most one in `n`
    /// connections may be of it. No kind may take all, and file transfers may take less, since each
    /// of them keeps the disk busy.
    pub(crate) fn share(self) -> usize {
        match self {
            Self::EventStream | Self::Socket | Self::Exec | Self::Port => 2,
            Self::Call | Self::Upload | Self::Download => 4,
        }
    }

    /// The name of its limit in the configuration.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::Call => "calls",
            Self::EventStream => "event_streams",
            Self::Socket => "sockets",
            Self::Exec => "execs",
            Self::Upload => "uploads",
            Self::Download => "downloads",
            Self::Port => "ports",
        }
    }

    /// The plural in error messages.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Call => "calls in progress",
            Self::EventStream => "event streams",
            Self::Socket => "sockets",
            Self::Exec => "running commands",
            Self::Upload => "uploads",
            Self::Download => "downloads",
            Self::Port => "connections to ports",
        }
    }
}
