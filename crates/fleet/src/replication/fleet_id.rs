//! The random id of the fleet, in etcd and in the data directory.
//!
//! A node whose data directory has another id, or none, has never had the state of this fleet. Then
//! its own records are not outdated copies, and it adds them to the fleet. An etcd that has lost its
//! data gets another id, so the nodes fill it again.

use crate::blocking::blocking;
use crate::replication::error::ReplicationError;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::EtcdError;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::model::Keys as KeyNames;
use isolet_peer::replace_file;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::path::Path;

/// The file in the data directory.
pub(super) const FILE: &str = "fleet";
/// Digits of an id: 128 random bits.
const DIGITS: usize = 32;

/// A data directory of another fleet than the one in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherFleet {
    /// The id in the data directory.
    pub(crate) own: String,
    /// The id in etcd, if it has one.
    pub(crate) found: Option<String>,
}

/// Whether a data directory belongs to another fleet than the one in etcd. One that has joined none belongs
/// to each. Writes nothing.
///
/// # Errors
/// etcd or the file cannot be read.
pub(crate) async fn other_fleet(
    etcd: &Etcd,
    names: &KeyNames,
    data_dir: &Path,
) -> Result<Option<OtherFleet>, ReplicationError> {
    let path = data_dir.join(FILE);
    let Some(own) = blocking(move || read(&path)).await? else { return Ok(None) };
    let pair = etcd.get(&names.fleet()).await?;
    let found = pair.and_then(|pair| String::from_utf8(pair.value).ok());
    let is_other = found.as_ref() != Some(&own);
    Ok(is_other.then_some(OtherFleet { own, found }))
}

/// The id in etcd. Creates one if there is none.
pub(super) async fn of_etcd(etcd: &Etcd, names: &KeyNames) -> Result<String, ReplicationError> {
    let key = names.fleet();
    let mut bytes = [0; DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(|error| ReplicationError::NoRandom(error.to_string()))?;
    let new = hex::encode(bytes);
    let transaction = Transaction {
        compares: vec![Compare::absent(key.clone())],
        then: vec![Operation::put(key.clone(), new.clone().into_bytes())],
        otherwise: vec![Operation::Get { key }],
    };
    let outcome = etcd.transaction(transaction).await?;
    if outcome.succeeded {
        return Ok(new);
    }
    let found = outcome.pair(0).and_then(|pair| String::from_utf8(pair.value.clone()).ok());
    found.filter(|id| is_id(id)).ok_or_else(|| {
        EtcdError::Malformed {
            endpoint: "the configured endpoints".to_owned(),
            operation: "Txn",
            what: "the id of a fleet below PREFIX/fleet",
        }
        .into()
    })
}

/// The id in the data directory, if it has one. Blocks.
pub(super) fn read(path: &Path) -> Result<Option<String>, ReplicationError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path)(error)),
    };
    let mut text = String::new();
    let read = file.take(DIGITS as u64 + 2).read_to_string(&mut text);
    match read {
        Ok(_) => Ok(Some(text.trim_end().to_owned()).filter(|id| is_id(id))),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(failed(path)(error)),
    }
}

/// Replaces the id in the data directory. Blocks until it is on the disk.
pub(super) fn write(path: &Path, id: &str) -> Result<(), ReplicationError> {
    replace_file(path, format!("{id}\n").as_bytes()).map_err(failed(path))
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ReplicationError {
    let path = path.to_owned();
    move |source| ReplicationError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written_and_other_text_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(read(&path).unwrap(), None);
        let id = "0123456789abcdef".repeat(2);
        write(&path, &id).unwrap();
        write(&path, &id).unwrap();
        assert_eq!(read(&path).unwrap(), Some(id.clone()));
        for other in [b"".as_slice(), b"short", &[0xFF; 32], format!("{id}0").as_bytes()] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(read(&path).unwrap(), None);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
