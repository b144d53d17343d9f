//! The shipped unit under a real systemd, across restarts.

use crate::programs::{ProgramOutput, checkout, run};
use isolet_kit::{LONG, SOON, process, programs, test_directory, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A systemd in its own namespaces, with the unit installed but not started.
struct Systemd {
    outer: Child,
    init: i32,
    group: String,
    state: TempDir,
}

impl Systemd {
    fn start() -> Self {
        let state = test_directory("systemd");
        // The name of the directory, so that tests/runner/cleanup.py finds the groups of a killed test.
        let group = state.path().file_name().expect("a name").to_str().expect("UTF-8").to_owned();
        let outer = Command::new(checkout().join("tests/clients/systemd.sh"))
            .args([&programs(), state.path()])
            .arg(&group)
            .stdin(Stdio::null())
            .spawn()
            .expect("bash starts");
        let mut own = Self { outer, init: 0, group, state };
        wait_until("systemd is up", LONG, || {
            if let Some(status) = own.outer.try_wait().expect("its child") {
                panic!("systemd.sh ended with {status}");
            }
            own.init = own.find()?;
            (own.run(&["systemctl", "is-system-running"]).out.trim() == "running").then_some(())
        });
        own
    }

    /// The pid of its process 1, once that is systemd and no longer the script.
    fn find(&self) -> Option<i32> {
        let outer = i32::try_from(self.outer.id()).ok()?;
        let mut all = process::all().into_iter();
        all.find(|pid| process::parent(*pid) == Some(outer) && process::name(*pid) == "systemd")
    }

    /// Runs a program in the namespaces of this systemd.
    fn run(&self, args: &[&str]) -> ProgramOutput {
        let init = self.init.to_string();
        run(Command::new("nsenter").args(["--target", &init, "--all"]).args(args))
    }

    /// Runs an `isolet` command there without options, so that it must find the shipped paths.
    fn isolet(&self, args: &[&str]) -> ProgramOutput {
        let program = programs().join("isolet").display().to_string();
        self.run(&[&["env", "-u", "ISOLET_API_KEY", &program], args].concat())
    }

    fn systemctl(&self, verb: &str) {
        self.run(&["systemctl", verb, "isolet"]).well();
    }

    fn main_pid(&self) -> String {
        let said = self.run(&["systemctl", "show", "--property=MainPID", "--value", "isolet"]);
        said.well().out.trim().to_owned()
    }

    /// Waits until the unit is active and its server answers.
    fn answers(&self) {
        wait_until("the server answers", SOON, || {
            let active = self.run(&["systemctl", "is-active", "isolet"]).code == Some(0);
            (active && self.isolet(&["ls"]).code == Some(0)).then_some(())
        });
    }
}

impl Drop for Systemd {
    /// Ends everything in its pid namespace and removes its cgroups.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the unit's log ---\n{}", self.run(&["cat", "/run/isolet.log"]).out);
            eprintln!("{}", self.run(&["systemctl", "status", "--no-pager", "isolet"]).out);
        }
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let clean = std::panic::catch_unwind(|| {
            wait_until("its groups can be removed", SOON, || {
                let groups = groups(&self.group);
                groups.iter().for_each(|group| remove(group));
                groups.is_empty().then_some(())
            });
        });
        assert!(clean.is_ok() || std::thread::panicking(), "groups of {} are left", self.group);
        assert!(self.state.path().is_dir(), "its state is outside of it");
    }
}

/// The cgroup of this name in each hierarchy, at most two levels below the top.
fn groups(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut level = vec![PathBuf::from("/sys/fs/cgroup")];
    for _ in 0..5 {
        level = level.iter().flat_map(|at| folders(at)).collect();
        found.extend(level.iter().filter(|at| at.ends_with(name)).cloned());
    }
    found
}

fn folders(at: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(at) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Removes the children first, because a cgroup with children cannot be removed.
fn remove(group: &Path) {
    folders(group).iter().for_each(|below| remove(below));
    let _ = fs::remove_dir(group);
}

/// Prints what identifies a shell: its pid, its start time, a variable, a directory, a job.
const WHO: &str = "echo $$ $(cut -d' ' -f22 /proc/$$/stat) $X; pwd; jobs -r | grep -c sleep";

/// Promises: U1.
#[test]
fn the_systemd_unit_keeps_sandboxes_over_restarts() {
    let systemd = Systemd::start();
    systemd.systemctl("start");
    systemd.answers();
    let begin = format!("X=42; cd /tmp; sleep 1000 & {WHO}");
    let in_dev =
        |text: &str| systemd.isolet(&["exec", "keep", "--session", "dev", "--", text]).well().out;
    let who = in_dev(&begin);
    assert!(who.ends_with(" 42\n/tmp\n1\n"), "{who:?}");
    let key = systemd.run(&["cat", "/var/lib/isolet/key"]).well().out;
    let mode = systemd.run(&["stat", "-c", "%a", "/var/lib/isolet"]).well().out;
    assert_eq!(mode, "700\n", "only the server can use the state directory");

    let first = systemd.main_pid();
    systemd.systemctl("restart");
    systemd.answers();
    assert_ne!(systemd.main_pid(), first);
    assert_eq!(in_dev(WHO), who, "after systemctl restart");

    let second = systemd.main_pid();
    systemd.run(&["kill", "-9", &second]).well();
    wait_until("systemd starts it again", SOON, || {
        let pid = systemd.main_pid();
        (pid != second && pid != "0").then_some(())
    });
    systemd.answers();
    assert_eq!(in_dev(WHO), who, "after kill -9 of the main process");

    systemd.systemctl("stop");
    assert_ne!(systemd.isolet(&["ls"]).code, Some(0), "it is stopped");
    systemd.systemctl("start");
    systemd.answers();
    assert_eq!(in_dev(WHO), who, "after a stop and a start");
    assert_eq!(systemd.run(&["cat", "/var/lib/isolet/key"]).well().out, key);
    systemd.isolet(&["rm", "keep"]).well();
}
