//! Stores the values of credentials: one file per sandbox, 0600, in a directory that no sandbox
//! mounts. Neither records nor their copies contain them.
//!
//! The values also exist in the memory of the process that owns the veth pairs, which passes them
//! to a restarted egress proxy, and in the proxy's own. A record names hosts and headers only. The
//! driver places the certificate that the sandbox is to trust where programs look for it
//! (`agent_client::trust`): in a directory that is mounted read-only into every sandbox and written
//! from outside, and, by the agent, in the system's bundle.

use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::network::injected_credential::{CredentialSpec, InjectedCredential};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The directory of all files, below the data directory.
const DIRECTORY: &str = "credentials";
/// Maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The credentials of one sandbox with their values.
pub(crate) struct SecretStore {
    path: PathBuf,
    /// `None` until the file is read.
    held: Mutex<Option<Vec<CredentialSpec>>>,
    /// The CA certificate that the sandbox must trust, as last announced.
    authority: Mutex<Option<String>>,
}

impl SecretStore {
    pub(crate) fn new(data_dir: &Path, name: &str) -> Self {
        let path = path(data_dir, name);
        Self { path, held: Mutex::default(), authority: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Option<Vec<CredentialSpec>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The CA certificate that the sandbox must trust.
    pub(crate) fn authority(&self) -> MutexGuard<'_, Option<String>> {
        self.authority.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the credentials of a sandbox that is being created, without writing them to disk.
    pub(crate) fn fill(&self, all: Vec<CredentialSpec>) {
        *self.held() = Some(all);
    }

    /// The credentials that the record also names. The file alone grants nothing.
    pub(crate) async fn all(
        &self,
        known: &[InjectedCredential],
    ) -> Result<Vec<CredentialSpec>, Error> {
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let held = self.held().clone();
        let mut all = match held {
            Some(all) => all,
            None => {
                let path = self.path.clone();
                let read = blocking(move || read(&path)).await?;
                let all = read.map_err(|error| fault("read", &error))?;
                *self.held() = Some(all.clone());
                all
            }
        };
        all.retain(|one| known.contains(&one.credential));
        Ok(all)
    }

    /// Replaces the credentials and writes them to disk.
    pub(crate) async fn keep(&self, all: Vec<CredentialSpec>) -> Result<(), Error> {
        let path = self.path.clone();
        let new = all.clone();
        let written = match all.is_empty() {
            true => blocking(move || remove(&path)).await?,
            false => blocking(move || write(&path, &new)).await?,
        };
        written.map_err(|error| fault("keep", &error))?;
        *self.held() = Some(all);
        Ok(())
    }

    /// Writes the credentials of [`SecretStore::fill`] to disk.
    pub(crate) async fn write(&self) -> Result<(), Error> {
        let all = self.held().clone().unwrap_or_default();
        if all.is_empty() { Ok(()) } else { self.keep(all).await }
    }

    /// Deletes the file with the sandbox.
    pub(crate) async fn end(&self) -> Result<(), Error> {
        *self.held() = None;
        let path = self.path.clone();
        blocking(move || remove(&path)).await?.map_err(|error| fault("remove", &error))
    }
}

/// Path of a sandbox's file.
pub(crate) fn path(data_dir: &Path, name: &str) -> PathBuf {
    data_dir.join(DIRECTORY).join(name)
}

/// An error without the contents of the file, which are secret.
fn fault(action: &str, error: &io::Error) -> Error {
    Error::Fault(format!("cannot {action} the sandbox's credentials: {}", error.kind()))
}

fn read(path: &Path) -> io::Result<Vec<CredentialSpec>> {
    let text = match fs::metadata(path) {
        Ok(about) if about.len() > FILE_BYTES_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => fs::read(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    serde_json::from_slice(&text).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn write(path: &Path, all: &[CredentialSpec]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let fresh = path.with_extension("new");
    let text = serde_json::to_vec(all)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    fs::File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    for path in [path.with_extension("new"), path.to_owned()] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes the files of sandboxes without a record. Blocks.
pub(crate) fn sweep(data_dir: &Path, names: &HashSet<String>) -> io::Result<()> {
    let files = match fs::read_dir(data_dir.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    for file in files {
        let file = file?;
        if !file.file_name().to_str().is_some_and(|name| names.contains(name)) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn credential(host: &str) -> CredentialSpec {
        let made = CredentialSpec::new(host, Some("x-key".into()), None, "hunter2".to_owned());
        made.expect("a valid credential")
    }

    /// Promises: Q21.
    #[tokio::test]
    async fn values_are_kept_for_root_alone_and_found_again_and_end_with_their_sandbox() {
        let data = tempfile::tempdir().unwrap();
        let all = vec![credential("a.example"), credential("b.example")];
        let known: Vec<InjectedCredential> = all.iter().map(|one| one.credential.clone()).collect();
        SecretStore::new(data.path(), "one").keep(all.clone()).await.unwrap();
        let path = data.path().join("credentials/one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let folder = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        let again = SecretStore::new(data.path(), "one");
        assert_eq!(again.all(&known).await.unwrap(), all);
        assert_eq!(again.all(&known[..1]).await.unwrap(), all[..1], "the record decides");
        sweep(data.path(), &HashSet::from(["one".to_owned()])).unwrap();
        assert!(path.is_file());
        again.end().await.unwrap();
        assert!(matches!(path.try_exists(), Ok(false)));
        SecretStore::new(data.path(), "two").keep(all).await.unwrap();
        sweep(data.path(), &HashSet::new()).unwrap();
        assert_eq!(fs::read_dir(data.path().join("credentials")).unwrap().count(), 0);
        // The error does not contain the damaged contents.
        fs::write(&path, "hunter2").unwrap();
        let error = SecretStore::new(data.path(), "one").all(&known).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
