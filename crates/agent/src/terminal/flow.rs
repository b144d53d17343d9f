//! Reads the program's output into the ring, no faster than the fastest client reads it.

use super::{START_MAX, State, Terminal};
use crate::connection::TerminalClient;
use crate::reactor::{READ_BYTES, Reactor, Timer};
use isolet_wire::response::RefusalReason;
use isolet_wire::terminal::{RING_BYTES, Size};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The program waits while the fastest client is so far behind.
const BEHIND_BYTES_MAX: u64 = RING_BYTES as u64 / 2;
/// How often it is tried whether input can be written: the kernel does not always tell.
const INPUT_PAUSE: Duration = Duration::from_millis(20);

impl Terminal {
    /// There may be something to read, or room for input.
    pub(crate) fn on_ready(&mut self, reactor: &mut Reactor) {
        self.readable = true;
        self.write();
        reactor.pending.terminals.mark(self.id);
    }

    /// Reads what there is, at most 64 KiB. Whether there may be more.
    pub(crate) fn pull(&mut self, reactor: &mut Reactor) -> bool {
        let mut left = READ_BYTES;
        while self.readable && left > 0 {
            let Some(master) = &self.master else { break };
            // An error: nobody has the other side open now. Somebody may open it again.
            let bytes = reactor.read(master.as_fd(), READ_BYTES).unwrap_or(&[]);
            self.readable = !bytes.is_empty();
            left = left.saturating_sub(bytes.len());
            self.ring.push(bytes);
        }
        self.unread()
    }

    /// Whether there may be something to read.
    #[must_use]
    pub(crate) fn unread(&self) -> bool {
        self.readable && self.master.is_some()
    }

    /// Until when nothing is to be read, since the fastest of these clients is far behind.
    pub(crate) fn paused<'a>(
        &self,
        now: Instant,
        clients: impl Iterator<Item = &'a TerminalClient>,
    ) -> Option<Instant> {
        let mut least = u64::MAX;
        let mut until = None::<Instant>;
        for client in clients {
            let Some(offset) = client.offset() else { continue };
            let behind = self.ring.head() - offset;
            if behind > 0 && client.stall_deadline() <= now {
                continue;
            }
            least = least.min(behind);
            until = Some(
                until.map_or(client.stall_deadline(), |until| until.min(client.stall_deadline())),
            );
        }
        until.filter(|_| least > BEHIND_BYTES_MAX)
    }

    /// Shows the model what it has not seen. What the program asked is left to clients to answer;
    /// while none is there the model answers.
    pub(crate) fn feed_screen(&mut self) {
        while self.fed_until < self.ring.head() {
            let piece = self.ring.piece(self.fed_until, self.ring.head());
            self.screen.feed(piece, self.fed_until);
            self.fed_until += piece.len() as u64;
        }
        for query in self.screen.take_queries() {
            if self.typing_clients > 0 {
                self.reply_filter.expect_reply(&query);
            } else if self.has_input_room() {
                self.input.extend_from_slice(&query.default_reply);
                self.write();
            }
        }
    }

    /// Has another size from here on.
    pub(crate) fn resize(&mut self, reactor: &mut Reactor, size: Size) {
        if size == self.size {
            return;
        }
        // What was said for the old size comes before the new one.
        self.readable = true;
        self.pull(reactor);
        self.feed_screen();
        self.size = size;
        self.ring.mark(size);
        self.screen.resize(size);
        if let Some(master) = &self.master {
            let ws_col = size.cols;
            let ws_row = size.rows;
            let size = rustix::termios::Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = rustix::termios::tcsetwinsize(master, size);
        }
        reactor.pending.terminals.mark(self.id);
    }

    /// Sets a timer for the next moment at which something is to be done.
    pub(crate) fn arm_timer(&mut self, reactor: &mut Reactor, paused: Option<Instant>) {
        let opening = (self.state == State::Opening).then(|| self.opened + START_MAX);
        let writing =
            (!self.input.is_empty() && self.master.is_some()).then(|| reactor.now + INPUT_PAUSE);
        // A client that reads nothing of the last bytes is disconnected then.
        let parting = self.ended.filter(|_| !self.clients.is_empty());
        let parting = parting.map(|_| reactor.now + reactor.config.stall);
        let dues = [paused, opening, writing, parting, self.closing_due(reactor.now)];
        let due = dues.into_iter().flatten().min();
        if let Some(due) = due
            && self.timer_at.is_none_or(|armed| armed > due)
        {
            self.timer_at = Some(due);
            reactor.set_timer(due, Timer::Terminal(self.id));
        }
    }

    /// Its timer went off.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        self.timer_at = None;
        reactor.pending.terminals.mark(self.id);
        if self.state == State::Opening && reactor.now >= self.opened + START_MAX {
            let _ = isolet_sys::signal::send(self.pid, 9);
            self.state =
                State::Failed(RefusalReason::NoProcess, "the program did not start".to_owned());
        }
        self.write();
        self.closing_elapsed(reactor);
    }
}
