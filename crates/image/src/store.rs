//! Images on the disk, by digest, with the names that each tenant has for them, and their layers.
//!
//! ```text
//! images/known/<digest>.json        one image: layers, configuration, names by tenant
//! images/sessions/<digest>          the sessions of an image that has some
//! images/layers/<diff id>/tree      one unpacked layer, which sandboxes mount read-only
//! images/layers/<diff id>/stats.json its statistics
//! images/layers/<diff id>/of/<t>    tenants that have proven that they may read it
//! images/frames/…                   init layers
//! images/staging/<n>/               directories under construction; emptied at every start
//! ```
//!
//! A layer is unpacked in `staging`, synced to the disk, and renamed to its place. Names belong to a
//! tenant: an image that one tenant has pulled is not available to another that has not.
//! Layers are shared on disk, but a digest alone gives no access: a tenant that has not had the layer
//! before must download it and thereby prove that it may; only the unpacking is saved.

pub(crate) mod image;
pub(crate) mod init_layer;
pub(crate) mod layer;
pub(crate) mod sessions;

use crate::disk;
use crate::disk::staging::{StagedDirectory, Staging};
use crate::error::Error;
use crate::reference::Reference;
use image::{HOST_LAYER, Image, Origin, same_repository};
use init_layer::{DIRECTORY, InitLayers};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The images and layers that sandboxes use.
#[derive(Debug, Default)]
pub struct ImagesInUse {
    /// The number of sandboxes of each image, by its digest.
    pub sandboxes: HashMap<String, usize>,
    /// All layers of these sandboxes, by their paths below the image directory.
    pub layers: HashSet<String>,
}

/// All images. Records are read once at start, and written through.
pub(crate) struct Store {
    pub(crate) root: PathBuf,
    pub(crate) staging: Staging,
    images: Mutex<HashMap<String, Arc<Image>>>,
    pins: Mutex<HashMap<String, Weak<()>>>,
    pub(crate) init_layers: InitLayers,
}

/// Prevents that an image's layers are collected while a sandbox is created from it.
#[derive(Debug, Clone)]
pub struct Pin(#[expect(dead_code, reason = "held, never read")] Arc<()>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Reads all records, and removes unfinished directories. Blocks.
    pub(crate) fn open(root: PathBuf) -> Result<Self, Error> {
        disk::clear(&root.join("staging"))?;
        for name in ["known", "layers", "staging", sessions::DIRECTORY, DIRECTORY] {
            fs::create_dir_all(root.join(name))?;
            // Images may contain set-user-id programs, which users of the host must not execute.
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o700))?;
        }
        sessions::clear(&root)?;
        let mut images = HashMap::new();
        for entry in fs::read_dir(root.join("known"))? {
            let path = entry?.path();
            let read = || -> Option<Image> {
                let image: Image = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
                // A record under another name would be written and removed elsewhere.
                (record_path(&root, &image.digest) == path).then_some(image)
            };
            match read() {
                Some(image) => {
                    images.insert(image.digest.clone(), Arc::new(image));
                }
                None => {
                    tracing::warn!(path = %path.display(), "cannot read the record of an image")
                }
            }
        }
        let staging = Staging::new(root.join("staging"));
        let init_layers = InitLayers::new(root.clone());
        init_layers.repair(&staging)?;
        let images = Mutex::new(images);
        Ok(Self { root, staging, images, pins: Mutex::default(), init_layers })
    }

    /// All images of a tenant, newest first.
    pub(crate) fn list(&self, tenant: &str) -> Vec<Arc<Image>> {
        let images = lock(&self.images);
        let mut all: Vec<_> =
            images.values().filter(|one| one.names.contains_key(tenant)).cloned().collect();
        all.sort_by(|a, b| b.pulled_at_ms.cmp(&a.pulled_at_ms).then(a.digest.cmp(&b.digest)));
        all
    }

    /// All images of all tenants.
    pub(crate) fn all(&self) -> Vec<Arc<Image>> {
        lock(&self.images).values().cloned().collect()
    }

    /// Finds an image of the tenant. A digest matches also if the image was pulled by a tag.
    pub(crate) fn find(&self, tenant: &str, reference: &Reference) -> Option<Arc<Image>> {
        look_up(&lock(&self.images), tenant, reference)
    }

    /// Like [`Store::find`], and pins the image before it can be collected.
    pub(crate) fn find_and_pin(
        &self,
        tenant: &str,
        reference: &Reference,
    ) -> Option<(Arc<Image>, Pin)> {
        let images = lock(&self.images);
        let image = look_up(&images, tenant, reference)?;
        let pin = self.pin(&image.digest);
        Some((image, pin))
    }

    /// Returns the first of these layers that is missing on the disk.
    pub(crate) fn missing_layer(&self, layers: &[String]) -> Option<String> {
        let missing =
            |layer: &&String| *layer != HOST_LAYER && !disk::present(&self.root.join(layer));
        layers.iter().find(missing).cloned()
    }

    /// Records an image under a tenant's names, which other images of the tenant lose. The image is
    /// pinned before it can be collected. `sessions` is the content that the image describes.
    pub(crate) fn record(
        &self,
        image: Image,
        tenant: &str,
        names: &[String],
        from: Origin,
        sessions: Option<&[u8]>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let mut images = lock(&self.images);
        if let Some(content) = sessions {
            self.write_sessions(&image.digest, content)?;
        }
        let mut new = match images.get(&image.digest) {
            Some(known) => {
                let known = Image::clone(known);
                let Image { names, imported, from_snapshot, tagged, .. } = known;
                Image { names, imported, from_snapshot, tagged, ..image }
            }
            None => image,
        };
        new.remove_names(tenant, names);
        let marked = match from {
            Origin::Registry => None,
            Origin::Archive => Some(&mut new.imported),
            Origin::Snapshot => Some(&mut new.from_snapshot),
        };
        if let Some(marked) = marked {
            marked.entry(tenant.to_owned()).or_default().extend(names.iter().cloned());
        }
        let new = match new.add_names(tenant, names).and_then(|()| self.write(&new)) {
            Ok(()) => Arc::new(new),
            Err(error) => {
                if !images.contains_key(&new.digest) {
                    self.remove_sessions(&new.digest);
                }
                return Err(error);
            }
        };
        let pin = self.pin(&new.digest);
        images.insert(new.digest.clone(), Arc::clone(&new));
        self.take_names(&mut images, &new.digest, tenant, names)?;
        Ok((new, pin))
    }

    /// Gives an image of the tenant more names, which other images of the tenant lose. Names that it has
    /// stay as they are.
    pub(crate) fn tag(
        &self,
        tenant: &str,
        reference: &Reference,
        names: &[String],
    ) -> Result<Arc<Image>, Error> {
        let mut images = lock(&self.images);
        let image = look_up(&images, tenant, reference);
        let image = image.ok_or_else(|| Error::NotHere(reference.to_string()))?;
        let has = image.names.get(tenant);
        let has = |name: &&String| has.is_some_and(|all| all.contains(*name));
        let added: Vec<String> = names.iter().filter(|name| !has(name)).cloned().collect();
        if added.is_empty() {
            return Ok(image);
        }
        let mut new = Image::clone(&image);
        let own = match image.origin(tenant) {
            Origin::Registry => &mut new.tagged,
            Origin::Archive => &mut new.imported,
            Origin::Snapshot => &mut new.from_snapshot,
        };
        own.entry(tenant.to_owned()).or_default().extend(added.iter().cloned());
        new.add_names(tenant, &added)?;
        self.write(&new)?;
        let new = Arc::new(new);
        images.insert(new.digest.clone(), Arc::clone(&new));
        self.take_names(&mut images, &new.digest, tenant, &added)?;
        Ok(new)
    }

    /// Removes names of a tenant from all images but one.
    fn take_names(
        &self,
        images: &mut HashMap<String, Arc<Image>>,
        digest: &str,
        tenant: &str,
        names: &[String],
    ) -> Result<(), Error> {
        let others: Vec<_> = images
            .values()
            .filter(|one| one.digest != digest && one.names.contains_key(tenant))
            .cloned()
            .collect();
        for other in others {
            let mut less = (*other).clone();
            if less.remove_names(tenant, names) {
                self.write(&less)?;
                images.insert(less.digest.clone(), Arc::new(less));
            }
        }
        Ok(())
    }

    fn write(&self, image: &Image) -> Result<(), Error> {
        let text = serde_json::to_vec(image).map_err(|error| Error::Disk(error.to_string()))?;
        disk::write(&self.record_path(&image.digest), &text)
    }

    fn record_path(&self, digest: &str) -> PathBuf {
        record_path(&self.root, digest)
    }

    fn pin(&self, digest: &str) -> Pin {
        let mut pins = lock(&self.pins);
        pins.retain(|_, pin| pin.strong_count() > 0);
        if let Some(pin) = pins.get(digest).and_then(Weak::upgrade) {
            return Pin(pin);
        }
        let pin = Arc::new(());
        pins.insert(digest.to_owned(), Arc::downgrade(&pin));
        Pin(pin)
    }

    fn pinned(&self, digest: &str) -> bool {
        lock(&self.pins).get(digest).is_some_and(|pin| pin.strong_count() > 0)
    }

    /// Removes a tenant's name; with the last name also the image, unless it is used.
    pub(crate) fn remove(
        &self,
        tenant: &str,
        reference: &Reference,
        used: impl FnOnce() -> HashMap<String, usize>,
    ) -> Result<(), Error> {
        let name = reference.to_string();
        let image = self.find(tenant, reference).ok_or_else(|| Error::NotHere(name.clone()))?;
        let mut images = lock(&self.images);
        let image = images.get(&image.digest).cloned().ok_or(Error::NotHere(name.clone()))?;
        let mut less = (*image).clone();
        // A digest removes all of the tenant's names for the image.
        if !less.remove_names(tenant, std::slice::from_ref(&name)) {
            less.names.remove(tenant);
            less.imported.remove(tenant);
            less.from_snapshot.remove(tenant);
            less.tagged.remove(tenant);
        }
        if !less.names.is_empty() {
            self.write(&less)?;
            images.insert(less.digest.clone(), Arc::new(less));
            return Ok(());
        }
        let sandboxes = used().get(&image.digest).copied().unwrap_or(0);
        if sandboxes > 0 || self.pinned(&image.digest) {
            return Err(Error::InUse(name));
        }
        self.delete_record(&mut images, &image.digest)
    }

    fn delete_record(
        &self,
        images: &mut HashMap<String, Arc<Image>>,
        digest: &str,
    ) -> Result<(), Error> {
        match fs::remove_file(self.record_path(digest)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => {
                images.remove(digest);
                self.remove_sessions(digest);
                Ok(())
            }
        }
    }

    /// Removes images without a name, with `all` also those that no sandbox uses, and every layer that no
    /// image and no sandbox has. Returns the number of images, and the layers, which are deleted when
    /// they are dropped.
    ///
    /// `used` returns the images and layers of sandboxes; it is called under the lock under which images
    /// are recorded. `held` are the layers of images that are not recorded yet.
    pub(crate) fn collect_garbage(
        &self,
        all: bool,
        held: &HashSet<String>,
        used: impl FnOnce() -> ImagesInUse,
    ) -> Result<(u64, Vec<StagedDirectory>), Error> {
        let mut images = lock(&self.images);
        let ImagesInUse { sandboxes, mut layers } = used();
        let idle: Vec<String> = images
            .values()
            .filter(|one| {
                let free = !sandboxes.contains_key(&one.digest) && !self.pinned(&one.digest);
                free && (all || one.names.values().all(BTreeSet::is_empty))
            })
            .map(|one| one.digest.clone())
            .collect();
        for digest in &idle {
            self.delete_record(&mut images, digest)?;
        }
        layers.extend(images.values().flat_map(|one| one.root.layers.iter().cloned()));
        let mut removed = Vec::new();
        for entry in fs::read_dir(self.root.join("layers"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if layers.contains(&format!("layers/{name}/tree")) || held.contains(&name) {
                continue;
            }
            // A rename first, so that other readers see the complete layer or none.
            let staged = self.staging.reserve();
            fs::rename(self.root.join("layers").join(&name), &staged.0)?;
            removed.push(staged);
        }
        Ok((idle.len() as u64, removed))
    }
}

fn record_path(root: &Path, digest: &str) -> PathBuf {
    root.join("known").join(format!("{}.json", digest.trim_start_matches("sha256:")))
}

fn look_up(
    images: &HashMap<String, Arc<Image>>,
    tenant: &str,
    reference: &Reference,
) -> Option<Arc<Image>> {
    let name = reference.to_string();
    images
        .values()
        .find(|one| one.names.get(tenant).is_some_and(|names| names.contains(&name)))
        .or_else(|| {
            let one = images.get(&reference.digest()?.to_string())?;
            let same = |name: &String| same_repository(name, reference);
            one.names.get(tenant)?.iter().any(same).then_some(one)
        })
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::user::User;
    use crate::unpack::LayerStats;
    use serde_json::{Value, json};

    /// The record of an image as the store writes it, under this name.
    fn write(root: &Path, name: &str, change: impl FnOnce(&mut Value)) {
        let layer = format!("layers/{}/tree", "1".repeat(64));
        let mut record = json!({
            "digest": format!("sha256:{name}"), "platform": "linux/amd64", "bytes": 0,
            "unpacked_bytes": 0, "stats": LayerStats::default(), "shell": "own",
            "root": {"layers": [layer], "env": {}, "cwd": null, "user": User::root()},
            "pulled_at_ms": 0, "names": {"t": ["docker.io/library/a:latest"]}, "imported": {},
        });
        change(&mut record);
        let known = root.join("known");
        fs::create_dir_all(&known).unwrap();
        fs::write(known.join(format!("{name}.json")), record.to_string()).unwrap();
    }

    /// A forged record of an image deleted any file of the host when it was removed.
    ///
    /// Promises: F51.
    #[test]
    fn a_forged_record_of_an_image_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("images");
        let name = |digit: &str| digit.repeat(64);
        write(&root, &name("a"), |_| ());
        write(&root, &name("b"), |record| record["digest"] = "sha256:../../victim".into());
        write(&root, &name("c"), |record| record["digest"] = "../../victim".into());
        write(&root, &name("d"), |record| record["root"]["layers"] = json!(["/root"]));
        write(&root, &name("e"), |record| record["root"]["workspace"] = "/root".into());
        write(&root, &name("f"), |record| {
            record["digest"] = format!("sha256:{}", name("a")).into();
        });
        let store = Store::open(root).unwrap();
        let all: Vec<String> = store.all().iter().map(|image| image.digest.clone()).collect();
        assert_eq!(all, [format!("sha256:{}", name("a"))]);
    }
}
