//! The passphrase of a backup's secrets: from a file, or typed. Never from an argument or the
//! environment, which other processes can read.

use anyhow::{Context, Result, bail};
use isolet_backup::Passphrase;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// Maximum length of a passphrase, in bytes.
const BYTES_MAX: u64 = 4096;

/// What the passphrase is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A new passphrase, which is asked for twice.
    Encrypt,
    /// The passphrase of a backup.
    Decrypt,
}

/// Reads the first line of the file, or asks on the terminal.
pub(crate) fn read(file: Option<&Path>, purpose: Use) -> Result<Passphrase> {
    let text = match file {
        Some(file) => {
            let open = File::open(file);
            line(open.with_context(|| format!("cannot read {}", file.display()))?)?
        }
        None => ask(purpose)?,
    };
    Passphrase::new(text).context("the passphrase is empty")
}

fn line(from: impl Read) -> Result<String> {
    let mut text = String::new();
    BufReader::new(from.take(BYTES_MAX)).read_line(&mut text)?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn ask(purpose: Use) -> Result<String> {
    let tty = OpenOptions::new().read(true).write(true).open("/dev/tty");
    let Ok(tty) = tty else {
        bail!("there is no terminal to ask for the passphrase; use --passphrase-file FILE");
    };
    let text = typed(&tty, "Passphrase: ")?;
    if purpose == Use::Encrypt && typed(&tty, "Again: ")? != text {
        bail!("the two passphrases differ");
    }
    Ok(text)
}

/// Reads a line without showing it.
fn typed(mut tty: &File, prompt: &str) -> Result<String> {
    let before = tcgetattr(tty)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(tty, OptionalActions::Flush, &hidden)?;
    let text = tty.write_all(prompt.as_bytes()).map_err(Into::into).and_then(|()| line(tty));
    tcsetattr(tty, OptionalActions::Flush, &before)?;
    tty.write_all(b"\n")?;
    text
}
