//! Loop devices: a file as a block device, for as long as something is mounted from it.
//!
//! UNSAFETY: the ioctls of loop devices have no safe wrapper.

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Attempts to get a free device: another process may take it first.
const ATTEMPTS: u32 = 64;
/// The block size in bytes, the same as that of the file systems in the images.
const BLOCK_BYTES: u32 = 4096;
/// Requests of `linux/loop.h`, which libc does not define.
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
/// The device is detached from its file when it is neither open nor mounted.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    numbers: [u64; 5],
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A loop device that is backed by a file.
#[derive(Debug)]
pub struct LoopDevice {
    /// The path of the device, to mount from.
    pub path: String,
    /// Keeps the device attached until it is mounted.
    _open: OwnedFd,
}

/// Attaches `image` to a free loop device. The device keeps the open file itself, so that a lock on
/// it (`flock`) is held until the device is detached.
///
/// # Errors
/// `ENOENT` without loop devices or where the new one is unknown, `EBUSY` when none is free, otherwise the kernel's error.
pub fn attach(image: BorrowedFd<'_>) -> Result<LoopDevice, Errno> {
    let open = |path: &str| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let control = open("/dev/loop-control")?;
    for _ in 0..ATTEMPTS {
        // SAFETY: takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(errno());
        }
        let path = format!("/dev/loop{number}");
        let device = match open(&path) {
            Err(Errno::NOENT) => make_node(number, &path).and_then(|()| open(&path))?,
            other => other?,
        };
        match configure(&device, image) {
            Ok(()) => return Ok(LoopDevice { path, _open: device }),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

/// Makes the file of a device that the kernel has just added. The kernel itself makes one in a
/// `devtmpfs`, but the `/dev` of a container is another file system, which shows the devices that
/// existed when the container was started.
fn make_node(number: libc::c_int, path: &str) -> Result<(), Errno> {
    let text = std::fs::read_to_string(format!("/sys/block/loop{number}/dev"));
    let text = text.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
    let (major, minor) = text.trim_end().split_once(':').ok_or(Errno::NOENT)?;
    let parse = |number: &str| number.parse().map_err(|_| Errno::NOENT);
    let device = makedev(parse(major)?, parse(minor)?);
    let owner_only = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(CWD, path, FileType::BlockDevice, owner_only, device) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn configure(device: &OwnedFd, image: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: all zeroes is a valid value of both structures.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = image.as_raw_fd() as u32;
    config.block_size = BLOCK_BYTES;
    config.info.flags = LO_FLAGS_AUTOCLEAR;
    // SAFETY: the kernel reads the structure, which outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_as_long_as_the_kernels() {
        assert_eq!((size_of::<LoopInfo>(), size_of::<LoopConfig>()), (232, 304));
    }
}
