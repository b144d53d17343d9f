//! The certificate authority of the fleet, by `isolet cluster`.

use isolet_kit::programs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory with the authority, and one with the files of each node.
#[derive(Debug)]
pub struct PeerAuthority {
    program: PathBuf,
    folder: PathBuf,
}

impl PeerAuthority {
    /// Creates an authority in a directory.
    ///
    /// # Panics
    /// When the command fails.
    #[must_use]
    pub fn create(folder: &Path) -> Self {
        Self::with_program(&programs(), folder)
    }

    /// Like [`PeerAuthority::create`], with the program in a directory.
    ///
    /// # Panics
    /// When the command fails.
    #[must_use]
    pub fn with_program(programs: &Path, folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a directory");
        let program = programs.join("isolet");
        let authority = Self { program, folder: folder.to_owned() };
        authority.run(&["init"]);
        authority
    }

    /// The directory with the files of a node: `ca.pem`, `revoked.pem`, `node.pem`, `node-key.pem`.
    #[must_use]
    pub fn files_of(&self, node: &str) -> PathBuf {
        self.folder.join("nodes").join(node)
    }

    /// Issues a certificate to a node and returns the directory with its files.
    ///
    /// # Panics
    /// When the command fails.
    pub fn issue(&self, node: &str) -> PathBuf {
        let out = self.files_of(node);
        fs::create_dir_all(out.parent().expect("it has one")).expect("a directory");
        self.run(&["issue", node, "--out", &out.display().to_string()]);
        out
    }

    /// Revokes all certificates of a node, and gives the new list to these nodes.
    ///
    /// # Panics
    /// When the command fails, or a file cannot be replaced.
    pub fn revoke(&self, node: &str, informed: &[&str]) {
        self.run(&["revoke", node]);
        for other in informed {
            let list = self.files_of(other).join("revoked.pem");
            let new = list.with_extension("new");
            fs::copy(self.folder.join("ca/revoked.pem"), &new).expect("copied");
            fs::rename(&new, &list).expect("replaced");
        }
    }

    fn run(&self, words: &[&str]) {
        let mut command = Command::new(&self.program);
        command.arg("cluster").args(words).arg("--dir").arg(self.folder.join("ca"));
        let output = command.stdin(Stdio::null()).output().expect("isolet starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "isolet cluster {words:?}: {errors}");
    }
}
