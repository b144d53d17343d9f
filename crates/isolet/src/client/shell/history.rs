//! Where the commands that were typed in `isolet shell` are remembered.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names the file, or no file if it is empty.
const VARIABLE: &str = "ISOLET_SHELL_HISTORY";
/// The most commands in the file.
pub(super) const ENTRIES_MAX: usize = 1000;
/// The longest command that is remembered, in bytes. With [`ENTRIES_MAX`] it bounds the file.
pub(super) const ENTRY_BYTES_MAX: usize = 16 * 1024;

/// The file of this user; `None` if nothing is remembered. Only its owner may read its directory.
pub(super) fn file() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let file = place(named, state, home)?;
    let directory = file.parent().filter(|directory| *directory != Path::new(""))?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory).ok()?;
    Some(file)
}

fn place(named: Option<PathBuf>, state: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(named) = named {
        // Fails only for an empty path.
        return std::path::absolute(named).ok();
    }
    let state = state.filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute());
    let state = state.or_else(|| home.map(|home| home.join(".local/state")))?;
    Some(state.join("isolet/shell_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_follows_the_variables_and_an_empty_one_switches_it_off() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(place(None, None, path("/h")), path("/h/.local/state/isolet/shell_history"));
        assert_eq!(place(None, path("/s"), path("/h")), path("/s/isolet/shell_history"));
        assert_eq!(place(path("/f"), path("/s"), path("/h")), path("/f"));
        assert_eq!(place(path(""), path("/s"), path("/h")), None);
        let here = std::env::current_dir().unwrap();
        assert_eq!(place(path("f"), path("/s"), path("/h")), Some(here.join("f")));
        assert_eq!(place(None, path("relative"), None), None);
    }
}
