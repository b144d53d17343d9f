//! What is here: images by digest, who has pulled them under which names, and their layers.
//!
//! ```text
//! images/known/<digest>.json        one image: layers, settings, names by tenant
//! images/layers/<diff id>/tree      one layer, unpacked, read-only for all that use it
//! images/layers/<diff id>/told.json what it came to
//! images/layers/<diff id>/of/<t>    tenants who have shown that they have it
//! images/frames/…                   top layers of ours
//! images/staging/<n>/               what is being made; emptied at every start
//! ```
//!
//! A layer is there when its directory has its name: it is made in `staging`, written out, and
//! moved. Names belong to a tenant: what one has pulled, another cannot have without asking the
//! registry itself. Layers are shared on disk, not on somebody's word: a tenant that has not had
//! one before fetches it and shows that its bytes are those, and only the unpacking is spared.

use crate::{
    Error, disk,
    frame::{self, Shell},
    merged::present,
    reference::{Digest, Reference},
    unpack::Told,
    user::User,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a sandbox's root is made of, and how programs begin in it. Kept with the sandbox: it does
/// not change when a tag moves on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its layers, the top one first, by their places below the image directory.
    pub layers: Vec<String>,
    /// Environment of every program.
    pub env: BTreeMap<String, String>,
    /// Where programs begin; `None` for where they always do.
    pub cwd: Option<String>,
    /// As whom they run.
    pub user: User,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Of its manifest.
    pub digest: String,
    /// `linux/amd64`.
    pub platform: String,
    /// As it came, all layers, in bytes.
    pub bytes: u64,
    /// Unpacked, in bytes.
    pub unpacked_bytes: u64,
    /// What was left out or changed of it, all layers.
    pub told: Told,
    /// Which bash it has.
    pub shell: Shell,
    /// What sandboxes are made of.
    pub root: Root,
    /// When it was pulled first, in ms since 1970.
    pub pulled_at_ms: i64,
    /// Tenants, and the references by which each has it.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Those of the names that came with an archive: no registry is asked for them.
    #[serde(default)]
    pub imported: BTreeMap<String, BTreeSet<String>>,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Registry,
    Archive,
}

impl Image {
    /// Whether what a tenant calls so came with an archive. By its digest it may have another name.
    pub(crate) fn imported(&self, tenant: &str, reference: &Reference) -> bool {
        let same = |name: &String| {
            *name == reference.to_string()
                || reference.digest().is_some() && same_place(name, reference)
        };
        self.imported.get(tenant).is_some_and(|names| names.iter().any(same))
    }

    /// Takes a tenant's names away; whether it had any of them.
    fn lose(&mut self, tenant: &str, names: &[String]) -> bool {
        let mut lost = false;
        for has in [&mut self.names, &mut self.imported] {
            if let Some(all) = has.get_mut(tenant) {
                let before = all.len();
                all.retain(|name| !names.contains(name));
                lost |= all.len() < before;
                if all.is_empty() {
                    has.remove(tenant);
                }
            }
        }
        lost
    }
}

/// Whether a name and a reference are of the same repository.
fn same_place(name: &str, reference: &Reference) -> bool {
    Reference::parse(name)
        .is_ok_and(|has| (has.registry(), has.path()) == (reference.registry(), reference.path()))
}

/// All of them. What is on the disk is read once and written through.
pub(crate) struct Store {
    pub(crate) root: PathBuf,
    images: Mutex<HashMap<String, Arc<Image>>>,
    pins: Mutex<HashMap<String, Weak<()>>>,
    /// Whose turn it is to make a frame.
    pub(crate) frames: Mutex<()>,
    next: AtomicU64,
}

/// Keeps an image's layers from being collected while a sandbox is made of it.
#[derive(Debug, Clone)]
pub struct Pin(#[expect(dead_code, reason = "held, never read")] Arc<()>);

/// A directory in `staging`; removed unless it was moved.
pub(crate) struct Staged(pub(crate) PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = disk::clear(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "what was not finished is left");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Reads what is there and removes what was not finished. Blocks.
    pub(crate) fn open(root: PathBuf) -> Result<Self, Error> {
        disk::clear(&root.join("staging"))?;
        for name in ["known", "layers", "staging", frame::FRAMES] {
            fs::create_dir_all(root.join(name))?;
            // Set-user-id bits of images are bits: nobody of the host is to execute what has them.
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o700))?;
        }
        let mut images = HashMap::new();
        for entry in fs::read_dir(root.join("known"))? {
            let path = entry?.path();
            let read = || -> Option<Image> { serde_json::from_slice(&fs::read(&path).ok()?).ok() };
            match read() {
                Some(image) => {
                    images.insert(image.digest.clone(), Arc::new(image));
                }
                None => tracing::warn!(path = %path.display(), "an image's record does not read"),
            }
        }
        let (pins, frames) = (Mutex::default(), Mutex::default());
        let store =
            Self { root, images: Mutex::new(images), pins, frames, next: AtomicU64::new(0) };
        frame::mend(&store)?;
        Ok(store)
    }

    pub(crate) fn stage(&self) -> Result<Staged, Error> {
        let staged = self.spot();
        fs::create_dir(&staged.0)?;
        Ok(staged)
    }

    /// A place in `staging` that nobody else has.
    fn spot(&self) -> Staged {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Staged(self.root.join("staging").join(number.to_string()))
    }

    /// All images of a tenant, newest first.
    pub(crate) fn of(&self, tenant: &str) -> Vec<Arc<Image>> {
        let images = lock(&self.images);
        let mut all: Vec<_> =
            images.values().filter(|one| one.names.contains_key(tenant)).cloned().collect();
        all.sort_by(|a, b| b.pulled_at_ms.cmp(&a.pulled_at_ms).then(a.digest.cmp(&b.digest)));
        all
    }

    /// The image that a tenant has by this name. A digest need not be the name it was pulled by.
    pub(crate) fn find(&self, tenant: &str, reference: &Reference) -> Option<Arc<Image>> {
        look_up(&lock(&self.images), tenant, reference)
    }

    /// The same, and pinned before it can be collected.
    pub(crate) fn take(&self, tenant: &str, reference: &Reference) -> Option<(Arc<Image>, Pin)> {
        let images = lock(&self.images);
        let image = look_up(&images, tenant, reference)?;
        let pin = self.pin(&image.digest);
        Some((image, pin))
    }

    /// An image's layer that is not there any more, if any.
    pub(crate) fn gone(&self, layers: &[String]) -> Option<String> {
        layers.iter().find(|layer| !present(&self.root.join(layer))).cloned()
    }

    /// Records an image under a tenant's name, which it takes from the image that had it. Pinned
    /// before it can be collected.
    pub(crate) fn put(
        &self,
        image: Image,
        tenant: &str,
        names: &[String],
        from: Origin,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let mut images = lock(&self.images);
        let mut new = match images.get(&image.digest) {
            Some(known) => {
                Image { names: known.names.clone(), imported: known.imported.clone(), ..image }
            }
            None => image,
        };
        new.lose(tenant, names);
        if from == Origin::Archive {
            new.imported.entry(tenant.to_owned()).or_default().extend(names.iter().cloned());
        }
        new.names.entry(tenant.to_owned()).or_default().extend(names.iter().cloned());
        let new = Arc::new(new);
        self.write(&new)?;
        let pin = self.pin(&new.digest);
        images.insert(new.digest.clone(), Arc::clone(&new));
        let others: Vec<_> = images
            .values()
            .filter(|one| one.digest != new.digest && one.names.contains_key(tenant))
            .cloned()
            .collect();
        for other in others {
            let mut less = (*other).clone();
            if less.lose(tenant, names) {
                self.write(&less)?;
                images.insert(less.digest.clone(), Arc::new(less));
            }
        }
        Ok((new, pin))
    }

    fn write(&self, image: &Image) -> Result<(), Error> {
        let text = serde_json::to_vec(image).map_err(|error| Error::Disk(error.to_string()))?;
        disk::write(&self.record(&image.digest), &text)
    }

    fn record(&self, digest: &str) -> PathBuf {
        self.root.join("known").join(format!("{}.json", digest.trim_start_matches("sha256:")))
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

    /// Takes a tenant's name away; with the last one the image goes, unless it is used.
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
        // By its digest it goes with all its names.
        if !less.lose(tenant, std::slice::from_ref(&name)) {
            less.names.remove(tenant);
            less.imported.remove(tenant);
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
        self.forget(&mut images, &image.digest)
    }

    fn forget(&self, images: &mut HashMap<String, Arc<Image>>, digest: &str) -> Result<(), Error> {
        match fs::remove_file(self.record(digest)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => {
                images.remove(digest);
                Ok(())
            }
        }
    }

    /// Removes images that nobody has a name for, with `all` also those that no sandbox uses, and
    /// every layer that no image and no sandbox has. Returns how many images, and the layers, which
    /// are off the disk when they are dropped.
    ///
    /// `used` says which images sandboxes are made of, and which layers; it is asked under the lock
    /// under which images come to be known. `held` are those of images that are being made, as
    /// they were before.
    pub(crate) fn collect(
        &self,
        all: bool,
        held: &HashSet<String>,
        used: impl FnOnce() -> (HashMap<String, usize>, HashSet<String>),
    ) -> Result<(u64, Vec<Staged>), Error> {
        let mut images = lock(&self.images);
        let (sandboxes, mut layers) = used();
        let idle: Vec<String> = images
            .values()
            .filter(|one| {
                let free = !sandboxes.contains_key(&one.digest) && !self.pinned(&one.digest);
                free && (all || one.names.values().all(BTreeSet::is_empty))
            })
            .map(|one| one.digest.clone())
            .collect();
        for digest in &idle {
            self.forget(&mut images, digest)?;
        }
        layers.extend(images.values().flat_map(|one| one.root.layers.iter().cloned()));
        let mut removed = Vec::new();
        for entry in fs::read_dir(self.root.join("layers"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if layers.contains(&format!("layers/{name}/tree")) || held.contains(&name) {
                continue;
            }
            // Out of its place first: whoever looks for it sees none, or all of it.
            let staged = self.spot();
            fs::rename(self.root.join("layers").join(&name), &staged.0)?;
            removed.push(staged);
        }
        Ok((idle.len() as u64, removed))
    }

    /// What a layer came to, where it is here.
    pub(crate) fn layer(&self, name: &str) -> Option<Told> {
        let text = fs::read(self.root.join("layers").join(name).join("told.json")).ok()?;
        let tree = self.root.join("layers").join(name).join("tree");
        present(&tree).then(|| serde_json::from_slice(&text).ok()).flatten()
    }

    /// Whether a tenant has shown that it has a layer.
    pub(crate) fn has_shown(&self, name: &str, tenant: &str) -> bool {
        present(&self.shown(name, tenant))
    }

    fn shown(&self, name: &str, tenant: &str) -> PathBuf {
        let tenant = Digest::of(tenant.as_bytes());
        self.root.join("layers").join(name).join("of").join(tenant.hex())
    }

    pub(crate) fn show(&self, name: &str, tenant: &str) -> Result<(), Error> {
        Ok(fs::write(self.shown(name, tenant), "")?)
    }

    /// Gives a layer its place.
    pub(crate) fn place(&self, staged: &Staged, name: &str, told: &Told) -> Result<(), Error> {
        let text = serde_json::to_vec(told).map_err(|error| Error::Disk(error.to_string()))?;
        fs::write(staged.0.join("told.json"), text)?;
        fs::create_dir_all(staged.0.join("of"))?;
        disk::sync(&staged.0)?;
        let place = self.root.join("layers").join(name);
        // One that somebody has taken apart.
        if present(&place) {
            let old = self.stage()?;
            fs::rename(&place, old.0.join("old"))?;
        }
        fs::rename(&staged.0, &place)?;
        disk::sync(&self.root.join("layers"))
    }
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
            let same = |name: &String| same_place(name, reference);
            one.names.get(tenant)?.iter().any(same).then_some(one)
        })
        .cloned()
}

/// The place of a layer's tree, below the image directory.
pub(crate) fn tree(name: &str) -> String {
    format!("layers/{name}/tree")
}

pub(crate) fn make_tree(staged: &Path) -> Result<std::os::fd::OwnedFd, Error> {
    let tree = staged.join("tree");
    fs::create_dir(&tree)?;
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755))?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let flags = flags | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(&tree, flags, rustix::fs::Mode::empty())?)
}
