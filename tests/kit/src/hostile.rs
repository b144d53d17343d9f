//! Image layers that no builder writes: too deep, too long, or with too many repeated entries.

use crate::image::{EntryType, Image, Layer, digest};
use crate::json;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

/// How many levels of directories one entry creates.
const STEP: usize = 126;
/// How many such steps fit into the target of one symbolic link.
const LINK_STEPS: usize = 16;

/// Adds an entry whose name and target may exceed the limits of the tar header.
#[must_use]
pub fn long(layer: Layer, kind: EntryType, path: &str, link: &str) -> Layer {
    let named = |kind, text: &str| (kind, [text.as_bytes(), b"\0"].concat());
    let parts = [named(EntryType::GNULongName, path), named(EntryType::GNULongLink, link)];
    let mut layer = layer;
    for (kind, text) in parts {
        layer = layer.entry(kind, "././@LongLink", "", 0o644, &text);
    }
    layer.entry(kind, "long", "", 0o755, b"")
}

/// Adds nested directories `a/a/…` with at least `levels` levels. Symbolic links make them
/// reachable, because the path of an entry has at most 128 parts.
#[must_use]
pub fn deep(layer: Layer, levels: usize) -> Layer {
    let below = |steps: usize| "a/".repeat(steps * STEP);
    // `far-1` leads to the first 2,016 directories, `far-2` from there to the next, and so on.
    let at = |step: usize| match step / LINK_STEPS {
        0 => format!("./{}", below(step)),
        far => format!("far-{far}/{}", below(step % LINK_STEPS)),
    };
    let mut layer = layer;
    for step in 0..levels.div_ceil(STEP) {
        layer = long(layer, EntryType::Symlink, "near", &at(step));
        layer = long(layer, EntryType::Directory, &format!("near/{}", below(1)), "");
        if (step + 1).is_multiple_of(LINK_STEPS) {
            let far = (step + 1) / LINK_STEPS;
            let from = if far == 1 { ".".to_owned() } else { format!("far-{}", far - 1) };
            let target = format!("{from}/{}", below(LINK_STEPS));
            layer = long(layer, EntryType::Symlink, &format!("far-{far}"), &target);
        }
    }
    layer
}

/// Adds the same directory `times` times under a name of 3.8 KB.
#[must_use]
pub fn repeated(layer: Layer, times: usize) -> Layer {
    let path = vec!["n".repeat(250); 15].join("/");
    (0..times).fold(layer, |layer, _| long(layer, EntryType::Directory, &path, ""))
}

/// Compresses the bytes with gzip.
///
/// # Panics
/// Never, because writing to memory cannot fail.
#[must_use]
pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).expect("compresses");
    gzip.finish().expect("compresses")
}

/// Builds an image whose layers are not compressed.
#[must_use]
pub fn plain(layers: Vec<Vec<u8>>) -> Image {
    let diff_ids = layers.iter().map(|layer| digest(layer)).collect();
    Image::of_blobs(layers, diff_ids, &json!({}))
}
