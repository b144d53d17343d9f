//! Reads the program's output into the ring, at the speed of the fastest client.

use super::{START_MAX, Terminal, TerminalState};
use crate::connection::TerminalClient;
use crate::reactor::{READ_BYTES, Reactor, Timer};
use isolet_wire::response::RefusalReason;
use isolet_wire::terminal::{RING_BYTES, Size};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The program waits while the fastest client is further behind than this.
const BEHIND_BYTES_MAX: u64 = RING_BYTES as u64 / 2;
/// Time between two attempts to write input, because the kernel does not always report free space.
const INPUT_PAUSE: Duration = Duration::from_millis(20);

impl Terminal {
    /// The PTY may be readable or writable.
    pub(crate) fn on_ready(&mut self, reactor: &mut Reactor) {
        self.pty.readable = true;
        self.write();
        reactor.pending.terminals.mark(self.id);
    }

    /// Reads at most 64 KiB. Returns whether there may be more.
    pub(crate) fn pull(&mut self, reactor: &mut Reactor) -> bool {
        let mut left = READ_BYTES;
        while self.pty.readable && left > 0 {
            let Some(master) = &self.pty.master else { break };
            // An error means that no process has the other side open, but one may open it again.
            let bytes = reactor.read(master.as_fd(), READ_BYTES).unwrap_or(&[]);
            self.pty.readable = !bytes.is_empty();
            left = left.saturating_sub(bytes.len());
            self.ring.push(bytes);
        }
        self.unread()
    }

    /// Whether the PTY may be readable.
    #[must_use]
    pub(crate) fn unread(&self) -> bool {
        self.pty.readable && self.pty.master.is_some()
    }

    /// Until when reading pauses, because the fastest of these clients is far behind.
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

    /// Feeds new output to the screen model. Clients answer the program's queries; without clients,
    /// the model answers.
    pub(crate) fn feed_screen(&mut self) {
        while self.display.fed_until < self.ring.head() {
            let piece = self.ring.piece(self.display.fed_until, self.ring.head());
            self.display.screen.feed(piece, self.display.fed_until);
            self.display.fed_until += piece.len() as u64;
        }
        for query in self.display.screen.take_queries() {
            if self.roster.typing > 0 {
                self.display.reply_filter.expect_reply(&query);
            } else if self.has_input_room() {
                self.pty.input.extend_from_slice(&query.default_reply);
                self.write();
            }
        }
    }

    pub(crate) fn resize(&mut self, reactor: &mut Reactor, size: Size) {
        if size == self.size {
            return;
        }
        // Output for the old size comes before the change.
        self.pty.readable = true;
        self.pull(reactor);
        self.feed_screen();
        self.size = size;
        self.ring.mark(size);
        self.display.screen.resize(size);
        if let Some(master) = &self.pty.master {
            let ws_col = size.cols;
            let ws_row = size.rows;
            let size = rustix::termios::Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = rustix::termios::tcsetwinsize(master, size);
        }
        reactor.pending.terminals.mark(self.id);
    }

    /// Sets a timer for the next moment at which something is due.
    pub(crate) fn arm_timer(&mut self, reactor: &mut Reactor, paused: Option<Instant>) {
        let opening =
            matches!(self.state, TerminalState::Opening(_)).then(|| self.opened + START_MAX);
        let writing = (!self.pty.input.is_empty() && self.pty.master.is_some())
            .then(|| reactor.now + INPUT_PAUSE);
        // A client that does not read the last bytes is disconnected then.
        let parting = self.ended_at().filter(|_| !self.clients.is_empty());
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

    /// The timer has expired.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        self.timer_at = None;
        reactor.pending.terminals.mark(self.id);
        if matches!(self.state, TerminalState::Opening(_)) && reactor.now >= self.opened + START_MAX
        {
            let _ = isolet_sys::signal::send(self.pid, 9);
            self.enter(TerminalState::Failed(
                RefusalReason::NoProcess,
                "the program did not start".to_owned(),
            ));
        }
        self.write();
        self.closing_elapsed(reactor);
    }
}
