//! How a program without a shell is started: what is executed, its pipes, and the refusal when a
//! start fails.

pub(crate) mod words;

use crate::reactor::{SpawnRequest, environment};
use isolet_sys::spawn::Stage;
use isolet_wire::request::{Exec, What};
use isolet_wire::response::RefusalReason;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Where a bash is looked for.
pub(crate) const BASH: [&std::ffi::CStr; 3] =
    [c"/bin/bash", c"/usr/bin/bash", c"/usr/local/bin/bash"];

/// Why a program was not started, and in words.
pub(crate) type Refusal = (RefusalReason, String);

/// The words of a command that needs no shell to find out what they are.
#[must_use]
pub(crate) fn words_without_shell(ask: &Exec) -> Option<Vec<String>> {
    match &ask.what {
        What::Command(text) => words::split(text, &ask.env),
        What::Argv(_) => None,
    }
}

/// What to start. With `words` these, else `bash -c` for a command line.
///
/// # Errors
/// What cannot be started as it was asked for.
pub(crate) fn spawn_request(
    ask: &Exec,
    words: Option<Vec<String>>,
) -> Result<SpawnRequest, Refusal> {
    let bad = || {
        let text = "no program, a NUL byte, or a name of the environment with `=`";
        (RefusalReason::BadAsk, text.to_owned())
    };
    let mut envp = environment(&ask.env).ok_or_else(bad)?;
    let path = ask.env.get("PATH").map_or(words::PATH, String::as_str);
    let (programs, argv) = match (&ask.what, words) {
        (What::Command(text), None) => {
            let programs = BASH.map(|p| p.to_string_lossy().into_owned());
            let mut argv = vec!["bash".to_owned(), "-c".to_owned()];
            // Bash would take it for an option.
            argv.extend(text.starts_with(['-', '+']).then(|| "--".to_owned()));
            argv.push(text.clone());
            (programs.to_vec(), argv)
        }
        (What::Command(_), Some(argv)) => {
            words::complete_environment(ask, &mut envp);
            (words::programs(&argv[0], path), argv)
        }
        (What::Argv(argv), _) => {
            let name = argv.first().filter(|name| !name.is_empty()).ok_or_else(bad)?;
            (words::programs(name, path), argv.clone())
        }
    };
    let strings = |list: Vec<String>| {
        list.into_iter().map(|text| CString::new(text).ok()).collect::<Option<Vec<_>>>()
    };
    Ok(SpawnRequest {
        programs: strings(programs).ok_or_else(bad)?,
        argv: strings(argv).ok_or_else(bad)?,
        envp,
        cwd: CString::new(ask.cwd.as_str()).map_err(|_| bad())?,
        fds: Vec::new(),
        uid: ask.uid,
        terminal: None,
        group: None,
    })
}

/// A program's ends of its pipes, and ours.
pub(crate) struct Pipes {
    theirs: [OwnedFd; 3],
    /// Its standard output and error, to be read.
    pub(crate) out: [OwnedFd; 2],
    /// Its standard input, to be written, where it has one.
    pub(crate) stdin_pipe: Option<OwnedFd>,
}

impl Pipes {
    /// Makes them.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub(crate) fn new(stdin: bool) -> Result<Self, Errno> {
        let out = pipe_with(PipeFlags::CLOEXEC)?;
        let err = pipe_with(PipeFlags::CLOEXEC)?;
        let (input, stdin_pipe) = if stdin {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            (read, Some(write))
        } else {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            (rustix::fs::open(c"/dev/null", flags, rustix::fs::Mode::empty())?, None)
        };
        for end in [&out.0, &err.0] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        // `/dev/stdout` opens the pipe anew, by the rights of its inode, which is ours.
        for end in [&out.1, &err.1].into_iter().chain(stdin_pipe.as_ref()) {
            rustix::fs::fchmod(end, rustix::fs::Mode::from_raw_mode(0o666))?;
        }
        Ok(Self { theirs: [input, out.1, err.1], out: [out.0, err.0], stdin_pipe })
    }

    /// As an order names the program's ends.
    pub(crate) fn fds(&self) -> Vec<(RawFd, RawFd)> {
        (0..).zip(&self.theirs).map(|(number, fd)| (fd.as_raw_fd(), number)).collect()
    }
}

/// The program that is asked for, as it is called to people.
#[must_use]
pub(crate) fn program_name(ask: &Exec) -> &str {
    match &ask.what {
        What::Argv(argv) => argv.first().map_or("", String::as_str),
        What::Command(_) => "bash",
    }
}

/// What is said of a start of this program that failed.
#[must_use]
pub(crate) fn refusal(program: &str, (stage, errno): (Stage, Errno)) -> Refusal {
    match (stage, errno) {
        (Stage::Cwd, _) => {
            (RefusalReason::BadCwd, format!("cannot enter the start directory: {errno}"))
        }
        (Stage::Exec, Errno::ACCESS) => {
            (RefusalReason::Denied, format!("permission denied: {program}"))
        }
        (Stage::Exec, Errno::TOOBIG) => {
            (RefusalReason::TooLarge, "argument list too long".to_owned())
        }
        (Stage::Exec, Errno::NOENT) => {
            (RefusalReason::NotFound, format!("program not found: {program}"))
        }
        (Stage::Exec, _) => (RefusalReason::Failed, format!("cannot execute {program}: {errno}")),
        (Stage::Terminal, Errno::NOSPC) => {
            let message = "every terminal that the sandbox may have, or its host (kernel.pty.max), is in use; end a program that holds one";
            (RefusalReason::TooMany, message.to_owned())
        }
        (Stage::Confine | Stage::Terminal, _) => {
            (RefusalReason::NoProcess, format!("cannot confine: {errno}"))
        }
    }
}

/// No process could be made.
pub(crate) fn no_process(error: &dyn std::fmt::Display) -> Refusal {
    (RefusalReason::NoProcess, format!("no process: {error}"))
}
