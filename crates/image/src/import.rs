//! Images from a file: an OCI layout or what `docker save` writes, as a tar archive.

use crate::{
    Error, Image, Images, Pin, Platform, Reference,
    layers::{Source, Wanted, blocking},
    manifest::{CONFIG_BYTES_MAX, Config, MANIFEST_BYTES_MAX, Manifest, Said, names},
    pull::{About, same},
    reference::Digest,
    store::{Origin, Staged},
    stream::{Plain, from_stream},
    tape::Tape,
};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tar::EntryType;
use tokio::io::AsyncWriteExt;

/// Members of such an archive.
const MEMBERS_MAX: usize = 4096;
/// Links from one member to the next.
const LINKS_MAX: usize = 4;

/// An archive on its way here.
pub struct Spool {
    staged: Staged,
    file: tokio::fs::File,
    bytes: u64,
    bytes_max: u64,
}

impl Spool {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Full`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(Error::large("the archive", format!("{} MiB", self.bytes_max >> 20)));
        }
        Ok(self.file.write_all(bytes).await?)
    }
}

/// What an archive holds, by name.
struct Members {
    files: BTreeMap<String, PathBuf>,
    links: BTreeMap<String, String>,
}

/// An image in it.
struct Found {
    digest: Digest,
    config: Config,
    layers: Vec<(PathBuf, Option<crate::manifest::Part>)>,
    names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Images {
    /// Begins to take an archive.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub async fn spool(&self) -> Result<Spool, Error> {
        let staged = self.inner.store.stage()?;
        let file = tokio::fs::File::create(staged.0.join("archive")).await?;
        let bytes_max = self.inner.config.limits.compressed_mib << 20;
        Ok(Spool { staged, file, bytes: 0, bytes_max })
    }

    /// Records the image of an archive under `name`, or the names that it brings.
    ///
    /// # Errors
    /// [`Error::Bad`] for what is no such archive, or has no name; the bounds.
    pub async fn import(
        &self,
        tenant: &str,
        mut spool: Spool,
        name: Option<Reference>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        spool.file.flush().await?;
        let Spool { staged, bytes, bytes_max, file } = spool;
        drop(file);
        let (found, staged) = blocking(move || {
            let members = Members::read(&staged, bytes_max)?;
            Ok((members.image()?, staged))
        })
        .await?;
        let called = match name {
            Some(name) => vec![name],
            None => found.names.iter().filter_map(|name| Reference::parse(name).ok()).collect(),
        };
        if called.is_empty() {
            return Err(Error::Unnamed);
        }
        let names: Vec<String> = called.iter().map(Reference::to_string).collect();
        let wanted: Vec<_> = std::iter::zip(&found.config.diff_ids, found.layers)
            .map(|(id, (path, part))| Wanted {
                diff_id: id.clone(),
                source: Source::File(path, part),
            })
            .collect();
        let inner = &self.inner;
        let ready = inner.layers(tenant, &wanted, &|_, _| {}).await?;
        let (platform, from) = (Platform::own(), Origin::Archive);
        let about = About { digest: found.digest, platform, bytes, from };
        let done = inner.record(tenant, &names, about, found.config, ready).await;
        drop(staged);
        done
    }
}

impl Members {
    fn read(staged: &Staged, bytes_max: u64) -> Result<Self, Error> {
        let archive = File::open(staged.0.join("archive"))?;
        let mut tape = Tape::new(Plain::of(archive).map_err(from_stream)?);
        let mut all = Self { files: BTreeMap::new(), links: BTreeMap::new() };
        let (mut count, mut bytes, mut buffer) = (0, 0_u64, vec![0; 64 * 1024]);
        while let Some(entry) = tape.next()? {
            count += 1;
            bytes = bytes.saturating_add(entry.size);
            if count > MEMBERS_MAX {
                return Err(Error::large("members of the archive", MEMBERS_MAX.to_string()));
            }
            if bytes > bytes_max.saturating_mul(2) {
                return Err(Error::large(
                    "the archive unpacked",
                    format!("{} MiB", bytes_max >> 19),
                ));
            }
            let name = plain(&String::from_utf8_lossy(&entry.path), "");
            match entry.kind {
                EntryType::Regular => {
                    // Under a number: names are the archive's.
                    let path = staged.0.join(count.to_string());
                    let mut file = File::create(&path)?;
                    loop {
                        let length = tape.read(&mut buffer)?;
                        if length == 0 {
                            break;
                        }
                        file.write_all(&buffer[..length])?;
                    }
                    all.files.insert(name, path);
                }
                EntryType::Symlink => {
                    let above = name.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
                    all.links.insert(name, plain(&String::from_utf8_lossy(&entry.link), &above));
                }
                EntryType::Link => {
                    all.links.insert(name, plain(&String::from_utf8_lossy(&entry.link), ""));
                }
                _ => {}
            }
        }
        Ok(all)
    }

    fn find(&self, name: &str) -> Result<&PathBuf, Error> {
        let mut at = plain(name, "");
        for _ in 0..LINKS_MAX {
            if let Some(file) = self.files.get(&at) {
                return Ok(file);
            }
            let Some(next) = self.links.get(&at) else { break };
            at.clone_from(next);
        }
        let shown: String = name.chars().take(100).collect();
        Err(Error::bad(format!("the archive has no {shown:?}")))
    }

    fn text(&self, name: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let mut text = Vec::new();
        File::open(self.find(name)?)?.take(bytes_max + 1).read_to_end(&mut text)?;
        if text.len() as u64 > bytes_max {
            return Err(Error::large(name, format!("{bytes_max} bytes")));
        }
        Ok(text.into())
    }

    fn image(&self) -> Result<Found, Error> {
        if self.files.contains_key("index.json") { self.layout() } else { self.saved() }
    }

    fn saves(&self) -> Result<Vec<Saved>, Error> {
        let text = self.text("manifest.json", MANIFEST_BYTES_MAX)?;
        serde_json::from_slice(&text)
            .map_err(|error| Error::bad(format!("its manifest.json does not read: {error}")))
    }

    fn layout(&self) -> Result<Found, Error> {
        let platform = Platform::own();
        let mut text = self.text("index.json", MANIFEST_BYTES_MAX)?;
        let mut called = names(&text);
        let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
        for _ in 0..4 {
            match Said::read(&text, &platform)? {
                Said::Further(part) => {
                    text = self.text(&blob(&part.digest), MANIFEST_BYTES_MAX)?;
                    same(&text, &part.digest, "its manifest")?;
                }
                Said::Manifest(Manifest { config, layers }) => {
                    let settings = self.text(&blob(&config.digest), CONFIG_BYTES_MAX)?;
                    same(&settings, &config.digest, "its configuration")?;
                    let config = Config::read(&settings, layers.len(), &platform)?;
                    let layer = |part: crate::manifest::Part| {
                        Ok((self.find(&blob(&part.digest))?.clone(), Some(part)))
                    };
                    let layers = layers.into_iter().map(layer).collect::<Result<_, Error>>()?;
                    if let Ok([one]) = self.saves().as_deref() {
                        called.extend(one.repo_tags.iter().flatten().cloned());
                    }
                    // A tag alone is no name.
                    called.retain(|name| name.contains(['/', ':']));
                    return Ok(Found { digest: Digest::of(&text), config, layers, names: called });
                }
            }
        }
        Err(Error::bad("its index leads from one to the next"))
    }

    fn saved(&self) -> Result<Found, Error> {
        let all = self.saves()?;
        let [one] = all.as_slice() else {
            return Err(Error::bad(format!("the archive holds {} images: save one", all.len())));
        };
        if one.layers.len() > crate::manifest::LAYERS_MAX {
            let limit = crate::manifest::LAYERS_MAX.to_string();
            return Err(Error::large("layers of an image", limit));
        }
        let text = self.text(&one.config, CONFIG_BYTES_MAX)?;
        let config = Config::read(&text, one.layers.len(), &Platform::own())?;
        let layer = |name: &String| Ok((self.find(name)?.clone(), None));
        let layers = one.layers.iter().map(layer).collect::<Result<_, Error>>()?;
        let names = one.repo_tags.clone().unwrap_or_default();
        Ok(Found { digest: Digest::of(&text), config, layers, names })
    }
}

/// A member's name without `.` and `..`, as seen from a directory of the archive.
fn plain(name: &str, from: &str) -> String {
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
