//! The directory that a Dockerfile is built with, and archives of its files.

use super::ignore::Ignored;
use crate::archive::Kind;
use crate::archive::copy::{Destination, Layout, Pattern};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Maximum number of files and directories.
const ENTRIES_MAX: usize = 100_000;
/// Maximum size of a `.dockerignore`, in bytes.
const IGNORE_BYTES_MAX: u64 = 1024 * 1024;

/// Why files cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// A file cannot be read.
    #[error("cannot read {path}: {error}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There are too many files.
    #[error(
        "the context has more than {ENTRIES_MAX} files and directories; leave some out with .dockerignore"
    )]
    TooMany,
    /// Nothing matches.
    #[error("no file of the context matches {0:?}, or .dockerignore leaves it out")]
    NoMatch(String),
    /// Other reasons, for people.
    #[error("{0}")]
    Bad(String),
}

/// The files of a context, by their paths.
#[derive(Debug)]
pub struct Context {
    root: PathBuf,
    entries: BTreeMap<String, Kind>,
}

/// An archive of some files.
#[derive(Debug)]
pub struct PackedFiles {
    /// The archive, from its beginning.
    pub file: File,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its digest (SHA-256), in hexadecimal.
    pub digest: String,
}

impl Context {
    /// Lists the files of a directory that its `.dockerignore` does not leave out. Symbolic links are
    /// files and are not followed.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn open(root: &Path) -> Result<Self, ContextError> {
        let ignore = root.join(".dockerignore");
        let ignored = match fs::metadata(&ignore) {
            Ok(about) if about.len() > IGNORE_BYTES_MAX => {
                return Err(ContextError::Bad(".dockerignore has more than 1 MiB".to_owned()));
            }
            Ok(_) => fs::read_to_string(&ignore).map_err(|error| failed(&ignore, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&ignore, error)),
        };
        let ignored = Ignored::read(&ignored).map_err(ContextError::Bad)?;
        let mut context = Self { root: root.to_owned(), entries: BTreeMap::new() };
        let mut waiting = vec![String::new()];
        while let Some(directory) = waiting.pop() {
            context.list(&directory, &ignored, &mut waiting)?;
        }
        Ok(context)
    }

    fn list(
        &mut self,
        directory: &str,
        ignored: &Ignored,
        waiting: &mut Vec<String>,
    ) -> Result<(), ContextError> {
        let path = self.root.join(directory);
        for entry in fs::read_dir(&path).map_err(|error| failed(&path, error))? {
            let entry = entry.map_err(|error| failed(&path, error))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                ContextError::Bad(format!(
                    "{} has a name that is not UTF-8",
                    entry.path().display()
                ))
            })?;
            let name =
                if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
            let kind = entry.file_type().map_err(|error| failed(&entry.path(), error))?;
            let is_out = ignored.leaves_out(&name);
            if kind.is_dir() && (!is_out || ignored.has_exceptions()) {
                waiting.push(name.clone());
            }
            if is_out {
                continue;
            }
            let kind = match kind {
                kind if kind.is_dir() => Kind::Directory,
                kind if kind.is_symlink() => Kind::Symlink,
                kind if kind.is_file() => Kind::File,
                // Sockets and pipes are no content.
                _ => continue,
            };
            if self.entries.len() >= ENTRIES_MAX {
                return Err(ContextError::TooMany);
            }
            self.entries.insert(name, kind);
        }
        Ok(())
    }

    /// Packs the files that a step copies. Equal files give equal bytes. Blocks.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn pack(&self, source: &str) -> Result<PackedFiles, ContextError> {
        let pattern = Pattern::parse(source).map_err(ContextError::Bad)?;
        let to = Destination { path: String::new(), is_directory: true };
        let layout = Layout::of(&self.entries, &pattern, &to);
        let layout = layout.map_err(|error| ContextError::Bad(error.to_string()))?;
        let layout = layout.ok_or_else(|| ContextError::NoMatch(source.to_owned()))?;
        let temporary = |error| failed(&std::env::temp_dir(), error);
        let file = unnamed_file().map_err(temporary)?;
        let hashed = Hashed { to: io::BufWriter::new(file), hash: Sha256::new(), bytes: 0 };
        let mut tar = Builder::new(hashed);
        for name in layout.sources() {
            let path = self.root.join(name);
            self.append(&mut tar, name, &path).map_err(|error| failed(&path, error))?;
        }
        let Hashed { to, hash, bytes } = tar.into_inner().map_err(temporary)?;
        let mut file = to.into_inner().map_err(|error| temporary(error.into_error()))?;
        file.rewind().map_err(temporary)?;
        Ok(PackedFiles { file, bytes, digest: hex::encode(hash.finalize()) })
    }

    fn append(&self, tar: &mut Builder<impl Write>, name: &str, path: &Path) -> io::Result<()> {
        let about = fs::symlink_metadata(path)?;
        let mut header = Header::new_gnu();
        header.set_mode(about.permissions().mode() & 0o7777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        match self.entries.get(name) {
            Some(Kind::Directory) => {
                header.set_entry_type(EntryType::Directory);
                tar.append_data(&mut header, name, io::empty())
            }
            Some(Kind::Symlink) => {
                header.set_entry_type(EntryType::Symlink);
                tar.append_link(&mut header, name, fs::read_link(path)?)
            }
            _ => {
                let file = File::open(path)?;
                let bytes = file.metadata()?.len();
                header.set_entry_type(EntryType::Regular);
                header.set_size(bytes);
                // A file that grows while it is read would break the archive.
                tar.append_data(&mut header, name, io::Read::take(file, bytes))
            }
        }
    }
}

fn failed(path: &Path, error: io::Error) -> ContextError {
    ContextError::File { path: path.to_owned(), error }
}

/// A temporary file without a name, which is gone when it is closed.
fn unnamed_file() -> io::Result<File> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let path = std::env::temp_dir().join(format!("isolet-build-{}", hex::encode(random)));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Counts and hashes what is written.
struct Hashed<W> {
    to: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn names(packed: PackedFiles) -> Vec<String> {
        let mut archive = tar::Archive::new(packed.file);
        let entries = archive.entries().unwrap();
        entries.map(|one| one.unwrap().path().unwrap().display().to_string()).collect()
    }

    fn tree() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::create_dir_all(path("src/sub")).unwrap();
        fs::create_dir_all(path("node_modules/x")).unwrap();
        for (name, text) in
            [("src/a.py", "a"), ("src/sub/b.py", "b"), ("x.log", "x"), ("node_modules/x/y", "y")]
        {
            fs::write(path(name), text).unwrap();
        }
        symlink("/etc/passwd", path("src/link")).unwrap();
        fs::write(path(".dockerignore"), "*.log\nnode_modules\n!node_modules/x\n").unwrap();
        home
    }

    #[test]
    fn a_context_has_what_is_not_left_out() {
        let home = tree();
        let context = Context::open(home.path()).unwrap();
        let all = names(context.pack(".").unwrap());
        assert_eq!(
            all,
            [
                ".dockerignore",
                "node_modules/x",
                "node_modules/x/y",
                "src",
                "src/a.py",
                "src/link",
                "src/sub",
                "src/sub/b.py"
            ]
        );
        assert_eq!(names(context.pack("src/*.py").unwrap()), ["src/a.py"]);
        let said = context.pack("x.log").unwrap_err().to_string();
        assert!(said.contains("x.log") && said.contains(".dockerignore"), "{said}");
    }

    #[test]
    fn links_are_copied_and_not_followed() {
        let home = tree();
        let packed = Context::open(home.path()).unwrap().pack("src/link").unwrap();
        let mut archive = tar::Archive::new(packed.file);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.link_name().unwrap().unwrap().to_str(), Some("/etc/passwd"));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }

    #[test]
    fn equal_files_have_equal_digests() {
        let digest = |home: &Path| Context::open(home).unwrap().pack("src").unwrap().digest;
        let one = tree();
        let other = tree();
        assert_eq!(digest(one.path()), digest(other.path()));
        fs::write(other.path().join("src/a.py"), "changed").unwrap();
        assert_ne!(digest(one.path()), digest(other.path()));
    }
}
