//! The top layer of every sandbox that is made of an image: real directories where a sandbox's
//! own file systems are mounted, and files that are its own.
//!
//! Whatever an image has under `/proc`, `/sys`, `/dev` or `/workspace`, a link or a file too, lies
//! below a directory of this layer and is not seen: nothing is ever mounted on what an image says.
//! An image without a bash gets one here, static, so that it needs nothing of the image.

use crate::{
    Error,
    merged::{Found, Merged, present},
};
use isolet_wire::network::{HOSTS, RESOLVER};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where frames lie, below the image directory.
pub(crate) const FRAMES: &str = "frames";
/// Changes when what is written here does.
const EDITION: &str = "2";
/// Debian's `bash-static`.
const BASH: &str = "/bin/bash-static";

const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/isolet", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
];

const FILES: &[(&str, &str)] =
    &[("etc/hosts", HOSTS), ("etc/hostname", "sandbox\n"), ("etc/resolv.conf", RESOLVER)];

/// Which bash an image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// Its own.
    Own,
    /// The host's static one, as `/bin/bash`.
    Bin,
    /// The host's static one, as `/usr/bin/bash`: its `/bin` is a link there.
    UsrBin,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Bin => "bin",
            Self::UsrBin => "usr-bin",
        }
    }

    /// Its frame's place, below the image directory.
    pub(crate) fn frame(self) -> String {
        format!("{FRAMES}/{EDITION}-{}", self.name())
    }

    /// What an image needs.
    ///
    /// # Errors
    /// [`Error::Bad`] where neither `/bin` nor `/usr/bin` of it can hold one.
    pub(crate) fn of(image: &Merged) -> Result<Self, Error> {
        for own in ["bin/bash", "usr/bin/bash", "usr/local/bin/bash"] {
            if matches!(image.find(own)?, Found::File(_)) {
                return Ok(Self::Own);
            }
        }
        match image.link("bin")?.as_deref() {
            Some(b"usr/bin" | b"/usr/bin") if image.link("usr")?.is_none() => {
                return match (image.link("usr/bin")?, image.find("usr/bin")?) {
                    (None, Found::Directory | Found::Nothing) => Ok(Self::UsrBin),
                    _ => Err(Error::bad("it has no bash, and its /usr/bin is no directory")),
                };
            }
            Some(_) => return Err(Error::bad("it has no bash, and its /bin leads elsewhere")),
            None => {}
        }
        match image.find("bin")? {
            Found::Directory | Found::Nothing => Ok(Self::Bin),
            _ => Err(Error::bad("it has no bash, and its /bin is no directory")),
        }
    }
}

/// Makes a frame unless it is there.
///
/// # Errors
/// [`Error::Lacks`] where it needs a static bash and the host has none.
pub(crate) fn make(images: &Path, shell: Shell) -> Result<(), Error> {
    let made = images.join(shell.frame());
    if present(&made) {
        return Ok(());
    }
    if shell != Shell::Own && !present(Path::new(BASH)) {
        return Err(Error::Lacks(
            "it has no bash, and this machine has none to lend: install the package bash-static"
                .into(),
        ));
    }
    let fresh: PathBuf = images.join(FRAMES).join(format!("new-{}", shell.name()));
    match fs::remove_dir_all(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let directory = |name: &str, mode: u32| {
        let path = fresh.join(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    };
    directory("", 0o755)?;
    for (name, mode) in DIRECTORIES {
        directory(name, *mode)?;
    }
    for (name, text) in FILES {
        fs::write(fresh.join(name), text)?;
        fs::set_permissions(fresh.join(name), fs::Permissions::from_mode(0o644))?;
    }
    let bin = match shell {
        Shell::Own => None,
        Shell::Bin => Some("bin"),
        Shell::UsrBin => {
            directory("usr", 0o755)?;
            Some("usr/bin")
        }
    };
    if let Some(bin) = bin {
        directory(bin, 0o755)?;
        let bash = fresh.join(bin).join("bash");
        fs::copy(BASH, &bash)?;
        fs::set_permissions(&bash, fs::Permissions::from_mode(0o755))?;
    }
    crate::disk::sync(&fresh)?;
    match fs::rename(&fresh, &made) {
        // Somebody else made the same meanwhile.
        Err(_) if present(&made) => Ok(()),
        done => Ok(done?),
    }
}
