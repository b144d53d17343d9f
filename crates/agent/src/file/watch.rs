//! Watches a directory and reports changes.
//!
//! Nothing is queued here: while the server does not read, the kernel's queue fills, and what the
//! kernel drops is reported as an overflow.

use super::connection::{Broken, Connection, Ended};
use super::disk::Failure;
use super::names;
use isolet_wire::response::{AgentResponse, Change, Happened, RefusalReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Directories of one watch.
const DIRECTORIES_MAX: usize = 8192;
/// What was found in new directories and is remembered until the kernel has told of it: more may be
/// told twice.
const LISTED_MAX: usize = 8192;
/// Changes of one message.
const PART_MAX: usize = 64;
/// How long the second half of a move may be late.
const HALF: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Watches until the directory or the server is gone.
pub(super) fn watch(
    connection: &mut Connection,
    root: &Path,
    recursive: bool,
) -> Result<(), Ended> {
    let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
    let kernel = inotify::init(flags).map_err(used_up)?;
    let mut watch = Watch {
        kernel,
        root: root.to_owned(),
        recursive,
        paths: HashMap::new(),
        names: BTreeMap::new(),
        half: None,
        listed: HashMap::new(),
        round: 0,
        told: Vec::new(),
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
        watch.tell(connection)?;
        if watch.gone {
            return Ok(());
        }
    }
}

/// The kernel counts instances and watches of the whole sandbox together: its programs may hold all.
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
    /// It is a temporary file, about to take the place of a file.
    temporary: bool,
}

struct Watch {
    kernel: OwnedFd,
    root: PathBuf,
    recursive: bool,
    /// Directories by the kernel's number, and the reverse: paths below the root.
    paths: HashMap<i32, Vec<u8>>,
    names: BTreeMap<Vec<u8>, i32>,
    half: Option<Half>,
    /// What was found in a new directory and told, with the round in which that was: the kernel may
    /// tell of it as well.
    listed: HashMap<Vec<u8>, u64>,
    round: u64,
    told: Vec<Change>,
    gone: bool,
}

/// One thing that the kernel said.
struct Said {
    number: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Option<Vec<u8>>,
}

impl Watch {
    fn wait(&mut self, connection: &Connection) -> Result<(), Ended> {
        let late = self.half.is_some().then_some(&HALF);
        let mut both = [
            PollFd::new(&self.kernel, PollFlags::IN),
            PollFd::new(&connection.socket, PollFlags::IN),
        ];
        match poll(&mut both, late) {
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
            // Nothing more is due from the server: what comes is its end.
            Ok(_) if !both[1].revents().is_empty() => return Err(Broken.into()),
            Ok(0) => {}
            Ok(_) => return Ok(()),
        }
        self.flush_half();
        Ok(())
    }

    /// Takes what the kernel has, a bufferful of it.
    fn read(&mut self) -> Result<(), Ended> {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut said = Vec::new();
        {
            let mut reader = inotify::Reader::new(&self.kernel, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => said.push(Said {
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
        // Nothing more is queued that happened before this.
        let all = matches!(rustix::io::ioctl_fionread(&self.kernel), Ok(0));
        self.round += 1;
        said.into_iter().try_for_each(|one| self.take(one).map_err(Ended::from))?;
        if all {
            self.listed.retain(|_, round| *round == self.round);
        }
        Ok(())
    }

    fn take(&mut self, said: Said) -> Result<(), Errno> {
        if said.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.flush_half();
            self.put(Happened::Overflow, Vec::new(), false);
            // What was made meanwhile is not watched yet.
            return self.add(Vec::new(), false);
        }
        let Some(at) = self.paths.get(&said.number).cloned() else { return Ok(()) };
        let ends = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if at.is_empty() && said.flags.intersects(ends) {
            self.flush_half();
            self.put(Happened::Gone, at, true);
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

    /// Something happened to a file of the agent's own.
    fn hidden(&mut self, flags: ReadFlags, cookie: u32) -> Result<(), Errno> {
        let moved = self.half.take_if(|half| {
            flags.contains(ReadFlags::MOVED_TO) && half.cookie == cookie && !half.temporary
        });
        self.flush_half();
        if moved.is_some() {
            // A directory on its way to be removed has left its own name.
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
                    self.put(Happened::Modified, path, directory);
                    return Ok(());
                }
                if directory {
                    self.renamed(&half.path, &path);
                }
                let what = Happened::Moved;
                let to = Some(path);
                self.told.push(Change { what, path: half.path, to, directory });
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
            self.put(Happened::Deleted, path, directory);
        } else if flags.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            self.put(Happened::Modified, path, directory);
        }
        Ok(())
    }

    fn created(&mut self, path: Vec<u8>, directory: bool) -> Result<(), Errno> {
        if self.listed.remove(&path).is_some() {
            return Ok(());
        }
        self.put(Happened::Created, path.clone(), directory);
        if directory && self.recursive { self.add(path, true) } else { Ok(()) }
    }

    /// What has left and did not come in again is gone.
    fn flush_half(&mut self) {
        let Some(half) = self.half.take().filter(|half| !half.temporary) else { return };
        if half.directory {
            for (_, number) in self.below(&half.path) {
                let _ = inotify::remove_watch(&self.kernel, number);
            }
        }
        self.put(Happened::Deleted, half.path, half.directory);
    }

    fn put(&mut self, what: Happened, path: Vec<u8>, directory: bool) {
        let change = Change { what, path, to: None, directory };
        if what != Happened::Modified || self.told.last() != Some(&change) {
            self.told.push(change);
        }
    }

    /// Watched directories at and below a path.
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

    /// Watches a directory, and with `recursive` all below it. What is already in a new one is
    /// told: it may have come before the watch.
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
                self.put(Happened::Unwatched, path, true);
                continue;
            }
            let at = self.root.join(OsStr::from_bytes(&path));
            let follow = if top { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
            let number = match inotify::add_watch(&self.kernel, &at, flags | follow) {
                Ok(number) => number,
                Err(errno) if top => return Err(errno),
                Err(Errno::NOSPC) => {
                    self.put(Happened::Unwatched, path, true);
                    continue;
                }
                // Gone, or none any more.
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
                self.put(Happened::Created, below.clone(), directory);
            }
            if directory && waiting.len() < DIRECTORIES_MAX {
                waiting.push(below);
            }
        }
    }

    fn tell(&mut self, connection: &mut Connection) -> Result<(), Ended> {
        let told = std::mem::take(&mut self.told);
        for part in told.chunks(PART_MAX) {
            connection.send_message(&AgentResponse::FileChanged(part.to_vec()))?;
        }
        Ok(())
    }
}
