//! The header of a repository: readable by all, and checked against the key.

use crate::crypto::key_file::KeyFile;
use crate::crypto::keys::{RepositoryId, RepositoryKeys};
use crate::error::Error;
use crate::format::names::HEADER;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// The version of the format. A repository of another version is refused.
const VERSION: u32 = 1;
/// Maximum length of the header, in bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 4096;

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    /// Hexadecimal digits, as the check value.
    id: String,
    check: String,
}

/// Makes the header of a new repository.
pub(crate) fn make(key: &KeyFile, id: &RepositoryId) -> Result<Vec<u8>, Error> {
    let header = Header {
        version: VERSION,
        id: hex::encode(id),
        check: hex::encode(RepositoryKeys::new(key, id).check_value()),
    };
    let mut text = serde_json::to_vec(&header).map_err(Error::fault)?;
    text.push(b'\n');
    Ok(text)
}

/// Reads a header, and returns the keys of the repository.
pub(crate) fn read(key: &KeyFile, text: &[u8]) -> Result<(RepositoryId, RepositoryKeys), Error> {
    let damaged = || Error::damaged(HEADER, "it is not a header");
    let header: Header = serde_json::from_slice(text).map_err(|_| damaged())?;
    if header.version != VERSION {
        return Err(Error::Later { what: "the repository", version: header.version });
    }
    let mut id = RepositoryId::default();
    let mut check = [0; 32];
    hex::decode_to_slice(&header.id, &mut id).map_err(|_| damaged())?;
    hex::decode_to_slice(&header.check, &mut check).map_err(|_| damaged())?;
    let keys = RepositoryKeys::new(key, &id);
    match bool::from(keys.check_value().ct_eq(&check)) {
        true => Ok((id, keys)),
        false => Err(Error::WrongKey),
    }
}
