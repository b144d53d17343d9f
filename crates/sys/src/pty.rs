//! A terminal for a tenant's process. The process opens it itself once it runs as the tenant, so
//! that the tenant owns the node in `/dev/pts`. It sends the controlling side to the agent.
//!
//! UNSAFETY: the first half runs between `clone` and `exec`, in memory shared with the agent: it
//! calls the kernel directly and allocates nothing.

use crate::syscall::syscall;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A terminal that a child opens and has as its standard input, output and error, and as its
/// controlling terminal.
#[derive(Debug)]
pub struct Terminal<'a> {
    /// A unix socket by which the child sends the controlling side; see [`receive`].
    pub handover: BorrowedFd<'a>,
    /// The width in columns before the program starts.
    pub cols: u16,
    /// The height in rows before the program starts.
    pub rows: u16,
}

/// The control message that carries a descriptor, in the kernel's layout (`cmsghdr`, the number,
/// padding).
#[repr(C)]
struct Rights {
    length: usize,
    level: i32,
    kind: i32,
    fd: i32,
    padding: i32,
}

/// The kernel's `termios`, which differs from libc's.
#[repr(C)]
#[derive(Default)]
struct Termios {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    line: u8,
    characters: [u8; 19],
}

/// Opens a terminal and sends its controlling side to the agent. Returns the descriptor for the
/// program, which is above `floor`.
///
/// # Safety
/// Only in a fresh child that has one thread.
pub(crate) unsafe fn open(terminal: &Terminal<'_>, floor: usize) -> Result<usize, i32> {
    let check = |result: isize| usize::try_from(result).map_err(|_| -result as i32);
    let flags = (libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) as usize;
    let ours = flags | libc::O_NONBLOCK as usize;
    let unlocked = 0_i32;
    let size = [terminal.rows, terminal.cols, 0, 0];
    let mut modes = Termios::default();
    // SAFETY: every pointer is to a value of this frame or a constant, in the kernel's layout.
    unsafe {
        let name = c"/dev/ptmx".as_ptr() as usize;
        let at = libc::AT_FDCWD as usize;
        let control = check(syscall(libc::SYS_openat, [at, name, ours, 0, 0]))?;
        let ioctl = |fd: usize, request: libc::Ioctl, value: usize| {
            check(syscall(libc::SYS_ioctl, [fd, request as usize, value, 0, 0]))
        };
        ioctl(control, libc::TIOCSPTLCK, &raw const unlocked as usize)?;
        let program = ioctl(control, libc::TIOCGPTPEER, flags)?;
        ioctl(program, libc::TIOCSWINSZ, &raw const size as usize)?;
        ioctl(program, libc::TCGETS, &raw mut modes as usize)?;
        // Without it the kernel's line editing erases a byte instead of a character.
        modes.input |= libc::IUTF8;
        ioctl(program, libc::TCSETS, &raw const modes as usize)?;
        hand_over(terminal, control as i32)?;
        let args = [program, libc::F_DUPFD_CLOEXEC as usize, floor, 0, 0];
        check(syscall(libc::SYS_fcntl, args))
    }
}

/// # Safety
/// As [`open`].
unsafe fn hand_over(terminal: &Terminal<'_>, fd: i32) -> Result<(), i32> {
    use std::os::fd::AsRawFd;
    let byte = 0_u8;
    let mut piece = libc::iovec { iov_base: (&raw const byte) as *mut libc::c_void, iov_len: 1 };
    let length = size_of::<libc::cmsghdr>() + size_of::<i32>();
    let level = libc::SOL_SOCKET;
    let kind = libc::SCM_RIGHTS;
    let mut rights = Rights { length, level, kind, fd, padding: 0 };
    // SAFETY: all zeroes is a valid msghdr; what it points to lies in this frame.
    let result = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut rights).cast();
        message.msg_controllen = size_of::<Rights>();
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
        let socket = terminal.handover.as_raw_fd() as usize;
        syscall(libc::SYS_sendmsg, [socket, &raw const message as usize, flags, 0, 0])
    };
    if result < 0 { Err(-result as i32) } else { Ok(()) }
}

/// Makes a descriptor the controlling terminal of this session.
///
/// # Safety
/// As [`open`].
pub(crate) unsafe fn control(fd: usize) -> Result<(), i32> {
    // SAFETY: takes no pointer.
    let result = unsafe { syscall(libc::SYS_ioctl, [fd, libc::TIOCSCTTY as usize, 0, 0, 0]) };
    if result < 0 { Err(-result as i32) } else { Ok(()) }
}

/// Receives the controlling side of a [`Terminal`] from the other end of its socket. Anything else
/// is refused. The descriptor is non-blocking and close-on-exec. Does not wait.
///
/// # Errors
/// `EAGAIN` when nothing was sent, `ENOTTY` for a descriptor of another kind.
pub fn receive(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut rights, flags)?;
    let fd = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let fd = fd.ok_or(Errno::NOTTY)?;
    let stat = rustix::fs::fstat(&fd)?;
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let kind = FileType::from_raw_mode(stat.st_mode);
    // Major 5, minor 2 is `ptmx` on every Linux.
    if kind != FileType::CharacterDevice || device != (5, 2) {
        return Err(Errno::NOTTY);
    }
    rustix::pty::ptsname(&fd, Vec::new())?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}
