//! The lower bound for any command: the same bash over bare pipes in this process, and a
//! fresh `sh -c`.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A persistent bash that reports exit codes on a separate descriptor.
pub(crate) struct Raw {
    child: Child,
    control: ChildStdin,
    out: OwnedFd,
    status: OwnedFd,
    buffer: Vec<u8>,
}

impl Raw {
    pub(crate) fn open() -> Result<Self> {
        let (status, theirs) = pipe_with(PipeFlags::empty())?;
        let (out, out_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        // Bash moves the status pipe to a descriptor number that commands do not use.
        let script = format!(
            "exec 57>&{0} {0}>&-; exec bash --norc --noprofile --noediting -i",
            theirs.as_raw_fd()
        );
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .env("HISTFILE", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::from(out_theirs))
            .stderr(Stdio::null())
            .spawn()?;
        drop(theirs);
        let control = child.stdin.take().context("piped")?;
        let mut raw = Self { child, control, out, status, buffer: vec![0; 1 << 16] };
        raw.control.write_all(b"PS1= PS2=; unset HISTFILE PROMPT_COMMAND; set +o history\n")?;
        raw.run(":")?;
        Ok(raw)
    }

    /// Runs one command. Returns the number of bytes that it wrote.
    pub(crate) fn run(&mut self, text: &str) -> Result<usize> {
        let quoted = text.replace('\'', "'\\''");
        let line = format!("\\builtin eval '{quoted}' </dev/null\n\\builtin echo $? >&57\n");
        self.control.write_all(line.as_bytes())?;
        let mut count = 0;
        loop {
            let mut fds =
                [PollFd::new(&self.status, PollFlags::IN), PollFd::new(&self.out, PollFlags::IN)];
            poll(&mut fds, None)?;
            let ended = !fds[0].revents().is_empty();
            let output = !fds[1].revents().is_empty();
            if ended {
                let left = rustix::io::ioctl_fionread(&self.out)? as usize;
                rustix::io::read(self.status.as_fd(), &mut self.buffer[..64])?;
                return Ok(count + self.take(left)?);
            }
            if output {
                count += rustix::io::read(self.out.as_fd(), &mut self.buffer)?;
            }
        }
    }

    fn take(&mut self, mut left: usize) -> Result<usize> {
        let total = left;
        while left > 0 {
            let most = left.min(self.buffer.len());
            left -= rustix::io::read(self.out.as_fd(), &mut self.buffer[..most])?;
        }
        Ok(total)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a new `sh -c`. Returns the number of bytes that it wrote.
pub(crate) fn sh(text: &str) -> Result<usize> {
    let output = Command::new("sh").args(["-c", text]).stdin(Stdio::null()).output()?;
    Ok(output.stdout.len())
}
