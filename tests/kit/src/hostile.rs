//! Layers that no builder writes: too deep, too long, too often.

use crate::image::{EntryType, Image, Layer, digest};
use crate::json;
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;

/// Directories that one entry makes below those that exist.
const STEP: usize = 126;
/// Steps that the target of one link has room for.
const LINK_STEPS: usize = 16;

/// An entry whose name and target are as long as they are.
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

/// Directories `a/a/…` at least so deep, made through links: no path of an entry has more than 128
/// parts.
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

/// The same directory so many times, under a name of 3.8 KB.
#[must_use]
pub fn again(layer: Layer, times: usize) -> Layer {
    let path = vec!["n".repeat(250); 15].join("/");
    (0..times).fold(layer, |layer, _| long(layer, EntryType::Directory, &path, ""))
}

/// Compressed by gzip.
///
/// # Panics
/// Never: it is written to memory.
#[must_use]
pub fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).expect("compresses");
    gzip.finish().expect("compresses")
}

/// An image whose layers are not compressed.
#[must_use]
pub fn plain(layers: Vec<Vec<u8>>) -> Image {
    let diff_ids = layers.iter().map(|layer| digest(layer)).collect();
    Image::of_blobs(layers, diff_ids, &json!({}))
}
