//! The settings of a store.

use crate::crypto::key_file::KeyFile;
use crate::error::Error;
use crate::objects::connect::connect;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum size of a file with credentials, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Where a store is, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///DIRECTORY`.
    pub url: String,
    /// The file with the repository key.
    pub key_file: PathBuf,
    /// A file with credentials and other options, as `NAME=value` lines; they win over variables of
    /// the environment.
    pub credentials_file: Option<PathBuf>,
    /// Options that are no secrets, such as `region` and `endpoint`; they win over the file.
    pub options: BTreeMap<String, String>,
}

/// Without the values of options.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSettings")
            .field("url", &self.url)
            .field("key_file", &self.key_file)
            .field("credentials_file", &self.credentials_file)
            .field("options", &self.options.keys())
            .finish()
    }
}

impl StoreSettings {
    /// Checks the key file and the options, without sending anything. Blocks.
    ///
    /// # Errors
    /// [`Error::Settings`], [`Error::KeyFile`].
    pub fn check(&self) -> Result<(), Error> {
        KeyFile::read(&self.key_file)?;
        connect(self).map(drop)
    }

    /// The options of the file and of the settings. Blocks.
    pub(super) fn all_options(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut all = match &self.credentials_file {
            Some(path) => read_private(path)?,
            None => BTreeMap::new(),
        };
        all.extend(self.options.clone());
        Ok(all)
    }
}

/// Reads `NAME=value` lines of a file that only its owner may read.
fn read_private(path: &Path) -> Result<BTreeMap<String, String>, Error> {
    let failed =
        |reason: &dyn fmt::Display| Error::Settings(format!("{}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mode = file.metadata().map_err(|error| failed(&error))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(failed(&format_args!("has mode {mode:04o}; run `chmod 600` on it")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let mut all = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        // Without the line's text, which may be a secret.
        let Some((name, value)) = line.split_once('=') else {
            return Err(failed(&format_args!("line {} is not NAME=value", index + 1)));
        };
        let value = value.trim().trim_matches(|quote| quote == '"' || quote == '\'');
        all.insert(name.trim().to_ascii_lowercase(), value.to_owned());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn credentials_come_from_a_private_file_and_are_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        let text = "# of the store\nexport AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=\"a=b\"\n";
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut settings = StoreSettings {
            url: "s3://bucket".into(),
            key_file: "/key".into(),
            credentials_file: Some(path.clone()),
            options: BTreeMap::from([("aws_access_key_id".into(), "other".into())]),
        };
        let all = settings.all_options().unwrap();
        assert_eq!(all["aws_secret_access_key"], "a=b");
        assert_eq!(all["aws_access_key_id"], "other");
        assert!(!format!("{settings:?}").contains("other"));
        std::fs::write(&path, "secret-without-name\n").unwrap();
        let refused = settings.all_options().unwrap_err().to_string();
        assert!(refused.contains("line 1") && !refused.contains("secret-without"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(settings.all_options().unwrap_err().to_string().contains("chmod 600"));
        settings.credentials_file = None;
        assert!(settings.all_options().is_ok());
    }
}
