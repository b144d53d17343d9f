//! Looks up paths of an image in its layers, as an overlay file system would, without mounting one.

use crate::disk::rooted::kind;
use crate::error::Error;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Symlinks in one lookup, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Path components in one lookup, with those of symlinks. One symlink may have 2,000, and each is looked
/// up in all layers.
const STEPS_MAX: usize = 512;
const OPAQUE: &str = "user.overlay.opaque";
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a path resolves to.
pub(crate) enum PathTarget {
    /// The path does not exist; its missing directories can be created.
    Nothing,
    Directory,
    File(OwnedFd),
    Other,
    /// A symlink of the path is dangling, or there are too many, so that nothing can be created there.
    BrokenLink,
}

/// The result of a lookup.
pub(crate) struct Lookup {
    pub(crate) found: PathTarget,
    /// The components of the resolved directories, without symlinks and `..`.
    pub(crate) through: Vec<Vec<u8>>,
}

/// An image's layers, the top one first.
pub(crate) struct OverlayView {
    layers: Vec<OwnedFd>,
}

/// One directory, as the layers that have it together show it.
type Stack = Vec<OwnedFd>;

enum OverlayChild {
    Nothing,
    Directory(Stack),
    Link(Vec<u8>),
    File(OwnedFd),
    Other,
}

impl OverlayView {
    /// Opens layers by their paths below the image directory, without following links.
    pub(crate) fn open<'a>(
        images: &Path,
        layers: impl Iterator<Item = &'a String>,
    ) -> Result<Self, Error> {
        let images = rustix::fs::open(images, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let open = |path: &String| {
            rustix::fs::openat2(&images, path.as_str(), DIRECTORY, Mode::empty(), stay)
        };
        Ok(Self { layers: layers.map(open).collect::<Result<_, _>>()? })
    }

    /// The target of the symlink at this path; `None` if it is not a symlink. A path through a symlink
    /// has no target either.
    pub(crate) fn link(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut at = self.root()?;
        let parts: Vec<&str> = path.split('/').collect();
        for (index, part) in parts.iter().enumerate() {
            match child(&at, part.as_bytes())? {
                OverlayChild::Directory(next) => at = next,
                OverlayChild::Link(target) if index + 1 == parts.len() => return Ok(Some(target)),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Resolves a path, with symlinks, within the image.
    pub(crate) fn find(&self, path: &str) -> Result<PathTarget, Error> {
        Ok(self.resolve(path)?.found)
    }

    /// Like [`OverlayView::find`], and returns the directories on the resolved path.
    pub(crate) fn resolve(&self, path: &str) -> Result<Lookup, Error> {
        let mut left: VecDeque<Vec<u8>> = split(path.as_bytes());
        let mut through: Vec<Vec<u8>> = Vec::new();
        let mut stacks = vec![self.root()?];
        let mut links = 0;
        let mut steps = 0;
        // How many of the names that are left come from a symlink.
        let mut of_links = 0_usize;
        let mut found = PathTarget::Directory;
        while let Some(part) = left.pop_front() {
            let of_link = of_links > 0;
            of_links = of_links.saturating_sub(1);
            steps += 1;
            if steps > STEPS_MAX {
                found = PathTarget::BrokenLink;
                break;
            }
            if part == b".." {
                // The parent of the root is the root.
                if through.pop().is_some() {
                    stacks.pop();
                }
                continue;
            }
            let Some(at) = stacks.last() else { break };
            found = match child(at, &part)? {
                OverlayChild::Directory(next) => {
                    stacks.push(next);
                    through.push(part);
                    continue;
                }
                OverlayChild::Link(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.first() == Some(&b'/') {
                        stacks.truncate(1);
                        through.clear();
                    }
                    let mut more = split(&target);
                    of_links += more.len();
                    more.append(&mut left);
                    left = more;
                    continue;
                }
                OverlayChild::Link(_) => PathTarget::BrokenLink,
                OverlayChild::Nothing if of_link => PathTarget::BrokenLink,
                OverlayChild::Nothing => PathTarget::Nothing,
                OverlayChild::File(file) if left.is_empty() => PathTarget::File(file),
                OverlayChild::File(_) | OverlayChild::Other => PathTarget::Other,
            };
            break;
        }
        Ok(Lookup { found, through })
    }

    /// Reads a file; `None` if the path is not a file.
    pub(crate) fn read(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        let PathTarget::File(file) = self.find(path)? else { return Ok(None) };
        let mut text = Vec::new();
        std::fs::File::from(file).take(bytes_max + 1).read_to_end(&mut text)?;
        if text.len() as u64 > bytes_max {
            return Err(Error::large(path, format!("{bytes_max} bytes")));
        }
        Ok(Some(text))
    }

    fn root(&self) -> Result<Stack, Error> {
        let mut stack = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            stack.push(rustix::fs::openat(layer, c".", DIRECTORY, Mode::empty())?);
        }
        Ok(stack)
    }
}

fn split(path: &[u8]) -> VecDeque<Vec<u8>> {
    let part = |part: &&[u8]| !part.is_empty() && *part != b".";
    path.split(|byte| *byte == b'/').filter(part).map(<[u8]>::to_vec).collect()
}

fn child(stack: &Stack, name: &[u8]) -> Result<OverlayChild, Error> {
    let mut below: Stack = Vec::new();
    for layer in stack {
        let (kind, device) = match kind(layer.as_fd(), name) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        match kind {
            FileType::Directory => {
                let open = rustix::fs::openat(layer, name, DIRECTORY, Mode::empty())?;
                let last = opaque(open.as_fd());
                below.push(open);
                if last {
                    break;
                }
            }
            // A non-directory ends the merge: it hides the layers below it, or a directory above
            // hides it.
            _ if !below.is_empty() => break,
            FileType::CharacterDevice if device == 0 => return Ok(OverlayChild::Nothing),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(layer, name, Vec::new())?;
                return Ok(OverlayChild::Link(target.into_bytes()));
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(OverlayChild::File(rustix::fs::openat(
                    layer,
                    name,
                    flags,
                    Mode::empty(),
                )?));
            }
            _ => return Ok(OverlayChild::Other),
        }
    }
    Ok(if below.is_empty() { OverlayChild::Nothing } else { OverlayChild::Directory(below) })
}

pub(crate) fn opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0; 4];
    matches!(rustix::fs::fgetxattr(directory, OPAQUE, &mut value[..]), Ok(1)) && value[0] == b'y'
}
