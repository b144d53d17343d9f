//! Secrets of webhooks, and the signatures of the Standard Webhooks scheme.
//!
//! A secret is derived from one key of the server, the tenant, the webhook and a version. So no secret is
//! stored, and all nodes of a fleet with the same key sign alike.

use crate::error::Error;
use crate::model::settings::KeySource;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The least length of a key, in bytes.
const KEY_BYTES_MIN: usize = 32;
/// The most that is read of a key, in bytes.
const KEY_BYTES_MAX: usize = 4096;
/// What the secrets of this scheme are derived for.
const PURPOSE: &str = "isolet webhook v1";
/// What a fingerprint is derived for.
const FINGERPRINT: &str = "isolet webhook key fingerprint";

/// The key that all secrets are derived from.
#[derive(Clone)]
pub(crate) struct MasterKey(Hmac<Sha256>);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

/// A secret of a webhook.
pub(crate) struct Secret([u8; 32]);

impl MasterKey {
    /// Reads the key; the server's own one is created if it is missing. Blocks.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub(crate) fn open(source: &KeySource) -> Result<Self, Error> {
        let (path, made) = match source {
            KeySource::File(path) => (path, Ok(())),
            KeySource::Own(path) => (path, create(path)),
        };
        let bad = |reason: String| Error::Key { path: path.clone(), reason };
        made.map_err(|error| bad(error.to_string()))?;
        let bytes = read(path).map_err(|error| bad(error.to_string()))?;
        let text = bytes.trim_ascii_end();
        if text.len() < KEY_BYTES_MIN {
            let reason = format!("it has {} bytes, and needs {KEY_BYTES_MIN}", text.len());
            return Err(bad(reason));
        }
        Ok(Self::new(text))
    }

    pub(crate) fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// A public name of the key.
    pub(crate) fn fingerprint(&self) -> String {
        hex::encode(&self.derive(&[FINGERPRINT])[..8])
    }

    /// The secret of a webhook.
    pub(crate) fn secret(&self, tenant: &str, id: &str, version: u32) -> Secret {
        Secret(self.derive(&[PURPOSE, tenant, id, &version.to_string()]))
    }

    /// Parts are separated by NUL, which none of them contains.
    fn derive(&self, parts: &[&str]) -> [u8; 32] {
        self.0.clone().chain_update(parts.join("\0")).finalize().into_bytes().into()
    }
}

impl Secret {
    /// The secret as receivers configure it.
    pub(crate) fn shown(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }

    /// The signature of a request.
    pub(crate) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac: Hmac<Sha256> =
            Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Reads a key, which nobody else may be able to read.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        return Err(io::Error::other("it must be a file that only its owner can read (mode 0600)"));
    }
    let mut bytes = Vec::new();
    file.take(KEY_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a random key unless there is one. The file is complete when it gets its name.
fn create(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let new = path.with_extension("key.new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(format!("{}\n", hex::encode(key)).as_bytes())?;
    file.sync_all()?;
    let linked = fs::hard_link(&new, path);
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_created_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhooks.key");
        let own = KeySource::Own(path.clone());
        let key = MasterKey::open(&own).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(MasterKey::open(&own).unwrap().fingerprint(), key.fingerprint());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        assert!(MasterKey::open(&KeySource::File(folder.path().join("none"))).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = MasterKey::open(&own).unwrap_err().to_string();
        assert!(error.contains("0600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short\n").unwrap();
        let error = MasterKey::open(&own).unwrap_err().to_string();
        assert!(error.contains("5 bytes") && !error.contains("short"), "{error}");
    }

    #[test]
    fn each_webhook_and_version_has_a_secret_of_its_own() {
        let key = MasterKey::new(&[7; 32]);
        let shown = |tenant, id, version| key.secret(tenant, id, version).shown();
        let one = shown("a", "wh_1", 1);
        assert!(one.starts_with("whsec_") && one.len() == 6 + 44, "{one}");
        assert_eq!(one, shown("a", "wh_1", 1));
        for other in [shown("b", "wh_1", 1), shown("a", "wh_2", 1), shown("a", "wh_1", 2)] {
            assert_ne!(one, other);
        }
        assert_ne!(MasterKey::new(&[8; 32]).secret("a", "wh_1", 1).shown(), one);
    }

    /// The example of the specification.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let bytes = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mut mac: Hmac<Sha256> = Hmac::new_from_slice(&bytes).unwrap();
        mac.update(b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}");
        let expected = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(STANDARD.encode(mac.finalize().into_bytes()), expected);
        let secret = MasterKey::new(&[7; 32]).secret("a", "wh_1", 1);
        let decoded = STANDARD.decode(&secret.shown()[6..]).unwrap();
        let mut mac: Hmac<Sha256> = Hmac::new_from_slice(&decoded).unwrap();
        mac.update(b"evt_1.12.{}");
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(secret.sign("evt_1", 12, b"{}"), expected);
    }
}
