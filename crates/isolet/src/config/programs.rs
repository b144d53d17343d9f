//! Where the other programs are.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The directory of the launcher, the agent and the egress proxy.
pub(crate) fn directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the directory of this program")?;
    Ok(programs_of(own.parent().unwrap_or(Path::new("/"))))
}

/// The programs lie beside this one. A package installs this one alone in `/usr/bin` or
/// `/usr/local/bin`, and the others in `lib/isolet` beside that directory.
fn programs_of(own: &Path) -> PathBuf {
    let has_launcher =
        |dir: &Path| dir.join("isolet-launcher").try_exists().is_ok_and(|exists| exists);
    let packaged = own.with_file_name("lib").join("isolet");
    if has_launcher(own) || !has_launcher(&packaged) { own.to_owned() } else { packaged }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_lie_beside_this_one_or_in_lib() {
        let prefix = tempfile::tempdir().unwrap();
        let bin = prefix.path().join("bin");
        let lib = prefix.path().join("lib/isolet");
        [&bin, &lib].iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        assert_eq!(programs_of(&bin), bin, "errors name the usual place");
        std::fs::write(lib.join("isolet-launcher"), "").unwrap();
        assert_eq!(programs_of(&bin), lib);
        std::fs::write(bin.join("isolet-launcher"), "").unwrap();
        assert_eq!(programs_of(&bin), bin);
    }
}
