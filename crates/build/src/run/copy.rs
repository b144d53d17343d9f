//! Steps that copy uploaded files.

use super::accounts::Account;
use super::program::quiet;
use super::{BuildRun, Position, explain};
use crate::archive::copy::{Destination, Layout, Pattern, entries};
use crate::archive::stop::Stop;
use crate::build_log::LogLevel;
use crate::recipe::{CopyStep, PATH_BYTES_MAX};
use bytes::Bytes;
use isolet_sandbox::Sandbox;
use isolet_wire::response::FileKind;
use std::io::{self, Write};
use tokio::sync::mpsc;

/// Bytes of the archive that are passed on at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// Pieces that wait for the sandbox.
const PIECES_MAX: usize = 4;
/// Paths in one call of `chown`.
const OWNED_PATHS_MAX: usize = 500;
/// Size of the paths in one call of `chown`, in bytes.
const OWNED_BYTES_MAX: usize = 256 * 1024;
/// Topmost copies of which it is looked up whether they replace something.
const LOOKED_UP_MAX: usize = 64;

impl BuildRun<'_> {
    pub(super) async fn copy(
        &self,
        sandbox: &Sandbox,
        position: &Position,
        index: usize,
        step: &CopyStep,
    ) -> Result<(), String> {
        let path = self.files.archive(index).ok_or("its files are not on this server")?;
        let pattern = Pattern::parse(&step.source)?;
        let to = destination(sandbox, position, &step.dest).await?;
        let stop = Stop::default();
        let _waiting = stop.on_drop();
        let of = path.clone();
        let until = stop.clone();
        let turn = self.files.reading().await;
        let found = tokio::task::spawn_blocking(move || {
            let found = Layout::of(&entries(&of, &until)?, &pattern, &to);
            drop(turn);
            found
        });
        let found = found.await.map_err(|error| error.to_string())?;
        let layout = found.map_err(|error| error.to_string())?;
        let layout = layout.ok_or_else(|| format!("no uploaded file matches {:?}", step.source))?;
        let account = match &step.owner {
            Some(owner) => self.account(sandbox, owner).await?,
            None => Account::root(),
        };
        let is_root = (account.uid, account.gid) == (0, 0);
        let replaces = replaces(sandbox, &layout).await;
        let mut owned: Vec<String> = Vec::new();
        for directory in &layout.directories {
            let path = if directory.is_empty() { "/" } else { directory.as_str() };
            if !is_root && sandbox.file_look(path.as_bytes(), true).await.is_err() {
                owned.push(path.to_owned());
            }
            let made = sandbox.file_mkdir(path.as_bytes()).await;
            made.map_err(|error| explain(&error))?;
        }
        if !is_root || replaces {
            owned.extend(layout.copies().map(str::to_owned));
        }
        let mode = step.mode;
        let (sender, mut pieces) = mpsc::channel(PIECES_MAX);
        let writing = tokio::task::spawn_blocking(move || {
            let mut to = Pieces { held: Vec::with_capacity(PIECE_BYTES), sender };
            layout.write(&path, &mut to, mode, &stop)
        });
        let writer = sandbox.file_unpack(b"/").await;
        let mut writer = writer.map_err(|error| explain(&error))?;
        while let Some(piece) = pieces.recv().await {
            writer.write(&piece).await.map_err(|error| explain(&error))?;
        }
        writing.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        writer.finish().await.map_err(|error| explain(&error))?;
        match own(sandbox, &account, &owned).await {
            // New files belong to root already. Without `chown`, the others stay as they are.
            Err(reason) if is_root => {
                let text = format!("replaced files keep their owners: {reason}");
                self.log.put(LogLevel::Warn, Some(index), text);
                Ok(())
            }
            done => done,
        }
    }
}

/// Whether copies may replace files, whose owners they would keep.
async fn replaces(sandbox: &Sandbox, layout: &Layout) -> bool {
    if layout.tops.len() > LOOKED_UP_MAX {
        return true;
    }
    for top in &layout.tops {
        let path = if top.is_empty() { "/" } else { top.as_str() };
        if sandbox.file_look(path.as_bytes(), false).await.is_ok() {
            return true;
        }
    }
    false
}

/// Gives paths an owner, and nothing that lies below them.
async fn own(sandbox: &Sandbox, account: &Account, paths: &[String]) -> Result<(), String> {
    let owner = format!("{}:{}", account.uid, account.gid);
    for paths in chunks(paths) {
        let words = ["chown", "-h", &owner, "--"].map(str::to_owned);
        let words = words.into_iter().chain(paths.iter().cloned());
        quiet(sandbox, words.collect()).await?;
    }
    Ok(())
}

/// Splits paths into arguments of calls of a program.
fn chunks(paths: &[String]) -> Vec<&[String]> {
    let mut bytes = 0;
    let mut count = 0;
    let mut all = Vec::new();
    let mut rest = paths;
    for path in paths {
        if count == OWNED_PATHS_MAX || count > 0 && bytes + path.len() > OWNED_BYTES_MAX {
            let (chunk, after) = rest.split_at(count);
            all.push(chunk);
            rest = after;
            count = 0;
            bytes = 0;
        }
        count += 1;
        bytes += path.len() + 1;
    }
    all.push(rest);
    all.retain(|chunk| !chunk.is_empty());
    all
}

async fn destination(
    sandbox: &Sandbox,
    position: &Position,
    text: &str,
) -> Result<Destination, String> {
    let text = position.expand(text, PATH_BYTES_MAX)?;
    let last = text.rsplit('/').next().unwrap_or_default();
    let is_written_so = matches!(last, "" | "." | "..");
    let path = position.absolute(&text)?;
    let is_directory = is_written_so
        || match sandbox.file_look(path.as_bytes(), true).await {
            Ok(found) => found.stat.kind == FileKind::Directory,
            Err(_) => false,
        };
    Ok(Destination { path: path.trim_end_matches('/').to_owned(), is_directory })
}

/// Passes on what is written, in pieces.
struct Pieces {
    held: Vec<u8>,
    sender: mpsc::Sender<Bytes>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.held, Vec::with_capacity(PIECE_BYTES));
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.sender.blocking_send(Bytes::from(piece)).map_err(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_by_their_number_and_their_size() {
        let lengths = |paths: &[String]| -> Vec<usize> {
            assert_eq!(chunks(paths).concat(), paths);
            chunks(paths).iter().map(|chunk| chunk.len()).collect()
        };
        assert!(lengths(&[]).is_empty());
        assert_eq!(lengths(&vec!["/a".to_owned(); OWNED_PATHS_MAX]), [OWNED_PATHS_MAX]);
        assert_eq!(lengths(&vec!["/a".to_owned(); OWNED_PATHS_MAX + 1]), [OWNED_PATHS_MAX, 1]);
        let long = vec!["x".repeat(OWNED_BYTES_MAX / 2 - 1); 5];
        assert_eq!(lengths(&long), [2, 2, 1]);
    }
}
