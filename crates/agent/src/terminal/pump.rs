//! Sends each client of a terminal the output that it lacks, directly from the ring.

use super::{Terminal, TerminalState};
use crate::connection::{ClientStage, Conn, Role, SEND_BYTES, TerminalClient};
use isolet_wire::frame::DATA_BYTES_MAX;
use isolet_wire::response::AgentResponse;
use isolet_wire::terminal::{Attached, OUTPUT, SNAPSHOT, Snapshot};
use rustix::io::Errno;
use std::rc::Rc;
use std::time::Instant;

/// Maximum size of all snapshots in transit, in bytes. A client that needs another one waits.
const SNAPSHOTS_BYTES_MAX: usize = 32 * 1024 * 1024;

impl Terminal {
    /// Sends a client everything that it lacks and accepts now.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub(crate) fn pump(&mut self, conn: &mut Conn, now: Instant) -> Result<(), Errno> {
        // Taken out, so that the connection can be written to.
        let Role::Terminal(mut client) = std::mem::replace(&mut conn.role, Role::Ready) else {
            return Ok(());
        };
        let before = conn.queued_bytes();
        if client.caught_up && (client.offset() != Some(self.ring.head()) || before > 0) {
            client.last_progress = now;
        }
        let result = self.advance(conn, &mut client, now);
        let all = client.offset().is_none_or(|offset| offset == self.ring.head());
        client.caught_up = all && conn.queued_bytes() == 0;
        if client.caught_up || conn.queued_bytes() < before {
            client.last_progress = now;
        }
        conn.role = Role::Terminal(client);
        result
    }

    fn advance(
        &mut self,
        conn: &mut Conn,
        client: &mut TerminalClient,
        now: Instant,
    ) -> Result<(), Errno> {
        if conn.is_blocked() && !conn.flush()? {
            return Ok(());
        }
        loop {
            while conn.queued_bytes() <= SEND_BYTES && self.step(conn, client, now)? {}
            let full = conn.is_blocked() || conn.queued_bytes() > SEND_BYTES;
            if client.events
                && client.reported_clients != self.roster.version
                && client.offset().is_some()
            {
                client.reported_clients = self.roster.version;
                conn.queue_message(&AgentResponse::TerminalClients(self.roster.visible.clone()));
            }
            // A socket that was full and accepts this has room again, which no event reports.
            if conn.queued_bytes() == 0 || !conn.flush()? || !full {
                return Ok(());
            }
        }
    }

    /// Sends the next part. Returns `false` if there is none or the socket is full.
    fn step(
        &mut self,
        conn: &mut Conn,
        client: &mut TerminalClient,
        now: Instant,
    ) -> Result<bool, Errno> {
        match &client.stage {
            ClientStage::Attaching => Ok(self.announce(conn, client)),
            ClientStage::Snapshot { .. } => Self::send_snapshot(conn, client, now),
            ClientStage::Live(offset) => {
                let offset = *offset;
                self.send_output(conn, client, offset, now)
            }
            ClientStage::Ended => Ok(false),
        }
    }

    /// Sends the answer to the attach, and decides where the client starts.
    fn announce(&mut self, conn: &mut Conn, client: &mut TerminalClient) -> bool {
        if !matches!(self.state, TerminalState::Live | TerminalState::Ended(_)) {
            return false;
        }
        self.feed_screen();
        let since = client.since.take().filter(|since| since.id == self.run_id);
        let held = since.as_ref().filter(|since| self.exact_since(since.offset));
        let offset = match held {
            Some(since) => Some(since.offset),
            // The client that opened the terminal receives everything, because its replies to
            // queries are still needed.
            None if client.fresh && self.ring.whole_since(0) || self.ring.head() == 0 => Some(0),
            None => None,
        };
        let missed = since.map_or(0, |since| self.ring.head().saturating_sub(since.offset));
        let snapshot = match offset {
            Some(offset) => {
                client.stage = ClientStage::Live(offset);
                None
            }
            None => match self.start_snapshot(client, missed) {
                Some(snapshot) => Some(snapshot),
                None => return false,
            },
        };
        client.next_resize = self.ring.marked();
        client.reported_size = self.size;
        client.ready_at = Some(self.ring.head());
        conn.queue_message(&AgentResponse::TerminalAttached(Attached {
            id: self.run_id.clone(),
            number: client.number,
            pid: self.pid,
            fresh: client.fresh,
            size: self.size,
            offset: offset.unwrap_or(self.ring.head()),
            snapshot,
        }));
        true
    }

    /// Whether output from an offset on gives the same screen as other clients have.
    fn exact_since(&self, offset: u64) -> bool {
        self.ring.whole_since(offset) && self.display.screen.last_query_end() <= offset
    }

    /// Starts a snapshot for a client unless too many are in transit.
    fn start_snapshot(&mut self, client: &mut TerminalClient, missed: u64) -> Option<Snapshot> {
        let offset = self.ring.head();
        self.feed_screen();
        let bytes = match self
            .display
            .snapshots
            .last()
            .and_then(|(at, bytes)| Some((at, bytes.upgrade()?)))
        {
            Some((at, bytes)) if *at == (offset, self.ring.marked()) => bytes,
            _ => {
                self.display.snapshots.retain(|(_, bytes)| bytes.strong_count() > 0);
                let held: usize = self
                    .display
                    .snapshots
                    .iter()
                    .filter_map(|(_, bytes)| bytes.upgrade())
                    .map(|bytes| bytes.len())
                    .sum();
                if held > SNAPSHOTS_BYTES_MAX {
                    return None;
                }
                let bytes: Rc<[u8]> = self.display.screen.snapshot().into();
                self.display.snapshots.push(((offset, self.ring.marked()), Rc::downgrade(&bytes)));
                bytes
            }
        };
        let snapshot = Snapshot { bytes: bytes.len() as u32, offset, missed };
        client.stage = ClientStage::Snapshot { bytes, sent: 0, offset };
        client.next_resize = self.ring.marked();
        Some(snapshot)
    }

    /// Sends the next part of a snapshot. Returns `false` if the socket is full.
    fn send_snapshot(
        conn: &mut Conn,
        client: &mut TerminalClient,
        now: Instant,
    ) -> Result<bool, Errno> {
        let ClientStage::Snapshot { bytes, sent, offset } = &mut client.stage else {
            return Ok(false);
        };
        let mut pieces = Vec::with_capacity(SEND_BYTES / DATA_BYTES_MAX);
        let mut at = *sent;
        for piece in bytes[at..].chunks(DATA_BYTES_MAX).take(SEND_BYTES / DATA_BYTES_MAX) {
            pieces.push((at as u64, piece));
            at += piece.len();
        }
        let (progressed, begun) = conn.send_frames(SNAPSHOT, &pieces)?;
        *sent += pieces[..begun].iter().map(|(_, piece)| piece.len()).sum::<usize>();
        if progressed {
            client.last_progress = now;
        }
        if *sent == bytes.len() {
            client.stage = ClientStage::Live(*offset);
        }
        Ok(!conn.is_blocked())
    }

    /// Sends the next part of the output. Returns `false` if there is none or the socket is full.
    fn send_output(
        &mut self,
        conn: &mut Conn,
        client: &mut TerminalClient,
        offset: u64,
        now: Instant,
    ) -> Result<bool, Errno> {
        if !client.events {
            client.next_resize = self.ring.marked();
        }
        let mark = match self.ring.find(client.next_resize) {
            Ok(mark) if offset >= self.ring.tail() => mark,
            _ => return Ok(self.resend_snapshot(conn, client, offset)),
        };
        if let Some(mark) = mark.filter(|mark| mark.offset == offset) {
            client.next_resize += 1;
            client.reported_size = mark.size;
            conn.queue_message(&AgentResponse::TerminalSize(mark.size));
            return Ok(true);
        }
        if client.ready_at.is_some_and(|ready| ready <= offset) {
            client.ready_at = None;
            conn.queue_message(&AgentResponse::TerminalReady);
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
            if let TerminalState::Ended(ended) = &self.state {
                conn.queue_message(&AgentResponse::TerminalExit(ended.closed.clone()));
                client.stage = ClientStage::Ended;
            }
            return Ok(false);
        }
        let (progressed, begun) = conn.send_frames(OUTPUT, &pieces)?;
        let sent: usize = pieces[..begun].iter().map(|(_, piece)| piece.len()).sum();
        client.stage = ClientStage::Live(offset + sent as u64);
        if progressed {
            client.last_progress = now;
        }
        Ok(!conn.is_blocked())
    }

    /// Sends a snapshot to a client that is too far behind.
    fn resend_snapshot(
        &mut self,
        conn: &mut Conn,
        client: &mut TerminalClient,
        offset: u64,
    ) -> bool {
        let missed = self.ring.head() - offset;
        let Some(snapshot) = self.start_snapshot(client, missed) else { return false };
        if client.events && client.reported_size != self.size {
            client.reported_size = self.size;
            conn.queue_message(&AgentResponse::TerminalSize(self.size));
        }
        conn.queue_message(&AgentResponse::TerminalSnapshot(snapshot));
        true
    }
}
