//! Files as E2B describes them.

use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::metadata;
use isolet_clock::rfc3339;
use isolet_sandbox::{Sandbox, absolute_path};
use isolet_wire::request::FileAttributes;
use isolet_wire::response::{FileKind, FileStat};
use serde::Serialize;

/// The user that owns every file: the only one of a sandbox, by its default name in this dialect.
const OWNER: &str = "user";

/// A file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryInfo {
    name: String,
    #[serde(rename = "type")]
    kind: EntryType,
    path: String,
    /// In bytes. JSON of protobuf writes numbers of 64 bits as text.
    size: String,
    mode: u32,
    permissions: String,
    owner: &'static str,
    group: &'static str,
    modified_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
    #[serde(skip_serializing_if = "FileAttributes::is_empty")]
    metadata: FileAttributes,
}

#[derive(Debug, Clone, Copy, Serialize)]
enum EntryType {
    #[serde(rename = "FILE_TYPE_FILE")]
    File,
    #[serde(rename = "FILE_TYPE_DIRECTORY")]
    Directory,
    #[serde(rename = "FILE_TYPE_SYMLINK")]
    Symlink,
    #[serde(rename = "FILE_TYPE_UNSPECIFIED")]
    Other,
}

impl From<FileKind> for EntryType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

impl EntryInfo {
    /// Describes a file by its absolute path.
    pub(super) fn new(
        path: String,
        stat: &FileStat,
        target: Option<String>,
        metadata: FileAttributes,
    ) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        Self {
            name: if name.is_empty() { "/".to_owned() } else { name.to_owned() },
            kind: stat.kind.into(),
            size: stat.size.to_string(),
            mode: stat.mode,
            permissions: permissions(stat),
            owner: OWNER,
            group: OWNER,
            modified_time: rfc3339(stat.modified_ms),
            symlink_target: target,
            metadata,
            path,
        }
    }

    /// The memory that the texts take, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        /// What an entry of a map takes beside its texts, about.
        const MEMBER_BYTES: usize = 64;
        let texts = [&self.name, &self.path, &self.size, &self.permissions, &self.modified_time];
        let texts = texts.into_iter().chain(&self.symlink_target).map(String::len);
        let metadata = self.metadata.iter().map(|(k, v)| k.len() + v.len() + MEMBER_BYTES);
        texts.chain(metadata).sum()
    }

    /// Describes the file at a path. For a symbolic link, this is its target with the path of the
    /// link.
    pub(super) async fn read(sandbox: &Sandbox, path: String) -> Result<Self, RpcError> {
        let found = sandbox.file_look(path.as_bytes(), false).await.map_err(|e| about(&path, e))?;
        let metadata = metadata::read(sandbox, vec![path.clone().into()]).await?;
        let metadata = metadata.into_iter().next().unwrap_or_default();
        let Some(target) = found.target else {
            return Ok(Self::new(path, &found.stat, None, metadata));
        };
        let target = absolute(&path, &String::from_utf8_lossy(&target));
        let stat = match sandbox.file_look(path.as_bytes(), true).await {
            Ok(followed) => followed.stat,
            // The link leads nowhere.
            Err(_) => found.stat,
        };
        Ok(Self::new(path, &stat, Some(target), metadata))
    }
}

/// Adds the path to an error.
pub(super) fn about(path: &str, error: impl Into<RpcError>) -> RpcError {
    let error = error.into();
    let shown: String = path.chars().take(200).collect();
    RpcError::new(error.code(), format!("{shown}: {}", error.message()))
}

/// Whether an error says that something does not exist.
pub(super) fn is_missing(error: &RpcError) -> bool {
    error.code() == Code::NotFound
}

/// The target of a link as an absolute path, without following further links.
pub(super) fn absolute(link: &str, target: &str) -> String {
    let parent = link.rsplit_once('/').map_or("/", |(parent, _)| parent);
    absolute_path(parent, target)
}

/// The type and permission bits as `ls` shows them.
fn permissions(stat: &FileStat) -> String {
    let kind = match stat.kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'L',
        _ => '-',
    };
    let bits = (0..9).rev().map(|bit| match stat.mode >> bit & 1 {
        0 => '-',
        _ => ['x', 'w', 'r'][bit % 3],
    });
    std::iter::once(kind).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(kind: FileKind, mode: u32) -> FileStat {
        FileStat { kind, size: 4, mode, modified_ms: 0, inode: 1 }
    }

    #[test]
    fn a_file_is_described_as_in_the_protocol() {
        let entry =
            EntryInfo::new("/a/b.txt".into(), &stat(FileKind::File, 0o644), None, [].into());
        let text = serde_json::to_value(&entry).unwrap();
        assert_eq!(text["name"], "b.txt");
        assert_eq!(text["type"], "FILE_TYPE_FILE");
        assert_eq!(text["size"], "4");
        assert_eq!(text["permissions"], "-rw-r--r--");
        assert_eq!(text["modifiedTime"].as_str().unwrap().get(..10), Some("1970-01-01"));
        assert_eq!(permissions(&stat(FileKind::Directory, 0o755)), "drwxr-xr-x");
        assert_eq!(permissions(&stat(FileKind::File, 0o4)), "-------r--");
    }

    #[test]
    fn targets_of_links_are_absolute() {
        assert_eq!(absolute("/a/link", "b"), "/a/b");
        assert_eq!(absolute("/a/link", "../b"), "/b");
        assert_eq!(absolute("/a/link", "/c/./d"), "/c/d");
    }
}
