//! Reports changes in a directory.
//!
//! The worker has no queue of its own: while the server does not read, the kernel's queue fills up,
//! and dropped events are reported as an overflow.

use super::connection::{Broken, ConnectionEnded, FileConnection};
use super::disk::Failure;
use super::names;
use isolet_wire::response::{AgentResponse, FileChange, FileChangeKind, RefusalReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of directories of one watch.
const DIRECTORIES_MAX: usize = 8192;
/// Maximum number of remembered entries of new directories. Further ones may be reported twice.
const LISTED_MAX: usize = 8192;
/// Maximum number of changes in one message.
const PART_MAX: usize = 64;
/// How long the second half of a move may be late.
const HALF: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Watches until the directory is gone or the server disconnects.
pub(super) fn watch(
    connection: &mut FileConnection,
    root: &Path,
    recursive: bool,
) -> Result<(), ConnectionEnded> {
    let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
    let kernel = inotify::init(flags).map_err(used_up)?;
    let mut watch = DirectoryWatch {
        kernel,
        root: root.to_owned(),
        recursive,
        paths: HashMap::new(),
        names: BTreeMap::new(),
        half: None,
        listed: HashMap::new(),
        round: 0,
        changes: Vec::new(),
        gone: false,
    };
    watch.add(Vec::new(), false).map_err(used_up)?;
    if watch.paths.len() >= DIRECTORIES_MAX {
        let message = format!("more than {DIRECTORIES_MAX} directories lie below");
        return Err(Failure(RefusalReason::TooLarge, message).into());
    }
    connection
        .send_message(&AgentResponse::FileWatched { directories: watch.paths.len() as u32 })?;
    loop {
        watch.wait(connection)?;
        watch.read()?;
        watch.report(connection)?;
        if watch.gone {
            return Ok(());
        }
    }
}

/// The kernel counts instances and watches of the whole sandbox, so its programs may have used up
/// all of them.
fn used_up(errno: Errno) -> Failure {
    let limit = match errno {
        Errno::MFILE => "instances",
        Errno::NOSPC => "watches",
        errno => return errno.into(),
    };
    let message = format!(
        "the sandbox holds all inotify {limit} that its host allows (fs.inotify.max_user_{limit}); end a program that watches files"
    );
    Failure(RefusalReason::TooMany, message)
}

/// The first half of a move.
struct Half {
    cookie: u32,
    path: Vec<u8>,
    directory: bool,
    /// A temporary file that is about to replace a file.
    temporary: bool,
}

struct DirectoryWatch {
    kernel: OwnedFd,
    root: PathBuf,
    recursive: bool,
    /// Watched directories by the kernel's number and the reverse, as paths below the root.
    paths: HashMap<i32, Vec<u8>>,
    names: BTreeMap<Vec<u8>, i32>,
    half: Option<Half>,
    /// Entries of a new directory that were reported, with the round in which that happened,
    /// because the kernel may report them again.
    listed: HashMap<Vec<u8>, u64>,
    round: u64,
    changes: Vec<FileChange>,
    gone: bool,
}

/// One event from the kernel.
struct Reported {
    number: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Option<Vec<u8>>,
}

impl DirectoryWatch {
    fn wait(&mut self, connection: &FileConnection) -> Result<(), ConnectionEnded> {
        let late = self.half.is_some().then_some(&HALF);
        let mut both = [
            PollFd::new(&self.kernel, PollFlags::IN),
            PollFd::new(&connection.socket, PollFlags::IN),
        ];
        match poll(&mut both, late) {
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
            // The server sends nothing more, so this is its disconnection.
            Ok(_) if !both[1].revents().is_empty() => return Err(Broken.into()),
            Ok(0) => {}
            Ok(_) => return Ok(()),
        }
        self.flush_half();
        Ok(())
    }

    /// Reads one buffer of events.
    fn read(&mut self) -> Result<(), ConnectionEnded> {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut said = Vec::new();
        {
            let mut reader = inotify::Reader::new(&self.kernel, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => said.push(Reported {
                        number: event.wd(),
                        flags: event.events(),
                        cookie: event.cookie(),
                        name: event.file_name().map(|name| name.to_bytes().to_vec()),
                    }),
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(errno) => return Err(errno.into()),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
        }
        // No earlier event is in the queue any more.
        let all = matches!(rustix::io::ioctl_fionread(&self.kernel), Ok(0));
        self.round += 1;
        said.into_iter().try_for_each(|one| self.take(one).map_err(ConnectionEnded::from))?;
        if all {
            self.listed.retain(|_, round| *round == self.round);
        }
        Ok(())
    }

    fn take(&mut self, said: Reported) -> Result<(), Errno> {
        if said.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.flush_half();
            self.put(FileChangeKind::Overflow, Vec::new(), false);
            // Directories created in the meantime are not watched yet.
            return self.add(Vec::new(), false);
        }
        let Some(at) = self.paths.get(&said.number).cloned() else { return Ok(()) };
        let ends = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if at.is_empty() && said.flags.intersects(ends) {
            self.flush_half();
            self.put(FileChangeKind::Gone, at, true);
            self.gone = true;
            return Ok(());
        }
        if said.flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&said.number);
            if self.names.get(&at) == Some(&said.number) {
                self.names.remove(&at);
            }
            return Ok(());
        }
        let Some(name) = said.name else { return Ok(()) };
        let below = self.root.join(OsStr::from_bytes(&at)).join(OsStr::from_bytes(&name));
        let named =
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        if names::is_hidden(&below, &name, said.flags.intersects(named)) {
            return self.hidden(said.flags, said.cookie);
        }
        let path = if at.is_empty() { name } else { [at.as_slice(), b"/", &name].concat() };
        let directory = said.flags.contains(ReadFlags::ISDIR);
        self.changed(said.flags, said.cookie, path, directory)
    }

    /// An event of one of the agent's own files.
    fn hidden(&mut self, flags: ReadFlags, cookie: u32) -> Result<(), Errno> {
        let moved = self.half.take_if(|half| {
            flags.contains(ReadFlags::MOVED_TO) && half.cookie == cookie && !half.temporary
        });
        self.flush_half();
        if moved.is_some() {
            // A directory that is being removed has left its name.
            self.half = moved;
            self.flush_half();
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.half = Some(Half { cookie, path: Vec::new(), directory: false, temporary: true });
        }
        Ok(())
    }

    fn changed(
        &mut self,
        flags: ReadFlags,
        cookie: u32,
        path: Vec<u8>,
        directory: bool,
    ) -> Result<(), Errno> {
        if flags.contains(ReadFlags::MOVED_TO) {
            if let Some(half) = self.half.take_if(|half| half.cookie == cookie) {
                if half.temporary {
                    self.put(FileChangeKind::Modified, path, directory);
                    return Ok(());
                }
                if directory {
                    self.renamed(&half.path, &path);
                }
                let kind = FileChangeKind::Moved;
                let to = Some(path);
                self.changes.push(FileChange { kind, path: half.path, to, directory });
                return Ok(());
            }
            self.flush_half();
            return self.created(path, directory);
        }
        self.flush_half();
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.listed.remove(&path);
            self.half = Some(Half { cookie, path, directory, temporary: false });
        } else if flags.contains(ReadFlags::CREATE) {
            return self.created(path, directory);
        } else if flags.contains(ReadFlags::DELETE) {
            self.listed.remove(&path);
            self.put(FileChangeKind::Deleted, path, directory);
        } else if flags.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            self.put(FileChangeKind::Modified, path, directory);
        }
        Ok(())
    }

    fn created(&mut self, path: Vec<u8>, directory: bool) -> Result<(), Errno> {
        if self.listed.remove(&path).is_some() {
            return Ok(());
        }
        self.put(FileChangeKind::Created, path.clone(), directory);
        if directory && self.recursive { self.add(path, true) } else { Ok(()) }
    }

    /// A file that was moved away and not in again is gone.
    fn flush_half(&mut self) {
        let Some(half) = self.half.take().filter(|half| !half.temporary) else { return };
        if half.directory {
            for (_, number) in self.below(&half.path) {
                let _ = inotify::remove_watch(&self.kernel, number);
            }
        }
        self.put(FileChangeKind::Deleted, half.path, half.directory);
    }

    fn put(&mut self, kind: FileChangeKind, path: Vec<u8>, directory: bool) {
        let change = FileChange { kind, path, to: None, directory };
        if kind != FileChangeKind::Modified || self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }

    /// The watched directories at or below a path.
    fn below(&self, path: &[u8]) -> Vec<(Vec<u8>, i32)> {
        let all = self.names.range(path.to_vec()..);
        all.take_while(|(one, _)| one.starts_with(path))
            .filter(|(one, _)| one.get(path.len()).is_none_or(|byte| *byte == b'/'))
            .map(|(one, number)| (one.clone(), *number))
            .collect()
    }

    fn renamed(&mut self, from: &[u8], to: &[u8]) {
        for (old, number) in self.below(from) {
            let new = [to, &old[from.len()..]].concat();
            self.names.remove(&old);
            self.names.insert(new.clone(), number);
            self.paths.insert(number, new);
        }
    }

    /// Watches a directory and, with `recursive`, everything below it. Existing entries of a new
    /// directory are reported, because they may have been created before the watch.
    fn add(&mut self, path: Vec<u8>, new: bool) -> Result<(), Errno> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let mut waiting = vec![path];
        let mut seen = HashSet::new();
        while let Some(path) = waiting.pop() {
            let top = path.is_empty();
            if self.paths.len() >= DIRECTORIES_MAX && !self.names.contains_key(&path) {
                self.put(FileChangeKind::Unwatched, path, true);
                continue;
            }
            let at = self.root.join(OsStr::from_bytes(&path));
            let follow = if top { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
            let number = match inotify::add_watch(&self.kernel, &at, flags | follow) {
                Ok(number) => number,
                Err(errno) if top => return Err(errno),
                Err(Errno::NOSPC) => {
                    self.put(FileChangeKind::Unwatched, path, true);
                    continue;
                }
                // The directory is gone or was replaced by another type.
                Err(_) => continue,
            };
            if !seen.insert(number) {
                continue;
            }
            self.paths.insert(number, path.clone());
            self.names.insert(path.clone(), number);
            if self.recursive {
                self.look(&at, &path, new, &mut waiting);
            }
        }
        Ok(())
    }

    fn look(&mut self, at: &Path, path: &[u8], new: bool, waiting: &mut Vec<Vec<u8>>) {
        for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let below = match path {
                b"" => name.as_bytes().to_vec(),
                path => [path, b"/", name.as_bytes()].concat(),
            };
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if names::is_hidden(&entry.path(), name.as_bytes(), true) {
                continue;
            }
            if new {
                if self.listed.len() < LISTED_MAX {
                    self.listed.insert(below.clone(), self.round);
                }
                self.put(FileChangeKind::Created, below.clone(), directory);
            }
            if directory && waiting.len() < DIRECTORIES_MAX {
                waiting.push(below);
            }
        }
    }

    fn report(&mut self, connection: &mut FileConnection) -> Result<(), ConnectionEnded> {
        let changes = std::mem::take(&mut self.changes);
        for part in changes.chunks(PART_MAX) {
            connection.send_message(&AgentResponse::FileChanged(part.to_vec()))?;
        }
        Ok(())
    }
}
