//! Formatted images of the sizes that were last used. A sandbox's image is a copy of one, because
//! `mkfs.ext4` takes longer than everything else that a create does.
//!
//! All copies have the same UUID. They are mounted by their loop device, never by UUID, and the
//! kernel does not mind. Nothing in them is secret: sandboxes do not see the blocks of others.

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How many sizes are remembered.
const TEMPLATES_MAX: usize = 4;
/// The most bytes of one formatted image, without holes: about 360 GiB of disk. Larger ones are
/// formatted each time.
const TEMPLATE_BYTES_MAX: usize = 4 << 20;

/// The images that were last formatted.
#[derive(Debug, Default)]
pub(crate) struct DiskTemplates(RefCell<VecDeque<Template>>);

/// What `mkfs.ext4` wrote into an image of one size.
#[derive(Debug)]
pub(crate) struct Template {
    mib: u64,
    extents: Vec<Extent>,
}

/// Bytes between two holes.
#[derive(Debug)]
struct Extent {
    offset: u64,
    bytes: Vec<u8>,
}

impl DiskTemplates {
    /// Writes a formatted image of `mib` MiB into an empty file of that size, if there is one.
    /// Returns whether there was one.
    pub(crate) fn copy_to(&self, image: &OwnedFd, mib: u64) -> Result<bool, Errno> {
        let templates = self.0.borrow();
        let Some(template) = templates.iter().find(|template| template.mib == mib) else {
            return Ok(false);
        };
        for extent in &template.extents {
            write_at(image, extent)?;
        }
        Ok(true)
    }

    /// Remembers an image that the kernel has mounted, so it is known to be complete.
    pub(crate) fn remember(&self, template: Template) {
        let mut templates = self.0.borrow_mut();
        templates.retain(|other| other.mib != template.mib);
        templates.push_front(template);
        templates.truncate(TEMPLATES_MAX);
    }
}

impl Template {
    /// Reads an image that was just formatted and not mounted yet; `None` if it is too large.
    pub(crate) fn read(image: &Path, mib: u64) -> Result<Option<Self>, Errno> {
        Ok(read_extents(image)?.map(|extents| Self { mib, extents }))
    }
}

fn write_at(image: &OwnedFd, extent: &Extent) -> Result<(), Errno> {
    let mut done = 0;
    while done < extent.bytes.len() {
        match rustix::io::pwrite(image, &extent.bytes[done..], extent.offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// What is between the holes; `None` if it is more than [`TEMPLATE_BYTES_MAX`].
fn read_extents(image: &Path) -> Result<Option<Vec<Extent>>, Errno> {
    let file =
        rustix::fs::open(image, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    let mut extents = Vec::new();
    let mut total = 0;
    let mut at = 0;
    loop {
        let begin = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data after this offset.
            Err(Errno::NXIO) => return Ok(Some(extents)),
            Err(errno) => return Err(errno),
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(begin))?;
        let length = usize::try_from(at - begin).map_err(|_| Errno::FBIG)?;
        total += length;
        if total > TEMPLATE_BYTES_MAX {
            return Ok(None);
        }
        extents.push(Extent { offset: begin, bytes: read_at(&file, begin, length)? });
    }
}

fn read_at(file: &impl AsFd, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_copy_has_the_same_bytes_and_holes_and_only_the_last_sizes_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let file = File::create(&image).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(b"first", 4096).unwrap();
        file.write_all_at(b"last", (8 << 20) - 4).unwrap();
        let templates = DiskTemplates::default();
        templates.remember(Template::read(&image, 8).unwrap().unwrap());
        let copied = folder.path().join("copy");
        let copy = File::create(&copied).unwrap();
        copy.set_len(8 << 20).unwrap();
        assert!(templates.copy_to(&OwnedFd::from(copy), 8).unwrap());
        assert_eq!(std::fs::read(&copied).unwrap(), std::fs::read(&image).unwrap());
        let allocated = std::os::unix::fs::MetadataExt::blocks(&copied.metadata().unwrap());
        assert!(allocated <= 32, "{allocated} blocks of 512 bytes");

        for mib in 10..10 + TEMPLATES_MAX as u64 {
            templates.remember(Template::read(&image, mib).unwrap().unwrap());
        }
        let copy = OwnedFd::from(File::create(&copied).unwrap());
        assert!(!templates.copy_to(&copy, 8).unwrap());
        assert!(templates.copy_to(&copy, 10).unwrap());
        file.write_all_at(&vec![1; TEMPLATE_BYTES_MAX], 0).unwrap();
        assert!(Template::read(&image, 99).unwrap().is_none(), "it is too large");
    }
}
