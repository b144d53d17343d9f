//! A cgroup whose processes do not run while it is frozen.

use super::until;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Freezer {
    directory: PathBuf,
    /// The file, and what is written to it: to freeze, and to continue.
    switch: (&'static str, [&'static str; 2]),
}

impl Freezer {
    /// A cgroup with this process and all that it starts from now on. The caller must be root.
    pub fn around(pid: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("isolet-agent-test-{}-{number}", std::process::id());
        let first = PathBuf::from("/sys/fs/cgroup/freezer");
        let freezer = if first.try_exists().expect("it can be looked up") {
            let switch = ("freezer.state", ["FROZEN", "THAWED"]);
            Self { directory: first.join(name), switch }
        } else {
            let directory = PathBuf::from("/sys/fs/cgroup").join(name);
            Self { directory, switch: ("cgroup.freeze", ["1", "0"]) }
        };
        std::fs::create_dir(&freezer.directory).expect("root makes a cgroup");
        std::fs::write(freezer.directory.join("cgroup.procs"), pid).expect("the process joins it");
        freezer
    }

    fn write(&self, text: &str) {
        std::fs::write(self.directory.join(self.switch.0), text).expect("the switch");
    }

    fn reads(&self, file: &str, text: &str) -> bool {
        std::fs::read_to_string(self.directory.join(file)).expect("its state").contains(text)
    }

    /// Returns when nothing in it runs any more.
    pub fn freeze(&self) {
        self.write(self.switch.1[0]);
        until("it is frozen", || match self.switch.0 {
            "freezer.state" => self.reads("freezer.state", "FROZEN"),
            _ => self.reads("cgroup.events", "frozen 1"),
        });
    }

    pub fn thaw(&self) {
        self.write(self.switch.1[1]);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let pids = std::fs::read_to_string(self.directory.join("cgroup.procs"));
        for pid in pids.unwrap_or_default().lines().filter_map(|pid| pid.parse().ok()) {
            let _ = isolet_sys::signal::send(pid, 9);
        }
        until("its cgroup is gone", || std::fs::remove_dir(&self.directory).is_ok());
    }
}
