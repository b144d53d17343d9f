//! The launcher shows files under the ids of the slot in which their sandbox starts, whatever ids
//! they have on disk.

use isolet_jail::{Config, Error, FILES_ID_BASE, Launcher, SandboxHandle, UID_BASE, first_id};
use isolet_wire::launcher::{Limits, Spec};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

struct Fixture {
    folder: TempDir,
    config: Config,
    launcher: Launcher,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let mut config = Config::beside(folder.path()).expect("own path is known");
        config.launcher = env!("CARGO_BIN_EXE_isolet-launcher").into();
        config.agent = isolet_kit::programs().join("isolet-agent");
        let launcher = Launcher::start(&config).expect("it starts");
        assert_eq!(launcher.unmapped_files(), None, "the disk of temporary files maps ids");
        Self { folder, config, launcher }
    }

    /// Starts a sandbox, and returns the owner of its workspace as its programs' ids are numbered
    /// on the host.
    fn start(&mut self, name: &str, slot: u32, id_base: Option<u32>) -> Result<u32, Error> {
        let limits = Limits { memory_mib: 256, cpu_millis: 1000, pids: 64, disk_mib: 0 };
        let spec = Spec {
            name: name.to_owned(),
            slot,
            hostname: "sandbox".to_owned(),
            limits,
            root: None,
            directory_exists: self.directory(name).try_exists().unwrap_or(false),
            has_veth: false,
            id_base,
            snapshot_layers: Vec::new(),
        };
        let pid = self.launcher.launch(&spec, None)?;
        Ok(owner(Path::new(&format!("/proc/{pid}/root/workspace"))))
    }

    fn end(&self, name: &str) {
        let sandbox = SandboxHandle::open(&self.config, name);
        sandbox.kill().expect("it is killed");
        assert!(sandbox.wait_empty(Duration::from_secs(20)));
        sandbox.remove_cgroups().expect("they are removed");
    }

    fn directory(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("sandboxes").join(name)
    }
}

fn owner(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").uid()
}

/// Promises: B11.
#[test]
fn files_follow_their_sandbox_into_another_slot() {
    let mut fixture = Fixture::new();
    let first = |slot| first_id(UID_BASE, slot).expect("a slot");
    for (name, id_base, on_disk) in
        [("mapped", Some(FILES_ID_BASE), 0), ("unmapped", None, first(3))]
    {
        assert_eq!(fixture.start(name, 3, id_base).expect("it is created"), first(3), "{name}");
        fixture.end(name);
        let workspace = fixture.directory(name).join("workspace");
        assert_eq!(owner(&workspace), on_disk, "{name}");
        let started = fixture.start(name, 4, Some(on_disk)).expect("it starts elsewhere");
        assert_eq!(started, first(4), "{name}");
        fixture.end(name);
        assert_eq!(owner(&workspace), on_disk, "{name}: nothing is given to another owner");
    }
    let refused = fixture.start("host", 5, Some(1000)).expect_err("these are ids of the host");
    assert!(matches!(refused, Error::Failed { errno: Errno::RANGE, .. }), "{refused}");
    assert!(!fixture.directory("host").try_exists().unwrap_or(false), "nothing of it is left");
}
