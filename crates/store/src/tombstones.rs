//! Tombstones: removals that SQLite cannot record because the disk is full.
//!
//! A commit of SQLite needs new blocks, so that nothing could be deleted from a full disk, or it would
//! come back at the next start. The blocks of this file are allocated when it is created. A tombstone
//! overwrites one slot in place, which needs no new block, and is on the disk when [`Tombstones::add`]
//! returns. The records apply all tombstones before their next write.
//!
//! On a file system that writes every block to a new place (btrfs, ZFS), deleting relies on the
//! space that the file system itself reserves for it.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tracing::warn;

/// The size of one tombstone, in bytes: one sector, which a disk writes atomically.
const SLOT_BYTES: usize = 512;

/// The size and name of a file of tombstones beside the records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserve {
    suffix: &'static str,
    /// Maximum number of tombstones.
    slots: usize,
}

impl Reserve {
    /// The file beside these records.
    pub(crate) fn path(self, records: &Path) -> PathBuf {
        records.with_extension(self.suffix)
    }
}

/// The reserve of the server, 1 MiB. It does not fill up: the records apply tombstones as soon as a few
/// pages are free, and deleted sandboxes free more than that.
pub(crate) const SERVER_RESERVE: Reserve = Reserve { suffix: "tombstones", slots: 2048 };
/// The reserve for API keys, which other processes may revoke too: a separate file that each writer
/// locks. 64 KiB suffice, since keys are revoked by hand.
pub(crate) const KEY_RESERVE: Reserve = Reserve { suffix: "revoked", slots: 128 };

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "lowercase")]
pub(crate) enum Removal {
    /// Marks a sandbox as `destroying`.
    Sandbox { name: String },
    /// Deletes a session of a sandbox.
    Session { sandbox: String, id: String },
    /// Deletes a network profile.
    Profile { tenant: String, name: String },
    /// Deletes a webhook.
    Webhook { tenant: String, id: String },
    /// Removes a member of an object in a sandbox's body, if its `field` still has this value.
    Member { sandbox: String, object: String, key: String, field: String, value: String },
    /// Revokes an API key.
    Key { id: String },
}

/// The tombstones of one data directory.
pub(crate) struct Tombstones {
    path: PathBuf,
    slots_max: usize,
    /// `None` if the disk was too full to create the file.
    file: Option<File>,
    slots: usize,
    held: BTreeMap<usize, Removal>,
}

impl Tombstones {
    /// Opens the file beside `records`, or creates it. If the disk has no room for it, that is only logged:
    /// removals then fail while the disk is full.
    ///
    /// # Errors
    /// [`Error::Io`] if an existing file cannot be read: ignoring it would revive what was removed.
    pub(crate) fn open(records: &Path, reserve: Reserve) -> Result<Self, Error> {
        let path = reserve.path(records);
        let held = BTreeMap::new();
        let mut all = Self { path, slots_max: reserve.slots, file: None, slots: 0, held };
        let mut how = OpenOptions::new();
        let how = how.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = match how.open(&all.path) {
            Ok(file) => file,
            Err(error) if !all.path.try_exists().unwrap_or(true) => {
                all.incomplete(&error);
                return Ok(all);
            }
            Err(error) => return Err(Error::io(&all.path, &error)),
        };
        let text = all.look(&file).map_err(|error| Error::io(&all.path, &error))?;
        if let Err(error) = all.allocate(&file, &text) {
            all.incomplete(&error);
        }
        all.file = Some(file);
        Ok(all)
    }

    /// Reads the tombstones beside `records`, and changes nothing. A missing file has none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(records: &Path, reserve: Reserve) -> Result<Vec<Removal>, Error> {
        let path = reserve.path(records);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&path, &error)),
        };
        let held = BTreeMap::new();
        let mut all = Self { path, slots_max: reserve.slots, file: None, slots: 0, held };
        all.look(&file).map_err(|error| Error::io(&all.path, &error))?;
        Ok(all.held.into_values().collect())
    }

    /// Reads all tombstones again, after another process has changed them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read_again(&mut self) -> Result<(), Error> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let read = self.look(&file).map(drop).map_err(|error| Error::io(&self.path, &error));
        self.file = Some(file);
        read
    }

    fn incomplete(&self, error: &io::Error) {
        let path = self.path.display();
        let slots = self.slots;
        warn!(%path, %error, slots, "cannot reserve disk space for removals on a full disk");
    }

    /// Reads all tombstones, and returns the bytes of the file.
    fn look(&mut self, file: &File) -> io::Result<Vec<u8>> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut text = vec![0; length.min(self.slots_max * SLOT_BYTES)];
        file.read_exact_at(&mut text, 0)?;
        let found = text.chunks_exact(SLOT_BYTES).enumerate();
        self.held = found.filter_map(|(slot, bytes)| Some((slot, read(bytes)?))).collect();
        self.slots = text.len() / SLOT_BYTES;
        Ok(text)
    }

    /// Allocates the blocks of all slots.
    fn allocate(&mut self, file: &File, text: &[u8]) -> io::Result<()> {
        let about = file.metadata()?;
        // In a copy of the file, blocks of zeros may have become holes.
        let whole = about.blocks() * 512 >= about.len();
        let result = if whole { Ok(()) } else { file.write_all_at(text, 0) };
        let result = result.and_then(|()| self.allocate_slots(file)).and_then(|()| file.sync_all());
        if result.is_err() {
            file.set_len((self.slots * SLOT_BYTES) as u64)?;
        }
        result
    }

    fn allocate_slots(&mut self, file: &File) -> io::Result<()> {
        while self.slots < self.slots_max {
            file.write_all_at(&[0; SLOT_BYTES], (self.slots * SLOT_BYTES) as u64)?;
            self.slots += 1;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Removal> {
        self.held.values()
    }

    pub(crate) fn contains(&self, removal: &Removal) -> bool {
        self.held.values().any(|held| held == removal)
    }

    /// Writes a tombstone, and waits until it is on the disk.
    ///
    /// # Errors
    /// [`Error::Full`] if no slot is free; [`Error::Unsynced`], [`Error::Io`].
    pub(crate) fn add(&mut self, removal: Removal) -> Result<(), Error> {
        if self.contains(&removal) {
            return Ok(());
        }
        let mut text =
            serde_json::to_vec(&removal).map_err(|error| Error::Json(error.to_string()))?;
        if text.len() > SLOT_BYTES {
            return Err(Error::Full);
        }
        text.resize(SLOT_BYTES, 0);
        let Some(file) = self.file.take() else { return Err(Error::Full) };
        let added = self.locked(&file, |all| {
            // Another process may have taken a slot since.
            all.look(&file).map_err(|error| Error::io(&all.path, &error))?;
            let free = (0..all.slots).find(|slot| !all.held.contains_key(slot));
            let slot = free.ok_or(Error::Full)?;
            all.write(&file, slot, &text)?;
            all.held.insert(slot, removal);
            Ok(())
        });
        self.file = Some(file);
        added
    }

    /// Runs `job` with the file locked against other processes.
    fn locked(
        &mut self,
        file: &File,
        job: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        file.lock().map_err(|error| Error::io(&self.path, &error))?;
        let done = job(self);
        file.unlock().map_err(|error| Error::io(&self.path, &error))?;
        done
    }

    /// Clears all tombstones, after they were applied.
    ///
    /// # Errors
    /// [`Error::Unsynced`], [`Error::Io`]. Remaining tombstones are applied again, which is harmless.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        if self.held.is_empty() {
            return Ok(());
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        let cleared = self.locked(&file, |all| {
            while let Some((&slot, removal)) = all.held.first_key_value() {
                let mut there = [0; SLOT_BYTES];
                file.read_exact_at(&mut there, (slot * SLOT_BYTES) as u64)
                    .map_err(|error| Error::io(&all.path, &error))?;
                // Another process may have cleared the slot and used it again.
                if read(&there).as_ref() == Some(removal) {
                    all.write(&file, slot, &[0; SLOT_BYTES])?;
                }
                all.held.remove(&slot);
            }
            Ok(())
        });
        self.file = Some(file);
        cleared
    }

    fn write(&self, file: &File, slot: usize, text: &[u8]) -> Result<(), Error> {
        file.write_all_at(text, (slot * SLOT_BYTES) as u64).map_err(|error| {
            match error.kind() {
                io::ErrorKind::StorageFull => Error::Full,
                _ => Error::io(&self.path, &error),
            }
        })?;
        file.sync_data().map_err(|_| Error::Unsynced)
    }
}

/// Parses the tombstone in a slot. A torn write is ignored, because it was never acknowledged.
fn read(slot: &[u8]) -> Option<Removal> {
    let end = slot.iter().position(|byte| *byte == 0).unwrap_or(slot.len());
    serde_json::from_slice(&slot[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> Removal {
        Removal::Session { sandbox: "a".into(), id: id.into() }
    }

    #[test]
    fn tombstones_are_found_again_until_they_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("isolet.db");
        let mut all = Tombstones::open(&records, KEY_RESERVE).unwrap();
        assert!(all.is_empty());
        all.add(session("one")).unwrap();
        all.add(session("two")).unwrap();
        all.add(session("one")).unwrap();
        let mut all = Tombstones::open(&records, KEY_RESERVE).unwrap();
        let found: Vec<_> = all.all().cloned().collect();
        assert_eq!(found, [session("one"), session("two")]);
        all.clear().unwrap();
        assert!(Tombstones::open(&records, KEY_RESERVE).unwrap().is_empty());
    }

    #[test]
    fn the_reserve_has_its_blocks_and_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("isolet.db");
        let mut all = Tombstones::open(&records, KEY_RESERVE).unwrap();
        let about = std::fs::metadata(&all.path).unwrap();
        assert_eq!(about.len(), (KEY_RESERVE.slots * SLOT_BYTES) as u64);
        assert!(about.blocks() * 512 >= about.len(), "it has holes");
        assert_eq!(about.mode() & 0o777, 0o600);
        assert!(matches!(all.add(session(&"x".repeat(SLOT_BYTES))), Err(Error::Full)));
        let mut full = Vec::new();
        for slot in 0..KEY_RESERVE.slots {
            full.extend(serde_json::to_vec(&session(&slot.to_string())).unwrap());
            full.resize((slot + 1) * SLOT_BYTES, 0);
        }
        std::fs::write(&all.path, full).unwrap();
        assert!(matches!(all.add(session("more")), Err(Error::Full)));
    }

    #[test]
    fn a_copy_with_holes_gets_its_blocks_back() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("isolet.db");
        let mut all = Tombstones::open(&records, KEY_RESERVE).unwrap();
        all.add(session("one")).unwrap();
        let text = std::fs::read(&all.path).unwrap();
        std::fs::remove_file(&all.path).unwrap();
        let copy = File::create(&all.path).unwrap();
        copy.set_len(text.len() as u64).unwrap();
        copy.write_all_at(&text[..SLOT_BYTES], 0).unwrap();
        let all = Tombstones::open(&records, KEY_RESERVE).unwrap();
        assert!(all.contains(&session("one")));
        let about = std::fs::metadata(&all.path).unwrap();
        assert!(about.blocks() * 512 >= about.len(), "it has holes");
    }

    #[test]
    fn two_writers_take_and_clear_only_their_own_slots() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("isolet.db");
        let mut one = Tombstones::open(&records, KEY_RESERVE).unwrap();
        let mut two = Tombstones::open(&records, KEY_RESERVE).unwrap();
        one.add(session("one")).unwrap();
        two.add(session("two")).unwrap();
        let mut both = Tombstones::open(&records, KEY_RESERVE).unwrap();
        assert!(both.contains(&session("one")) && both.contains(&session("two")));
        // The first slot is cleared and used again before the other clears what it knows.
        both.clear().unwrap();
        one.held = BTreeMap::new();
        one.add(session("three")).unwrap();
        two.clear().unwrap();
        assert!(Tombstones::open(&records, KEY_RESERVE).unwrap().contains(&session("three")));
    }

    #[test]
    fn tombstones_that_cannot_be_read_are_an_error_and_not_none() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("isolet.db");
        Tombstones::open(&records, KEY_RESERVE).unwrap().add(session("one")).unwrap();
        let path = records.with_extension(KEY_RESERVE.suffix);
        std::fs::rename(&path, folder.path().join("aside")).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(Tombstones::open(&records, KEY_RESERVE), Err(Error::Io { .. })));
    }

    #[test]
    fn a_torn_tombstone_is_none() {
        let mut text = serde_json::to_vec(&session("one")).unwrap();
        assert_eq!(read(&text), Some(session("one")));
        text.truncate(text.len() - 3);
        text.resize(SLOT_BYTES, 0);
        assert_eq!(read(&text), None);
        assert_eq!(read(&[0; SLOT_BYTES]), None);
    }
}
