//! A network namespace that lives as long as a descriptor of it.

use isolet_kit::net;
use rustix::thread::UnshareFlags;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

/// A network namespace. It ends when this value and every process in it have ended.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Creates a namespace with a loopback interface.
    ///
    /// # Panics
    /// When it cannot be created: that needs root.
    #[must_use]
    pub fn create() -> Self {
        // The thread that moves into it ends; the descriptor keeps the namespace.
        std::thread::spawn(|| Self::enter_new().expect("a network namespace"))
            .join()
            .expect("the thread that creates it ends")
    }

    /// Moves this thread into a new namespace. Threads and processes that it starts from then on are
    /// there too.
    ///
    /// # Errors
    /// Without root.
    pub fn enter_new() -> std::io::Result<Self> {
        isolet_sys::namespaces::unshare(UnshareFlags::NEWNET)?;
        isolet_sys::loopback::bring_up()?;
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// A path of the namespace for other programs, valid while this value lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// A command for a program that runs in the namespace. `nsenter` becomes the program, so the pid
    /// of the child is the program's. It has a process group of its own, so that an interrupt at a
    /// terminal does not reach it.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg(program).process_group(0);
        command
    }

    /// Runs a program to its end and returns its output.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn run(&self, program: &str, words: &str) -> String {
        net::inside(self, program, words)
    }

    /// Applies a ruleset of nftables.
    ///
    /// # Panics
    /// When nft refuses it.
    #[track_caller]
    pub fn nft(&self, ruleset: &str) {
        let output = self.command("nft").arg(ruleset).output().expect("nft is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ruleset}: {errors}");
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
