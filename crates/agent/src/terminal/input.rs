//! Input from clients, and the sizes of their windows.

use super::{INPUT_BYTES_MAX, State, Terminal};
use crate::connection::TerminalClient;
use crate::reactor::Reactor;
use isolet_wire::terminal::Size;
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, QueueSelector, SpecialCodeIndex};

impl Terminal {
    /// A client has typed. Gives how many bytes wait for the program now.
    pub(crate) fn push_input(
        &mut self,
        reactor: &mut Reactor,
        conn: u64,
        client: &mut TerminalClient,
        bytes: &[u8],
    ) -> usize {
        if matches!(self.state, State::Failed(..) | State::Ended(_)) {
            return 0;
        }
        let bytes = self.reply_filter.filter(&mut client.input, bytes);
        // A window that answers, or has lost the focus, is not the one that somebody types in.
        if let Some(size) = client.size.filter(|_| client.input.has_keys && client.may_resize()) {
            self.follow_window(reactor, conn, size);
        }
        self.flush_on_interrupt(&bytes);
        self.input.extend_from_slice(&bytes);
        self.write();
        reactor.pending.terminals.mark(self.id);
        self.input.len()
    }

    /// Whether there is room for more to be typed.
    #[must_use]
    pub(crate) fn has_input_room(&self) -> bool {
        self.input.len() <= INPUT_BYTES_MAX
    }

    /// Writes what it takes of the input.
    pub(super) fn write(&mut self) {
        let Some(master) = &self.master else { return };
        while !self.input.is_empty() {
            match rustix::io::write(master, &self.input) {
                Ok(count) => drop(self.input.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody has the other side open.
                Err(_) => self.input.clear(),
            }
        }
    }

    /// An interrupt throws away what was typed before it and not read, as the kernel does with
    /// what it holds. Where that is full it would not get to see the interrupt at all: a paste
    /// that a program does not read would make it deaf.
    fn flush_on_interrupt(&mut self, bytes: &[u8]) {
        let Some(master) = self.master.as_ref().filter(|_| !self.input.is_empty()) else { return };
        let Ok(modes) = rustix::termios::tcgetattr(master) else { return };
        let local = modes.local_modes;
        if !local.contains(LocalModes::ISIG) || local.contains(LocalModes::NOFLSH) {
            return;
        }
        let codes = [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT, SpecialCodeIndex::VSUSP];
        let keys = codes.map(|code| modes.special_codes[code]);
        if !bytes.iter().any(|byte| *byte != 0 && keys.contains(byte)) {
            return;
        }
        self.input.clear();
        let _ = rustix::termios::tcflush(master, QueueSelector::OFlush);
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        if let Ok(program) = rustix::pty::ioctl_tiocgptpeer(master, flags) {
            let _ = rustix::termios::tcflush(program, QueueSelector::IFlush);
        }
    }

    /// A client's window has this size now; it is `alone` as one that could set it.
    pub(crate) fn on_window_resized(
        &mut self,
        reactor: &mut Reactor,
        conn: u64,
        size: Size,
        alone: bool,
    ) {
        self.clients_changed = true;
        if alone || self.size_owner == Some(conn) {
            self.follow_window(reactor, conn, size);
        }
        reactor.pending.terminals.mark(self.id);
    }

    fn follow_window(&mut self, reactor: &mut Reactor, conn: u64, size: Size) {
        self.clients_changed |= self.size_owner != Some(conn);
        self.size_owner = Some(conn);
        self.resize(reactor, size);
    }
}
