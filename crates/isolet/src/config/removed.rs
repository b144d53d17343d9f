//! Settings that were renamed: the old name is refused with an error that tells the new one.
//! Nothing is translated silently, so a configuration never holds two names for one thing.

use anyhow::{Result, bail};
use std::path::Path;

/// A setting of an earlier version, and what replaces it.
struct Renamed {
    /// The table that holds it; empty for the top of the file.
    table: &'static str,
    old: &'static str,
    new: &'static str,
}

/// Keys of the configuration file.
const KEYS: [Renamed; 4] = [
    Renamed { table: "", old: "ready", new: "warm_pool_size" },
    Renamed { table: "", old: "recover_s", new: "recover_timeout_s" },
    Renamed { table: "", old: "misses_max", new: "not_found_limit_per_10s" },
    Renamed { table: "images", old: "pull_s", new: "pull_timeout_s" },
];

/// Environment variables: the old name, then the new one.
const VARIABLES: [(&str, &str); 1] = [("ISOLET_READY", "ISOLET_WARM_POOL_SIZE")];

/// Programs beside the server: the old name, then the new one.
const PROGRAMS: [(&str, &str); 1] = [("isolet-edge", "isolet-egress-proxy")];

/// Refuses a configuration file with a renamed key. Text that is not TOML passes: reading it
/// reports that error with its line.
pub(super) fn check_keys(text: &str, path: &Path) -> Result<()> {
    let Ok(file) = text.parse::<toml::Table>() else { return Ok(()) };
    for Renamed { table, old, new } in &KEYS {
        let holder = match *table {
            "" => Some(&file),
            name => file.get(name).and_then(toml::Value::as_table),
        };
        if holder.is_some_and(|holder| holder.contains_key(*old)) {
            let place = if table.is_empty() { String::new() } else { format!("[{table}] ") };
            let file = path.display();
            bail!("{file}: {place}`{old}` was renamed to `{new}`; change the key");
        }
    }
    Ok(())
}

/// Refuses an environment with a renamed variable.
pub(super) fn check_environment() -> Result<()> {
    for (old, new) in VARIABLES {
        if std::env::var_os(old).is_some() {
            bail!("the environment variable {old} was renamed to {new}; set that one");
        }
    }
    Ok(())
}

/// Refuses a directory of programs that holds one under its old name alone.
pub(super) fn check_programs(dir: &Path) -> Result<()> {
    for (old, new) in PROGRAMS {
        let old_exists = dir.join(old).try_exists().unwrap_or(false);
        let new_exists = dir.join(new).try_exists().unwrap_or(true);
        if old_exists && !new_exists {
            let dir = dir.display();
            bail!("{dir} holds {old}, which was renamed to {new}; install {new} there");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_key_is_refused_with_its_new_name() {
        for Renamed { table, old, new } in &KEYS {
            let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
            let text = format!("{head}{old} = 1\n");
            let error = check_keys(&text, Path::new("f.toml")).unwrap_err().to_string();
            assert!(error.starts_with("f.toml: ") && error.contains(new), "{error}");
            let text = format!("{head}{new} = 1\n");
            check_keys(&text, Path::new("f.toml")).unwrap();
        }
    }

    #[test]
    fn a_program_under_its_old_name_alone_is_refused() {
        let dir = std::env::temp_dir().join(format!("isolet-renamed-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        check_programs(&dir).unwrap();
        std::fs::write(dir.join("isolet-edge"), "").unwrap();
        let error = check_programs(&dir).unwrap_err().to_string();
        assert!(error.contains("isolet-egress-proxy"), "{error}");
        std::fs::write(dir.join("isolet-egress-proxy"), "").unwrap();
        check_programs(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
