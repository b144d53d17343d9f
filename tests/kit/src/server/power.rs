//! A power failure that loses what only the page cache had.

use super::Server;
use crate::{LONG, SOON, traces, wait_until};
use std::process::Command;

/// Runs a program that must succeed.
#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

impl Server {
    /// Lets the file system of [`crate::Options::loop_disk`] write only what it is asked to write, for
    /// ten minutes. What it holds in memory now is written. xfs waits for half a minute only.
    ///
    /// # Panics
    /// When it cannot be mounted so.
    pub fn write_only_on_request(&self) {
        let data = self.data();
        let disk = self.options.loop_disk.as_ref().expect("it has a disk of its own");
        if disk.kind() != "xfs" {
            run(Command::new("mount").args(["-o", "remount,commit=600"]).arg(&data));
        }
        run(Command::new("sync").arg("-f").arg(&data));
    }

    /// Simulates a power failure of a server with [`crate::Options::loop_disk`]: everything ends at
    /// once, the disk has what was written to its device by now, and a server starts on it.
    ///
    /// # Panics
    /// When the file system cannot be mounted again, or no server starts on it.
    pub fn cut_power(&mut self) {
        let disk = self.options.loop_disk.clone().expect("it has a disk of its own");
        let image = self.disk_image();
        let written = image.with_extension("written");
        let data = self.data();
        self.kill();
        // Before anything else, because the end of the file system would write the rest.
        run(Command::new("cp").arg("--sparse=always").arg(&image).arg(&written));
        traces::erase(&data);
        wait_until("its file system is unmounted", SOON, || {
            rustix::mount::unmount(&data, rustix::mount::UnmountFlags::empty()).ok()
        });
        std::fs::rename(&written, &image).expect("it replaces the disk");
        if disk.kind() == "btrfs" {
            // Mount namespaces of other servers may hold the old state for a while. The kernel knows
            // one state of a file system only, and remembers the newer one.
            wait_until("its device ends", LONG, || {
                let devices =
                    Command::new("losetup").args(["-n", "-O", "BACK-FILE"]).output().ok()?;
                let devices = String::from_utf8_lossy(&devices.stdout).into_owned();
                (!devices.contains(&image.display().to_string())).then_some(())
            });
            run(Command::new("btrfs").args(["device", "scan", "--forget"]));
        }
        disk.attach(&image, &data);
        self.launch();
    }
}
