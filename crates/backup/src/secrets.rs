//! Keys and credentials, encrypted with a passphrase in the format of `age`, so that `age --decrypt`
//! reads them too.

use crate::error::{Error, at};
use crate::files::open;
use crate::manifest::is_name;
use age::secrecy::SecretString;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isolet_store::backup::LinkSecrets;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The first API key.
const KEY: &str = "key";
/// The keys of audit logs.
const AUDIT_KEYS: [&str; 2] = ["audit/key", "audit/retired.json"];
/// The key of webhooks.
const WEBHOOKS: &str = "webhooks.key";
/// The directory of the credentials.
const CREDENTIALS: &str = "credentials";
/// Maximum work factor of a passphrase that is accepted: 2^22 takes about a minute.
const WORK_MAX: u8 = 22;
/// Maximum size of encrypted secrets, in bytes: 1 MiB for each of some hundred sandboxes.
const BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The passphrase that encrypts the secrets of a backup.
#[derive(Clone)]
pub struct Passphrase(SecretString);

impl Passphrase {
    /// A passphrase; `None` if the text is empty.
    #[must_use]
    pub fn new(text: String) -> Option<Self> {
        (!text.is_empty()).then(|| Self(SecretString::from(text)))
    }
}

/// The secrets of a data directory.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Secrets {
    /// Contents of files in base64, by their path below the data directory.
    files: BTreeMap<String, String>,
    links: LinkSecrets,
}

/// The keys of audit logs at one moment.
#[derive(Default, Clone, PartialEq, Eq)]
pub(crate) struct AuditKeys(BTreeMap<String, String>);

impl AuditKeys {
    /// Reads the keys, which a server may be replacing.
    pub(crate) fn read(data: &Path) -> Result<Self, Error> {
        let mut secrets = Secrets::default();
        for file in AUDIT_KEYS {
            secrets.take(data, file.to_owned())?;
        }
        Ok(Self(secrets.files))
    }
}

impl Secrets {
    /// Reads the secrets of these sandboxes and of the server.
    pub(crate) fn read(
        data: &Path,
        names: &HashSet<String>,
        audit: AuditKeys,
        links: LinkSecrets,
    ) -> Result<Self, Error> {
        let mut secrets = Self { files: audit.0, links };
        secrets.take(data, KEY.to_owned())?;
        secrets.take(data, WEBHOOKS.to_owned())?;
        for name in names {
            secrets.take(data, format!("{CREDENTIALS}/{name}"))?;
        }
        Ok(secrets)
    }

    fn take(&mut self, data: &Path, file: String) -> Result<(), Error> {
        let path = data.join(&file);
        match fs::read(&path) {
            Ok(bytes) => {
                self.files.insert(file, STANDARD.encode(bytes));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(at(&path)(error)),
        }
    }

    pub(crate) fn encrypt(&self, passphrase: &Passphrase) -> Result<Vec<u8>, Error> {
        let wrong = |error: String| Error::Secrets(error);
        let text = serde_json::to_vec(self).map_err(|error| wrong(error.to_string()))?;
        #[cfg_attr(not(test), expect(unused_mut, reason = "changed by tests"))]
        let mut recipient = age::scrypt::Recipient::new(passphrase.0.clone());
        // The real factor takes a second, and tests encrypt often.
        #[cfg(test)]
        recipient.set_work_factor(8);
        let bytes = age::encrypt(&recipient, &text).map_err(|error| wrong(error.to_string()))?;
        check_length(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Reads and decrypts the secrets of a backup.
    pub(crate) fn load(path: &Path, passphrase: &Passphrase) -> Result<Self, Error> {
        let file = open(path)?;
        check_length(file.metadata().map_err(at(path))?.len())?;
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(at(path))?;
        Self::decrypt(&bytes, passphrase)
    }

    fn decrypt(bytes: &[u8], passphrase: &Passphrase) -> Result<Self, Error> {
        let mut identity = age::scrypt::Identity::new(passphrase.0.clone());
        identity.set_max_work_factor(WORK_MAX);
        let text = age::decrypt(&identity, bytes)
            .map_err(|error| Error::Secrets(format!("wrong passphrase, or damaged ({error})")))?;
        let secrets: Self = serde_json::from_slice(&text)
            .map_err(|_| Error::Secrets("they have another format".to_owned()))?;
        match secrets.files.keys().find(|file| !is_known(file)) {
            Some(file) => Err(Error::Secrets(format!("they contain the file {file:?}"))),
            None => Ok(secrets),
        }
    }

    pub(crate) fn links(&self) -> &LinkSecrets {
        &self.links
    }

    /// Writes the files below a data directory.
    pub(crate) fn write(&self, data: &Path) -> Result<(), Error> {
        for (file, text) in &self.files {
            let path = data.join(file);
            let bytes = STANDARD.decode(text).map_err(|error| Error::Secrets(error.to_string()))?;
            if let Some(folder) = path.parent() {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
                made.map_err(at(folder))?;
            }
            let mut options = OpenOptions::new();
            let open = options.write(true).create_new(true).mode(0o600).open(&path);
            open.and_then(|mut file| file.write_all(&bytes)).map_err(at(&path))?;
        }
        Ok(())
    }
}

fn check_length(bytes: u64) -> Result<(), Error> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(Error::Secrets(format!("they have {bytes} bytes, more than {BYTES_MAX}")))
}

/// Whether a backup may contain this file.
fn is_known(file: &str) -> bool {
    let credential = |rest: &str| rest.strip_prefix('/').is_some_and(is_name);
    file == KEY
        || file == WEBHOOKS
        || AUDIT_KEYS.contains(&file)
        || file.strip_prefix(CREDENTIALS).is_some_and(credential)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_need_their_passphrase_and_name_no_other_file() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("key"), "isolet_hush").unwrap();
        fs::write(data.path().join("webhooks.key"), "hush-too").unwrap();
        fs::create_dir(data.path().join("credentials")).unwrap();
        fs::write(data.path().join("credentials/abc"), "hush").unwrap();
        let right = Passphrase::new("correct horse".to_owned()).unwrap();
        let names = HashSet::from(["abc".to_owned()]);
        let all =
            Secrets::read(data.path(), &names, AuditKeys::default(), LinkSecrets::new()).unwrap();
        let bytes = all.encrypt(&right).unwrap();
        assert!(!bytes.windows(4).any(|part| part == b"hush"));
        let wrong = Passphrase::new("wrong".to_owned()).unwrap();
        assert!(matches!(Secrets::decrypt(&bytes, &wrong), Err(Error::Secrets(_))));
        assert!(Secrets::decrypt(&bytes[..bytes.len() - 1], &right).is_err());
        let to = tempfile::tempdir().unwrap();
        Secrets::decrypt(&bytes, &right).unwrap().write(to.path()).unwrap();
        assert_eq!(fs::read(to.path().join("credentials/abc")).unwrap(), b"hush");
        assert_eq!(fs::read(to.path().join("webhooks.key")).unwrap(), b"hush-too");
        for bad in ["../x", "credentials/../key", "credentials/", "isolet.db", "/etc/passwd"] {
            let files = BTreeMap::from([(bad.to_owned(), String::new())]);
            let bytes = Secrets { files, links: LinkSecrets::new() }.encrypt(&right).unwrap();
            assert!(matches!(Secrets::decrypt(&bytes, &right), Err(Error::Secrets(_))), "{bad}");
        }
    }

    #[test]
    fn secrets_that_are_too_long_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.age");
        fs::File::create(&path).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let passphrase = Passphrase::new("x".to_owned()).unwrap();
        let Err(Error::Secrets(reason)) = Secrets::load(&path, &passphrase) else { panic!() };
        assert!(reason.contains("more than"), "{reason}");
    }
}
