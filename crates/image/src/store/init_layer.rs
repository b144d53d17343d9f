//! The init layer: the topmost read-only layer of every sandbox that is created from an image. It has
//! real directories where the sandbox's file systems are mounted, and the sandbox's files in `/etc`.
//!
//! Whatever an image has under `/proc`, `/sys`, `/dev` or `/workspace`, a link or a file too, lies
//! below a directory of this layer and is not seen: nothing is ever mounted on what an image says.
//! An image without a bash gets one here, static, so that it needs nothing of the image.
//!
//! One init layer is built at a time. An existing one is checked and rebuilt when it is incomplete,
//! and a complete one is never changed. The launcher checks the mount points again without
//! following links (`jail::create::new_root`).

use crate::disk::staging::Staging;
use crate::disk::{self, present};
use crate::error::Error;
use crate::overlay::lookup::{OverlayView, PathTarget};
use isolet_wire::network::{HOSTS, RESOLVER};
use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The directory of init layers, below the image directory. The name `frames` is part of the stored
/// form: existing data directories and the records of sandboxes refer to layers by this path.
pub(crate) const DIRECTORY: &str = "frames";
/// Part of the layer's name; raised whenever its contents change.
const EDITION: &str = "2";
/// The host's static bash, from Debian's package `bash-static`.
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

/// Where the bash of an image's sandboxes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BashSource {
    /// The image has bash.
    Own,
    /// The host's static bash, as `/bin/bash`.
    Bin,
    /// The host's static bash, as `/usr/bin/bash`: the image's `/bin` is a symlink to `/usr/bin`.
    UsrBin,
}

impl BashSource {
    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Bin => "bin",
            Self::UsrBin => "usr-bin",
        }
    }

    /// The path of bash in the init layer, if it has one.
    fn bash(self) -> Option<&'static str> {
        match self {
            Self::Own => None,
            Self::Bin => Some("bin/bash"),
            Self::UsrBin => Some("usr/bin/bash"),
        }
    }

    /// The init layer's path below the image directory.
    pub(crate) fn init_layer(self) -> String {
        format!("{DIRECTORY}/{EDITION}-{}", self.name())
    }

    /// Determines where the bash of this image comes from.
    ///
    /// # Errors
    /// [`Error::Bad`] if the image has no bash, and neither `/bin` nor `/usr/bin` can hold one.
    pub(crate) fn of(image: &OverlayView) -> Result<Self, Error> {
        for own in ["bin/bash", "usr/bin/bash", "usr/local/bin/bash"] {
            if matches!(image.find(own)?, PathTarget::File(_)) {
                return Ok(Self::Own);
            }
        }
        match image.link("bin")?.as_deref() {
            Some(b"usr/bin" | b"/usr/bin") if image.link("usr")?.is_none() => {
                return match (image.link("usr/bin")?, image.find("usr/bin")?) {
                    (None, PathTarget::Directory | PathTarget::Nothing) => Ok(Self::UsrBin),
                    _ => Err(Error::bad("it has no bash, and its /usr/bin is not a directory")),
                };
            }
            Some(_) => {
                return Err(Error::bad(
                    "it has no bash, and its /bin is a symlink to another directory than /usr/bin",
                ));
            }
            None => {}
        }
        match image.find("bin")? {
            PathTarget::Directory | PathTarget::Nothing => Ok(Self::Bin),
            _ => Err(Error::bad("it has no bash, and its /bin is not a directory")),
        }
    }
}

/// The init layers of a server.
pub(crate) struct InitLayers {
    root: PathBuf,
    /// Held while a layer is created.
    making: Mutex<()>,
}

impl InitLayers {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, making: Mutex::default() }
    }

    /// Creates an init layer, unless a complete one exists. A complete one is never changed, since
    /// sandboxes use it.
    ///
    /// # Errors
    /// [`Error::Lacks`] if it needs a static bash and the host has none.
    pub(crate) fn make(&self, staging: &Staging, shell: BashSource) -> Result<(), Error> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.root.join(shell.init_layer());
        if is_complete(&made, shell) {
            return Ok(());
        }
        if shell != BashSource::Own && !present(Path::new(BASH)) {
            return Err(Error::Lacks(
                "it has no bash, and the host has no static one; install the package bash-static"
                    .into(),
            ));
        }
        let staged = staging.stage()?;
        let fresh = staged.0.join("frame");
        fill(&fresh, shell)?;
        disk::sync(&fresh)?;
        if present(&made) {
            tracing::warn!(path = %made.display(), "replacing an incomplete init layer");
            rustix::fs::renameat_with(CWD, &fresh, CWD, &made, RenameFlags::EXCHANGE)?;
        } else {
            fs::rename(&fresh, &made)?;
        }
        disk::sync(&self.root.join(DIRECTORY))
    }

    /// Replaces incomplete init layers, and removes leftovers.
    pub(crate) fn repair(&self, staging: &Staging) -> Result<(), Error> {
        for entry in fs::read_dir(self.root.join(DIRECTORY))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("new-") {
                disk::clear(&entry.path())?;
            }
        }
        for shell in [BashSource::Own, BashSource::Bin, BashSource::UsrBin] {
            if present(&self.root.join(shell.init_layer()))
                && let Err(error) = self.make(staging, shell)
            {
                tracing::warn!(layer = shell.init_layer(), %error, "cannot repair an init layer");
            }
        }
        Ok(())
    }
}

fn fill(fresh: &Path, shell: BashSource) -> Result<(), Error> {
    for (name, mode) in directories(shell) {
        let path = fresh.join(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    for (name, text) in FILES {
        fs::write(fresh.join(name), text)?;
        fs::set_permissions(fresh.join(name), fs::Permissions::from_mode(0o644))?;
    }
    if let Some(bash) = shell.bash() {
        fs::copy(BASH, fresh.join(bash))?;
        fs::set_permissions(fresh.join(bash), fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Whether a layer is complete. The content of bash is not compared: the host may have another version
/// by now.
fn is_complete(made: &Path, shell: BashSource) -> bool {
    let is = |name: &str, mode: u32, directory: bool| {
        fs::symlink_metadata(made.join(name)).is_ok_and(|about| {
            let kind = if directory { about.is_dir() } else { about.is_file() && about.len() > 0 };
            kind && about.permissions().mode() & 0o7777 == mode
        })
    };
    let text = |name: &str, text: &str| {
        is(name, 0o644, false) && fs::read(made.join(name)).is_ok_and(|is| is == text.as_bytes())
    };
    directories(shell).all(|(name, mode)| is(name, mode, true))
        && FILES.iter().all(|(name, said)| text(name, said))
        && shell.bash().is_none_or(|bash| is(bash, 0o755, false))
}

/// All directories with their modes, parents before children.
fn directories(shell: BashSource) -> impl Iterator<Item = (&'static str, u32)> {
    let more: &[(&str, u32)] = match shell {
        BashSource::Own => &[],
        BashSource::Bin => &[("bin", 0o755)],
        BashSource::UsrBin => &[("usr", 0o755), ("usr/bin", 0o755)],
    };
    std::iter::once(&("", 0o755)).chain(DIRECTORIES).chain(more).copied()
}
