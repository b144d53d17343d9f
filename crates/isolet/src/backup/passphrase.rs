//! The passphrase of a backup's secrets: from a file, or typed. Never from an argument or the
//! environment, which other processes can read.

use anyhow::{Context, Result, bail};
use isolet_backup::Passphrase;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// Maximum length of a passphrase, in bytes.
const BYTES_MAX: u64 = 4096;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const CTRL_U: u8 = 21;
const CTRL_BACKSLASH: u8 = 28;
const DELETE: u8 = 127;

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

/// Reads a line without showing it. Until its end, the keys of the terminal send no signals: one would
/// end this program and leave the terminal without echo.
fn typed(mut tty: &File, prompt: &str) -> Result<String> {
    let before = tcgetattr(tty)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(tty, OptionalActions::Flush, &hidden)?;
    let text = tty.write_all(prompt.as_bytes()).map_err(Into::into).and_then(|()| keys(tty));
    tcsetattr(tty, OptionalActions::Flush, &before)?;
    tty.write_all(b"\n")?;
    text
}

/// Reads the keys of one line.
fn keys(mut from: impl Read) -> Result<String> {
    let mut line = Vec::new();
    // One byte at a time: what follows the line is for the program that reads next.
    let mut key = [0];
    while from.read(&mut key)? > 0 {
        match key[0] {
            b'\n' | b'\r' => break,
            CTRL_C | CTRL_BACKSLASH => bail!("interrupted"),
            CTRL_D if line.is_empty() => bail!("no passphrase was typed"),
            CTRL_D => break,
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => {
                // A character may have several bytes.
                while line.pop().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {}
            }
            _ if line.len() as u64 >= BYTES_MAX => bail!("the passphrase is too long"),
            byte => line.push(byte),
        }
    }
    String::from_utf8(line).context("the passphrase is not valid UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_ends_the_prompt_and_the_line_can_be_corrected() {
        assert!(keys(&b"secret\x03"[..]).is_err(), "the caller then restores the echo");
        assert_eq!(keys(&b"sx\x7fecret\nrest"[..]).unwrap(), "secret");
        assert_eq!(keys("aß\u{7f}b\r".as_bytes()).unwrap(), "ab");
        assert_eq!(keys(&b"wrong\x15right\n"[..]).unwrap(), "right");
        assert!(keys(&b"\x04"[..]).is_err());
    }
}
