//! File calls with all options: ranges, pages, modes, copies.

use crate::{
    agent_client::wire::{AgentEvent, Wire},
    model::error::Error,
    sandbox::{
        Sandbox,
        files::{LONG, Reader, STILL, Writer, done, done_in, fault, hear, hear_in, stat},
    },
};
use isolet_wire::{
    request::{File, Pair, Save, Search, Span, Walk},
    response::{AgentResponse, Change, Found, Kind, Line, RefusalReason, Searched, Stat},
};
use std::collections::HashMap;

/// The most entries that one page of a walk may have.
pub const PAGE_MAX: u32 = 10_000;
/// The longest pattern, in bytes.
pub const GLOB_BYTES_MAX: usize = 1024;

/// The longest pattern of a search, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// The most lines beside a match.
pub const CONTEXT_MAX: u32 = 20;
/// Bytes of all lines of one search: more than an agent tells.
const LINES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of all names and link targets of one page of a listing: a full page of long paths would be
/// a hundred times as much as one of usual ones, and JSON makes up to six bytes of each.
const WALK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What stands behind a name.
#[derive(Debug)]
pub enum Opened {
    /// A regular file.
    File(Box<Reader>),
    /// A directory.
    Directory(Stat),
}

/// A page of what lies in a directory.
#[derive(Debug)]
pub struct Page {
    /// Sorted by the parts of their paths.
    pub found: Vec<Found>,
    /// Directories among them of whose content nothing is known, and why.
    pub unread: HashMap<Vec<u8>, RefusalReason>,
    /// There is more.
    pub more: bool,
}

/// A directory that is watched.
#[derive(Debug)]
pub struct Watcher {
    /// How many directories that are.
    pub directories: u32,
    wire: Wire,
}

impl Watcher {
    /// What has happened, as it comes; `None` once the directory is gone. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Refused`].
    pub async fn next(&mut self) -> Result<Option<Vec<Change>>, Error> {
        match self.wire.next().await? {
            AgentEvent::Response(AgentResponse::FileChanged(changes)) => Ok(Some(changes)),
            AgentEvent::Response(AgentResponse::Done) => Ok(None),
            AgentEvent::Response(AgentResponse::Refused { why, message, .. }) => {
                Err(Error::Refused { why, message })
            }
            _ => Err(fault("a watch")),
        }
    }
}

impl Writer {
    /// Puts the file under its name; `true` beside what it is now: there was none of this name.
    /// Only for what [`Sandbox::file_save`] began.
    ///
    /// # Errors
    /// As `write`; nothing is changed then, unless it was an append.
    pub async fn save(mut self) -> Result<(Stat, bool), Error> {
        self.end().await?;
        // Bytes that are to be on the disk may take their time.
        let saved = match crate::sandbox::files::hear_in(&mut self.wire, LONG).await? {
            AgentEvent::Response(AgentResponse::FileSaved { stat, created }) => (stat, created),
            _ => return Err(fault("a write")),
        };
        done(&mut self.wire).await?;
        Ok(saved)
    }
}

impl Sandbox {
    /// Opens a regular file and reads a part of it, or finds a directory.
    ///
    /// # Errors
    /// [`Error::Refused`] (`NotFound`, `Denied`, `WrongKind`), [`Error::Link`].
    pub async fn file_fetch(&self, path: &[u8], span: Span) -> Result<Opened, Error> {
        let mut wire = self.file(path, File::Fetch { path: path.to_vec(), span }).await?;
        let stat = stat(&mut wire).await?;
        if stat.kind == Kind::Directory {
            done(&mut wire).await?;
            return Ok(Opened::Directory(stat));
        }
        Ok(Opened::File(Box::new(Reader { stat, wire, done: false, ahead: None })))
    }

    /// Writes a file, whole or at its end; parents are made.
    ///
    /// # Errors
    /// As `file_fetch`, and `NoSpace`.
    pub async fn file_save(&self, path: &[u8], how: Save) -> Result<Writer, Error> {
        let wire = self.put(path, File::Save { path: path.to_vec(), how }).await?;
        Ok(self.writer(wire))
    }

    /// What lies in a directory, at most `wish.max` entries ([`PAGE_MAX`]), and fewer where their
    /// paths are very long.
    ///
    /// # Errors
    /// As `file_fetch`.
    pub async fn file_walk(&self, path: &[u8], mut wish: Walk) -> Result<Page, Error> {
        let max = wish.max.min(PAGE_MAX) as usize;
        wish.max = max as u32 + 1;
        let mut wire = self.file(path, File::Walk { path: path.to_vec(), wish }).await?;
        let mut found = Vec::new();
        let mut unread = HashMap::new();
        let mut bytes = 0;
        loop {
            match hear(&mut wire).await? {
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
                AgentEvent::Response(AgentResponse::FileUnread { path, why })
                    if unread.len() <= max =>
                {
                    unread.insert(path, why);
                }
                AgentEvent::Response(AgentResponse::Done) => break,
                _ => return Err(fault("a walk")),
            }
        }
        let more = found.len() > max;
        found.truncate(max);
        Ok(Page { found, unread, more })
    }

    /// A directory as a tar archive, compressed on request.
    ///
    /// # Errors
    /// As `file_fetch`; also for what it holds, where that is found before any byte is sent.
    pub async fn file_pack(&self, path: &[u8], zstd: bool) -> Result<Reader, Error> {
        let call = match (path.to_vec(), zstd) {
            (path, true) => File::PackZstd { path },
            (path, false) => File::Pack { path },
        };
        self.packed(path, call).await
    }

    /// A directory as a tar archive, without some of what it holds: paths below it, each left out
    /// with all that is below.
    ///
    /// # Errors
    /// As `file_pack`.
    pub async fn file_pack_but(&self, path: &[u8], without: Vec<Vec<u8>>) -> Result<Reader, Error> {
        self.packed(path, File::PackBut { path: path.to_vec(), without }).await
    }

    async fn packed(&self, path: &[u8], call: File) -> Result<Reader, Error> {
        let mut wire = self.file(path, call).await?;
        let stat = stat(&mut wire).await?;
        let mut reader = Reader { stat, wire, done: false, ahead: None };
        // Of a small one a fault is the answer, and not a break in it.
        reader.ahead = reader.next().await?;
        Ok(reader)
    }

    /// A tar archive into a directory, which is made; end with [`Writer::finish`].
    ///
    /// # Errors
    /// As `file_save`; what came before a fault stays.
    pub async fn file_unpack(&self, path: &[u8]) -> Result<Writer, Error> {
        let wire = self.put(path, File::Unpack { path: path.to_vec() }).await?;
        Ok(self.writer(wire))
    }

    /// Lines of a file, or of all files below a directory, that match a pattern.
    ///
    /// # Errors
    /// As `file_fetch`; [`Error::Refused`] with `BadAsk` for a pattern that is none, or too large.
    pub async fn file_search(
        &self,
        path: &[u8],
        wish: Search,
    ) -> Result<(Vec<Line>, Searched), Error> {
        let mut wire = self.file(path, File::Search { path: path.to_vec(), wish }).await?;
        let mut all = Vec::new();
        let mut bytes = 0;
        loop {
            match hear_in(&mut wire, LONG).await? {
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

    /// What happens in a directory from now on. The sandbox stays awake meanwhile.
    ///
    /// # Errors
    /// As `file_fetch`; `TooLarge` for more directories than one watch has, `TooMany`.
    pub async fn file_watch(&self, path: &[u8], recursive: bool) -> Result<Watcher, Error> {
        let call = File::Watch { path: path.to_vec(), recursive };
        let mut wire = self.file(path, call).await?;
        match hear(&mut wire).await? {
            AgentEvent::Response(AgentResponse::FileWatched { directories }) => {
                Ok(Watcher { directories, wire })
            }
            _ => Err(fault("a watch")),
        }
    }

    /// What is known of one name; with `follow` of what a symbolic link leads to.
    ///
    /// # Errors
    /// As `file_fetch`.
    pub async fn file_look(&self, path: &[u8], follow: bool) -> Result<Found, Error> {
        let mut wire = self.file(path, File::Look { path: path.to_vec(), follow }).await?;
        let found = match hear(&mut wire).await? {
            AgentEvent::Response(AgentResponse::FileFound(mut one)) if one.len() == 1 => one.pop(),
            _ => None,
        };
        let found = found.ok_or_else(|| fault("a look"))?;
        done(&mut wire).await?;
        Ok(found)
    }

    /// Gives another name; parents of the new one are made.
    ///
    /// # Errors
    /// As `file_fetch`, and `Exists`.
    pub async fn file_move(&self, pair: Pair) -> Result<(), Error> {
        self.pair(pair, File::Move).await
    }

    /// Copies a file, a link, or a directory with all it holds.
    ///
    /// # Errors
    /// As `file_move`.
    pub async fn file_copy(&self, pair: Pair) -> Result<(), Error> {
        self.space().check()?;
        self.pair(pair, File::Copy).await
    }

    async fn pair(&self, pair: Pair, call: fn(Pair) -> File) -> Result<(), Error> {
        crate::sandbox::files::check(&pair.to)?;
        let mut wire = self.file(&pair.from.clone(), call(pair)).await?;
        done_in(&mut wire, LONG).await
    }

    /// Sets permission bits, 0 to 0o7777.
    ///
    /// # Errors
    /// As `file_fetch`.
    pub async fn file_chmod(&self, path: &[u8], mode: u32) -> Result<(), Error> {
        let mut wire = self.file(path, File::Chmod { path: path.to_vec(), mode }).await?;
        done_in(&mut wire, STILL).await
    }
}
