//! Starts programs without a shell: what is executed, its pipes, and the refusal if the start
//! fails.

pub(crate) mod words;

use crate::reactor::{SpawnRequest, environment};
use isolet_sys::spawn::Stage;
use isolet_wire::request::{Invocation, StartExec};
use isolet_wire::response::RefusalReason;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Paths at which bash is looked for.
pub(crate) const BASH: [&std::ffi::CStr; 3] =
    [c"/bin/bash", c"/usr/bin/bash", c"/usr/local/bin/bash"];

/// The reason why a program was not started, with a message.
pub(crate) type Refusal = (RefusalReason, String);

/// The words of a command line that needs no shell to be parsed.
#[must_use]
pub(crate) fn words_without_shell(request: &StartExec) -> Option<Vec<String>> {
    match &request.program {
        Invocation::Command(text) => words::split(text, &request.env),
        Invocation::Argv(_) => None,
    }
}

/// The parameters of the start: `words` if there are any, otherwise `bash -c` for a command line.
///
/// # Errors
/// The request is invalid.
pub(crate) fn spawn_request(
    request: &StartExec,
    words: Option<Vec<String>>,
) -> Result<SpawnRequest, Refusal> {
    let bad = || {
        let text = "no program, a NUL byte, or a name of the environment with `=`";
        (RefusalReason::BadRequest, text.to_owned())
    };
    let mut envp = environment(&request.env).ok_or_else(bad)?;
    let path = request.env.get("PATH").map_or(words::PATH, String::as_str);
    let (programs, argv) = match (&request.program, words) {
        (Invocation::Command(text), None) => {
            let programs = BASH.map(|p| p.to_string_lossy().into_owned());
            let mut argv = vec!["bash".to_owned(), "-c".to_owned()];
            // Bash would parse it as an option.
            argv.extend(text.starts_with(['-', '+']).then(|| "--".to_owned()));
            argv.push(text.clone());
            (programs.to_vec(), argv)
        }
        (Invocation::Command(_), Some(argv)) => {
            words::complete_environment(request, &mut envp);
            (words::programs(&argv[0], path), argv)
        }
        (Invocation::Argv(argv), _) => {
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
        cwd: CString::new(request.cwd.as_str()).map_err(|_| bad())?,
        fds: Vec::new(),
        uid: request.uid,
        terminal: None,
        group: None,
    })
}

/// Both ends of a program's pipes.
pub(crate) struct Pipes {
    theirs: [OwnedFd; 3],
    /// Standard output and standard error, to read from.
    pub(crate) out: [OwnedFd; 2],
    /// Standard input, to write to, if the program has one.
    pub(crate) stdin_pipe: Option<OwnedFd>,
}

impl Pipes {
    /// Creates the pipes.
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
        // `/dev/stdout` reopens the pipe with the permissions of its inode, which belongs to the
        // agent.
        for end in [&out.1, &err.1].into_iter().chain(stdin_pipe.as_ref()) {
            rustix::fs::fchmod(end, rustix::fs::Mode::from_raw_mode(0o666))?;
        }
        Ok(Self { theirs: [input, out.1, err.1], out: [out.0, err.0], stdin_pipe })
    }

    /// The program's ends in the form of a spawn request.
    pub(crate) fn fds(&self) -> Vec<(RawFd, RawFd)> {
        (0..).zip(&self.theirs).map(|(number, fd)| (fd.as_raw_fd(), number)).collect()
    }
}

/// The program's name for messages.
#[must_use]
pub(crate) fn program_name(request: &StartExec) -> &str {
    match &request.program {
        Invocation::Argv(argv) => argv.first().map_or("", String::as_str),
        Invocation::Command(_) => "bash",
    }
}

/// The refusal for a failed start of this program.
#[must_use]
pub(crate) fn refusal(program: &str, stage: Stage, errno: Errno) -> Refusal {
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

/// The refusal if no process could be created.
pub(crate) fn no_process(error: &dyn std::fmt::Display) -> Refusal {
    (RefusalReason::NoProcess, format!("no process: {error}"))
}
