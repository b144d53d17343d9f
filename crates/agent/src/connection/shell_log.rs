//! What one shell has said, in order, as far back as it is kept; and where each client is in it.
//!
//! Pure: no descriptor, no clock. A client has no queue of its own, only a [`Place`] here, so a
//! slow one costs nothing but what it misses, and what it misses it is told.

use isolet_wire::ask::Since;
use isolet_wire::frame::DATA_BYTES_MAX;
use isolet_wire::tell::{Closed, Exit, STDERR, STDOUT, Tell, Why};
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

/// Whose command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// The owner, as attached.
    pub(crate) owner: String,
    /// The owner's name for it.
    pub(crate) id: String,
}

/// Something that was said.
#[derive(Debug)]
enum Entry {
    Data { stream: u8, offset: u64, who: Option<Rc<Who>>, bytes: Vec<u8> },
    Note(Note),
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    /// A command began; how many had ended before it, and the beginning of its text.
    Started(Rc<Who>, u64, Box<str>),
    /// A command ended; where its output began on each stream.
    Exit(Rc<Who>, Exit, [u64; 2]),
    /// A waiting command will never run.
    Refused(Rc<Who>, Why, String),
    /// The shell ended.
    Closed(Closed, Since),
}

/// How far a client has read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
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

/// What a client is to see.
#[derive(Debug)]
pub(crate) struct View {
    /// Its own commands.
    pub(crate) owner: String,
    /// Those of others too.
    pub(crate) watch: bool,
}

impl View {
    /// The name under which this client sees a command; `None` when it does not see it at all.
    fn name(&self, who: &Who) -> Option<String> {
        if who.owner == self.owner {
            return Some(who.id.clone());
        }
        self.watch.then(|| format!("{}/{}", who.owner, who.id))
    }
}

/// What is to be sent next.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// Output.
    Data {
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
    Tell(Tell),
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    first: u64,
    bytes: usize,
    end: [u64; 2],
    gone: [u64; 2],
    seq: u64,
    exits: VecDeque<(Rc<Who>, Exit, [u64; 2])>,
}

fn slot(stream: u8) -> usize {
    usize::from(stream == STDERR)
}

impl Log {
    /// End of each stream and the number of the last exit.
    #[must_use]
    pub(crate) fn at(&self) -> Since {
        Since { out: self.end[0], err: self.end[1], seq: self.seq }
    }

    /// End of each stream.
    #[must_use]
    pub(crate) fn end(&self) -> [u64; 2] {
        self.end
    }

    /// Appends output, at most 64 KiB at once.
    pub(crate) fn data(&mut self, stream: u8, who: Option<&Rc<Who>>, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if bytes.len() <= JOINED_BYTES_MAX && self.join(stream, who, bytes) {
            self.grew(stream, bytes.len());
        } else {
            self.chunk(stream, who, bytes.to_vec());
        }
    }

    /// As [`Log::data`], without a copy.
    pub(crate) fn chunk(&mut self, stream: u8, who: Option<&Rc<Who>>, bytes: Vec<u8>) {
        debug_assert!(bytes.len() <= DATA_BYTES_MAX);
        let (length, offset) = (bytes.len(), self.end[slot(stream)]);
        self.entries.push_back(Entry::Data { stream, offset, who: who.cloned(), bytes });
        self.grew(stream, length);
    }

    fn join(&mut self, stream: u8, who: Option<&Rc<Who>>, more: &[u8]) -> bool {
        let Some(Entry::Data { stream: last, who: whose, bytes, .. }) = self.entries.back_mut()
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

    fn grew(&mut self, stream: u8, count: usize) {
        self.end[slot(stream)] += count as u64;
        self.bytes += count;
        self.trim();
    }

    /// Appends an event. An exit is given its number here.
    pub(crate) fn note(&mut self, mut note: Note) {
        if let Note::Exit(_, exit, _) = &mut note {
            self.seq += 1;
            exit.seq = self.seq;
        }
        self.entries.push_back(Entry::Note(note));
        self.trim();
    }

    /// A note that a command began.
    pub(crate) fn started(&mut self, who: Rc<Who>, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        self.bytes += text.len();
        self.note(Note::Started(who, self.seq, text.into()));
    }

    /// A note that the shell ended.
    pub(crate) fn closed(&mut self, closed: Closed) {
        self.note(Note::Closed(closed, self.at()));
    }

    fn trim(&mut self) {
        while self.bytes > LOG_BYTES_MAX || self.entries.len() > LOG_ENTRIES_MAX {
            self.first += 1;
            match self.entries.pop_front() {
                Some(Entry::Data { stream, offset, bytes, .. }) => {
                    self.bytes -= bytes.len();
                    self.gone[slot(stream)] = offset + bytes.len() as u64;
                }
                Some(Entry::Note(Note::Started(_, _, text))) => self.bytes -= text.len(),
                Some(Entry::Note(Note::Exit(who, exit, from))) => {
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
    pub(crate) fn index(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// All that happened after entry `index` is that a command began.
    #[must_use]
    pub(crate) fn starts_after(&self, index: u64) -> bool {
        let started = matches!(self.entries.back(), Some(Entry::Note(Note::Started(..))));
        started && index + 1 == self.index()
    }

    /// The place of a client that wants what comes from now on.
    #[must_use]
    pub(crate) fn now(&self) -> Place {
        Place {
            index: self.first + self.entries.len() as u64,
            at: self.end,
            seq: self.seq,
            ..Place::default()
        }
    }

    /// The place of a client that has read up to `since`.
    #[must_use]
    pub(crate) fn since(&self, since: Since) -> Place {
        Place {
            // One before the first: whoever stands there has fallen off and is told what it missed.
            index: if self.first > 0 { self.first - 1 } else { 0 },
            at: [since.out.min(self.end[0]), since.err.min(self.end[1])],
            seq: since.seq.min(self.seq),
            seen: Some(since),
            ..Place::default()
        }
    }

    /// How far behind the end a place is, in bytes and in entries.
    #[must_use]
    pub(crate) fn behind(&self, place: &Place) -> (u64, u64) {
        let bytes = (self.end[0] - place.at[0]) + (self.end[1] - place.at[1]);
        (bytes, self.index().saturating_sub(place.index))
    }

    /// What comes next for a client at `place`, which moves past it. `None` at the end.
    pub(crate) fn next(&self, place: &mut Place, view: &View) -> Option<Item<'_>> {
        if place.index < self.first {
            if let Some(missing) = self.missing(place, view) {
                return Some(Item::Tell(missing));
            }
            place.index = self.first;
        }
        loop {
            let at = usize::try_from(place.index - self.first).ok()?;
            let entry = self.entries.get(at)?;
            let item = match entry {
                Entry::Data { stream, offset, who, bytes } => {
                    let at = &mut place.at[slot(*stream)];
                    let skip = at.saturating_sub(*offset).min(bytes.len() as u64) as usize;
                    let from = offset + skip as u64;
                    *at = (*at).max(offset + bytes.len() as u64);
                    let name = who.as_ref().map_or(Some(String::new()), |who| view.name(who));
                    let rest = &bytes[skip..];
                    name.filter(|_| !rest.is_empty()).map(|id| Item::Data {
                        stream: *stream,
                        offset: from,
                        id,
                        bytes: rest,
                    })
                }
                Entry::Note(note) => self.told(note, place, view).map(Item::Tell),
            };
            // The last chunk may still grow: a place stays in it until another follows.
            let grows = matches!(entry, Entry::Data { .. }) && at + 1 == self.entries.len();
            place.index += u64::from(!grows);
            if item.is_some() || grows {
                return item;
            }
        }
    }

    /// The next thing to tell a client whose place the log has let go of.
    fn missing(&self, place: &mut Place, view: &View) -> Option<Tell> {
        for stream in [STDOUT, STDERR] {
            let (from, to) = (place.at[slot(stream)], self.gone[slot(stream)]);
            if from < to {
                place.at[slot(stream)] = to;
                let missed = &mut place.missed[slot(stream)];
                if missed.bytes == 0 {
                    missed.from = from;
                }
                missed.to = to;
                missed.bytes += to - from;
                return Some(Tell::Gap { stream, from, to });
            }
        }
        let start = self.exits.partition_point(|(_, exit, _)| exit.seq <= place.seq);
        self.exits
            .range(start..)
            .find_map(|(who, exit, from)| exited(who, exit, *from, place, view))
    }

    fn told(&self, note: &Note, place: &mut Place, view: &View) -> Option<Tell> {
        match note {
            Note::Started(who, before, text) => {
                let id = view.name(who)?;
                let tell = match view.watch {
                    true => Tell::Began { id, command: text.to_string() },
                    false => Tell::Started { id },
                };
                (*before >= place.seq).then_some(tell)
            }
            Note::Exit(who, exit, from) => exited(who, exit, *from, place, view),
            Note::Refused(who, why, message) => {
                let id = view.name(who)?;
                Some(Tell::Refused { id: Some(id), why: *why, message: message.clone() })
            }
            Note::Closed(closed, at) => {
                let old = place.seen.is_some_and(|seen| {
                    at.out <= seen.out && at.err <= seen.err && at.seq <= seen.seq
                });
                (!old).then(|| Tell::Closed(closed.clone()))
            }
        }
    }

    /// The place of a client of a shell that has ended and will not come back: whatever it had
    /// seen, it is told of the end.
    #[must_use]
    pub(crate) fn last_words(&self, since: Option<Since>) -> Place {
        if let Some(since) = since {
            return Place { seen: None, ..self.since(since) };
        }
        let place = self.now();
        let back = self
            .entries
            .iter()
            .rev()
            .position(|entry| matches!(entry, Entry::Note(Note::Closed(..))));
        Place { index: place.index - back.map_or(0, |back| back as u64 + 1), ..place }
    }
}

fn exited(who: &Who, exit: &Exit, from: [u64; 2], place: &mut Place, view: &View) -> Option<Tell> {
    if exit.seq <= place.seq {
        return None;
    }
    place.seq = exit.seq;
    let id = view.name(who)?;
    let mut lost = 0;
    for (missed, (from, count)) in
        place.missed.iter_mut().zip(from.into_iter().zip([exit.out, exit.err]))
    {
        if missed.to > from {
            lost += missed.bytes.saturating_sub(from.saturating_sub(missed.from)).min(count);
        }
        *missed = Missed::default();
    }
    Some(Tell::Exit(Exit { id, lost, ..exit.clone() }))
}

#[cfg(test)]
#[path = "shell_log_test.rs"]
mod tests;
