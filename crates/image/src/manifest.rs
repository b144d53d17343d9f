//! Indexes, manifests and configurations of images. Unknown fields are ignored; an unusable document is
//! rejected with a reason.

use crate::error::Error;
use crate::reference::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The longest manifest or index, in bytes, as registries bound it.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The longest configuration, in bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// Layers of one image. Docker builds 127 at most.
pub(crate) const LAYERS_MAX: usize = 256;
/// Names and values of an image's environment together, in bytes.
const ENV_BYTES_MAX: usize = 128 * 1024;
/// Entries of an index that are looked at.
const ENTRIES_MAX: usize = 1024;

/// What is asked for of a registry.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
application/vnd.oci.image.manifest.v1+json, \
application/vnd.docker.distribution.manifest.list.v2+json, \
application/vnd.docker.distribution.manifest.v2+json";

/// Media types of layers, without the compression, which the first bytes show.
const LAYERS: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];
const CONFIGS: &[&str] =
    &["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// An OCI descriptor: a blob by its digest and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
}

/// An image's configuration and layers, the lowest one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// The document of a tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResolvedManifest {
    Manifest(Manifest),
    /// The entry of an index for the platform.
    Index(Descriptor),
}

/// What an image runs on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Platform {
    architecture: String,
    variant: Option<String>,
}

/// The configuration of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<String>,
    pub(crate) user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    config: Option<RawDescriptor>,
    #[serde(default)]
    layers: Option<Vec<RawDescriptor>>,
    #[serde(default)]
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<RawPlatform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: Option<String>,
}

#[derive(Deserialize)]
struct RawConfig {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<RawSettings>,
    rootfs: RawRoot,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawSettings {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
    #[serde(rename = "WorkingDir")]
    cwd: Option<String>,
    #[serde(rename = "User")]
    user: Option<String>,
}

#[derive(Deserialize)]
struct RawRoot {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

impl Platform {
    /// What this machine runs.
    #[must_use]
    pub fn own() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), variant: None }
    }

    /// Of `linux/amd64`, `linux/arm/v7`. `None` for what is no platform of Linux.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let plain = |part: &&str| {
            (1..=32).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        let os = parts.next()?;
        let architecture = parts.next().filter(plain)?.to_owned();
        let variant = parts.next();
        if os != "linux" || parts.next().is_some() || variant.is_some_and(|v| !plain(&v)) {
            return None;
        }
        Some(Self { architecture, variant: variant.map(str::to_owned) })
    }

    fn fits(&self, other: &RawPlatform) -> bool {
        other.os == "linux"
            && other.architecture == self.architecture
            && (self.variant.is_none() || self.variant == other.variant)
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "linux/{}", self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

fn part(raw: &RawDescriptor) -> Result<Descriptor, Error> {
    let bad = || Error::bad(format!("{:?} is no sha256 digest", short(&raw.digest)));
    Ok(Descriptor { digest: Digest::parse(&raw.digest).ok_or_else(bad)?, bytes: raw.size })
}

fn short(text: &str) -> String {
    text.chars().take(100).collect()
}

impl ResolvedManifest {
    /// Reads a manifest or an index.
    ///
    /// # Errors
    /// [`Error::Bad`], [`Error::TooLarge`].
    pub(crate) fn read(bytes: &[u8], platform: &Platform) -> Result<Self, Error> {
        let raw: RawManifest = serde_json::from_slice(bytes)
            .map_err(|error| Error::bad(format!("its manifest does not read: {error}")))?;
        if raw.schema_version != 2 {
            return Err(Error::bad(format!("its manifest is of version {}", raw.schema_version)));
        }
        let kind = raw.media_type.unwrap_or_default();
        if !kind.is_empty() && !ACCEPT.split(", ").any(|known| known == kind) {
            return Err(Error::bad(format!("its manifest is a {:?}", short(&kind))));
        }
        match (raw.config, raw.layers, raw.manifests) {
            (Some(config), Some(layers), None) => Self::manifest(&config, &layers),
            (None, None, Some(manifests)) => Self::index(&manifests, platform),
            _ => Err(Error::bad("its manifest is neither one of an image nor an index")),
        }
    }

    fn manifest(config: &RawDescriptor, layers: &[RawDescriptor]) -> Result<Self, Error> {
        if !CONFIGS.contains(&config.media_type.as_str()) {
            let kind = short(&config.media_type);
            return Err(Error::bad(format!("it is no image: its configuration is a {kind:?}")));
        }
        if config.size > CONFIG_BYTES_MAX {
            return Err(Error::large("its configuration", "1 MiB"));
        }
        if layers.is_empty() {
            return Err(Error::bad("it has no layers"));
        }
        if layers.len() > LAYERS_MAX {
            return Err(Error::large("layers of an image", LAYERS_MAX.to_string()));
        }
        for layer in layers {
            let kind = layer.media_type.split('+').next().unwrap_or_default();
            if !LAYERS.contains(&kind) {
                let kind = short(&layer.media_type);
                return Err(Error::bad(format!("a layer of it is a {kind:?}")));
            }
        }
        let layers = layers.iter().map(part).collect::<Result<_, _>>()?;
        Ok(Self::Manifest(Manifest { config: part(config)?, layers }))
    }

    fn index(all: &[RawDescriptor], platform: &Platform) -> Result<Self, Error> {
        let fits = |one: &&RawDescriptor| one.platform.as_ref().is_some_and(|p| platform.fits(p));
        // One that says nothing of platforms can be for this one: its configuration tells.
        let chosen = all.iter().take(ENTRIES_MAX).find(fits);
        let chosen = chosen.or(match all {
            [one] if one.platform.is_none() => Some(one),
            _ => None,
        });
        let Some(chosen) = chosen else {
            let there = all.iter().take(16).filter_map(|one| one.platform.as_ref());
            let there: Vec<_> =
                there.map(|p| short(&format!("{}/{}", p.os, p.architecture))).collect();
            return Err(Error::bad(format!(
                "it is not made for {platform}, only for {}",
                if there.is_empty() { "nothing".to_owned() } else { there.join(", ") }
            )));
        };
        if chosen.size > MANIFEST_BYTES_MAX {
            return Err(Error::large("its manifest", "4 MiB"));
        }
        Ok(Self::Index(part(chosen)?))
    }
}

pub(crate) fn check_digest(text: &[u8], said: &Digest, what: &str) -> Result<(), Error> {
    let is = Digest::of(text);
    if is == *said { Ok(()) } else { Err(Error::bad(format!("{what} is not {said} but {is}"))) }
}

/// The image names in the annotations of an index.
pub(crate) fn names(index: &[u8]) -> Vec<String> {
    let raw: Option<RawManifest> = serde_json::from_slice(index).ok();
    let all = raw.and_then(|raw| raw.manifests).unwrap_or_default();
    let name = |part: RawDescriptor| {
        let mut notes = part.annotations?;
        let name = notes.remove("io.containerd.image.name");
        name.or_else(|| notes.remove("org.opencontainers.image.ref.name"))
    };
    all.into_iter().take(ENTRIES_MAX).filter_map(name).collect()
}

impl Config {
    /// Parses the configuration of an image with this number of layers.
    ///
    /// # Errors
    /// [`Error::Bad`], [`Error::TooLarge`].
    pub(crate) fn read(bytes: &[u8], layers: usize, platform: &Platform) -> Result<Self, Error> {
        let raw: RawConfig = serde_json::from_slice(bytes)
            .map_err(|error| Error::bad(format!("its configuration does not read: {error}")))?;
        if raw.os != "linux" || raw.architecture != platform.architecture {
            let made = short(&format!("{}/{}", raw.os, raw.architecture));
            return Err(Error::bad(format!("it is made for {made}, not for {platform}")));
        }
        let ids = raw.rootfs.diff_ids.unwrap_or_default();
        if ids.len() != layers {
            let said = ids.len();
            return Err(Error::bad(format!(
                "its manifest has {layers} layers, its configuration {said}"
            )));
        }
        let id = |text: &String| {
            Digest::parse(text)
                .ok_or_else(|| Error::bad(format!("{:?} is no sha256 digest", short(text))))
        };
        let settings = raw.config.unwrap_or_default();
        Ok(Self {
            diff_ids: ids.iter().map(id).collect::<Result<_, _>>()?,
            env: env(&settings.env.unwrap_or_default())?,
            cwd: settings.cwd.filter(|cwd| !cwd.is_empty()).map(cwd).transpose()?,
            user: settings.user.unwrap_or_default(),
        })
    }
}

fn env(all: &[String]) -> Result<BTreeMap<String, String>, Error> {
    if all.iter().map(|one| one.len() + 1).sum::<usize>() > ENV_BYTES_MAX {
        return Err(Error::large("its environment", format!("{ENV_BYTES_MAX} bytes")));
    }
    let one = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(Error::bad(format!("{:?} of its environment is no NAME=VALUE", short(text)))),
    };
    all.iter().map(one).collect()
}

/// A start directory that can be made and entered, and is one of the image's own.
fn cwd(text: String) -> Result<String, Error> {
    let bad = |why| Error::bad(format!("its working directory {:?} {why}", short(&text)));
    let relative = text.trim_start_matches('/');
    let parts =
        crate::disk::rooted::parts(relative.as_bytes()).map_err(|_| bad("leads out of it"))?;
    if !text.starts_with('/') {
        return Err(bad("does not begin with a slash"));
    }
    if parts.first().is_some_and(|first| [&b"proc"[..], b"sys", b"dev"].contains(first)) {
        return Err(bad("is one of the kernel's, not of the image"));
    }
    let parts: Vec<_> = parts.into_iter().map(String::from_utf8_lossy).collect();
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<ResolvedManifest, Error> {
        ResolvedManifest::read(text.as_bytes(), &Platform::parse("linux/amd64").unwrap())
    }

    #[test]
    fn an_index_leads_to_the_platform() {
        let one = |arch: &str, digit: &str| {
            let digest = digit.repeat(64);
            format!(
                r#"{{"mediaType":"x","digest":"sha256:{digest}","size":1,"platform":{{"os":"linux","architecture":"{arch}"}}}}"#
            )
        };
        let text = format!(
            r#"{{"schemaVersion":2,"manifests":[{},{}]}}"#,
            one("arm64", "a"),
            one("amd64", "b")
        );
        let ResolvedManifest::Index(part) = said(&text).unwrap() else { panic!() };
        assert_eq!(part.digest.hex(), "b".repeat(64));
        let none = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, one("arm64", "a"));
        assert!(said(&none).unwrap_err().to_string().contains("only for linux/arm64"));
    }

    /// Promises: A6.
    #[test]
    fn what_is_no_image_is_refused_with_a_reason() {
        let part = |kind: &str| {
            format!(r#"{{"mediaType":"{kind}","digest":"sha256:{}","size":1}}"#, "a".repeat(64))
        };
        let layer = part(LAYERS[0]);
        let many = vec![layer.clone(); LAYERS_MAX + 1].join(",");
        let whole = |config: &str, layers: &str| {
            format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layers}]}}"#)
        };
        for (text, word) in [
            ("{", "does not read"),
            (r#"{"schemaVersion":1}"#, "version 1"),
            (r#"{"schemaVersion":2,"mediaType":"text/html"}"#, "text/html"),
            (r#"{"schemaVersion":2}"#, "neither"),
            (&whole(&part("application/vnd.cncf.helm.config.v1+json"), &layer), "no image"),
            (&whole(&part(CONFIGS[0]), ""), "no layers"),
            (&whole(&part(CONFIGS[0]), &many), "more than 256"),
            (&whole(&part(CONFIGS[0]), &part("application/octet-stream")), "octet-stream"),
        ] {
            let error = said(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text:.80}: {error}");
        }
    }

    /// Promises: A6.
    #[test]
    fn a_configuration_that_would_lead_out_is_refused() {
        let platform = Platform::parse("linux/amd64").unwrap();
        let read = |settings: &str| {
            let text = format!(
                r#"{{"os":"linux","architecture":"amd64","config":{settings},"rootfs":{{"diff_ids":[]}}}}"#
            );
            Config::read(text.as_bytes(), 0, &platform)
        };
        let long = format!(r#"{{"Env":["A={}"]}}"#, "x".repeat(200_000));
        for (settings, word) in [
            (r#"{"WorkingDir":"/proc/self/fd/7"}"#, "kernel's"),
            (r#"{"WorkingDir":"/a/../../b"}"#, "leads out"),
            (r#"{"WorkingDir":"a"}"#, "slash"),
            (r#"{"Env":["A"]}"#, "NAME=VALUE"),
            (&long, "more than"),
        ] {
            assert!(read(settings).unwrap_err().to_string().contains(word), "{settings:.60}");
        }
        assert_eq!(read(r#"{"WorkingDir":"//a/./b/"}"#).unwrap().cwd.as_deref(), Some("/a/b"));
    }
}
