//! Imports images from a tar archive: an OCI layout, or the output of `docker save`.

use super::images::Images;
use super::import_slots::ImportSlot;
use super::layers::{LayerSource, RequestedLayer, blocking, discard};
use super::record::ImageFacts;
use crate::disk::free_space::{ENTRY_BYTES, FreeSpace};
use crate::disk::rooted::PATH_BYTES_MAX;
use crate::disk::staging::StagedDirectory;
use crate::error::Error;
use crate::image_config::ImageConfig;
use crate::manifest::{
    Blob, CONFIG_BYTES_MAX, LAYERS_MAX, MANIFEST_BYTES_MAX, Manifest, ResolvedManifest,
    check_digest, names, sessions,
};
use crate::platform::Platform;
use crate::reference::{Digest, Reference};
use crate::store::Pin;
use crate::store::image::{Image, Origin};
use crate::store::sessions::SESSIONS_BYTES_MAX;
use crate::unpack::byte_stream::{Bounded, Decompressed, from_io_error};
use crate::unpack::tar_stream::{TarEntry, TarStream};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tar::EntryType;
use tokio::io::AsyncWriteExt;

/// Maximum number of members of one archive.
const MEMBERS_MAX: usize = 4096;
/// Maximum length of a chain of links between members.
const LINKS_MAX: usize = 4;

/// An archive that is being uploaded.
pub struct Spool {
    staged: StagedDirectory,
    file: tokio::fs::File,
    bytes: u64,
    bytes_max: u64,
    free_space: Arc<FreeSpace>,
    /// Released when the import ends.
    slot: ImportSlot,
}

impl Spool {
    /// Appends the next bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Full`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(Error::large("the archive", format!("{} MiB", self.bytes_max >> 20)));
        }
        self.free_space.reserve(bytes.len() as u64)?;
        Ok(self.file.write_all(bytes).await?)
    }
}

/// The members of an archive, by name.
struct ArchiveMembers {
    files: BTreeMap<String, PathBuf>,
    links: BTreeMap<String, String>,
}

/// The image in an archive.
struct ArchivedImage {
    digest: Digest,
    config: ImageConfig,
    layers: Vec<(PathBuf, Option<Blob>)>,
    names: Vec<String>,
    sessions: Option<Bytes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerSaveEntry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Images {
    /// Starts the upload of an archive.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Disk`].
    pub async fn spool(&self, tenant: &str) -> Result<Spool, Error> {
        self.inner.allowance(tenant).await?;
        let slot = self.inner.imports.begin(tenant)?;
        let staged = self.inner.store.staging.stage()?;
        let file = tokio::fs::File::create(staged.0.join("archive")).await?;
        let bytes_max = self.inner.config.limits.compressed_mib << 20;
        let free_space = Arc::clone(&self.inner.free_space);
        Ok(Spool { staged, file, bytes: 0, bytes_max, free_space, slot })
    }

    /// Records the image of an archive under `name`, or under the names in the archive.
    /// `check_sessions` checks the content of the sessions in it, and returns what is wrong.
    ///
    /// # Errors
    /// [`Error::Bad`] for an invalid archive, [`Error::Unnamed`] without a name, [`Error::TooLarge`].
    pub async fn import(
        &self,
        tenant: &str,
        spool: Spool,
        name: Option<Reference>,
        check_sessions: fn(&[u8]) -> Result<(), String>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let imported = self.import_archive(tenant, spool, name, check_sessions).await;
        let metrics = &self.inner.metrics;
        let counter = if imported.is_ok() { &metrics.imports } else { &metrics.failed_imports };
        counter.inc();
        imported
    }

    async fn import_archive(
        &self,
        tenant: &str,
        mut spool: Spool,
        name: Option<Reference>,
        check_sessions: fn(&[u8]) -> Result<(), String>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        spool.file.flush().await?;
        let Spool { staged, bytes, bytes_max, file, free_space, slot } = spool;
        drop(file);
        let thread_slot = self.inner.slots.work().await?;
        let (found, staged) = blocking(move || {
            let _thread_slot = thread_slot;
            let members = ArchiveMembers::read(&staged, bytes_max, &free_space)?;
            let found = members.image()?;
            if let Some(content) = &found.sessions {
                check_sessions(content).map_err(|reason| {
                    Error::bad(format!("its sessions cannot be used: {reason}"))
                })?;
            }
            Ok((found, staged))
        })
        .await?;
        let done = self.record_archive(tenant, found, bytes, name).await;
        discard(Some(staged)).await;
        drop(slot);
        done
    }

    /// Unpacks the layers of an archived image, and records it.
    async fn record_archive(
        &self,
        tenant: &str,
        found: ArchivedImage,
        bytes: u64,
        name: Option<Reference>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let references = match name {
            Some(name) => vec![name],
            None => found.names.iter().filter_map(|name| Reference::parse(name).ok()).collect(),
        };
        if references.is_empty() {
            return Err(Error::Unnamed);
        }
        let names: Vec<String> = references.iter().map(Reference::to_string).collect();
        let wanted: Vec<_> = std::iter::zip(&found.config.diff_ids, found.layers)
            .map(|(id, (path, part))| RequestedLayer {
                diff_id: id.clone(),
                source: LayerSource::File(path, part),
                holders: Vec::new(),
            })
            .collect();
        let inner = &self.inner;
        let ready = inner.layers(tenant, &wanted, &|_, _| {}).await?;
        let platform = Platform::own();
        let from = Origin::Archive;
        let sessions = found.sessions;
        let facts = ImageFacts { digest: found.digest, platform, bytes, from, sessions };
        inner.record(tenant, &names, facts, found.config, ready).await
    }
}

impl ArchiveMembers {
    fn read(
        staged: &StagedDirectory,
        bytes_max: u64,
        free_space: &FreeSpace,
    ) -> Result<Self, Error> {
        let archive = File::open(staged.0.join("archive"))?;
        let compressed = Bounded::new(archive, bytes_max, "the archive");
        let compressed_bytes = compressed.counter();
        let plain = Decompressed::of(compressed).map_err(from_io_error)?;
        // Layers are compressed already, so that an archive seldom grows much.
        let most = bytes_max.saturating_mul(2);
        let plain =
            Bounded::new(plain, most, "the unpacked archive").unpacked_from(compressed_bytes);
        let mut tar = TarStream::new(plain);
        let mut all = Self { files: BTreeMap::new(), links: BTreeMap::new() };
        let mut count = 0;
        free_space.check()?;
        while let Some(entry) = tar.next_entry()? {
            count += 1;
            if count > MEMBERS_MAX {
                return Err(Error::large("members of the archive", MEMBERS_MAX.to_string()));
            }
            if entry.size > most {
                return Err(Error::large("the unpacked archive", format!("{} MiB", most >> 20)));
            }
            free_space.reserve(ENTRY_BYTES)?;
            all.member(&entry, &mut tar, staged.0.join(count.to_string()), free_space)?;
        }
        Ok(all)
    }

    /// Adds one member. The content of a file is written to `path`, which does not contain the
    /// untrusted name.
    fn member(
        &mut self,
        entry: &TarEntry,
        tar: &mut TarStream<impl Read>,
        path: PathBuf,
        free_space: &FreeSpace,
    ) -> Result<(), Error> {
        // All names are in memory at the same time.
        if entry.path.len().max(entry.link.len()) > PATH_BYTES_MAX {
            return Err(Error::large("a name in the archive", format!("{PATH_BYTES_MAX} bytes")));
        }
        let name = normalize(&String::from_utf8_lossy(&entry.path), "");
        let target = String::from_utf8_lossy(&entry.link);
        match entry.kind {
            EntryType::Regular => {
                let mut file = File::create(&path)?;
                let mut buffer = vec![0; 64 * 1024];
                loop {
                    let length = tar.read(&mut buffer)?;
                    if length == 0 {
                        break;
                    }
                    file.write_all(&buffer[..length])?;
                    free_space.reserve(length as u64)?;
                }
                self.files.insert(name, path);
            }
            EntryType::Symlink => {
                let above = name.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
                self.links.insert(name, normalize(&target, &above));
            }
            EntryType::Link => {
                self.links.insert(name, normalize(&target, ""));
            }
            _ => {}
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&PathBuf, Error> {
        let mut at = normalize(name, "");
        for _ in 0..LINKS_MAX {
            if let Some(file) = self.files.get(&at) {
                return Ok(file);
            }
            let Some(next) = self.links.get(&at) else { break };
            at.clone_from(next);
        }
        let shown: String = name.chars().take(100).collect();
        Err(Error::bad(format!("the archive has no member {shown:?}")))
    }

    fn text(&self, name: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let mut text = Vec::new();
        File::open(self.find(name)?)?.take(bytes_max + 1).read_to_end(&mut text)?;
        if text.len() as u64 > bytes_max {
            return Err(Error::large(name, format!("{bytes_max} bytes")));
        }
        Ok(text.into())
    }

    fn image(&self) -> Result<ArchivedImage, Error> {
        if self.files.contains_key("index.json") { self.oci_image() } else { self.docker_image() }
    }

    fn docker_entries(&self) -> Result<Vec<DockerSaveEntry>, Error> {
        let text = self.text("manifest.json", MANIFEST_BYTES_MAX)?;
        serde_json::from_slice(&text)
            .map_err(|error| Error::bad(format!("its manifest.json cannot be parsed: {error}")))
    }

    fn oci_image(&self) -> Result<ArchivedImage, Error> {
        let platform = Platform::own();
        let mut text = self.text("index.json", MANIFEST_BYTES_MAX)?;
        let mut called = names(&text);
        let sessions = sessions(&text)?;
        for _ in 0..4 {
            match ResolvedManifest::read(&text, &platform)? {
                ResolvedManifest::Index(part) => {
                    text = self.text(&blob(&part.digest), MANIFEST_BYTES_MAX)?;
                    check_digest(&text, &part.digest, "its manifest")?;
                }
                ResolvedManifest::Manifest(Manifest { config, layers }) => {
                    let settings = self.text(&blob(&config.digest), CONFIG_BYTES_MAX)?;
                    check_digest(&settings, &config.digest, "its configuration")?;
                    let config = ImageConfig::read(&settings, layers.len(), &platform)?;
                    let layer =
                        |part: Blob| Ok((self.find(&blob(&part.digest))?.clone(), Some(part)));
                    let layers = layers.into_iter().map(layer).collect::<Result<_, Error>>()?;
                    if let Ok([one]) = self.docker_entries().as_deref() {
                        called.extend(one.repo_tags.iter().flatten().cloned());
                    }
                    // A tag alone does not name an image.
                    called.retain(|name| name.contains(['/', ':']));
                    let sessions = sessions.map(|found| self.sessions(&found)).transpose()?;
                    // With other sessions it is another image.
                    let digest = match &sessions {
                        Some(content) => Digest::of(&[&text[..], &content[..]].concat()),
                        None => Digest::of(&text),
                    };
                    return Ok(ArchivedImage { digest, config, layers, names: called, sessions });
                }
            }
        }
        Err(Error::bad("its index leads only to further indexes"))
    }

    fn sessions(&self, digest: &Digest) -> Result<Bytes, Error> {
        let content = self.text(&blob(digest), SESSIONS_BYTES_MAX as u64)?;
        check_digest(&content, digest, "the file with its sessions")?;
        Ok(content)
    }

    fn docker_image(&self) -> Result<ArchivedImage, Error> {
        let all = self.docker_entries()?;
        let [one] = all.as_slice() else {
            return Err(Error::bad(format!(
                "the archive contains {} images instead of one",
                all.len()
            )));
        };
        if one.layers.len() > LAYERS_MAX {
            let limit = LAYERS_MAX.to_string();
            return Err(Error::large("layers of an image", limit));
        }
        let text = self.text(&one.config, CONFIG_BYTES_MAX)?;
        let config = ImageConfig::read(&text, one.layers.len(), &Platform::own())?;
        let layer = |name: &String| Ok((self.find(name)?.clone(), None));
        let layers = one.layers.iter().map(layer).collect::<Result<_, Error>>()?;
        let names = one.repo_tags.clone().unwrap_or_default();
        let digest = Digest::of(&text);
        Ok(ArchivedImage { digest, config, layers, names, sessions: None })
    }
}

/// The name of the member that has a digest.
fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Resolves a member's name, without `.` and `..`, from a directory of the archive.
fn normalize(name: &str, from: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
