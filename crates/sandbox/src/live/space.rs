//! The floor of free disk space. Below it, the server creates nothing and accepts no uploads, so
//! that records can still be written and everything else continues. Every call checks the disk
//! again.

use crate::model::config::Config;
use crate::model::error::Error;
use std::path::PathBuf;

/// Number of bytes of an upload between two checks.
pub(crate) const STEP_BYTES: u64 = 16 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;

/// Checks the disk of the data directory.
#[derive(Debug)]
pub(crate) struct Space {
    directory: PathBuf,
    floor_mib: u64,
}

impl Space {
    pub(crate) fn new(config: &Config) -> Self {
        Self { directory: config.data_dir.clone(), floor_mib: config.free_space_floor_mib }
    }

    /// Returns [`Error::NoSpace`] below the floor. If the disk cannot be queried, the write itself
    /// will report an error.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.floor_mib == 0 {
            return Ok(());
        }
        // The kernel answers from memory, so this does not block.
        let Ok(disk) = rustix::fs::statvfs(&self.directory) else { return Ok(()) };
        let free_mib = disk.f_bavail.saturating_mul(disk.f_frsize) / MIB;
        if free_mib >= self.floor_mib {
            return Ok(());
        }
        Err(Error::NoSpace { free_mib, floor_mib: self.floor_mib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_the_floor_is_refused_with_both_numbers() {
        let at = |floor_mib| Space { directory: "/".into(), floor_mib }.check();
        assert!(at(0).is_ok());
        let Err(Error::NoSpace { free_mib, floor_mib }) = at(u64::MAX) else { panic!("let in") };
        assert!(free_mib < floor_mib);
    }
}
