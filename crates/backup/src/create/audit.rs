//! Copies audit logs while the server writes them.
//!
//! The server writes lines first and the head afterwards. So the head is read first: lines that
//! follow it are no error, and lines that it names are all there. A line that is just being written
//! is left out.

use super::archives::Compressed;
use crate::archive::entry::{Attributes, Entry, Kind};
use crate::archive::{PackError, Packed, Totals};
use crate::progress::Progress;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The file that says where a log begins and ends.
const HEAD: &str = "head";
/// The suffix of the files with lines.
const LINES: &str = ".ndjson";

/// Packs the logs of all tenants. Fails if a log dropped its oldest lines at the same time.
pub(super) fn pack(
    tenants: &Path,
    archive: &mut Compressed,
    progress: &dyn Progress,
) -> Result<Packed, PackError> {
    let mut totals = Totals::default();
    let mut names = match fs::read_dir(tenants) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Packed { totals, skipped: Vec::new() });
        }
        names => names.and_then(file_names).map_err(PackError::Source)?,
    };
    names.sort();
    for name in names {
        let folder = tenants.join(&name);
        let path = name.as_bytes().to_vec();
        add(
            archive,
            &mut totals,
            Entry { path: path.clone(), kind: Kind::Directory, attributes: attributes(0o700) },
        )?;
        let head = match fs::read(folder.join(HEAD)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            head => Some(head.map_err(PackError::Source)?),
        };
        let mut files = fs::read_dir(&folder).and_then(file_names).map_err(PackError::Source)?;
        files.retain(|file| file.as_bytes().ends_with(LINES.as_bytes()));
        files.sort();
        let mut contents = head.map(|head| (HEAD.into(), head)).into_iter().collect::<Vec<_>>();
        for file in files {
            let mut lines = fs::read(folder.join(&file)).map_err(PackError::Source)?;
            let end = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            lines.truncate(end);
            contents.push((file, lines));
        }
        for (file, bytes) in contents {
            let path = [&path, &b"/"[..], file.as_bytes()].concat();
            let kind = Kind::File { length: bytes.len() as u64, parts: None };
            add(archive, &mut totals, Entry { path, kind, attributes: attributes(0o600) })?;
            if !bytes.is_empty() {
                archive.data(&bytes)?;
            }
            progress.bytes(bytes.len() as u64);
            totals.data_bytes += bytes.len() as u64;
            totals.restored_bytes += bytes.len() as u64;
        }
    }
    Ok(Packed { totals, skipped: Vec::new() })
}

fn file_names(directory: fs::ReadDir) -> io::Result<Vec<OsString>> {
    directory.map(|file| Ok(file?.file_name())).collect()
}

fn attributes(mode: u32) -> Attributes {
    let modified_s = isolet_clock::now_ms() / 1000;
    Attributes { mode, modified_s, ..Attributes::default() }
}

fn add(archive: &mut Compressed, totals: &mut Totals, entry: Entry) -> Result<(), PackError> {
    totals.entries += 1;
    totals.restored_bytes += 4096;
    archive.entry(&entry)
}
