//! Metadata of files. Names that are not UTF-8 also appear in base64.

use crate::routes::files::content;
use crate::routes::files::target::whole;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_wire::response::{FileKind, FileStat, FoundFile};
use serde::Serialize;
use utoipa::ToSchema;

/// A file, directory or symbolic link.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileInfo)]
pub(crate) struct FileView {
    /// The last part of its path.
    name: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    name_b64: Option<String>,
    /// The absolute path inside the sandbox.
    path: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path_b64: Option<String>,
    /// `file`, `directory`, `symlink` or `other`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The size in bytes.
    size: u64,
    /// When it was modified, in milliseconds since 1970.
    modified_ms: i64,
    /// The permission bits in octal.
    mode: String,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    target: Option<String>,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    target_b64: Option<String>,
    /// The error code (`denied`, `too_large`) if a recursive listing could not read this directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    unread: Option<&'static str>,
    /// The `ETag` of a file, for `If-Match`. Only in answers to operations; lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    etag: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WrittenFile)]
pub(crate) struct SavedView {
    /// The absolute path inside the sandbox.
    path: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path_b64: Option<String>,
    /// The size in bytes.
    size: u64,
    /// When it was modified, in milliseconds since 1970.
    modified_ms: i64,
    /// The `ETag` of the file, for `If-Match`. Absent after an archive was unpacked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    etag: Option<String>,
}

impl SavedView {
    pub(super) fn of(path: &[u8], stat: &FileStat) -> Self {
        let (path, path_b64) = text(&whole(path));
        Self { path, path_b64, size: stat.size, modified_ms: stat.modified_ms, etag: etag(stat) }
    }
}

impl FileView {
    /// A file that the request named.
    pub(crate) fn of(path: &[u8], found: FoundFile) -> Self {
        Self::at(&whole(path), found)
    }

    /// Adds the entity tag of a file of a sandbox.
    pub(super) fn tagged(self, stat: &FileStat) -> Self {
        Self { etag: etag(stat), ..self }
    }

    /// A file below a directory.
    pub(super) fn below(base: &[u8], found: FoundFile) -> Self {
        let path = [base, b"/", &found.path].concat();
        // The root already ends in a slash.
        Self::at(path.strip_prefix(b"/").filter(|p| p.starts_with(b"/")).unwrap_or(&path), found)
    }

    /// Adds why the directory could not be read.
    pub(super) fn unread(self, unread: Option<&'static str>) -> Self {
        Self { unread, ..self }
    }

    fn at(path: &[u8], found: FoundFile) -> Self {
        let (name, name_b64) = text(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
        let (path, path_b64) = text(path);
        let target = found.target.as_deref().map(text);
        let (target, target_b64) = target.map_or((None, None), |(a, b)| (Some(a), b));
        let kind = kind_name(found.stat.kind);
        let FileStat { size, modified_ms, mode, .. } = found.stat;
        let mode = format!("{mode:04o}");
        Self {
            name,
            name_b64,
            path,
            path_b64,
            kind,
            size,
            modified_ms,
            mode,
            target,
            target_b64,
            unread: None,
            etag: None,
        }
    }
}

/// The name of a type of files.
pub(super) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}

/// The entity tag of a regular file.
fn etag(stat: &FileStat) -> Option<String> {
    (stat.kind == FileKind::File).then(|| content::tag(stat))
}

/// The readable text, and the exact bytes in base64 if they differ.
pub(super) fn text(bytes: &[u8]) -> (String, Option<String>) {
    let exact = std::str::from_utf8(bytes).is_err().then(|| STANDARD.encode(bytes));
    (String::from_utf8_lossy(bytes).into_owned(), exact)
}
