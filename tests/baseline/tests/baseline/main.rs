//! Today's programs against the baseline: its data directory, and its answers.
//!
//! `tests/baseline/README.md` says what is recorded and how. The wire frames that lie there are
//! read by the tests of the crate `wire`.

mod data;
mod golden;
mod normal;
mod record;

use isolet_kit::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of the baseline.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A JSON file of the baseline.
#[track_caller]
fn read(name: &str) -> Value {
    let bytes = fs::read(path(name)).expect("the baseline is committed");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// The SHA-256 of some bytes, in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
