//! How a test's server is started.

use crate::Server;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The settings of a server that is not started yet.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) config: String,
    pub(crate) ready: usize,
    pub(crate) others: usize,
    pub(crate) disk_mib: usize,
    pub(crate) overlay: bool,
    pub(crate) loop_disk: Option<LoopDisk>,
    pub(crate) descriptors: usize,
    pub(crate) everywhere: bool,
    pub(crate) key: Option<String>,
    pub(crate) authority: Option<String>,
    pub(crate) programs: Option<PathBuf>,
    pub(crate) network: Option<NetworkPlace>,
}

/// A network namespace in which a server runs, and where it listens there.
#[derive(Debug, Clone)]
pub(crate) struct NetworkPlace {
    /// The file of the namespace, for `nsenter`.
    pub(crate) namespace: PathBuf,
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
}

/// A new file system in a file, for a data directory.
#[derive(Debug, Clone)]
pub(crate) struct LoopDisk {
    kind: &'static str,
    mib: u64,
    args: Vec<String>,
}

impl LoopDisk {
    /// Creates the file `image` with the file system, and mounts it on a directory. The loop device
    /// ends with the mount.
    pub(crate) fn mount(&self, image: &Path, at: &Path) {
        let file = std::fs::File::create(image).expect("a file beside the directory");
        file.set_len(self.mib << 20).expect("a sparse file");
        let force = if self.kind == "ext4" { "-F" } else { "-f" };
        let mkfs = format!("mkfs.{}", self.kind);
        done(Command::new(mkfs).args(["-q", force]).args(&self.args).arg(image));
        self.attach(image, at);
        // The server wants its directory empty.
        let _ = std::fs::remove_dir(at.join("lost+found"));
    }

    /// Mounts a file system that exists. A copy of it may be mounted too.
    pub(crate) fn attach(&self, image: &Path, at: &Path) {
        let options = if self.kind == "xfs" { "loop,nouuid" } else { "loop" };
        done(Command::new("mount").args(["-t", self.kind, "-o", options]).args([image, at]));
    }

    pub(crate) fn kind(&self) -> &str {
        self.kind
    }
}

/// Runs a command that must succeed.
fn done(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

impl Options {
    /// The default settings of tests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Appends text to the server's TOML file.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    /// Sets the size of the warm pool. The default in tests is 0, so that leftovers can be counted.
    #[must_use]
    pub fn warm_pool(mut self, count: usize) -> Self {
        self.ready = count;
        self
    }

    /// Expects `count` more sandboxes at the end of the test: those that the warm pool holds for
    /// kinds that were requested.
    #[must_use]
    pub fn other_kinds(mut self, count: usize) -> Self {
        self.others = count;
        self
    }

    /// Sets the limit of open files; the default is that of the test process.
    #[must_use]
    pub fn descriptors(mut self, count: usize) -> Self {
        self.descriptors = count;
        self
    }

    /// Listens on every address of the host instead of loopback.
    #[must_use]
    pub fn on_all_addresses(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// Puts the data directory on a disk of `mib` MiB, which can be filled.
    #[must_use]
    pub fn disk_mib(mut self, mib: usize) -> Self {
        self.disk_mib = mib;
        self
    }

    /// Puts the data directory on a new file system of `mib` MiB on a loop device: `ext4`, `xfs` or
    /// `btrfs`, created by mkfs with more arguments.
    #[must_use]
    pub fn loop_disk(mut self, kind: &'static str, mib: u64, args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        self.loop_disk = Some(LoopDisk { kind, mib, args });
        self
    }

    /// Puts the data directory on an overlay, which cannot show its files under other ids. Sandboxes
    /// need `disk_mib` there.
    #[must_use]
    pub fn overlay(mut self) -> Self {
        self.overlay = true;
        self
    }

    /// Uses this key for the tenant `default` instead of a new one.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Serves HTTPS with a certificate chain and its key; `authority` is the PEM text of what clients
    /// must trust. The certificate must be valid for 127.0.0.1.
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path, authority: &str) -> Self {
        self.authority = Some(authority.to_owned());
        self.env("ISOLET_TLS_CERT", &certificate.display().to_string())
            .env("ISOLET_TLS_KEY", &key.display().to_string())
    }

    /// Starts the programs in this directory, for example those of an earlier commit, instead of
    /// those under test. [`Server::use_programs_under_test`] replaces them later.
    #[must_use]
    pub fn programs(mut self, directory: &Path) -> Self {
        self.programs = Some(directory.to_owned());
        self
    }

    /// Runs the server in a network namespace, which is a file such as `/proc/PID/fd/N`, where it
    /// listens on this address without TLS. The thread that uses the server must reach the address.
    /// The server gets a process group of its own, so that an interrupt at a terminal does not
    /// reach it.
    #[must_use]
    pub fn in_network(mut self, namespace: &Path, address: Ipv4Addr, port: u16) -> Self {
        self.network = Some(NetworkPlace { namespace: namespace.to_owned(), address, port });
        self
    }

    /// Starts the server and waits until it answers.
    #[must_use]
    pub fn start(self) -> Server {
        Server::with(self)
    }
}
