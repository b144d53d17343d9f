//! The data of events about sandboxes.

use isolet_sandbox::NetworkDenial;
use isolet_sandbox::events::{Command, EventKind, Exit, SandboxEvent};
use serde::Serialize;
use utoipa::ToSchema;

/// The data of an event about a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SandboxEvent)]
pub(crate) struct SandboxEventView<'a> {
    /// Increases by one from event to event of a tenant.
    id: u64,
    /// Milliseconds since 1970, by the wall clock.
    at_ms: i64,
    /// The id of the sandbox.
    sandbox: &'a str,
    #[serde(flatten)]
    fields: EventFields<'a>,
}

/// The fields that an event has beside those that all events have.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EventFields<'a> {
    /// `created`, `running`, `paused`, `resumed`, `sleeping`, `woke` and `destroyed`.
    None {},
    /// The fields of `unreachable` and `failed`.
    Cause {
        /// Why, as text for people.
        cause: &'a str,
    },
    /// `session_created`, `session_deleted`, `terminal_opened` and `terminal_ended`.
    Session {
        /// The id of the session.
        session: &'a str,
    },
    /// The fields of `restored`.
    Snapshot {
        /// The id of the snapshot.
        snapshot: &'a str,
    },
    /// The fields of `command_started`.
    CommandStarted {
        /// `null` for a program outside of sessions, and for a private shell.
        session: Option<&'a str>,
        /// The client's id for the command; empty for a program.
        command: &'a str,
    },
    /// The fields of `command_exited`.
    CommandExited {
        /// `null` for a program outside of sessions, and for a private shell.
        session: Option<&'a str>,
        /// The client's id for the command; empty for a program.
        command: &'a str,
        /// `null` if the command could not start, or was killed because its client disconnected.
        code: Option<i32>,
    },
    /// The fields of `port_opened` and `port_closed`.
    Port {
        /// The TCP port inside the sandbox.
        port: u16,
    },
    /// The fields of `process_started`.
    ProcessStarted {
        /// The id of the process.
        process: &'a str,
        /// The session that the process belongs to, or `null`.
        session: Option<&'a str>,
    },
    /// The fields of `process_exited`.
    ProcessExited {
        /// The id of the process.
        process: &'a str,
        /// The session that the process belongs to, or `null`.
        session: Option<&'a str>,
        /// `null` if the process was lost.
        code: Option<i32>,
        /// The signal that ended the process, or `null`.
        signal: Option<i32>,
    },
    /// The fields of `snapshot_taken`.
    SnapshotTaken {
        /// The id of the snapshot.
        snapshot: &'a str,
        /// `schedule` or `destroy`.
        trigger: &'static str,
    },
    /// The fields of `snapshot_failed`.
    SnapshotFailed {
        /// `schedule` or `destroy`.
        trigger: &'static str,
        /// Why, and what happens next, as text for people.
        cause: &'a str,
    },
    /// The fields of `network_changed`.
    Network {
        /// `none`, `open` or `rules`.
        network: &'a str,
    },
    /// The fields of `network_denied`.
    Denied {
        /// The name if one is known, otherwise the address.
        host: &'a str,
        /// `null` for a name that was looked up, and for protocols without ports.
        port: Option<u16>,
        /// `tcp`, `udp`, `icmp`, `dns` or another protocol.
        protocol: &'a str,
        /// The rule that denied it.
        rule: &'a str,
        /// How often it was denied.
        times: u32,
    },
}

impl<'a> SandboxEventView<'a> {
    /// The name of an event, and its data.
    pub(super) fn of(event: &'a SandboxEvent) -> (&'static str, Self) {
        let (name, fields) = EventFields::of(&event.kind);
        (name, Self { id: event.id, at_ms: event.at_ms, sandbox: event.sandbox.as_str(), fields })
    }
}

impl<'a> EventFields<'a> {
    fn of(kind: &'a EventKind) -> (&'static str, Self) {
        match kind {
            EventKind::Created => ("created", Self::None {}),
            EventKind::Running => ("running", Self::None {}),
            EventKind::Unreachable { cause } => ("unreachable", Self::Cause { cause }),
            EventKind::Sleeping => ("sleeping", Self::None {}),
            EventKind::Restored(snapshot) => {
                ("restored", Self::Snapshot { snapshot: snapshot.as_str() })
            }
            EventKind::Paused => ("paused", Self::None {}),
            EventKind::Resumed => ("resumed", Self::None {}),
            EventKind::Woke => ("woke", Self::None {}),
            EventKind::Failed { cause } => ("failed", Self::Cause { cause }),
            EventKind::Destroyed => ("destroyed", Self::None {}),
            EventKind::Superseded => ("superseded", Self::None {}),
            EventKind::Evicted => ("evicted", Self::None {}),
            EventKind::Moved => ("moved", Self::None {}),
            EventKind::SessionCreated(id) => {
                ("session_created", Self::Session { session: id.as_str() })
            }
            EventKind::SessionDeleted(id) => {
                ("session_deleted", Self::Session { session: id.as_str() })
            }
            EventKind::CommandStarted(Command { session, id }) => {
                let session = session.as_deref();
                ("command_started", Self::CommandStarted { session, command: id })
            }
            EventKind::CommandExited { command: Command { session, id }, code } => {
                let session = session.as_deref();
                ("command_exited", Self::CommandExited { session, command: id, code: *code })
            }
            EventKind::PortOpened(port) => ("port_opened", Self::Port { port: *port }),
            EventKind::PortClosed(port) => ("port_closed", Self::Port { port: *port }),
            EventKind::ProcessStarted { process, session } => {
                let session = session.as_ref().map(|id| id.as_str());
                ("process_started", Self::ProcessStarted { process: process.as_str(), session })
            }
            EventKind::ProcessExited { process, session, exit } => {
                let process = process.as_str();
                let session = session.as_ref().map(|id| id.as_str());
                let code = exit.map(|Exit { code, .. }| code);
                let signal = exit.and_then(|exit| exit.signal);
                ("process_exited", Self::ProcessExited { process, session, code, signal })
            }
            EventKind::TerminalOpened(id) => {
                ("terminal_opened", Self::Session { session: id.as_str() })
            }
            EventKind::TerminalEnded(id) => {
                ("terminal_ended", Self::Session { session: id.as_str() })
            }
            EventKind::SnapshotTaken { snapshot, trigger } => {
                let trigger = trigger.word();
                let snapshot = snapshot.as_str();
                ("snapshot_taken", Self::SnapshotTaken { snapshot, trigger })
            }
            EventKind::SnapshotFailed { trigger, cause } => {
                let trigger = trigger.word();
                ("snapshot_failed", Self::SnapshotFailed { trigger, cause })
            }
            EventKind::NetworkChanged(mode) => {
                ("network_changed", Self::Network { network: mode.word() })
            }
            EventKind::NetworkDenied(NetworkDenial { host, port, protocol, rule, times }) => {
                let fields = Self::Denied { host, port: *port, protocol, rule, times: *times };
                ("network_denied", fields)
            }
        }
    }
}
