//! Has this crate built anew when the console's built files have changed.

fn main() {
    let console = concat!(env!("CARGO_MANIFEST_DIR"), "/../../console");
    let built = format!("{console}/dist");
    // A path that is not there would count as changed each time.
    let there = std::fs::metadata(&built).is_ok();
    println!("cargo::rerun-if-changed={}", if there { &built } else { console });
}
