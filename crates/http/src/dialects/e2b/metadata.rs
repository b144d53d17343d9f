//! Metadata of files: extended attributes whose names begin with `user.e2b.`, as at E2B.

use crate::foundation::error::ApiError;
use axum::http::HeaderMap;
use isolet_sandbox::{Error, Sandbox};
use isolet_wire::request::{ATTRIBUTE_PATHS_MAX, ATTRIBUTES_BYTES_MAX, FileAttributes};

/// Precedes the name of metadata in the name of its attribute.
const PREFIX: &str = "user.e2b.";
/// Precedes the name of metadata in the name of a header of an upload.
const HEADER: &str = "x-metadata-";
/// The longest name: that of an attribute may have 255 bytes.
const NAME_BYTES_MAX: usize = 246;

/// The metadata that an upload gives its files.
///
/// # Errors
/// 400 for values that are not printable ASCII, and for more than a file system holds.
pub(super) fn of_headers(headers: &HeaderMap) -> Result<FileAttributes, ApiError> {
    let bad = |reason: &str| ApiError::bad_field("X-Metadata", reason);
    let mut all = FileAttributes::new();
    let mut bytes = 0;
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(HEADER) else { continue };
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(bad("names have 1 to 246 bytes"));
        }
        let value = value.to_str().map_err(|_| bad("values are printable ASCII"))?;
        if all.contains_key(name) {
            continue;
        }
        bytes += PREFIX.len() + name.len() + value.len();
        all.insert(name.to_owned(), value.to_owned());
    }
    if bytes > ATTRIBUTES_BYTES_MAX {
        return Err(bad("a file has at most 4096 bytes of metadata"));
    }
    Ok(all)
}

/// The metadata of files, in the order of their paths.
pub(super) async fn read(
    sandbox: &Sandbox,
    paths: Vec<Vec<u8>>,
) -> Result<Vec<FileAttributes>, Error> {
    let mut all = Vec::with_capacity(paths.len());
    for paths in paths.chunks(ATTRIBUTE_PATHS_MAX) {
        all.extend(sandbox.file_attributes(paths.to_vec(), PREFIX).await?);
    }
    Ok(all)
}

/// Replaces the metadata of a file.
pub(super) async fn write(
    sandbox: &Sandbox,
    path: &str,
    metadata: &FileAttributes,
) -> Result<(), Error> {
    sandbox.file_set_attributes(path.as_bytes(), PREFIX, metadata.clone()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    #[test]
    fn headers_of_an_upload_become_metadata() {
        let mut headers = HeaderMap::new();
        headers.append("x-metadata-author", HeaderValue::from_static("mish"));
        headers.append("x-metadata-author", HeaderValue::from_static("other"));
        headers.insert("x-other", HeaderValue::from_static("x"));
        let all = of_headers(&headers).unwrap();
        assert_eq!(all, FileAttributes::from([("author".to_owned(), "mish".to_owned())]));
        let one = |name: &str, value: &[u8]| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            of_headers(&HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())]))
        };
        assert!(one("x-metadata-", b"x").is_err());
        assert!(one("x-metadata-a", "é".as_bytes()).is_err());
        assert!(one("x-metadata-a", &[b'x'; 5000]).is_err());
        assert!(one(&format!("x-metadata-{}", "a".repeat(247)), b"x").is_err());
    }
}
