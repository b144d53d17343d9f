//! Manifests and indexes of images.
//!
//! `oci-spec` defines their members; this module bounds them, selects the entry of a platform, and
//! says why one cannot be used. A document's size is limited before it is parsed. Members that are
//! not known are ignored, those of the specification must have its types: an index entry without a
//! `mediaType`, for instance, is refused.

use crate::error::Error;
use crate::platform::Platform;
use crate::reference::Digest;
use oci_spec::image::{ANNOTATION_REF_NAME, Descriptor, ImageIndex, ImageManifest, SCHEMA_VERSION};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// Maximum size of a manifest or index, in bytes, as registries bound it.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum size of a configuration, in bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of layers of an image. Docker builds at most 127.
pub(crate) const LAYERS_MAX: usize = 256;
/// Entries of an index after which the search for a platform ends.
const ENTRIES_MAX: usize = 1024;
/// Where containerd and Docker write the whole name of an image in an archive.
const ANNOTATION_IMAGE_NAME: &str = "io.containerd.image.name";

/// The media types of manifests and indexes, as the `Accept` header of a request.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
application/vnd.oci.image.manifest.v1+json, \
application/vnd.docker.distribution.manifest.list.v2+json, \
application/vnd.docker.distribution.manifest.v2+json";

/// Media types of layers without the suffix for the compression, which the first bytes show.
const LAYER_TYPES: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];
const CONFIG_TYPES: &[&str] =
    &["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// A blob that a descriptor names. Only SHA-256 digests are supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) digest: Digest,
    /// Size as stored in the registry, which for layers is mostly compressed.
    pub(crate) bytes: u64,
}

/// An image's configuration and layers, the lowest layer first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Blob,
    pub(crate) layers: Vec<Blob>,
}

/// What a tag or digest leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResolvedManifest {
    Manifest(Manifest),
    /// The entry of an index for the platform: another manifest or index.
    Index(Blob),
}

/// The members that tell a manifest from an index. They are read first, so that the error for an
/// unsupported document names its kind and not a missing member.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    manifests: Option<IgnoredAny>,
}

impl ResolvedManifest {
    /// Parses a manifest or an index.
    ///
    /// # Errors
    /// [`Error::Bad`], [`Error::TooLarge`].
    pub(crate) fn read(bytes: &[u8], platform: &Platform) -> Result<Self, Error> {
        let outline: Outline = parse(bytes)?;
        if outline.schema_version != SCHEMA_VERSION {
            return Err(Error::bad(format!(
                "its manifest has schema version {}, which is not supported",
                outline.schema_version
            )));
        }
        let kind = outline.media_type.unwrap_or_default();
        if !kind.is_empty() && !ACCEPT.split(", ").any(|known| known == kind) {
            return Err(Error::bad(format!(
                "its manifest has the unsupported media type {:?}",
                shorten(&kind)
            )));
        }
        match (outline.config, outline.layers, outline.manifests) {
            (Some(_), Some(_), None) => Self::manifest(&parse(bytes)?),
            (None, None, Some(_)) => Self::index(&parse(bytes)?, platform),
            _ => Err(Error::bad("its manifest is neither an image manifest nor an index")),
        }
    }

    fn manifest(manifest: &ImageManifest) -> Result<Self, Error> {
        let config = manifest.config();
        let kind = config.media_type().as_ref();
        if !CONFIG_TYPES.contains(&kind) {
            let kind = shorten(kind);
            return Err(Error::bad(format!(
                "it is not a container image: its configuration has the media type {kind:?}"
            )));
        }
        if config.size() > CONFIG_BYTES_MAX {
            return Err(Error::large("its configuration", "1 MiB"));
        }
        let layers = manifest.layers();
        if layers.is_empty() {
            return Err(Error::bad("it has no layers"));
        }
        if layers.len() > LAYERS_MAX {
            return Err(Error::large("layers of an image", LAYERS_MAX.to_string()));
        }
        for layer in layers {
            let kind = layer.media_type().as_ref();
            if !LAYER_TYPES.contains(&kind.split('+').next().unwrap_or_default()) {
                let kind = shorten(kind);
                return Err(Error::bad(format!(
                    "one of its layers has the unsupported media type {kind:?}"
                )));
            }
        }
        let layers = layers.iter().map(blob).collect::<Result<_, _>>()?;
        Ok(Self::Manifest(Manifest { config: blob(config)?, layers }))
    }

    fn index(index: &ImageIndex, platform: &Platform) -> Result<Self, Error> {
        let all = index.manifests().as_slice();
        let accepted =
            |one: &&Descriptor| one.platform().as_ref().is_some_and(|p| platform.accepts(p));
        let selected = all.iter().take(ENTRIES_MAX).find(accepted);
        // A single entry without a platform may be for this one; its configuration says so.
        let selected = selected.or(match all {
            [one] if one.platform().is_none() => Some(one),
            _ => None,
        });
        let Some(selected) = selected else {
            let offered = all.iter().take(16).filter_map(|one| one.platform().as_ref());
            let offered: Vec<_> =
                offered.map(|p| shorten(&format!("{}/{}", p.os(), p.architecture()))).collect();
            return Err(Error::bad(format!(
                "it is not built for {platform}, only for {}",
                if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") }
            )));
        };
        if selected.size() > MANIFEST_BYTES_MAX {
            return Err(Error::large("its manifest", "4 MiB"));
        }
        Ok(Self::Index(blob(selected)?))
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::bad(format!("its manifest cannot be parsed: {error}")))
}

fn blob(descriptor: &Descriptor) -> Result<Blob, Error> {
    Ok(Blob { digest: digest(descriptor.digest().as_ref())?, bytes: descriptor.size() })
}

/// Parses a digest of a document.
///
/// # Errors
/// [`Error::Bad`] for another algorithm than SHA-256.
pub(crate) fn digest(text: &str) -> Result<Digest, Error> {
    Digest::parse(text)
        .ok_or_else(|| Error::bad(format!("{:?} is not a SHA-256 digest", shorten(text))))
}

/// The first 100 characters of an untrusted text, for an error.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Compares a document with the digest that it was requested by.
pub(crate) fn check_digest(bytes: &[u8], expected: &Digest, document: &str) -> Result<(), Error> {
    let found = Digest::of(bytes);
    if found == *expected {
        return Ok(());
    }
    Err(Error::bad(format!("{document} has the digest {found} instead of {expected}")))
}

/// The image names in the annotations of an index; none if it is not a valid index.
pub(crate) fn names(index: &[u8]) -> Vec<String> {
    let index: Option<ImageIndex> = serde_json::from_slice(index).ok();
    let all = index.iter().flat_map(ImageIndex::manifests).take(ENTRIES_MAX);
    let name = |entry: &Descriptor| {
        let annotations = entry.annotations().as_ref()?;
        let name = annotations.get(ANNOTATION_IMAGE_NAME);
        name.or_else(|| annotations.get(ANNOTATION_REF_NAME)).cloned()
    };
    all.filter_map(name).collect()
}

/// The annotation of an archive's image with the digest of the sessions that its sandboxes start
/// with. It is in the index of the archive, because other programs keep the blobs of an image only.
pub(crate) const SESSIONS_ANNOTATION: &str = "io.isolet.sessions";

/// The digest in the annotations of an index under which an archive has the sessions of its image.
///
/// # Errors
/// [`Error::Bad`] for a text that is no digest.
pub(crate) fn sessions(index: &[u8]) -> Result<Option<Digest>, Error> {
    let index: Option<ImageIndex> = serde_json::from_slice(index).ok();
    let mut all = index.iter().flat_map(ImageIndex::manifests).take(ENTRIES_MAX);
    let found = all.find_map(|entry| entry.annotations().as_ref()?.get(SESSIONS_ANNOTATION));
    found.map(|text| digest(text)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(document: &Value) -> Result<ResolvedManifest, Error> {
        let platform = Platform::parse("linux/amd64").unwrap();
        ResolvedManifest::read(document.to_string().as_bytes(), &platform)
    }

    fn descriptor(kind: &str, digit: &str) -> Value {
        json!({"mediaType": kind, "digest": format!("sha256:{}", digit.repeat(64)), "size": 1})
    }

    fn entry(architecture: &str, digit: &str) -> Value {
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", digit);
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    }

    fn index(entries: &[Value]) -> Value {
        json!({"schemaVersion": 2, "manifests": entries})
    }

    fn manifest(config: &Value, layers: &[Value]) -> Value {
        json!({"schemaVersion": 2, "config": config, "layers": layers})
    }

    #[test]
    fn an_index_leads_to_the_entry_of_the_platform() {
        let document = index(&[entry("arm64", "a"), entry("unknown", "c"), entry("amd64", "b")]);
        let ResolvedManifest::Index(blob) = read(&document).unwrap() else { panic!() };
        assert_eq!(blob.digest.hex(), "b".repeat(64));
        let error = read(&index(&[entry("arm64", "a")])).unwrap_err().to_string();
        assert!(error.contains("only for linux/arm64"), "{error}");
        let document = index(&[descriptor("application/vnd.oci.image.manifest.v1+json", "d")]);
        let ResolvedManifest::Index(blob) = read(&document).unwrap() else { panic!() };
        assert_eq!(blob.digest.hex(), "d".repeat(64));
    }

    #[test]
    fn manifests_of_docker_and_oci_are_read() {
        let members = json!({"annotations": {"a": "b"}, "subject": null, "unknown": [1]});
        for (config, layer) in [
            (CONFIG_TYPES[0], "application/vnd.oci.image.layer.v1.tar+zstd"),
            (CONFIG_TYPES[1], "application/vnd.docker.image.rootfs.diff.tar.gzip"),
        ] {
            let mut document = manifest(&descriptor(config, "a"), &[descriptor(layer, "b")]);
            document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let ResolvedManifest::Manifest(found) = read(&document).unwrap() else { panic!() };
            assert_eq!(found.config.digest.hex(), "a".repeat(64));
            assert_eq!(found.layers[0].digest.hex(), "b".repeat(64));
        }
    }

    /// Promises: A6.
    #[test]
    fn unusable_documents_are_refused_with_a_reason() {
        let config = descriptor(CONFIG_TYPES[0], "a");
        let layer = descriptor(LAYER_TYPES[0], "a");
        let chart = descriptor("application/vnd.cncf.helm.config.v1+json", "a");
        let data = descriptor("application/octet-stream", "a");
        let mut sha512 = layer.clone();
        sha512["digest"] = json!(format!("sha512:{}", "a".repeat(128)));
        let mut short = layer.clone();
        short["digest"] = json!("sha256:12");
        let mut large = config.clone();
        large["size"] = json!(2 << 20);
        let mut untyped = layer.clone();
        untyped.as_object_mut().unwrap().remove("mediaType");
        let many = vec![layer.clone(); LAYERS_MAX + 1];
        let one = std::slice::from_ref(&layer);
        for (document, word) in [
            (json!("<html>"), "cannot be parsed"),
            (json!({"schemaVersion": 1}), "schema version 1"),
            (json!({"schemaVersion": 2, "mediaType": "text/html"}), "text/html"),
            (json!({"schemaVersion": 2}), "neither"),
            (json!({"schemaVersion": 2, "config": config, "manifests": []}), "neither"),
            (manifest(&chart, one), "not a container image"),
            (manifest(&large, one), "more than 1 MiB"),
            (manifest(&config, &[]), "no layers"),
            (manifest(&config, &many), "more than 256"),
            (manifest(&config, &[data]), "octet-stream"),
            (manifest(&config, &[sha512]), "not a SHA-256 digest"),
            (manifest(&config, &[short]), "digest length"),
            (manifest(&config, &[untyped]), "mediaType"),
            (index(&[]), "only for nothing"),
        ] {
            let error = read(&document).unwrap_err().to_string();
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn an_archive_names_its_images() {
        let mut whole = entry("amd64", "a");
        whole["annotations"] =
            json!({ANNOTATION_IMAGE_NAME: "docker.io/library/a:1", ANNOTATION_REF_NAME: "1"});
        let mut tag = entry("amd64", "b");
        tag["annotations"] = json!({ANNOTATION_REF_NAME: "2"});
        let document = index(&[whole, tag, entry("amd64", "c")]);
        assert_eq!(names(document.to_string().as_bytes()), ["docker.io/library/a:1", "2"]);
        assert!(names(b"{}").is_empty());
    }
}
