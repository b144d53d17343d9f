//! `nft`, the program: text in, and the kernel's rules are others, all at once or not at all.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where it may be.
const PLACES: [&str; 6] =
    ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin", "/usr/local/bin"];

/// The program, where the host has it.
pub(crate) fn find() -> Option<PathBuf> {
    let mut all = PLACES.iter().map(|place| Path::new(place).join("nft"));
    all.find(|path| path.is_file())
}

/// Changes the rules of the namespace that this process is in.
///
/// # Errors
/// What it said; nothing has changed then.
pub(crate) fn apply(nft: &Path, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    run(nft, &["-f", "-"], text).map(drop)
}

/// A table as it is now, without the elements of its sets; `None`: there is none.
pub(crate) fn listed(nft: &Path, table: &str) -> Option<String> {
    let mut args = vec!["-t", "list", "table"];
    args.extend(table.split(' '));
    said(nft, &args)
}

/// What it says to these words; `None`: it does not know them, or there is no such thing.
pub(crate) fn said(nft: &Path, words: &[&str]) -> Option<String> {
    run(nft, words, "").ok()
}

fn run(nft: &Path, args: &[&str], text: &str) -> Result<String, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", nft.display());
    let mut child = Command::new(nft)
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| told(&error))?;
    let mut input = child.stdin.take();
    let written = input.as_mut().map_or(Ok(()), |input| input.write_all(text.as_bytes()));
    drop(input);
    let output = child.wait_with_output().map_err(|error| told(&error))?;
    if output.status.success() {
        written.map_err(|error| told(&error))?;
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(told(&said.lines().next().unwrap_or("ended with an error")))
}
