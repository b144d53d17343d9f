//! The records of a stream. Each is preceded by its length in 4 bytes; file data follows the record
//! that announces it.

use crate::error::Error;
use crate::files::source::Root;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Maximum length of a record, in bytes: names, and extended attributes of one file.
const RECORD_BYTES_MAX: usize = EXTENDED_BYTES_MAX + 64 * 1024;
/// Maximum length of all extended attributes of one file, in bytes.
pub(crate) const EXTENDED_BYTES_MAX: usize = 1024 * 1024;

/// A record. Names are single components.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Begins a tree or a single file.
    Root(Root),
    /// Enters a directory.
    Directory { name: Vec<u8> },
    /// Leaves a directory, or the tree.
    Leave { attributes: Attributes },
    /// Begins a file. [`Record::Data`] may follow.
    File {
        name: Vec<u8>,
        /// Length with holes, in bytes.
        bytes: u64,
        /// The number by which further names of the file refer to it.
        link: Option<u64>,
        attributes: Attributes,
    },
    /// Data of the file at an offset; `bytes` bytes follow the record.
    Data { offset: u64, bytes: u64 },
    /// A further name of a file.
    HardLink { name: Vec<u8>, link: u64 },
    /// A symbolic link.
    Symlink { name: Vec<u8>, target: Vec<u8>, attributes: Attributes },
    /// A named pipe.
    Pipe { name: Vec<u8>, attributes: Attributes },
    /// A whiteout of an overlay: a file of the layers below that was deleted.
    Whiteout { name: Vec<u8>, attributes: Attributes },
    /// The end of the stream.
    End,
}

/// Owner, mode, time and extended attributes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    /// Counted from the first id of the sandbox.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    /// Time of the last modification: seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// Names and values.
    pub(crate) extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Record {
    /// The record with its length.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut framed = vec![0; 4];
        framed = postcard::to_extend(self, framed).map_err(Error::fault)?;
        let length = framed.len() - 4;
        if length > RECORD_BYTES_MAX {
            let limit = format!("{} KiB for one file", RECORD_BYTES_MAX >> 10);
            return Err(Error::TooLarge { what: "names and extended attributes", limit });
        }
        let length = u32::try_from(length).map_err(Error::fault)?;
        framed[..4].copy_from_slice(&length.to_le_bytes());
        Ok(framed)
    }

    /// Reads the next record.
    pub(crate) fn decode(from: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Self, Error> {
        let mut length = [0; 4];
        read_all(from, &mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(Error::damaged("the stream", "a record is too long"));
        }
        buffer.resize(length, 0);
        read_all(from, buffer)?;
        let record = postcard::from_bytes(buffer);
        record.map_err(|_| Error::damaged("the stream", "a record does not read"))
    }
}

/// Reads exactly as many bytes as fit.
pub(crate) fn read_all(from: &mut impl Read, into: &mut [u8]) -> Result<(), Error> {
    from.read_exact(into).map_err(|error| match error.get_ref() {
        Some(inner) => match inner.downcast_ref::<Error>() {
            Some(error) => error.clone(),
            None => Error::fault(inner),
        },
        None => Error::damaged("the stream", "it ends early"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut input = bytes.as_slice();
            let mut buffer = Vec::new();
            while Record::decode(&mut input, &mut buffer).is_ok() {}
            prop_assert!(buffer.capacity() <= 2 * RECORD_BYTES_MAX);
        }
    }

    #[test]
    fn records_read_back() {
        let attributes = Attributes {
            uid: 1000,
            gid: 7,
            mode: 0o4755,
            modified: (-1, 999_999_999),
            extended: vec![(b"user.note".to_vec(), vec![0, 255])],
        };
        let all = [
            Record::Directory { name: b"a\xff".to_vec() },
            Record::File { name: b"f".to_vec(), bytes: u64::MAX, link: Some(3), attributes },
            Record::Data { offset: 1, bytes: 2 },
            Record::End,
        ];
        let stream: Vec<u8> = all.iter().flat_map(|record| record.encode().unwrap()).collect();
        let mut input = stream.as_slice();
        for record in all {
            assert_eq!(Record::decode(&mut input, &mut Vec::new()).unwrap(), record);
        }
        assert!(Record::decode(&mut input, &mut Vec::new()).is_err());
    }
}
