//! The format of a data directory: one number in the file `format`, for everything that is stored.

use crate::error::Error;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The format that this version reads and writes.
///
/// No upgrade between two formats is supported. Until release 1.0, every incompatible change of
/// records, of frames between the programs, of settings or of values in etcd raises the number by
/// one.
pub const FORMAT: u32 = 3;

/// The file with the number, in the data directory.
pub const FORMAT_FILE: &str = "format";
/// The longest text of the file that an error repeats, in characters.
const FOUND_CHARS_MAX: usize = 20;
/// The mode of a data directory: processes of sandboxes pass it, but cannot list it.
const DATA_MODE: u32 = 0o711;

/// What only a server creates in a data directory. A directory with one of these and without the
/// number is of a version that wrote no number. Keys, certificates, the image of the host and what
/// `isolet teardown` creates may be there before the first start.
const SERVER_NAMES: [&str; 4] = ["isolet.db", "sandboxes", "snapshots", "images"];

/// Whether a directory has been used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataState {
    /// It has this version's format.
    Known,
    /// No server has used it, or it does not exist.
    New,
}

/// Checks the format of a data directory, and changes nothing. Blocks.
///
/// # Errors
/// [`Error::EarlierVersion`], [`Error::OtherFormat`], [`Error::Io`].
pub fn check_format(data: &Path) -> Result<DataState, Error> {
    let path = data.join(FORMAT_FILE);
    match fs::read(&path) {
        Ok(text) => check_text(data, &String::from_utf8_lossy(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => check_unmarked(data),
        Err(error) => Err(Error::io(&path, &error)),
    }
}

fn check_text(data: &Path, text: &str) -> Result<DataState, Error> {
    let text = text.trim();
    if text.parse() == Ok(FORMAT) {
        return Ok(DataState::Known);
    }
    let found = text.chars().filter(char::is_ascii_graphic).take(FOUND_CHARS_MAX).collect();
    Err(Error::OtherFormat { data: data.to_owned(), found, own: FORMAT })
}

/// A server creates the number first, so what has none and is not new is of an earlier version.
fn check_unmarked(data: &Path) -> Result<DataState, Error> {
    for name in SERVER_NAMES {
        let path = data.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) => return Err(Error::EarlierVersion { data: data.to_owned() }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&path, &error)),
        }
    }
    Ok(DataState::New)
}

/// Checks the format of a data directory, and gives a new one the number of this version. Creates
/// the directory if it is missing. Must be called before anything else is created in it. Blocks.
///
/// # Errors
/// Those of [`check_format`], and nothing is changed then; [`Error::Full`].
pub fn check_or_write_format(data: &Path) -> Result<(), Error> {
    if check_format(data)? == DataState::Known {
        return Ok(());
    }
    let written =
        DirBuilder::new().recursive(true).mode(DATA_MODE).create(data).and_then(|()| write(data));
    written.map_err(|error| match error.kind() {
        ErrorKind::StorageFull => Error::Full,
        _ => Error::io(&data.join(FORMAT_FILE), &error),
    })
}

fn write(data: &Path) -> std::io::Result<()> {
    // A name of its own, since two programs may begin to use a directory at once.
    let new = data.join(format!("{FORMAT_FILE}.{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&new)?;
    writeln!(file, "{FORMAT}")?;
    file.sync_all()?;
    fs::rename(&new, data.join(FORMAT_FILE))?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_directory_gets_the_number_and_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/data");
        assert_eq!(check_format(&data).unwrap(), DataState::New);
        assert!(!data.try_exists().unwrap(), "a check changes nothing");
        check_or_write_format(&data).unwrap();
        let file = data.join(FORMAT_FILE);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{FORMAT}\n"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "nothing else is left");
        fs::create_dir(data.join("sandboxes")).unwrap();
        check_or_write_format(&data).unwrap();
        assert_eq!(check_format(&data).unwrap(), DataState::Known);
    }

    #[test]
    fn what_an_operator_puts_into_a_directory_before_the_first_start_does_not_count() {
        let data = tempfile::tempdir().unwrap();
        for name in ["key", "tls.crt", "isolet.toml", "lock", "identity"] {
            fs::write(data.path().join(name), "x").unwrap();
        }
        fs::create_dir(data.path().join("lost+found")).unwrap();
        check_or_write_format(data.path()).unwrap();
        assert!(data.path().join(FORMAT_FILE).try_exists().unwrap());
    }

    #[test]
    fn a_used_directory_without_a_number_is_of_an_earlier_version() {
        for name in SERVER_NAMES {
            let data = tempfile::tempdir().unwrap();
            fs::write(data.path().join(name), "").unwrap();
            let error = check_or_write_format(data.path()).unwrap_err();
            assert!(matches!(error, Error::EarlierVersion { .. }), "{name}: {error}");
            let shown = data.path().display().to_string();
            let text = error.to_string();
            assert!(text.starts_with(&format!("{shown} was made by an earlier version")), "{text}");
            assert!(text.contains(&format!("isolet teardown --data-dir {shown}")), "{text}");
            assert!(!data.path().join(FORMAT_FILE).try_exists().unwrap());
        }
    }

    #[test]
    fn another_number_is_refused_and_stays() {
        for (text, shown) in [("999\n", "999"), ("0", "0"), ("", ""), ("x\u{1b}[2Jy\n", "x[2Jy")] {
            let data = tempfile::tempdir().unwrap();
            let file = data.path().join(FORMAT_FILE);
            fs::write(&file, text).unwrap();
            let error = check_or_write_format(data.path()).unwrap_err();
            let Error::OtherFormat { found, .. } = &error else { panic!("{error}") };
            assert_eq!(found, shown);
            let text = error.to_string();
            assert!(text.contains(&format!("this isolet uses format {FORMAT}; ")), "{text}");
            assert!(text.contains("isolet teardown"), "{text}");
            assert_ne!(fs::read_to_string(&file).unwrap(), format!("{FORMAT}\n"));
        }
    }
}
