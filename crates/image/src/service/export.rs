//! Exports an image as a tar archive with an OCI image layout.
//!
//! Layers are kept as directory trees, so that an export packs and compresses them again. Their
//! digests are in the names of the archive's members and in the manifest, before their content:
//! the compressed layers are written to `staging` first, and removed with the last byte that is
//! sent or with the connection. The rest of the archive is made while it is sent, as fast as the
//! client reads.

use super::images::{Images, Inner};
use super::import_slots::ImportSlot;
use super::layers::blocking;
use crate::disk::free_space::FreeSpace;
use crate::disk::staging::StagedDirectory;
use crate::error::Error;
use crate::image_config::WORKSPACE_LABEL;
use crate::manifest::SESSIONS_ANNOTATION;
use crate::pack::{Packer, SourceTree};
use crate::reference::{Digest, Reference};
use crate::store::image::{Image, USR};
use crate::store::init_layer::BashSource;
use crate::store::{Pin, Store};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use oci_spec::image::{ANNOTATION_REF_NAME, MediaType};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tar::{EntryType, Header};
use tokio::io::AsyncReadExt;

/// Bytes that are read and sent at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// The block size of tar archives, in bytes.
const BLOCK_BYTES: u64 = 512;
/// The annotation in which containerd and Docker expect the whole name of an image.
const ANNOTATION_IMAGE_NAME: &str = "io.containerd.image.name";

/// The programs of the host, for images on them.
#[derive(Debug, Clone)]
pub struct HostTrees {
    /// The synthetic tree of everything but `/usr`.
    pub skeleton: PathBuf,
    /// The host's `/usr`.
    pub usr: PathBuf,
}

/// A part of the archive.
enum Part {
    Bytes(Bytes),
    /// A file of this many bytes.
    File(PathBuf, u64),
}

/// An archive that is being sent. Dropping it removes its files.
pub struct ImageArchive {
    parts: VecDeque<Part>,
    /// The file that is being sent, with the bytes that are left.
    file: Option<(tokio::fs::File, u64)>,
    bytes: u64,
    _staged: StagedDirectory,
    _pin: Pin,
    _slot: ImportSlot,
}

impl ImageArchive {
    /// The size of the whole archive, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some((file, left)) = &mut self.file {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(PIECE_BYTES);
                if most == 0 {
                    self.file = None;
                    continue;
                }
                let mut piece = vec![0; most];
                let count = file.read(&mut piece).await?;
                if count == 0 {
                    return Err(Error::Disk("a layer became shorter while it was sent".into()));
                }
                piece.truncate(count);
                *left -= count as u64;
                return Ok(Some(piece.into()));
            }
            match self.parts.pop_front() {
                None => return Ok(None),
                Some(Part::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Part::File(path, bytes)) => {
                    self.file = Some((tokio::fs::File::open(path).await?, bytes));
                }
            }
        }
    }
}

/// A compressed layer.
struct PackedLayer {
    path: PathBuf,
    digest: Digest,
    bytes: u64,
    diff_id: Digest,
}

impl Images {
    /// Packs an image of the tenant, or of the tenant whose images are shared. `host` are the host's
    /// programs, which an image on them contains as its lowest layer.
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::LayerGone`], [`Error::Busy`], [`Error::TooLarge`],
    /// [`Error::Full`], [`Error::Disk`].
    pub async fn export(
        &self,
        tenant: &str,
        reference: &Reference,
        host: impl FnOnce() -> io::Result<HostTrees> + Send + 'static,
    ) -> Result<ImageArchive, Error> {
        let inner = &self.inner;
        let shared = inner.config.shared.as_deref();
        let mut owners = [Some(tenant), shared].into_iter().flatten();
        let found = owners.find_map(|owner| inner.store.find_and_pin(owner, reference));
        let (image, pin) = found.ok_or_else(|| Error::NotHere(reference.to_string()))?;
        if let Some(layer) = self.missing_layer(&image.root) {
            return Err(Error::LayerGone { image: reference.to_string(), layer });
        }
        let slot = inner.imports.begin(tenant)?;
        let thread_slot = inner.slots.work().await?;
        let work = Export::new(inner, reference)?;
        blocking(move || {
            let _thread_slot = thread_slot;
            let host = if image.root.is_on_host() { Some(host()?) } else { None };
            work.run(&image, host.as_ref(), pin, slot)
        })
        .await
    }
}

/// The work of one export.
struct Export {
    staged: StagedDirectory,
    store: Arc<Store>,
    free_space: Arc<FreeSpace>,
    name: String,
    bytes_max: u64,
    entries_max: u64,
}

impl Export {
    fn new(inner: &Inner, reference: &Reference) -> Result<Self, Error> {
        Ok(Self {
            staged: inner.store.staging.stage()?,
            store: Arc::clone(&inner.store),
            free_space: Arc::clone(&inner.free_space),
            name: reference.to_string(),
            bytes_max: inner.config.limits.compressed_mib << 20,
            entries_max: inner.config.limits.entries,
        })
    }

    fn run(
        self,
        image: &Image,
        host: Option<&HostTrees>,
        pin: Pin,
        slot: ImportSlot,
    ) -> Result<ImageArchive, Error> {
        self.free_space.check()?;
        let mut layers = Vec::new();
        let own = image.root.layers.iter().filter(|layer| layer.starts_with("layers/"));
        if let Some(host) = host {
            layers.push(self.host_layer(host)?);
        }
        for layer in own.rev() {
            let tree = open(&self.store.root.join(layer))?;
            layers.push(self.layer(layers.len(), &[source(&tree, "", true, &[])])?);
        }
        let mut archive = Archive::default();
        archive.text("oci-layout", &json!({"imageLayoutVersion": "1.0.0"}))?;
        let config = encode(&config(image, &layers))?;
        let manifest = encode(&manifest(&config, &layers))?;
        let sessions = self.store.sessions(image)?;
        let entry = index(&self.name, image, &manifest, sessions.as_ref());
        archive.text("index.json", &entry)?;
        archive.directory("blobs/");
        archive.directory("blobs/sha256/");
        for text in [manifest, config].into_iter().chain(sessions) {
            let name = format!("blobs/sha256/{}", Digest::of(&text).hex());
            archive.bytes(&name, text);
        }
        // The same layer twice is one blob.
        let mut seen = std::collections::HashSet::new();
        for layer in layers {
            if seen.insert(layer.digest.clone()) {
                let name = format!("blobs/sha256/{}", layer.digest.hex());
                archive.file(&name, layer.path, layer.bytes);
            }
        }
        let (parts, bytes) = archive.finish();
        Ok(ImageArchive { parts, file: None, bytes, _staged: self.staged, _pin: pin, _slot: slot })
    }

    fn host_layer(&self, host: &HostTrees) -> Result<PackedLayer, Error> {
        let skeleton = open(&host.skeleton)?;
        let usr = open(&host.usr)?;
        let trees = [source(&skeleton, "", false, &["usr"]), source(&usr, USR, false, &[])];
        self.layer(0, &trees)
    }

    /// Packs and compresses trees into a file.
    fn layer(&self, number: usize, trees: &[SourceTree<'_>]) -> Result<PackedLayer, Error> {
        let path = self.staged.0.join(number.to_string());
        let file = Checked {
            to: File::create(&path)?,
            free_space: Arc::clone(&self.free_space),
            bytes_max: self.bytes_max,
            bytes: 0,
        };
        let zipped = GzEncoder::new(Hashed::new(file), Compression::fast());
        // Files of images have the ids from 0 up.
        let mut packer = Packer::new(Hashed::new(zipped), 0, self.entries_max);
        for tree in trees {
            packer.tree(tree)?;
        }
        let (plain, _) = packer.finish()?;
        let (zipped, diff_id) = plain.finish();
        let (file, digest) = zipped.finish()?.finish();
        Ok(PackedLayer { path, digest, bytes: file.bytes, diff_id })
    }
}

fn source<'a>(
    directory: &'a OwnedFd,
    prefix: &'static str,
    is_layer: bool,
    without: &'static [&'static str],
) -> SourceTree<'a> {
    let directories = std::slice::from_ref(directory);
    SourceTree { directories, prefix, is_layer, without, replaces: false }
}

fn open(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Hashes what is written.
struct Hashed<W> {
    to: W,
    hash: Sha256,
}

impl<W> Hashed<W> {
    fn new(to: W) -> Self {
        Self { to, hash: Sha256::new() }
    }

    fn finish(self) -> (W, Digest) {
        (self.to, Digest::from_hash(self.hash.finalize().as_slice()))
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A file that leaves free what the disk must keep free.
struct Checked {
    to: File,
    free_space: Arc<FreeSpace>,
    bytes_max: u64,
    bytes: u64,
}

impl Write for Checked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.free_space.reserve(bytes.len() as u64).map_err(io::Error::other)?;
        let count = self.to.write(bytes)?;
        self.bytes += count as u64;
        if self.bytes > self.bytes_max {
            let limit = format!("{} MiB", self.bytes_max >> 20);
            return Err(io::Error::other(Error::large("a compressed layer", limit)));
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn encode(value: &Value) -> Result<Bytes, Error> {
    let text = serde_json::to_vec(value).map_err(|error| Error::Disk(error.to_string()))?;
    Ok(text.into())
}

fn config(image: &Image, layers: &[PackedLayer]) -> Value {
    let root = &image.root;
    let env: Vec<String> = root.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let shell = match image.shell {
        BashSource::Own => "bash",
        // The static bash of the host is not part of the image.
        BashSource::Bin | BashSource::UsrBin => "sh",
    };
    let mut settings = json!({
        "Env": env,
        "User": format!("{}:{}", root.user.uid, root.user.gid),
        "Cmd": [shell],
    });
    if let Some(cwd) = &root.cwd {
        settings["WorkingDir"] = json!(cwd);
    }
    let mut labels = image.labels.clone();
    if root.workspace.is_some() {
        labels.insert(WORKSPACE_LABEL.to_owned(), "true".to_owned());
        if root.cwd.is_none() {
            settings["WorkingDir"] = json!("/workspace");
        }
    }
    if !labels.is_empty() {
        settings["Labels"] = json!(labels);
    }
    let (os, architecture) = platform(image);
    let ids: Vec<String> = layers.iter().map(|layer| layer.diff_id.to_string()).collect();
    let created = isolet_clock::rfc3339(image.pulled_at_ms);
    let history: Vec<Value> =
        layers.iter().map(|_| json!({"created": created, "created_by": "isolet"})).collect();
    json!({
        "created": created,
        "os": os,
        "architecture": architecture,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": ids},
        "history": history,
    })
}

fn platform(image: &Image) -> (&str, &str) {
    let mut parts = image.platform.split('/');
    (parts.next().unwrap_or("linux"), parts.next().unwrap_or_default())
}

fn descriptor(kind: &MediaType, digest: &Digest, bytes: u64) -> Value {
    json!({"mediaType": kind.to_string(), "digest": digest.to_string(), "size": bytes})
}

fn manifest(config: &Bytes, layers: &[PackedLayer]) -> Value {
    let kind = MediaType::ImageLayerGzip;
    let layers: Vec<Value> =
        layers.iter().map(|layer| descriptor(&kind, &layer.digest, layer.bytes)).collect();
    json!({
        "schemaVersion": 2,
        "mediaType": MediaType::ImageManifest.to_string(),
        "config": descriptor(&MediaType::ImageConfig, &Digest::of(config), config.len() as u64),
        "layers": layers,
    })
}

fn index(name: &str, image: &Image, manifest: &Bytes, sessions: Option<&Bytes>) -> Value {
    let (os, architecture) = platform(image);
    let mut entry =
        descriptor(&MediaType::ImageManifest, &Digest::of(manifest), manifest.len() as u64);
    entry["platform"] = json!({"os": os, "architecture": architecture});
    entry["annotations"] = json!({ANNOTATION_REF_NAME: name, ANNOTATION_IMAGE_NAME: name});
    if let Some(content) = sessions {
        entry["annotations"][SESSIONS_ANNOTATION] = json!(Digest::of(content).to_string());
    }
    json!({
        "schemaVersion": 2,
        "mediaType": MediaType::ImageIndex.to_string(),
        "manifests": [entry],
    })
}

/// The members of an archive.
#[derive(Default)]
struct Archive {
    parts: VecDeque<Part>,
    bytes: u64,
}

impl Archive {
    fn text(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        let text = encode(value)?;
        self.bytes(name, text);
        Ok(())
    }

    fn bytes(&mut self, name: &str, text: Bytes) {
        let length = text.len() as u64;
        self.header(name, EntryType::Regular, 0o644, length);
        self.push(Part::Bytes(text), length);
        self.pad(length);
    }

    fn file(&mut self, name: &str, path: PathBuf, length: u64) {
        self.header(name, EntryType::Regular, 0o644, length);
        self.push(Part::File(path, length), length);
        self.pad(length);
    }

    fn directory(&mut self, name: &str) {
        self.header(name, EntryType::Directory, 0o755, 0);
    }

    /// All names are short.
    fn header(&mut self, name: &str, kind: EntryType, mode: u32, length: u64) {
        let mut header = Header::new_gnu();
        let place = &mut header.as_old_mut().name;
        let name = &name.as_bytes()[..name.len().min(place.len())];
        place[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(length);
        header.set_cksum();
        self.push(Part::Bytes(Bytes::copy_from_slice(header.as_bytes())), BLOCK_BYTES);
    }

    /// Fills the last block.
    fn pad(&mut self, length: u64) {
        let rest = usize::try_from(length.wrapping_neg() % BLOCK_BYTES).unwrap_or_default();
        self.push(Part::Bytes(vec![0; rest].into()), rest as u64);
    }

    fn push(&mut self, part: Part, length: u64) {
        if length > 0 {
            self.bytes += length;
            self.parts.push_back(part);
        }
    }

    fn finish(mut self) -> (VecDeque<Part>, u64) {
        let end = 2 * BLOCK_BYTES;
        self.push(Part::Bytes(vec![0; 1024].into()), end);
        (self.parts, self.bytes)
    }
}
