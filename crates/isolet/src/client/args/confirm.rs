//! Questions before something is destroyed that cannot be restored.

use anyhow::{Result, bail};
use std::io::{BufRead, IsTerminal, Write};

/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256;

/// Asks at the terminal; only `y` and `yes` confirm.
///
/// # Errors
/// When nobody can be asked, because standard input or error is no terminal.
pub(in crate::client) fn confirmed(question: &str) -> Result<bool> {
    let mut stderr = std::io::stderr();
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        bail!(
            "{question} Nothing was deleted, because there is no terminal to ask; confirm with --yes"
        );
    }
    write!(stderr, "{question} [y/N] ")?;
    let mut answer = String::new();
    let mut input = std::io::Read::take(std::io::stdin().lock(), ANSWER_BYTES_MAX);
    input.read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        writeln!(stderr)?;
    }
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
