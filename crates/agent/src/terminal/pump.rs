//! From a terminal to its clients: each is sent what it has not, straight from the ring.

use super::{State, Terminal};
use crate::connection::{Conn, Role, SEND_BYTES, Stage, TerminalClient};
use isolet_wire::frame::DATA_BYTES_MAX;
use isolet_wire::tell::Tell;
use isolet_wire::terminal::{Attached, OUTPUT, SNAPSHOT, Snapshot};
use rustix::io::Errno;
use std::rc::Rc;
use std::time::Instant;

/// Snapshots that are on their way, in bytes: a client that needs one more waits.
const SNAPSHOTS_BYTES_MAX: usize = 32 * 1024 * 1024;

impl Terminal {
    /// Sends this client all that it has not and takes now.
    ///
    /// # Errors
    /// The peer has gone.
    pub(crate) fn pump(&mut self, conn: &mut Conn, now: Instant) -> Result<(), Errno> {
        // Taken out, so that the connection can be written to.
        let Role::Terminal(mut guest) = std::mem::replace(&mut conn.role, Role::Ready) else {
            return Ok(());
        };
        let before = conn.waiting();
        if guest.idle && (guest.offset() != Some(self.ring.head()) || before > 0) {
            guest.moved = now;
        }
        let result = self.advance(conn, &mut guest, now);
        let all = guest.offset().is_none_or(|offset| offset == self.ring.head());
        guest.idle = all && conn.waiting() == 0;
        if guest.idle || conn.waiting() < before {
            guest.moved = now;
        }
        conn.role = Role::Terminal(guest);
        result
    }

    fn advance(
        &mut self,
        conn: &mut Conn,
        guest: &mut TerminalClient,
        now: Instant,
    ) -> Result<(), Errno> {
        if conn.blocked() && !conn.flush()? {
            return Ok(());
        }
        loop {
            while conn.waiting() <= SEND_BYTES && self.step(conn, guest, now)? {}
            let full = conn.blocked() || conn.waiting() > SEND_BYTES;
            if guest.events && guest.presence != self.presence && guest.offset().is_some() {
                guest.presence = self.presence;
                conn.tell(&Tell::TerminalClients(self.seen.clone()));
            }
            // A socket that was full and takes this has room again, and nobody tells of that.
            if conn.waiting() == 0 || !conn.flush()? || !full {
                return Ok(());
            }
        }
    }

    /// Sends on. `false`: there is no more, or the socket is full.
    fn step(
        &mut self,
        conn: &mut Conn,
        guest: &mut TerminalClient,
        now: Instant,
    ) -> Result<bool, Errno> {
        match &guest.stage {
            Stage::Waiting => Ok(self.announce(conn, guest)),
            Stage::Drawing { .. } => Self::draw(conn, guest, now),
            Stage::Live(offset) => {
                let offset = *offset;
                self.follow(conn, guest, offset, now)
            }
            Stage::Over => Ok(false),
        }
    }

    /// Says what it is a client of, and decides where it begins.
    fn announce(&mut self, conn: &mut Conn, guest: &mut TerminalClient) -> bool {
        if !matches!(self.state, State::Live | State::Ended(_)) {
            return false;
        }
        self.feed();
        let since = guest.since.take().filter(|since| since.id == self.run);
        let held = since.as_ref().filter(|since| self.exact_since(since.offset));
        let offset = match held {
            Some(since) => Some(since.offset),
            // Who opened it sees it all, and nobody has answered its questions yet.
            None if guest.fresh && self.ring.whole_since(0) || self.ring.head() == 0 => Some(0),
            None => None,
        };
        let missed = since.map_or(0, |since| self.ring.head().saturating_sub(since.offset));
        let snapshot = match offset {
            Some(offset) => {
                guest.stage = Stage::Live(offset);
                None
            }
            None => match self.begin(guest, missed) {
                Some(snapshot) => Some(snapshot),
                None => return false,
            },
        };
        guest.mark = self.ring.marked();
        guest.told = self.size;
        guest.ready = Some(self.ring.head());
        conn.tell(&Tell::TerminalAttached(Attached {
            id: self.run.clone(),
            number: guest.number,
            pid: self.pid,
            fresh: guest.fresh,
            size: self.size,
            offset: offset.unwrap_or(self.ring.head()),
            snapshot,
        }));
        true
    }

    /// Whether output from there on, sent as it was, leads to what others see.
    fn exact_since(&self, offset: u64) -> bool {
        self.ring.whole_since(offset) && self.screen.last_query_end() <= offset
    }

    /// Puts a client before a snapshot; not, while too many are on their way.
    fn begin(&mut self, guest: &mut TerminalClient, missed: u64) -> Option<Snapshot> {
        let offset = self.ring.head();
        self.feed();
        let bytes = match self.drawn.last().and_then(|(at, bytes)| Some((at, bytes.upgrade()?))) {
            Some((at, bytes)) if *at == (offset, self.ring.marked()) => bytes,
            _ => {
                self.drawn.retain(|(_, bytes)| bytes.strong_count() > 0);
                let held: usize = self
                    .drawn
                    .iter()
                    .filter_map(|(_, bytes)| bytes.upgrade())
                    .map(|bytes| bytes.len())
                    .sum();
                if held > SNAPSHOTS_BYTES_MAX {
                    return None;
                }
                let bytes: Rc<[u8]> = self.screen.snapshot().into();
                self.drawn.push(((offset, self.ring.marked()), Rc::downgrade(&bytes)));
                bytes
            }
        };
        let snapshot = Snapshot { bytes: bytes.len() as u32, offset, missed };
        guest.stage = Stage::Drawing { bytes, sent: 0, offset };
        guest.mark = self.ring.marked();
        Some(snapshot)
    }

    /// Sends on of a snapshot. `false`: the socket is full.
    fn draw(conn: &mut Conn, guest: &mut TerminalClient, now: Instant) -> Result<bool, Errno> {
        let Stage::Drawing { bytes, sent, offset } = &mut guest.stage else { return Ok(false) };
        let mut pieces = Vec::with_capacity(SEND_BYTES / DATA_BYTES_MAX);
        let mut at = *sent;
        for piece in bytes[at..].chunks(DATA_BYTES_MAX).take(SEND_BYTES / DATA_BYTES_MAX) {
            pieces.push((at as u64, piece));
            at += piece.len();
        }
        let (moved, begun) = conn.frames(SNAPSHOT, &pieces)?;
        *sent += pieces[..begun].iter().map(|(_, piece)| piece.len()).sum::<usize>();
        if moved {
            guest.moved = now;
        }
        if *sent == bytes.len() {
            guest.stage = Stage::Live(*offset);
        }
        Ok(!conn.blocked())
    }

    /// Sends on of the output. `false`: there is no more, or the socket is full.
    fn follow(
        &mut self,
        conn: &mut Conn,
        guest: &mut TerminalClient,
        offset: u64,
        now: Instant,
    ) -> Result<bool, Errno> {
        if !guest.events {
            guest.mark = self.ring.marked();
        }
        let mark = match self.ring.find(guest.mark) {
            Ok(mark) if offset >= self.ring.tail() => mark,
            _ => return Ok(self.redraw(conn, guest, offset)),
        };
        if let Some(mark) = mark.filter(|mark| mark.offset == offset) {
            guest.mark += 1;
            guest.told = mark.size;
            conn.tell(&Tell::TerminalSize(mark.size));
            return Ok(true);
        }
        if guest.ready.is_some_and(|ready| ready <= offset) {
            guest.ready = None;
            conn.tell(&Tell::TerminalReady);
        }
        let limit = mark.map_or(self.ring.head(), |mark| mark.offset);
        let mut pieces = Vec::with_capacity(SEND_BYTES / DATA_BYTES_MAX + 1);
        let mut at = offset;
        while at < limit && pieces.len() < SEND_BYTES / DATA_BYTES_MAX {
            let piece = self.ring.piece(at, limit);
            pieces.push((at, piece));
            at += piece.len() as u64;
        }
        if pieces.is_empty() {
            if let State::Ended(closed) = &self.state {
                conn.tell(&Tell::TerminalExit(closed.clone()));
                guest.stage = Stage::Over;
            }
            return Ok(false);
        }
        let (moved, begun) = conn.frames(OUTPUT, &pieces)?;
        let sent: usize = pieces[..begun].iter().map(|(_, piece)| piece.len()).sum();
        guest.stage = Stage::Live(offset + sent as u64);
        if moved {
            guest.moved = now;
        }
        Ok(!conn.blocked())
    }

    /// It is too far behind: it goes on behind a snapshot.
    fn redraw(&mut self, conn: &mut Conn, guest: &mut TerminalClient, offset: u64) -> bool {
        let missed = self.ring.head() - offset;
        let Some(snapshot) = self.begin(guest, missed) else { return false };
        if guest.events && guest.told != self.size {
            guest.told = self.size;
            conn.tell(&Tell::TerminalSize(self.size));
        }
        conn.tell(&Tell::TerminalSnapshot(snapshot));
        true
    }
}
