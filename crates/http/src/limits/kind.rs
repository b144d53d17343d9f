//! What a connection is used for, and which routes use it so.

/// What a request does with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionKind {
    /// Answers at once: creates, lists, deletes.
    Call,
    /// Waits for what happens: event streams, followed logs, watched directories, waits.
    EventStream,
    /// A WebSocket to a shell, a terminal or a TCP port.
    Socket,
    /// A command, or code in a context, until it has ended.
    Exec,
    /// Files, archives and images that come in; also images that are pulled.
    Upload,
    /// Files, archives and recordings that go out.
    Download,
    /// A request or a socket to a program that listens in a sandbox, by a key or by a link.
    Port,
}

impl ConnectionKind {
    /// How many kinds there are.
    pub const COUNT: usize = 7;
    /// All of them, in the order of their indexes.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Call,
        Self::EventStream,
        Self::Socket,
        Self::Exec,
        Self::Upload,
        Self::Download,
        Self::Port,
    ];

    /// Its place in an array with one entry for each kind.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Which part of a tenant's connections may be of this kind: one in so many. No kind may take
    /// all, and what moves files takes less, since each of them keeps the disk busy.
    pub(crate) fn share(self) -> usize {
        match self {
            Self::EventStream | Self::Socket | Self::Exec | Self::Port => 2,
            Self::Call | Self::Upload | Self::Download => 4,
        }
    }

    /// Its name in the configuration.
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

    /// What several of them are called in a message.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Call => "calls that are not answered yet",
            Self::EventStream => "event streams",
            Self::Socket => "sockets",
            Self::Exec => "running commands",
            Self::Upload => "uploads",
            Self::Download => "downloads",
            Self::Port => "connections to ports",
        }
    }
}
