//! Handles input from clients and the sizes of their windows.

use super::{INPUT_BYTES_MAX, Terminal, TerminalState};
use crate::connection::TerminalClient;
use crate::reactor::Reactor;
use isolet_wire::terminal::Size;
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, QueueSelector, SpecialCodeIndex};

impl Terminal {
    /// Adds input from a client. Returns the number of bytes that wait for the program.
    pub(crate) fn push_input(
        &mut self,
        reactor: &mut Reactor,
        conn: u64,
        client: &mut TerminalClient,
        bytes: &[u8],
    ) -> usize {
        if matches!(self.state, TerminalState::Failed(..) | TerminalState::Ended(_)) {
            return 0;
        }
        let bytes = self.display.reply_filter.filter(&mut client.input, bytes);
        // A window that sends a reply or loses the focus is not the one that the user types in.
        if let Some(size) = client.size.filter(|_| client.input.has_keys && client.may_resize()) {
            self.follow_window(reactor, conn, size);
        }
        self.flush_on_interrupt(&bytes);
        self.pty.input.extend_from_slice(&bytes);
        self.write();
        reactor.pending.terminals.mark(self.id);
        self.pty.input.len()
    }

    /// Whether there is room for more input.
    #[must_use]
    pub(crate) fn has_input_room(&self) -> bool {
        self.pty.input.len() <= INPUT_BYTES_MAX
    }

    /// Writes as much input as the program accepts.
    pub(super) fn write(&mut self) {
        let Some(master) = &self.pty.master else { return };
        while !self.pty.input.is_empty() {
            match rustix::io::write(master, &self.pty.input) {
                Ok(count) => drop(self.pty.input.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // No process has the other side open.
                Err(_) => self.pty.input.clear(),
            }
        }
    }

    /// Discards unread input before an interrupt, as the kernel does with its own buffer. If that
    /// buffer is full, the program would otherwise never see the interrupt: a paste that it does
    /// not read would block it.
    fn flush_on_interrupt(&mut self, bytes: &[u8]) {
        let Some(master) = self.pty.master.as_ref().filter(|_| !self.pty.input.is_empty()) else {
            return;
        };
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
        self.pty.input.clear();
        let _ = rustix::termios::tcflush(master, QueueSelector::OFlush);
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        if let Ok(program) = rustix::pty::ioctl_tiocgptpeer(master, flags) {
            let _ = rustix::termios::tcflush(program, QueueSelector::IFlush);
        }
    }

    /// Handles a new size of a client's window. With `alone`, no other client could determine the
    /// size.
    pub(crate) fn on_window_resized(
        &mut self,
        reactor: &mut Reactor,
        conn: u64,
        size: Size,
        alone: bool,
    ) {
        self.clients_changed = true;
        if alone || self.roster.size_owner == Some(conn) {
            self.follow_window(reactor, conn, size);
        }
        reactor.pending.terminals.mark(self.id);
    }

    fn follow_window(&mut self, reactor: &mut Reactor, conn: u64, size: Size) {
        self.clients_changed |= self.roster.size_owner != Some(conn);
        self.roster.size_owner = Some(conn);
        self.resize(reactor, size);
    }
}
