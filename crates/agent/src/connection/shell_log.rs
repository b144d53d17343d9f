//! The log of a shell: its output and events in order, and the position of each client.
//!
//! This module uses no descriptors and no clock. A client has only a [`LogCursor`], so a slow
//! client costs no memory. It receives a gap message for what it missed.

use isolet_wire::frame::DATA_BYTES_MAX;
use isolet_wire::request::ShellPosition;
use isolet_wire::response::{AgentResponse, Closed, CommandExit, RefusalReason, STDERR, STDOUT};
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum amount of output in the log, in bytes.
pub(crate) const LOG_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of entries in the log, so that single bytes on alternating streams do not cost
/// more.
pub(crate) const LOG_ENTRIES_MAX: usize = 4096;
/// Number of ended commands whose exit is kept longer than the log.
const EXITS_MAX: usize = 1024;
/// Maximum length of a command's text for clients that watch, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// Output up to this size is appended to the previous entry.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// A command, identified by its owner and its id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandKey {
    /// The owner of the command.
    pub(crate) owner: String,
    /// The id that the owner gave the command.
    pub(crate) id: String,
}

/// An entry of the log.
#[derive(Debug)]
enum LogEntry {
    Output { stream: u8, offset: u64, who: Option<Rc<CommandKey>>, bytes: Vec<u8> },
    Event(LogEvent),
}

/// The end of a command.
#[derive(Debug, Clone)]
pub(crate) struct EndedCommand {
    pub(crate) exit: CommandExit,
    /// The position of its first output on each stream.
    pub(crate) from: [u64; 2],
}

/// An event of a shell.
#[derive(Debug, Clone)]
pub(crate) enum LogEvent {
    /// A command has started, with the number of commands that had ended before and the beginning
    /// of its text.
    Started(Rc<CommandKey>, u64, Box<str>),
    /// A command has ended.
    Exit(Rc<CommandKey>, EndedCommand),
    /// A queued command will never run.
    Refused(Rc<CommandKey>, RefusalReason, String),
    /// The shell has ended.
    Closed(Closed, ShellPosition),
}

/// The position of a client in the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogCursor {
    index: u64,
    at: [u64; 2],
    seq: u64,
    missed: [Missed; 2],
    /// The client has already seen the ends of the shell up to this position.
    seen: Option<ShellPosition>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Missed {
    from: u64,
    to: u64,
    bytes: u64,
}

/// Selects the commands that a client sees.
#[derive(Debug)]
pub(crate) struct LogFilter {
    /// The owner whose commands are visible.
    pub(crate) owner: String,
    /// The commands of other owners are also visible.
    pub(crate) watch: bool,
}

impl LogFilter {
    /// The id under which this client sees a command; `None` if the command is not visible.
    fn command_name(&self, who: &CommandKey) -> Option<String> {
        if who.owner == self.owner {
            return Some(who.id.clone());
        }
        self.watch.then(|| format!("{}/{}", who.owner, who.id))
    }
}

/// The next item for a client.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// A part of the output.
    Output {
        stream: u8,
        /// Offset of the first byte.
        offset: u64,
        /// The id of the command; empty for background jobs.
        id: String,
        /// At most 64 KiB.
        bytes: &'a [u8],
    },
    Message(AgentResponse),
}

/// The log of a shell.
#[derive(Debug, Default)]
pub(crate) struct ShellLog {
    entries: VecDeque<LogEntry>,
    first: u64,
    bytes: usize,
    end: [u64; 2],
    dropped: [u64; 2],
    seq: u64,
    exits: VecDeque<(Rc<CommandKey>, EndedCommand)>,
}

fn slot(stream: u8) -> usize {
    usize::from(stream == STDERR)
}

impl ShellLog {
    /// The current end of each stream and number of the last exit.
    #[must_use]
    pub(crate) fn end_since(&self) -> ShellPosition {
        ShellPosition { out: self.end[0], err: self.end[1], seq: self.seq }
    }

    /// The current end of each stream.
    #[must_use]
    pub(crate) fn end(&self) -> [u64; 2] {
        self.end
    }

    /// Appends output, at most 64 KiB at once.
    pub(crate) fn push_output(&mut self, stream: u8, who: Option<&Rc<CommandKey>>, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if bytes.len() <= JOINED_BYTES_MAX && self.join(stream, who, bytes) {
            self.record_growth(stream, bytes.len());
        } else {
            self.push_owned(stream, who, bytes.to_vec());
        }
    }

    /// The same without a copy.
    pub(crate) fn push_owned(&mut self, stream: u8, who: Option<&Rc<CommandKey>>, bytes: Vec<u8>) {
        debug_assert!(bytes.len() <= DATA_BYTES_MAX);
        let length = bytes.len();
        let offset = self.end[slot(stream)];
        self.entries.push_back(LogEntry::Output { stream, offset, who: who.cloned(), bytes });
        self.record_growth(stream, length);
    }

    fn join(&mut self, stream: u8, who: Option<&Rc<CommandKey>>, more: &[u8]) -> bool {
        let Some(LogEntry::Output { stream: last, who: whose, bytes, .. }) =
            self.entries.back_mut()
        else {
            return false;
        };
        let same = match (whose.as_ref(), who) {
            (None, None) => true,
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            _ => false,
        };
        if *last != stream || !same || bytes.len() + more.len() > DATA_BYTES_MAX {
            return false;
        }
        bytes.extend_from_slice(more);
        true
    }

    fn record_growth(&mut self, stream: u8, count: usize) {
        self.end[slot(stream)] += count as u64;
        self.bytes += count;
        self.trim();
    }

    /// Appends an event. An exit gets its number here.
    pub(crate) fn push_event(&mut self, mut note: LogEvent) {
        if let LogEvent::Exit(_, ended) = &mut note {
            self.seq += 1;
            ended.exit.seq = self.seq;
        }
        self.entries.push_back(LogEntry::Event(note));
        self.trim();
    }

    /// Appends the start of a command.
    pub(crate) fn started(&mut self, who: Rc<CommandKey>, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        self.bytes += text.len();
        self.push_event(LogEvent::Started(who, self.seq, text.into()));
    }

    /// Appends the end of the shell.
    pub(crate) fn closed(&mut self, closed: Closed) {
        self.push_event(LogEvent::Closed(closed, self.end_since()));
    }

    fn trim(&mut self) {
        while self.bytes > LOG_BYTES_MAX || self.entries.len() > LOG_ENTRIES_MAX {
            self.first += 1;
            match self.entries.pop_front() {
                Some(LogEntry::Output { stream, offset, bytes, .. }) => {
                    self.bytes -= bytes.len();
                    self.dropped[slot(stream)] = offset + bytes.len() as u64;
                }
                Some(LogEntry::Event(LogEvent::Started(_, _, text))) => self.bytes -= text.len(),
                Some(LogEntry::Event(LogEvent::Exit(who, ended))) => {
                    if self.exits.len() == EXITS_MAX {
                        self.exits.pop_front();
                    }
                    self.exits.push_back((who, ended));
                }
                _ => {}
            }
        }
    }

    /// Number of entries that were ever added.
    #[must_use]
    pub(crate) fn next_index(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Whether only the start of a command follows the entry `index`.
    #[must_use]
    pub(crate) fn only_start_after(&self, index: u64) -> bool {
        let started = matches!(self.entries.back(), Some(LogEntry::Event(LogEvent::Started(..))));
        started && index + 1 == self.next_index()
    }

    /// The cursor of a client that wants only new entries.
    #[must_use]
    pub(crate) fn cursor_at_end(&self) -> LogCursor {
        LogCursor {
            index: self.first + self.entries.len() as u64,
            at: self.end,
            seq: self.seq,
            ..LogCursor::default()
        }
    }

    /// The cursor of a client that has read up to `since`.
    #[must_use]
    pub(crate) fn cursor_to_resume_from(&self, since: ShellPosition) -> LogCursor {
        LogCursor {
            // One before the first entry: a cursor there has fallen behind, and its client receives
            // what it missed as a gap.
            index: if self.first > 0 { self.first - 1 } else { 0 },
            at: [since.out.min(self.end[0]), since.err.min(self.end[1])],
            seq: since.seq.min(self.seq),
            seen: Some(since),
            ..LogCursor::default()
        }
    }

    /// The distance of a cursor to the end, in bytes and in entries.
    #[must_use]
    pub(crate) fn lag(&self, cursor: &LogCursor) -> (u64, u64) {
        let bytes = (self.end[0] - cursor.at[0]) + (self.end[1] - cursor.at[1]);
        (bytes, self.next_index().saturating_sub(cursor.index))
    }

    /// The next item for a client, whose cursor moves past it. `None` at the end.
    pub(crate) fn next(&self, cursor: &mut LogCursor, filter: &LogFilter) -> Option<Item<'_>> {
        if cursor.index < self.first {
            if let Some(missing) = self.next_missing(cursor, filter) {
                return Some(Item::Message(missing));
            }
            cursor.index = self.first;
        }
        loop {
            let at = usize::try_from(cursor.index - self.first).ok()?;
            let entry = self.entries.get(at)?;
            let item = match entry {
                LogEntry::Output { stream, offset, who, bytes } => {
                    let at = &mut cursor.at[slot(*stream)];
                    let skip = at.saturating_sub(*offset).min(bytes.len() as u64) as usize;
                    let from = offset + skip as u64;
                    *at = (*at).max(offset + bytes.len() as u64);
                    let name =
                        who.as_ref().map_or(Some(String::new()), |who| filter.command_name(who));
                    let rest = &bytes[skip..];
                    name.filter(|_| !rest.is_empty()).map(|id| Item::Output {
                        stream: *stream,
                        offset: from,
                        id,
                        bytes: rest,
                    })
                }
                LogEntry::Event(note) => self.message(note, cursor, filter).map(Item::Message),
            };
            // The last piece of output may still grow, so the cursor stays in it until another
            // entry follows.
            let grows = matches!(entry, LogEntry::Output { .. }) && at + 1 == self.entries.len();
            cursor.index += u64::from(!grows);
            if item.is_some() || grows {
                return item;
            }
        }
    }

    /// The next item for a client whose cursor has fallen behind the log.
    fn next_missing(&self, cursor: &mut LogCursor, filter: &LogFilter) -> Option<AgentResponse> {
        for stream in [STDOUT, STDERR] {
            let from = cursor.at[slot(stream)];
            let to = self.dropped[slot(stream)];
            if from < to {
                cursor.at[slot(stream)] = to;
                let missed = &mut cursor.missed[slot(stream)];
                if missed.bytes == 0 {
                    missed.from = from;
                }
                missed.to = to;
                missed.bytes += to - from;
                return Some(AgentResponse::Gap { stream, from, to });
            }
        }
        let start = self.exits.partition_point(|(_, ended)| ended.exit.seq <= cursor.seq);
        self.exits.range(start..).find_map(|(who, ended)| exit_message(who, ended, cursor, filter))
    }

    fn message(
        &self,
        note: &LogEvent,
        cursor: &mut LogCursor,
        filter: &LogFilter,
    ) -> Option<AgentResponse> {
        match note {
            LogEvent::Started(who, before, text) => {
                let id = filter.command_name(who)?;
                let command = filter.watch.then(|| text.to_string());
                (*before >= cursor.seq).then_some(AgentResponse::Started { id, command })
            }
            LogEvent::Exit(who, ended) => exit_message(who, ended, cursor, filter),
            LogEvent::Refused(who, reason, message) => {
                let id = filter.command_name(who)?;
                Some(AgentResponse::Refused {
                    id: Some(id),
                    reason: *reason,
                    message: message.clone(),
                })
            }
            LogEvent::Closed(closed, at) => {
                let old = cursor.seen.is_some_and(|seen| {
                    at.out <= seen.out && at.err <= seen.err && at.seq <= seen.seq
                });
                (!old).then(|| AgentResponse::Closed(closed.clone()))
            }
        }
    }

    /// The cursor of a client of a shell that has ended for good. The client always receives the
    /// end, whatever it has already seen.
    #[must_use]
    pub(crate) fn cursor_for_ended(&self, since: Option<ShellPosition>) -> LogCursor {
        if let Some(since) = since {
            return LogCursor { seen: None, ..self.cursor_to_resume_from(since) };
        }
        let cursor = self.cursor_at_end();
        let back = self
            .entries
            .iter()
            .rev()
            .position(|entry| matches!(entry, LogEntry::Event(LogEvent::Closed(..))));
        LogCursor { index: cursor.index - back.map_or(0, |back| back as u64 + 1), ..cursor }
    }
}

fn exit_message(
    who: &CommandKey,
    ended: &EndedCommand,
    cursor: &mut LogCursor,
    filter: &LogFilter,
) -> Option<AgentResponse> {
    let EndedCommand { exit, from } = ended;
    if exit.seq <= cursor.seq {
        return None;
    }
    cursor.seq = exit.seq;
    let id = filter.command_name(who)?;
    let mut lost = 0;
    for (missed, (from, count)) in
        cursor.missed.iter_mut().zip(from.iter().copied().zip([exit.out, exit.err]))
    {
        if missed.to > from {
            lost += missed.bytes.saturating_sub(from.saturating_sub(missed.from)).min(count);
        }
        *missed = Missed::default();
    }
    Some(AgentResponse::Exit(CommandExit { id, lost, ..exit.clone() }))
}

#[cfg(test)]
#[path = "shell_log_test.rs"]
mod tests;
