//! Compares the current programs with the baseline: its data directory and its answers.
//!
//! `tests/baseline/README.md` describes what is recorded and how. The recorded wire frames are read
//! by the tests of the crate `wire`.

mod data;
mod golden;
mod normalize;
mod record;
mod upgrade;

use isolet_kit::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a file of the baseline.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Reads a JSON file of the baseline.
#[track_caller]
fn read(name: &str) -> Value {
    let bytes = fs::read(path(name)).expect("the baseline is committed");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// The SHA-256 digest of bytes, in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(bytes))
}
