//! A started process gets exactly what its plan contains.
#![allow(missing_docs)]

use isolet_sys::spawn::{Plan, Stage, fork, spawn};
use rustix::io::Errno;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

fn text(value: &str) -> CString {
    CString::new(value).expect("no NUL")
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe")
}

fn shell<'a>(script: &str, out: &OwnedFd) -> Plan<'a> {
    Plan {
        programs: vec![text("/no/such"), text("/bin/sh")],
        argv: vec![text("sh"), text("-c"), text(script)],
        envp: vec![text("A=b")],
        fds: vec![(out.as_raw_fd(), 1)],
        umask: 0o22,
        ..Plan::default()
    }
}

fn ended(child: &mut isolet_sys::spawn::Child) -> Result<(), (Stage, Errno)> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(&child.started, PollFlags::IN)];
    poll(&mut fds, None).expect("poll");
    child.exec_result().expect("decided")
}

fn reap(child: &isolet_sys::spawn::Child) -> i32 {
    let id = rustix::process::WaitId::PidFd(child.pidfd.as_fd());
    let status = rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED);
    status.expect("waitid").expect("ended").exit_status().unwrap_or(-1) as i32
}

#[test]
fn a_child_gets_its_environment_its_descriptors_and_no_others() {
    let (mut read, write) = pipe();
    let _extra = std::fs::File::open("/dev/null").expect("null");
    let mut child =
        spawn(shell("echo $A; ls /proc/self/fd | tr '\\n' ' '", &write)).expect("spawn");
    drop(write);
    assert_eq!(ended(&mut child), Ok(()));
    let mut said = String::new();
    std::fs::File::from(std::mem::replace(&mut read, pipe().0))
        .read_to_string(&mut said)
        .expect("read");
    // 0 is the descriptor that `ls` opened for the directory: the plan contains neither 0 nor 2.
    assert!(said.starts_with("b\n"), "{said:?}");
    assert!(!said.contains('5') && !said.contains('6'), "{said:?}");
    reap(&child);
}

#[test]
fn a_missing_program_and_a_missing_directory_are_told_apart() {
    let (_read, write) = pipe();
    let mut plan = shell("true", &write);
    plan.programs = vec![text("/no/such")];
    let mut child = spawn(plan).expect("spawn");
    assert_eq!(ended(&mut child), Err((Stage::Exec, Errno::NOENT)));
    reap(&child);
    let mut plan = shell("true", &write);
    plan.cwd = Some(text("/no/such"));
    let mut child = spawn(plan).expect("spawn");
    assert_eq!(ended(&mut child), Err((Stage::Cwd, Errno::NOENT)));
    assert_eq!(reap(&child), 127);
}

/// The pipes of an agent with many shells have the numbers to which a child moves its descriptors.
/// A child once closed the pipe by which it reports its execution: the agent freed its stack too
/// early, and from the fifth shell on bash died of SIGSEGV.
#[test]
fn a_child_may_place_descriptors_on_any_number_of_ours() {
    let (_read, write) = pipe();
    for first in [3, 10, 30, 48] {
        let _low: Vec<_> =
            (0..first).map(|_| std::fs::File::open("/dev/null").expect("null")).collect();
        for _ in 0..50 {
            let mut plan = shell("true", &write);
            plan.programs = vec![text("/no/such")];
            plan.fds = (first..first + 16).map(|target| (write.as_raw_fd(), target)).collect();
            let mut child = spawn(plan).expect("spawn");
            assert_eq!(ended(&mut child), Err((Stage::Exec, Errno::NOENT)), "from {first}");
            assert_eq!(reap(&child), 127);
        }
    }
}

#[test]
fn a_fork_has_only_its_listed_descriptors() {
    let (_read, write) = pipe();
    let plan = Plan { fds: vec![(write.as_raw_fd(), 5)], umask: 0o22, ..Plan::default() };
    let child = fork(plan, || {
        let open = |fd| {
            // SAFETY: only used to ask whether the number is open; it need not be.
            rustix::io::fcntl_getfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }).is_ok()
        };
        i32::from(open(5)) * 10 + (0..64).filter(|fd| open(*fd)).count() as i32
    })
    .expect("fork");
    assert_eq!(reap(&child), 11);
}

/// Promises: Z10.
#[test]
fn a_terminal_is_the_childs_own_and_its_other_side_ours() {
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .expect("a pair");
    assert_eq!(isolet_sys::pty::receive(&ours).err(), Some(Errno::AGAIN));
    let terminal = isolet_sys::pty::Terminal { handover: theirs.as_fd(), cols: 91, rows: 33 };
    let script = "stty size; stty -a | grep -o ' iutf8'; tty <&2; echo x >/dev/tty; echo $(ls /proc/self/fd)";
    let null = std::fs::File::open("/dev/null").expect("null");
    let mut plan = shell(script, &OwnedFd::from(null));
    plan.fds.clear();
    let mut child = spawn(Plan { terminal: Some(terminal), ..plan }).expect("spawn");
    assert_eq!(ended(&mut child), Ok(()));
    let control = isolet_sys::pty::receive(&ours).expect("handed over");
    let name = rustix::pty::ptsname(&control, Vec::new()).expect("a name");
    assert_eq!(reap(&child), 0);
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = rustix::io::read(&control, &mut buffer) {
        said.extend_from_slice(&buffer[..count]);
    }
    let said = String::from_utf8(said).expect("text").replace("\r\n", "\n");
    let name = name.to_str().expect("text");
    // The last descriptor is that of the directory.
    assert_eq!(said, format!("33 91\n iutf8\n{name}\nx\n0 1 2 3\n"));
}

/// Promises: Z14.
#[test]
fn what_is_no_terminal_is_not_taken_for_one() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let slave = {
        let control = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).expect("opens");
        rustix::pty::unlockpt(&control).expect("unlocks");
        rustix::pty::ioctl_tiocgptpeer(&control, rustix::pty::OpenptFlags::RDWR).expect("opens")
    };
    let null = std::fs::File::open("/dev/null").expect("null");
    for fd in [slave.as_fd(), null.as_fd(), theirs.as_fd()] {
        let fds = [fd];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        assert!(rights.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [std::io::IoSlice::new(b"x")];
        rustix::net::sendmsg(&theirs, &bytes, &mut rights, SendFlags::empty()).expect("sends");
        assert_eq!(isolet_sys::pty::receive(&ours).err(), Some(Errno::NOTTY));
    }
}
