//! File operations with all their options.

use crate::agent_client::wire::{AgentEvent, Wire};
use crate::model::error::Error;
use crate::sandbox::Sandbox;
use crate::sandbox::files::{
    ENTRIES_MAX, FileReader, LONG, STILL, Writer, done, done_in, fault, next_event,
    next_event_within, stat,
};
use isolet_wire::request::{
    ByteRange, ExpectedFile, FileAttributes, FileRequest, PathPair, SearchQuery, WalkOptions,
    WriteOptions,
};
use isolet_wire::response::{
    AgentResponse, FileChange, FileKind, FileStat, FoundFile, RefusalReason, SearchLine,
    SearchSummary,
};
use std::collections::HashMap;

/// Maximum number of entries in one page of a listing.
pub const PAGE_MAX: u32 = 10_000;
/// Maximum length of a glob pattern, in bytes.
pub const GLOB_BYTES_MAX: usize = 1024;

/// Maximum length of a search pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// Maximum number of context lines on each side of a match.
pub const CONTEXT_MAX: u32 = 20;
/// Maximum size of all lines of one search, in bytes, above what an agent sends.
const LINES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum size of all paths and link targets of one page, in bytes. A full page of long paths
/// would be a hundred times as large as usual, and JSON can need six bytes for one.
const WALK_BYTES_MAX: usize = 1024 * 1024;

/// Maximum length of a path in an error message, in bytes, as in the agent.
const NAMED_BYTES_MAX: usize = 256;

/// A refusal like those of the agent, about a path.
fn refused(path: &[u8], reason: RefusalReason, message: &str) -> Error {
    let named = String::from_utf8_lossy(&path[..path.len().min(NAMED_BYTES_MAX)]);
    Error::Refused { reason, message: format!("{}: {message}", named.escape_debug()) }
}

/// An opened file or a directory.
#[derive(Debug)]
pub enum Opened {
    /// A regular file, with a reader of its content.
    File(Box<FileReader>),
    /// A directory, which has no content to read.
    Directory(FileStat),
}

/// One page of a directory listing.
#[derive(Debug)]
pub struct Page {
    /// Sorted by the components of their paths.
    pub found: Vec<FoundFile>,
    /// The directories among them that could not be read, with the reason.
    pub unread: HashMap<Vec<u8>, RefusalReason>,
    /// There are more entries.
    pub more: bool,
}

/// A directory that is watched for changes. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    /// Number of watched directories.
    pub directories: u32,
    wire: Wire,
}

impl Watcher {
    /// Waits for the next changes; `None` when the directory is gone. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Refused`].
    pub async fn next(&mut self) -> Result<Option<Vec<FileChange>>, Error> {
        match self.wire.next().await? {
            AgentEvent::Response(AgentResponse::FileChanged(changes)) => Ok(Some(changes)),
            AgentEvent::Response(AgentResponse::Done) => Ok(None),
            AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
                Err(Error::Refused { reason, message })
            }
            _ => Err(fault("a watch")),
        }
    }
}

impl Writer {
    /// Completes a write that [`Sandbox::file_save`] started. Returns the new metadata, and `true`
    /// if the file did not exist before.
    ///
    /// # Errors
    /// See `write`. Nothing has changed then, unless it was an append.
    pub async fn save(mut self) -> Result<(FileStat, bool), Error> {
        self.end().await?;
        // Flushing to the disk may take a while.
        let saved = match crate::sandbox::files::next_event_within(&mut self.wire, LONG).await? {
            AgentEvent::Response(AgentResponse::FileSaved { stat, created }) => (stat, created),
            _ => return Err(fault("a write")),
        };
        done(&mut self.wire).await?;
        Ok(saved)
    }
}

impl Sandbox {
    /// Opens a regular file to read a part of it, or a directory.
    ///
    /// # Errors
    /// [`Error::Refused`] (`NotFound`, `Denied`, `WrongKind`), [`Error::Link`].
    pub async fn file_fetch(&self, path: &[u8], range: ByteRange) -> Result<Opened, Error> {
        let call = FileRequest::Read { path: path.to_vec(), range };
        let mut wire = self.file(path, call).await?;
        let stat = stat(&mut wire).await?;
        if stat.kind == FileKind::Directory {
            done(&mut wire).await?;
            return Ok(Opened::Directory(stat));
        }
        Ok(Opened::File(Box::new(self.reader(stat, wire))))
    }

    /// Reads a regular file.
    ///
    /// # Errors
    /// See `file_fetch`. A directory is also refused with `WrongKind`.
    pub async fn file_read(&self, path: &[u8], range: ByteRange) -> Result<FileReader, Error> {
        match self.file_fetch(path, range).await? {
            Opened::File(reader) => Ok(*reader),
            Opened::Directory(_) => {
                Err(refused(path, RefusalReason::WrongKind, "not a regular file"))
            }
        }
    }

    /// Writes or appends to a file. Missing parents are created.
    ///
    /// # Errors
    /// See `file_fetch`, and `NoSpace`.
    pub async fn file_save(&self, path: &[u8], options: WriteOptions) -> Result<Writer, Error> {
        let call = FileRequest::Write { path: path.to_vec(), options, expected: None };
        Ok(self.writer(self.put(path, call).await?))
    }

    /// Replaces a file if it is still the expected one when its new content is complete.
    ///
    /// # Errors
    /// See `file_save`, and `Changed`, here or from [`Writer::save`].
    pub async fn file_save_if(
        &self,
        path: &[u8],
        options: WriteOptions,
        expected: ExpectedFile,
    ) -> Result<Writer, Error> {
        let call = FileRequest::Write { path: path.to_vec(), options, expected: Some(expected) };
        Ok(self.writer(self.put(path, call).await?))
    }

    /// Lists a directory, at most `options.max` entries ([`PAGE_MAX`]), and fewer if their paths
    /// are very long.
    ///
    /// # Errors
    /// See `file_fetch`.
    pub async fn file_walk(&self, path: &[u8], mut options: WalkOptions) -> Result<Page, Error> {
        let max = options.max.min(PAGE_MAX) as usize;
        options.max = max as u32 + 1;
        let mut wire = self.file(path, FileRequest::Walk { path: path.to_vec(), options }).await?;
        let mut found = Vec::new();
        let mut unread = HashMap::new();
        let mut bytes = 0;
        let mut unread_bytes = 0;
        loop {
            match next_event(&mut wire).await? {
                AgentEvent::Response(AgentResponse::FileFound(part))
                    if found.len() + part.len() <= max + 1 =>
                {
                    for one in part {
                        bytes += one.path.len() + one.target.as_ref().map_or(0, Vec::len);
                        if bytes > WALK_BYTES_MAX && !found.is_empty() {
                            return Ok(Page { found, unread, more: true });
                        }
                        found.push(one);
                    }
                }
                AgentEvent::Response(AgentResponse::FileUnread { path, reason })
                    if unread.len() <= max && unread_bytes <= WALK_BYTES_MAX =>
                {
                    unread_bytes += path.len();
                    unread.insert(path, reason);
                }
                AgentEvent::Response(AgentResponse::Done) => break,
                _ => return Err(fault("a walk")),
            }
        }
        let more = found.len() > max;
        found.truncate(max);
        Ok(Page { found, unread, more })
    }

    /// Lists all entries of a directory with at most `max` of them ([`ENTRIES_MAX`]); a larger one is
    /// refused with `TooLarge`.
    ///
    /// # Errors
    /// See `file_fetch`.
    pub async fn file_list(&self, path: &[u8], max: u32) -> Result<Vec<FoundFile>, Error> {
        let max = max.min(ENTRIES_MAX);
        let options = WalkOptions { hidden: true, max: max + 1, ..WalkOptions::default() };
        let mut wire = self.file(path, FileRequest::Walk { path: path.to_vec(), options }).await?;
        let mut all = Vec::new();
        loop {
            match next_event(&mut wire).await? {
                AgentEvent::Response(AgentResponse::FileFound(mut part))
                    if all.len() <= max as usize =>
                {
                    all.append(&mut part);
                }
                AgentEvent::Response(AgentResponse::Done) => break,
                _ => return Err(fault("a list")),
            }
        }
        if all.len() > max as usize {
            let message = format!("the directory has more than {max} entries");
            return Err(refused(path, RefusalReason::TooLarge, &message));
        }
        Ok(all)
    }

    /// Reads a directory as a tar archive, compressed on request.
    ///
    /// # Errors
    /// See `file_fetch`. They also cover the contents, if the error is found before the first byte.
    pub async fn file_pack(&self, path: &[u8], zstd: bool) -> Result<FileReader, Error> {
        self.packed(path, zstd, Vec::new()).await
    }

    /// Reads a directory as a tar archive without some relative paths and everything below them.
    ///
    /// # Errors
    /// See `file_pack`.
    pub async fn file_pack_but(
        &self,
        path: &[u8],
        without: Vec<Vec<u8>>,
    ) -> Result<FileReader, Error> {
        self.packed(path, false, without).await
    }

    async fn packed(
        &self,
        path: &[u8],
        zstd: bool,
        without: Vec<Vec<u8>>,
    ) -> Result<FileReader, Error> {
        let call = FileRequest::Pack { path: path.to_vec(), zstd, without };
        let mut wire = self.file(path, call).await?;
        let stat = stat(&mut wire).await?;
        let mut reader = self.reader(stat, wire);
        // For a small archive, an error becomes the answer instead of a broken stream.
        reader.ahead = reader.next().await?;
        Ok(reader)
    }

    /// Extracts a tar archive into a directory, which is created if it is missing. Complete it with
    /// [`Writer::finish`].
    ///
    /// # Errors
    /// See `file_save`. Files that were extracted before the error stay.
    pub async fn file_unpack(&self, path: &[u8]) -> Result<Writer, Error> {
        let wire = self.put(path, FileRequest::Unpack { path: path.to_vec() }).await?;
        Ok(self.writer(wire))
    }

    /// Searches a file, or all files below a directory, for lines that match a pattern.
    ///
    /// # Errors
    /// See `file_fetch`; [`Error::Refused`] with `BadRequest` for an invalid or too large pattern.
    pub async fn file_search(
        &self,
        path: &[u8],
        query: SearchQuery,
    ) -> Result<(Vec<SearchLine>, SearchSummary), Error> {
        let mut wire = self.file(path, FileRequest::Search { path: path.to_vec(), query }).await?;
        let mut all = Vec::new();
        let mut bytes = 0;
        loop {
            match next_event_within(&mut wire, LONG).await? {
                AgentEvent::Response(AgentResponse::FileLines(mut part))
                    if bytes <= LINES_BYTES_MAX =>
                {
                    bytes += part.iter().map(|one| one.path.len() + one.text.len()).sum::<usize>();
                    all.append(&mut part);
                }
                AgentEvent::Response(AgentResponse::FileSearched(end)) => {
                    done(&mut wire).await?;
                    return Ok((all, end));
                }
                _ => return Err(fault("a search")),
            }
        }
    }

    /// Watches a directory. The sandbox stays awake in the meantime.
    ///
    /// # Errors
    /// See `file_fetch`; `TooLarge` if there are more directories than a watch supports, `TooMany`.
    pub async fn file_watch(&self, path: &[u8], recursive: bool) -> Result<Watcher, Error> {
        let call = FileRequest::Watch { path: path.to_vec(), recursive };
        let mut wire = self.file(path, call).await?;
        match next_event(&mut wire).await? {
            AgentEvent::Response(AgentResponse::FileWatched { directories }) => {
                Ok(Watcher { directories, wire })
            }
            _ => Err(fault("a watch")),
        }
    }

    /// Reads the metadata of one path; with `follow`, of the target of a symbolic link.
    ///
    /// # Errors
    /// See `file_fetch`.
    pub async fn file_look(&self, path: &[u8], follow: bool) -> Result<FoundFile, Error> {
        let mut wire =
            self.file(path, FileRequest::Metadata { path: path.to_vec(), follow }).await?;
        let found = match next_event(&mut wire).await? {
            AgentEvent::Response(AgentResponse::FileFound(mut one)) if one.len() == 1 => one.pop(),
            _ => None,
        };
        let found = found.ok_or_else(|| fault("a look"))?;
        done(&mut wire).await?;
        Ok(found)
    }

    /// Renames a file or a directory. Missing parents of the new name are created.
    ///
    /// # Errors
    /// See `file_fetch`, and `Exists`.
    pub async fn file_move(&self, pair: PathPair) -> Result<(), Error> {
        self.pair(pair, FileRequest::Move).await
    }

    /// Copies a file, a symbolic link, or a directory with its contents.
    ///
    /// # Errors
    /// See `file_move`.
    pub async fn file_copy(&self, pair: PathPair) -> Result<(), Error> {
        self.space().check()?;
        self.pair(pair, FileRequest::Copy).await
    }

    async fn pair(&self, pair: PathPair, call: fn(PathPair) -> FileRequest) -> Result<(), Error> {
        crate::sandbox::files::check(&pair.to)?;
        let mut wire = self.file(&pair.from.clone(), call(pair)).await?;
        done_in(&mut wire, LONG).await
    }

    /// Reads the extended attributes of files whose names begin with `prefix`, in the order of the
    /// paths, at most [`ATTRIBUTE_PATHS_MAX`](isolet_wire::request::ATTRIBUTE_PATHS_MAX).
    ///
    /// # Errors
    /// [`Error::Link`], and `BadRequest` for a prefix that does not begin with `user.`.
    pub async fn file_attributes(
        &self,
        paths: Vec<Vec<u8>>,
        prefix: &str,
    ) -> Result<Vec<FileAttributes>, Error> {
        let Some(first) = paths.first().cloned() else { return Ok(Vec::new()) };
        let count = paths.len();
        let request = FileRequest::Attributes { paths, prefix: prefix.to_owned() };
        let mut wire = self.file(&first, request).await?;
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            match next_event(&mut wire).await? {
                AgentEvent::Response(AgentResponse::FileAttributes(part)) if !part.is_empty() => {
                    all.extend(part);
                }
                _ => return Err(fault("a list of attributes")),
            }
        }
        done(&mut wire).await?;
        all.truncate(count);
        Ok(all)
    }

    /// Replaces the extended attributes of a file whose names begin with `prefix`. An empty set
    /// removes them.
    ///
    /// # Errors
    /// [`Error::Link`], `NotFound`, and `BadRequest` if they are larger than
    /// [`ATTRIBUTES_BYTES_MAX`](isolet_wire::request::ATTRIBUTES_BYTES_MAX).
    pub async fn file_set_attributes(
        &self,
        path: &[u8],
        prefix: &str,
        attributes: FileAttributes,
    ) -> Result<(), Error> {
        let prefix = prefix.to_owned();
        let request = FileRequest::SetAttributes { path: path.to_vec(), prefix, attributes };
        done_in(&mut self.file(path, request).await?, STILL).await
    }

    /// Sets permission bits, 0 to 0o7777.
    ///
    /// # Errors
    /// See `file_fetch`.
    pub async fn file_chmod(&self, path: &[u8], mode: u32) -> Result<(), Error> {
        let mut wire = self.file(path, FileRequest::Chmod { path: path.to_vec(), mode }).await?;
        done_in(&mut wire, STILL).await
    }
}
