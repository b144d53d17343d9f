//! The lower bound for any terminal: a PTY that this process reads and writes itself.

use crate::terminal::BenchTerminal;
use anyhow::Result;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

/// Bash on a PTY.
pub(crate) struct Pty {
    child: Child,
    master: OwnedFd,
    buffer: Vec<u8>,
}

impl Pty {
    pub(crate) fn open() -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size)?;
        let name = ptsname(&master, Vec::new())?;
        let side = || -> Result<Stdio> {
            let path = OsStr::from_bytes(name.as_bytes());
            Ok(OpenOptions::new().read(true).write(true).open(path)?.into())
        };
        let child = Command::new("setsid")
            .args(["--ctty", "bash", "--norc"])
            .env("TERM", "xterm-256color")
            .stdin(side()?)
            .stdout(side()?)
            .stderr(side()?)
            .spawn()?;
        Ok(Self { child, master, buffer: vec![0; 1 << 16] })
    }
}

impl BenchTerminal for Pty {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            at += rustix::io::write(&self.master, &bytes[at..])?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<&[u8]> {
        let count = rustix::io::read(&self.master, &mut self.buffer)?;
        Ok(&self.buffer[..count])
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
