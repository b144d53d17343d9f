//! The local terminal of a user, with one of our programs on it.

use crate::{SOON, wait_until};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

/// What no program writes to its terminal.
const END: &str = "<the program on this terminal has ended>";

/// A local terminal and the program that runs on it.
#[derive(Debug)]
pub struct Pty {
    child: Child,
    /// Open, so that the terminal's settings outlive the program.
    side: File,
    master: File,
    output: Receiver<Vec<u8>>,
    /// Everything that the program wrote to the terminal.
    pub seen: Vec<u8>,
}

impl Pty {
    /// Starts a program as a session leader with this controlling terminal.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start(program: &Command, cols: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.expect("a PTY");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = OsStr::from_bytes(name.as_bytes());
        let side = OpenOptions::new().read(true).write(true).open(path).expect("opens");
        let copy = || side.try_clone().expect("a copy");
        let mut leader = Command::new("setsid");
        leader.arg("--ctty").arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => leader.env(name, value),
                None => leader.env_remove(name),
            };
        }
        leader.env("TERM", "xterm-256color").stdin(copy()).stdout(copy()).stderr(copy());
        let master = File::from(master);
        let reader = master.try_clone().expect("a copy");
        let (sender, output) = channel();
        std::thread::spawn(move || follow(reader, &sender));
        size(&master, cols, rows);
        let child = leader.spawn().expect("setsid starts");
        Self { child, side, master, output, seen: Vec::new() }
    }

    /// The pid of the program on the PTY.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are small")
    }

    /// Types text.
    ///
    /// # Panics
    /// When the terminal does not accept it.
    pub fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("takes keys");
    }

    /// Changes the window size.
    pub fn resize(&self, cols: u16, rows: u16) {
        size(&self.master, cols, rows);
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        crate::process::signal(self.pid(), signal);
    }

    /// The terminal's settings.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[must_use]
    pub fn settings(&self) -> Termios {
        tcgetattr(&self.side).expect("a terminal")
    }

    /// Whether the program gets each key immediately and without an echo.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        !self.settings().local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Reads until the output after index `from` of `seen` contains `text`, and returns the index
    /// after it.
    ///
    /// # Panics
    /// When the text does not appear.
    #[track_caller]
    pub fn sees_after(&mut self, from: usize, text: &str) -> usize {
        let end = Instant::now() + SOON;
        loop {
            let rest = self.seen.get(from..).unwrap_or_default();
            if let Some(at) = rest.windows(text.len()).position(|part| part == text.as_bytes()) {
                return from + at + text.len();
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(part) => self.seen.extend(part),
                Err(why) => panic!("no {text:?} ({why}): {}", self.text()),
            }
        }
    }

    /// Reads until the whole output contains `text`, and returns the index after it.
    ///
    /// # Panics
    /// When the text does not appear.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> usize {
        self.sees_after(0, text)
    }

    /// Types a line and reads until `appears` is shown.
    ///
    /// # Panics
    /// When the text does not appear.
    #[track_caller]
    pub fn line(&mut self, line: &str, appears: &str) {
        let from = self.seen.len();
        self.type_in(&format!("{line}\r"));
        self.sees_after(from, appears);
    }

    /// Reads the output that is available now.
    pub fn take(&mut self) {
        self.output.try_iter().for_each(|part| self.seen.extend(part));
    }

    /// Waits until the program has ended and returns its exit code, or 128 plus the signal number.
    ///
    /// # Panics
    /// When the program does not end.
    #[track_caller]
    pub fn ended(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = wait_until("it ends", SOON, || self.child.try_wait().expect("its child"));
        // What is written to the terminal now comes after the last output of the program.
        let from = self.seen.len();
        self.side.write_all(END.as_bytes()).expect("the terminal is open");
        let end = self.sees_after(from, END);
        self.seen.drain(end - END.len()..end);
        status.code().or(status.signal().map(|signal| 128 + signal)).expect("one of the two")
    }

    /// The output so far, as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Whether the program writes nothing for this time.
    pub fn is_quiet(&mut self, time: std::time::Duration) -> bool {
        match self.output.recv_timeout(time) {
            Ok(part) => {
                self.seen.extend(part);
                false
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => true,
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the terminal ---\n{}", self.text());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(master: &File, cols: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).expect("takes a size");
}

fn follow(mut master: File, sender: &std::sync::mpsc::Sender<Vec<u8>>) {
    let mut part = [0; 16 * 1024];
    // The read ends when no process has the other side open any more.
    while let Ok(count @ 1..) = master.read(&mut part) {
        if sender.send(part[..count].to_vec()).is_err() {
            return;
        }
    }
}
