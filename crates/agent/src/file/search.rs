//! Searches files for lines that match a pattern, in sorted order and bounded memory. Binary files
//! are searched up to their first NUL byte and counted.

use super::connection::{Broken, ConnectionEnded, FileConnection};
use super::disk::{self, Failure};
use super::{names, walk};
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use isolet_wire::request::SearchQuery;
use isolet_wire::response::{AgentResponse, RefusalReason, SearchLine, SearchSummary};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Maximum size of a compiled pattern, in bytes, which refuses `(a{1000}){1000}`.
const PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// Maximum length of a line, in bytes. Files with longer lines are not searched further.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum length of a reported line, in bytes.
const TEXT_BYTES: usize = 2048;
/// Maximum number of reported matches in one line.
const SPANS_MAX: usize = 64;
/// Maximum size of all reported lines, in bytes.
const TOLD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum size of one message, in bytes.
const PART_BYTES: usize = 32 * 1024;

/// Searches and sends the matches as they are found.
pub(super) fn search(
    connection: &mut FileConnection,
    root: &Path,
    query: &SearchQuery,
) -> Result<(), ConnectionEnded> {
    let matcher = matcher(query)?;
    let context = query.context as usize;
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .bom_sniffing(false)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .before_context(context)
        .after_context(context)
        .build();
    let mut found = Matches {
        connection,
        matcher: &matcher,
        path: Vec::new(),
        part: Vec::new(),
        part_bytes: 0,
        told_bytes: 0,
        left: query.max,
        end: SearchSummary::default(),
    };
    let stat = disk::stat(&rustix::fs::stat(root).map_err(Failure::from)?);
    if stat.kind != isolet_wire::response::FileKind::Directory {
        let (file, _) = disk::open(root)?;
        found.file(&mut searcher, Vec::new(), file)?;
    } else {
        below(&mut found, &mut searcher, root, query)?;
    }
    found.flush()?;
    let end = found.end;
    Ok(connection.send_message(&AgentResponse::FileSearched(end))?)
}

fn matcher(query: &SearchQuery) -> Result<RegexMatcher, Failure> {
    RegexMatcherBuilder::new()
        .fixed_strings(query.literal)
        .case_insensitive(query.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build(&query.pattern)
        .map_err(|error| {
            let mut message = format!("the pattern: {error}");
            message.truncate(message.floor_char_boundary(400));
            Failure(RefusalReason::BadRequest, message)
        })
}

fn below(
    found: &mut Matches<'_>,
    searcher: &mut Searcher,
    root: &Path,
    query: &SearchQuery,
) -> Result<(), ConnectionEnded> {
    let mut walk = ignore::WalkBuilder::new(root)
        .hidden(!query.hidden)
        .ignore(!query.ignored)
        .git_ignore(!query.ignored)
        .git_exclude(!query.ignored)
        .parents(!query.ignored)
        .git_global(false)
        .require_git(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    // The library assumes that its starting point remains a directory.
    let mut next = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walk.next()));
    loop {
        let Ok(entry) = next() else {
            let message = "the directory was replaced during the search".to_owned();
            return Err(Failure(RefusalReason::WrongKind, message).into());
        };
        let Some(entry) = entry else { return Ok(()) };
        let Ok(entry) = entry else {
            found.end.unread += 1;
            continue;
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(path) = entry.path().strip_prefix(root) else { continue };
        let path = path.as_os_str().as_bytes().to_vec();
        let name = entry.file_name().as_bytes();
        if query.glob.as_ref().is_some_and(|glob| !walk::matches(glob, &path, name)) {
            continue;
        }
        if entry.metadata().is_ok_and(|about| names::is_temporary(name, about.ino())) {
            continue;
        }
        if found.end.more {
            return Ok(());
        }
        found.connection.check_alive()?;
        match open(entry.path()) {
            Some(file) => found.file(searcher, path, file)?,
            None => found.end.unread += 1,
        }
    }
}

/// Opens a regular file, unless another type has replaced it since it was listed.
fn open(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| File::from(fd))
}

/// Collects the matches of one file after the other.
struct Matches<'a> {
    connection: &'a mut FileConnection,
    matcher: &'a RegexMatcher,
    path: Vec<u8>,
    part: Vec<SearchLine>,
    part_bytes: usize,
    told_bytes: usize,
    left: u32,
    end: SearchSummary,
}

/// The connection has ended.
#[derive(Debug)]
struct Deaf;

impl From<Deaf> for io::Error {
    fn from(_: Deaf) -> Self {
        io::ErrorKind::BrokenPipe.into()
    }
}

impl Matches<'_> {
    fn file(&mut self, searcher: &mut Searcher, path: Vec<u8>, file: File) -> Result<(), Broken> {
        self.path = path;
        self.end.files += 1;
        match searcher.search_reader(self.matcher, file, &mut *self) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Broken),
            Err(_) => {
                self.end.unread += 1;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Broken> {
        self.part_bytes = 0;
        if self.part.is_empty() {
            return Ok(());
        }
        self.connection.send_message(&AgentResponse::FileLines(std::mem::take(&mut self.part)))
    }

    /// Adds a line. Returns false if there is no room for more.
    fn put(&mut self, number: Option<u64>, bytes: &[u8], context: bool) -> Result<bool, Deaf> {
        let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let text = whole[..whole.len().min(TEXT_BYTES)].to_vec();
        let mut spans = Vec::new();
        if !context {
            let _ = self.matcher.find_iter(whole, |one| {
                let inside = one.end() <= text.len();
                if inside {
                    spans.push((one.start() as u32, one.end() as u32));
                }
                inside && spans.len() < SPANS_MAX
            });
        }
        let bytes = self.path.len() + text.len();
        if self.told_bytes + bytes > TOLD_BYTES_MAX {
            self.end.more = true;
            return Ok(false);
        }
        self.told_bytes += bytes;
        self.part_bytes += bytes;
        let path = self.path.clone();
        let number = number.unwrap_or(0);
        let cut = text.len() < whole.len();
        self.part.push(SearchLine { path, number, text, cut, spans, context });
        if self.part_bytes >= PART_BYTES {
            self.flush().map_err(|Broken| Deaf)?;
        }
        Ok(true)
    }
}

impl Sink for &mut Matches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.left == 0 {
            self.end.more = true;
            return Ok(false);
        }
        self.left -= 1;
        Ok(self.put(found.line_number(), found.bytes(), false)?)
    }

    fn context(&mut self, _: &Searcher, beside: &SinkContext<'_>) -> io::Result<bool> {
        Ok(self.put(beside.line_number(), beside.bytes(), true)?)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.end.binary += u64::from(end.binary_byte_offset().is_some());
        Ok(())
    }
}
