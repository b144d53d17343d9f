//! `isolet doctor` on this machine, and where something is broken: most tests break it in a mount
//! namespace of their own.

use isolet_kit::https::Authority;
use isolet_kit::{SOON, Server, Value, programs, wait_until};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// What `isolet doctor --json` printed.
struct Diagnosis {
    code: i32,
    findings: Vec<Value>,
}

impl Diagnosis {
    fn find(&self, check: &str) -> &Value {
        let found = self.findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("{check} is missing: {:?}", self.findings))
    }

    /// Asserts that the check has this status, and a message and a remedy with these words.
    fn says(&self, check: &str, status: &str, message: &str, remedy: &str) {
        let found = self.find(check);
        assert_eq!(found["status"], status, "{found}");
        let has =
            |field: &str, word: &str| found[field].as_str().unwrap_or_default().contains(word);
        assert!(has("message", message) && has("remedy", remedy), "{found}");
    }

    fn failures(&self) -> Vec<&Value> {
        self.findings.iter().filter(|finding| finding["status"] == "failure").collect()
    }
}

/// A port that is free at the moment. It lies below the range from which the kernel takes ports for
/// clients, and above that of the servers of tests, so that nothing else takes it before its use.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // The tests that run at the same time are other processes.
    let first = u16::try_from(std::process::id() % 70).expect("small") * 10;
    let ports = || NEXT.fetch_add(1, Ordering::Relaxed);
    let mut all = std::iter::repeat_with(ports).take(700).map(|next| 32_000 + (first + next) % 700);
    all.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// Runs the doctor after `setup`, a shell script in a new mount namespace. `$DATA` is the data
/// directory.
fn doctor(data: &Path, listen: u16, setup: &str) -> Diagnosis {
    let script = format!("{setup}\nexec $PREFIX \"$ISOLET\" doctor --json");
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-ec", &script]);
    command.env("DATA", data).env("ISOLET_DATA_DIR", data).env("ISOLET", programs().join("isolet"));
    command.env("ISOLET_LISTEN", format!("127.0.0.1:{listen}"));
    let output = command.env_remove("ISOLET_API_KEY").output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = text.parse().unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = report["findings"].as_array().expect("a list").clone();
    Diagnosis { code: output.status.code().expect("exits"), findings }
}

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory in /tmp")
}

/// What checks could leave behind on the machine.
fn traces(data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("reads");
    found.extend(mounts.lines().filter(|line| line.contains("doctor")).map(str::to_owned));
    let groups = Command::new("find").args(["/sys/fs/cgroup", "-name", "isolet-doctor-*"]).output();
    let groups = String::from_utf8_lossy(&groups.expect("find runs").stdout).into_owned();
    found.extend(groups.lines().map(str::to_owned));
    let disks = Command::new("losetup").arg("-a").output().expect("losetup runs").stdout;
    let disks = String::from_utf8_lossy(&disks).into_owned();
    found.extend(disks.lines().filter(|line| line.contains("doctor")).map(str::to_owned));
    let files = std::fs::read_dir(data).into_iter().flatten().flatten();
    found.extend(files.map(|file| file.path().display().to_string()));
    found
}

/// Other tests run the doctor at the same time, and the kernel detaches disks a moment later.
fn leaves_nothing(data: &Path) {
    wait_until("nothing is left", SOON, || traces(data).is_empty().then_some(()));
}

#[test]
fn a_machine_that_runs_sandboxes_has_no_failure_and_nothing_is_left() {
    let data = data();
    let diagnosis = doctor(data.path(), free_port(), "");
    assert_eq!(diagnosis.failures(), Vec::<&Value>::new());
    assert!(diagnosis.code < 2, "{}", diagnosis.code);
    for check in ["namespaces", "overlay", "id-mapped mounts", "seccomp", "delegation", "nftables"]
    {
        assert_eq!(diagnosis.find(check)["status"], "ok", "{}", diagnosis.find(check));
    }
    let warnings = diagnosis.findings.iter().any(|finding| finding["status"] == "warning");
    assert_eq!(diagnosis.code, i32::from(warnings));
    leaves_nothing(data.path());
}

#[test]
fn hidden_control_groups_and_a_hidden_nft_are_failures() {
    let data = data();
    let hidden = doctor(data.path(), free_port(), "mount -t tmpfs none /sys/fs/cgroup");
    assert_eq!(hidden.code, 2);
    hidden.says("control groups", "failure", "not visible", "");
    let hidden = "mount --bind /dev/null \"$(readlink -f /usr/sbin/nft)\"";
    let without = doctor(data.path(), free_port(), hidden);
    without.says("nftables", "failure", "nft is missing", "install the package nftables");
    assert_eq!((without.code, without.failures().len()), (2, 1));
    leaves_nothing(data.path());
}

#[test]
fn low_limits_are_named_with_the_setting_that_raises_them() {
    let data = data();
    let low = doctor(data.path(), free_port(), "ulimit -n 512");
    low.says("open files", "failure", "512", "LimitNOFILE");
    assert_eq!(low.code, 2);
    let low = doctor(data.path(), free_port(), "ulimit -n 4096");
    low.says("open files", "warning", "4096", "LimitNOFILE");
    assert_eq!(low.code, 1);
}

#[test]
fn a_used_port_is_reported_with_its_program() {
    let data = data();
    let other = TcpListener::bind("127.0.0.1:0").expect("binds");
    let used = doctor(data.path(), other.local_addr().expect("has one").port(), "");
    let process = format!("(process {})", std::process::id());
    used.says("listen", "failure", &process, "set another `listen`");
    assert_eq!(used.code, 2);
    let server = Server::start();
    let beside = doctor(&server.data(), server.port(), "");
    assert_eq!(beside.find("listen")["status"], "ok", "{}", beside.find("listen"));
    assert_eq!(beside.failures(), Vec::<&Value>::new());
    server.healthy();
}

#[test]
fn a_used_address_of_the_metrics_is_a_failure() {
    let data = data();
    let other = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = other.local_addr().expect("has one");
    let setup = format!("export ISOLET_METRICS_LISTEN={address}");
    let used = doctor(data.path(), free_port(), &setup);
    used.says("metrics_listen", "failure", "is in use", "set another `metrics_listen`");
    assert_eq!(used.find("listen")["status"], "ok");
    assert_eq!(used.code, 2);
}

#[test]
fn a_certificate_is_reported_before_and_after_it_expires() {
    let data = data();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let folder = folder.path();
    let shown = folder.display();
    let settings =
        format!("export ISOLET_TLS_CERT={shown}/cert.pem ISOLET_TLS_KEY={shown}/key.pem");
    let authority = Authority::new();
    authority.issue(&["localhost"]).write(folder);
    let valid = doctor(data.path(), free_port(), &settings);
    valid.says("certificate", "ok", "valid until 4096", "");
    authority.issue_expired(&["localhost"]).write(folder);
    let expired = doctor(data.path(), free_port(), &settings);
    expired.says("certificate", "failure", "expired at 2001-02-03", "renew");
    assert_eq!(expired.code, 2);
    let soon = format!(
        "{settings}; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
         -days 13 -subj /CN=localhost -keyout {shown}/key.pem -out {shown}/cert.pem 2>/dev/null"
    );
    let soon = doctor(data.path(), free_port(), &soon);
    soon.says("certificate", "warning", "expires at", "renew");
    std::fs::write(folder.join("key.pem"), authority.issue(&["localhost"]).key).expect("writes");
    let other_key = doctor(data.path(), free_port(), &settings);
    other_key.says("certificate", "failure", "does not belong to", "correct tls_cert");
}

#[test]
fn a_disk_that_is_full_or_read_only_is_a_failure() {
    let data = data();
    let full = "mount -t tmpfs -o size=64k none \"$DATA\"; \
                dd if=/dev/zero of=\"$DATA/all\" bs=4k 2>/dev/null || true";
    let full = doctor(data.path(), free_port(), full);
    full.says("data directory", "failure", "No space left", "free space");
    full.says("file system", "warning", "in memory", "data_dir");
    full.says("free space", "failure", "0 MiB", "enlarge the disk");
    assert_eq!(full.code, 2);
    let read_only = "mount --bind \"$DATA\" \"$DATA\"; mount -o remount,ro,bind \"$DATA\"";
    let read_only = doctor(data.path(), free_port(), read_only);
    read_only.says("data directory", "failure", "Read-only", "remount");
    assert_eq!(read_only.find("overlay")["checked"], false);
    assert_eq!(read_only.code, 2);
}

#[test]
fn without_root_it_says_what_it_could_not_check() {
    let data = data();
    let own = "chown 65534:65534 \"$DATA\"; \
               PREFIX='setpriv --reuid 65534 --regid 65534 --clear-groups'";
    let plain = doctor(data.path(), free_port(), own);
    plain.says("user", "failure", "not root", "sudo");
    for check in ["id-mapped mounts", "delegation", "firewall"] {
        plain.says(check, "warning", "not checked", "sudo isolet doctor");
        assert_eq!(plain.find(check)["checked"], false);
    }
    assert_eq!(plain.code, 2);
    leaves_nothing(data.path());
}

#[test]
fn a_clock_behind_the_files_and_open_permissions_are_failures() {
    let data = data();
    let later = "touch -d '+2 days' \"$DATA/identity\"; chmod 777 \"$DATA\"";
    let behind = doctor(data.path(), free_port(), later);
    behind.says("time", "failure", "behind", "chrony");
    behind.says("permissions", "failure", "0777", "chmod go-w");
    assert_eq!(behind.code, 2);
}

#[test]
fn a_start_warns_of_what_the_doctor_would_find() {
    let mut server = Server::start();
    server.stop();
    let key = server.data().join("key");
    std::fs::write(&key, "x").expect("writes");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&key, open).expect("changes");
    server.launch();
    let log = server.log();
    assert!(log.contains("chmod 600") && log.contains("key file"), "{log}");
}
