//! The output and events of one shell, in order, and the position of each client in them.
//!
//! Pure: no descriptor, no clock. A client has no queue of its own, only a [`LogCursor`] here, so a
//! slow one costs only the output that it misses, and its gaps are reported to it.

use isolet_wire::frame::DATA_BYTES_MAX;
use isolet_wire::request::Since;
use isolet_wire::response::{AgentResponse, Closed, Exit, RefusalReason, STDERR, STDOUT};
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of output that are kept.
pub(crate) const LOG_BYTES_MAX: usize = 1024 * 1024;
/// Entries that are kept: a flood of single bytes on alternating streams must not cost more.
pub(crate) const LOG_ENTRIES_MAX: usize = 4096;
/// Ended commands whose exit is kept after the log let go of it.
const EXITS_MAX: usize = 1024;
/// Of a command's text so much is told to who watches.
const TEXT_BYTES_MAX: usize = 1024;
/// Chunks up to this size are joined to the one before.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// A command, named by its owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandKey {
    /// The owner, as attached.
    pub(crate) owner: String,
    /// The owner's name for it.
    pub(crate) id: String,
}

/// An entry of the log.
#[derive(Debug)]
enum Entry {
    Output { stream: u8, offset: u64, who: Option<Rc<CommandKey>>, bytes: Vec<u8> },
    Event(LogEvent),
}

/// An event of a shell.
#[derive(Debug, Clone)]
pub(crate) enum LogEvent {
    /// A command began; how many had ended before it, and the beginning of its text.
    Started(Rc<CommandKey>, u64, Box<str>),
    /// A command ended; where its output began on each stream.
    Exit(Rc<CommandKey>, Exit, [u64; 2]),
    /// A waiting command will never run.
    Refused(Rc<CommandKey>, RefusalReason, String),
    /// The shell ended.
    Closed(Closed, Since),
}

/// The position of a client in the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogCursor {
    index: u64,
    at: [u64; 2],
    seq: u64,
    missed: [Missed; 2],
    /// Ends of the shell up to here were seen before.
    seen: Option<Since>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Missed {
    from: u64,
    to: u64,
    bytes: u64,
}

/// Which commands a client sees.
#[derive(Debug)]
pub(crate) struct LogFilter {
    /// Its own commands.
    pub(crate) owner: String,
    /// Those of others too.
    pub(crate) watch: bool,
}

impl LogFilter {
    /// The name under which this client sees a command; `None` when it does not see it at all.
    fn command_name(&self, who: &CommandKey) -> Option<String> {
        if who.owner == self.owner {
            return Some(who.id.clone());
        }
        self.watch.then(|| format!("{}/{}", who.owner, who.id))
    }
}

/// What a client is sent next.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// Output.
    Output {
        /// Which stream.
        stream: u8,
        /// Where the first byte stands.
        offset: u64,
        /// Whose; empty for background jobs.
        id: String,
        /// At most 64 KiB.
        bytes: &'a [u8],
    },
    /// Anything else.
    Message(AgentResponse),
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct ShellLog {
    entries: VecDeque<Entry>,
    first: u64,
    bytes: usize,
    end: [u64; 2],
    dropped: [u64; 2],
    seq: u64,
    exits: VecDeque<(Rc<CommandKey>, Exit, [u64; 2])>,
}

fn slot(stream: u8) -> usize {
    usize::from(stream == STDERR)
}

impl ShellLog {
    /// End of each stream and the number of the last exit.
    #[must_use]
    pub(crate) fn end_since(&self) -> Since {
        Since { out: self.end[0], err: self.end[1], seq: self.seq }
    }

    /// End of each stream.
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

    /// As [`ShellLog::push_output`], without a copy.
    pub(crate) fn push_owned(&mut self, stream: u8, who: Option<&Rc<CommandKey>>, bytes: Vec<u8>) {
        debug_assert!(bytes.len() <= DATA_BYTES_MAX);
        let length = bytes.len();
        let offset = self.end[slot(stream)];
        self.entries.push_back(Entry::Output { stream, offset, who: who.cloned(), bytes });
        self.record_growth(stream, length);
    }

    fn join(&mut self, stream: u8, who: Option<&Rc<CommandKey>>, more: &[u8]) -> bool {
        let Some(Entry::Output { stream: last, who: whose, bytes, .. }) = self.entries.back_mut()
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

    /// Appends an event. An exit is given its number here.
    pub(crate) fn push_event(&mut self, mut note: LogEvent) {
        if let LogEvent::Exit(_, exit, _) = &mut note {
            self.seq += 1;
            exit.seq = self.seq;
        }
        self.entries.push_back(Entry::Event(note));
        self.trim();
    }

    /// A note that a command began.
    pub(crate) fn started(&mut self, who: Rc<CommandKey>, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        self.bytes += text.len();
        self.push_event(LogEvent::Started(who, self.seq, text.into()));
    }

    /// A note that the shell ended.
    pub(crate) fn closed(&mut self, closed: Closed) {
        self.push_event(LogEvent::Closed(closed, self.end_since()));
    }

    fn trim(&mut self) {
        while self.bytes > LOG_BYTES_MAX || self.entries.len() > LOG_ENTRIES_MAX {
            self.first += 1;
            match self.entries.pop_front() {
                Some(Entry::Output { stream, offset, bytes, .. }) => {
                    self.bytes -= bytes.len();
                    self.dropped[slot(stream)] = offset + bytes.len() as u64;
                }
                Some(Entry::Event(LogEvent::Started(_, _, text))) => self.bytes -= text.len(),
                Some(Entry::Event(LogEvent::Exit(who, exit, from))) => {
                    if self.exits.len() == EXITS_MAX {
                        self.exits.pop_front();
                    }
                    self.exits.push_back((who, exit, from));
                }
                _ => {}
            }
        }
    }

    /// Entries so far.
    #[must_use]
    pub(crate) fn next_index(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// All that happened after entry `index` is that a command began.
    #[must_use]
    pub(crate) fn only_start_after(&self, index: u64) -> bool {
        let started = matches!(self.entries.back(), Some(Entry::Event(LogEvent::Started(..))));
        started && index + 1 == self.next_index()
    }

    /// The cursor of a client that wants what comes from now on.
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
    pub(crate) fn cursor_since(&self, since: Since) -> LogCursor {
        LogCursor {
            // One before the first: whoever stands there has fallen off and is told what it missed.
            index: if self.first > 0 { self.first - 1 } else { 0 },
            at: [since.out.min(self.end[0]), since.err.min(self.end[1])],
            seq: since.seq.min(self.seq),
            seen: Some(since),
            ..LogCursor::default()
        }
    }

    /// How far behind the end a cursor is, in bytes and in entries.
    #[must_use]
    pub(crate) fn lag(&self, cursor: &LogCursor) -> (u64, u64) {
        let bytes = (self.end[0] - cursor.at[0]) + (self.end[1] - cursor.at[1]);
        (bytes, self.next_index().saturating_sub(cursor.index))
    }

    /// What comes next for a client at `cursor`, which moves past it. `None` at the end.
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
                Entry::Output { stream, offset, who, bytes } => {
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
                Entry::Event(note) => self.message(note, cursor, filter).map(Item::Message),
            };
            // The last chunk may still grow: a cursor stays in it until another follows.
            let grows = matches!(entry, Entry::Output { .. }) && at + 1 == self.entries.len();
            cursor.index += u64::from(!grows);
            if item.is_some() || grows {
                return item;
            }
        }
    }

    /// The next thing to tell a client whose cursor the log has let go of.
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
        let start = self.exits.partition_point(|(_, exit, _)| exit.seq <= cursor.seq);
        self.exits
            .range(start..)
            .find_map(|(who, exit, from)| exit_message(who, exit, *from, cursor, filter))
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
                let tell = match filter.watch {
                    true => AgentResponse::Began { id, command: text.to_string() },
                    false => AgentResponse::Started { id },
                };
                (*before >= cursor.seq).then_some(tell)
            }
            LogEvent::Exit(who, exit, from) => exit_message(who, exit, *from, cursor, filter),
            LogEvent::Refused(who, why, message) => {
                let id = filter.command_name(who)?;
                Some(AgentResponse::Refused { id: Some(id), why: *why, message: message.clone() })
            }
            LogEvent::Closed(closed, at) => {
                let old = cursor.seen.is_some_and(|seen| {
                    at.out <= seen.out && at.err <= seen.err && at.seq <= seen.seq
                });
                (!old).then(|| AgentResponse::Closed(closed.clone()))
            }
        }
    }

    /// The cursor of a client of a shell that has ended and will not come back: whatever it had
    /// seen, it is told of the end.
    #[must_use]
    pub(crate) fn cursor_for_ended(&self, since: Option<Since>) -> LogCursor {
        if let Some(since) = since {
            return LogCursor { seen: None, ..self.cursor_since(since) };
        }
        let cursor = self.cursor_at_end();
        let back = self
            .entries
            .iter()
            .rev()
            .position(|entry| matches!(entry, Entry::Event(LogEvent::Closed(..))));
        LogCursor { index: cursor.index - back.map_or(0, |back| back as u64 + 1), ..cursor }
    }
}

fn exit_message(
    who: &CommandKey,
    exit: &Exit,
    from: [u64; 2],
    cursor: &mut LogCursor,
    filter: &LogFilter,
) -> Option<AgentResponse> {
    if exit.seq <= cursor.seq {
        return None;
    }
    cursor.seq = exit.seq;
    let id = filter.command_name(who)?;
    let mut lost = 0;
    for (missed, (from, count)) in
        cursor.missed.iter_mut().zip(from.into_iter().zip([exit.out, exit.err]))
    {
        if missed.to > from {
            lost += missed.bytes.saturating_sub(from.saturating_sub(missed.from)).min(count);
        }
        *missed = Missed::default();
    }
    Some(AgentResponse::Exit(Exit { id, lost, ..exit.clone() }))
}

#[cfg(test)]
#[path = "shell_log_test.rs"]
mod tests;
