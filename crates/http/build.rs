//! Rebuilds this crate when the built files of the console have changed.

fn main() {
    let console = concat!(env!("CARGO_MANIFEST_DIR"), "/../../console");
    let built = format!("{console}/dist");
    // Cargo would rebuild on every call because of a missing path.
    let there = std::fs::metadata(&built).is_ok();
    println!("cargo::rerun-if-changed={}", if there { &built } else { console });
}
