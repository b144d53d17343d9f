//! How the server of a test is started.

use crate::Server;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) config: String,
    pub(crate) ready: usize,
    pub(crate) others: usize,
    pub(crate) disk_mib: usize,
    pub(crate) descriptors: usize,
    pub(crate) everywhere: bool,
    pub(crate) restore: Option<Restore>,
    pub(crate) key: Option<String>,
}

/// A data directory that was written earlier.
#[derive(Debug, Clone)]
pub(crate) struct Restore {
    /// A tar archive of what lies in it.
    archive: PathBuf,
    /// Changes it before the server starts.
    change: fn(&Path),
}

impl Restore {
    pub(crate) fn unpack(&self, data: &Path) {
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "--same-owner", "-xpf"]).arg(&self.archive);
        let done = tar.arg("-C").arg(data).status().expect("tar is there");
        assert!(done.success(), "{}: {done}", self.archive.display());
        (self.change)(data);
    }
}

impl Options {
    /// Nothing said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a text in its TOML file.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    /// With so many sandboxes made before anybody asks; none unless told, so that what is left
    /// over can be counted.
    #[must_use]
    pub fn ready(mut self, count: usize) -> Self {
        self.ready = count;
        self
    }

    /// With so many more at its end that were made ahead because somebody had asked for their kind.
    #[must_use]
    pub fn others(mut self, count: usize) -> Self {
        self.others = count;
        self
    }

    /// With room for so many descriptors; as many as its tests have unless told.
    #[must_use]
    pub fn descriptors(mut self, count: usize) -> Self {
        self.descriptors = count;
        self
    }

    /// Listening on every address of its host, not on loopback alone.
    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// With its data on a disk of so many MiB, which can be filled.
    #[must_use]
    pub fn disk_mib(mut self, mib: usize) -> Self {
        self.disk_mib = mib;
        self
    }

    /// With the data directory of another server, out of a tar archive; `change` may change it
    /// before the start.
    #[must_use]
    pub fn restore(mut self, archive: &Path, change: fn(&Path)) -> Self {
        self.restore = Some(Restore { archive: archive.to_owned(), change });
        self
    }

    /// With this key of the tenant `default`, rather than one of its own.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Starts it and waits until it answers.
    #[must_use]
    pub fn start(self) -> Server {
        Server::with(self)
    }
}
