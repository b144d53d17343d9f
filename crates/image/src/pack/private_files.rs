//! Finds files that usually hold secrets by their names, so that the client that makes an image of
//! them is warned. The contents are not read.

use serde::{Deserialize, Serialize};

/// Maximum number of files that are listed.
const LISTED_MAX: usize = 100;
/// Maximum length of a listed path, in characters.
const PATH_LETTERS_MAX: usize = 1000;

/// Why a file is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivateFileKind {
    /// It usually holds passwords, keys or tokens.
    Credentials,
    /// It usually holds commands that were typed.
    History,
}

/// A file that usually holds secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFile {
    /// Its absolute path in the image.
    pub path: String,
    /// Why it is listed.
    pub kind: PrivateFileKind,
}

/// The files that were found.
#[derive(Debug, Default)]
pub(crate) struct PrivateFiles {
    /// The first of them.
    pub(crate) listed: Vec<PrivateFile>,
    /// How many were found, with those that are not listed.
    pub(crate) count: u64,
}

/// The last part or the last two parts of paths.
const CREDENTIALS: &[&str] = &[
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".env",
    ".envrc",
    ".htpasswd",
    ".vault-token",
    ".terraformrc",
    ".boto",
    ".s3cfg",
    ".dockercfg",
    ".docker/config.json",
    "containers/auth.json",
    ".kube/config",
    ".aws/credentials",
    ".aws/config",
    ".azure/accessTokens.json",
    ".azure/msal_token_cache.json",
    "gcloud/credentials.db",
    "gcloud/access_tokens.db",
    "gcloud/application_default_credentials.json",
    "gh/hosts.yml",
    "glab-cli/config.yml",
    "git/credentials",
    "rclone/rclone.conf",
    "pip/pip.conf",
    ".pip/pip.conf",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    "composer/auth.json",
    ".ssh/id_rsa",
    ".ssh/id_dsa",
    ".ssh/id_ecdsa",
    ".ssh/id_ed25519",
    ".ssh/identity",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/hub",
];

/// Directories whose files are all listed.
const CREDENTIAL_DIRECTORIES: &[&str] = &[".gnupg/private-keys-v1.d"];

const HISTORIES: &[&str] = &[
    ".bash_history",
    ".zsh_history",
    ".sh_history",
    ".ash_history",
    ".histfile",
    ".history",
    ".python_history",
    ".node_repl_history",
    ".irb_history",
    ".psql_history",
    ".mysql_history",
    ".mariadb_history",
    ".sqlite_history",
    ".rediscli_history",
    ".mongorc_history",
    ".dbshell",
    ".lesshst",
    ".viminfo",
    ".wget-hsts",
    "fish/fish_history",
    "PSReadLine/ConsoleHost_history.txt",
];

impl PrivateFiles {
    /// Lists a file if its path, without a leading slash, is that of a file with secrets.
    pub(super) fn look(&mut self, path: &[u8]) {
        let Some(kind) = kind(path) else { return };
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            let path = String::from_utf8_lossy(path);
            let path = path.chars().take(PATH_LETTERS_MAX);
            self.listed.push(PrivateFile { path: "/".chars().chain(path).collect(), kind });
        }
    }
}

fn kind(path: &[u8]) -> Option<PrivateFileKind> {
    let mut parts = path.rsplitn(3, |byte| *byte == b'/');
    let name = parts.next()?;
    let above = parts.next().unwrap_or_default();
    let two = [above, b"/", name].concat();
    let is =
        |known: &&str| known.as_bytes() == if known.contains('/') { two.as_slice() } else { name };
    let directory = |known: &&str| {
        let below = path.strip_suffix(name).and_then(|above| above.strip_suffix(b"/"));
        below.is_some_and(|above| {
            above == known.as_bytes() || above.ends_with(format!("/{known}").as_bytes())
        })
    };
    if CREDENTIALS.iter().any(is) || CREDENTIAL_DIRECTORIES.iter().any(directory) {
        return Some(PrivateFileKind::Credentials);
    }
    HISTORIES.iter().any(is).then_some(PrivateFileKind::History)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_names() {
        let credentials = [
            "root/.netrc",
            ".netrc",
            "workspace/.env",
            "root/.aws/credentials",
            "root/.config/gh/hosts.yml",
            "home/a/.ssh/id_ed25519",
            "root/.gnupg/private-keys-v1.d/AB.key",
        ];
        for path in credentials {
            assert_eq!(kind(path.as_bytes()), Some(PrivateFileKind::Credentials), "{path}");
        }
        for path in ["root/.bash_history", "root/.local/share/fish/fish_history"] {
            assert_eq!(kind(path.as_bytes()), Some(PrivateFileKind::History), "{path}");
        }
        for path in ["", "root/netrc", "root/.netrc/a", "a/credentials", "root/.ssh/id_rsa.pub"] {
            assert_eq!(kind(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn the_list_is_limited_and_the_count_is_not() {
        let mut all = PrivateFiles::default();
        for number in 0..150 {
            all.look(format!("a/{number}/.netrc").as_bytes());
        }
        assert_eq!((all.listed.len(), all.count), (100, 150));
        assert_eq!(all.listed[0].path, "/a/0/.netrc");
    }
}
