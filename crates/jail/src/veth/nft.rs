//! Runs the program `nft`, which applies all changes of the packet filter's rules or none.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Possible paths of the program.
const DIRECTORIES: [&str; 6] =
    ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin", "/usr/local/bin"];

/// The path of the program, if it is installed.
pub(crate) fn find() -> Option<PathBuf> {
    let mut all = DIRECTORIES.iter().map(|directory| Path::new(directory).join("nft"));
    all.find(|path| path.is_file())
}

/// Changes the rules of the namespace that this process is in.
///
/// # Errors
/// The program's message; nothing has changed then.
pub(crate) fn apply(nft: &Path, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    run(nft, &["-f", "-"], text).map(drop)
}

/// Lists a table without the elements of its sets; `None` when it does not exist.
pub(crate) fn list_table(nft: &Path, table: &str) -> Option<String> {
    let mut args = vec!["-t", "list", "table"];
    args.extend(table.split(' '));
    output(nft, &args)
}

/// The program's output; `None` when it fails.
pub(crate) fn output(nft: &Path, args: &[&str]) -> Option<String> {
    run(nft, args, "").ok()
}

fn run(nft: &Path, args: &[&str], text: &str) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", nft.display());
    let mut child = Command::new(nft)
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut input = child.stdin.take();
    let written = input.as_mut().map_or(Ok(()), |input| input.write_all(text.as_bytes()));
    drop(input);
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        written.map_err(|error| failed(&error))?;
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(failed(&errors.lines().next().unwrap_or("ended with an error")))
}
