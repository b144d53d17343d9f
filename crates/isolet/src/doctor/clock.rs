//! The clock, by which keys, tickets and links expire and certificates are checked.

use super::finding::Finding;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

const GROUP: &str = "clock";
/// How far files may lie in the future.
const AHEAD_S: u64 = 60;
const REMEDY: &str = "install the package chrony or systemd-timesyncd";

pub(super) fn check(data_dir: &Path) -> Vec<Finding> {
    vec![synchronised(), beside_files(data_dir)]
}

fn synchronised() -> Finding {
    let check = "synchronisation";
    match isolet_sys::kernel_clock::is_synchronized() {
        Ok(true) => Finding::ok(GROUP, check, "a time service sets the clock"),
        Ok(false) => Finding::warning(GROUP, check, "no time service sets the clock", REMEDY),
        Err(error) => Finding::unchecked(GROUP, check, &format!("adjtimex: {error}"), REMEDY),
    }
}

/// Compares the clock with the times of files that exist already.
fn beside_files(data_dir: &Path) -> Finding {
    let check = "time";
    let program = std::env::current_exe().ok();
    let records = ["isolet.db", "identity"].map(|name| data_dir.join(name));
    let now = SystemTime::now();
    let ahead = |path: &Path| {
        let changed = fs::metadata(path).and_then(|about| about.modified()).ok()?;
        changed.duration_since(now).ok().map(|ahead| ahead.as_secs())
    };
    let files = program.iter().chain(&records);
    match files.filter_map(|path| Some((ahead(path)?, path))).max() {
        Some((seconds, path)) if seconds > AHEAD_S => Finding::failure(
            GROUP,
            check,
            format!("the clock is at least {seconds} s behind: {} is newer", path.display()),
            REMEDY,
        ),
        _ => Finding::ok(GROUP, check, isolet_clock::rfc3339(isolet_clock::now_ms())),
    }
}
