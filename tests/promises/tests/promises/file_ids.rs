//! Files of sandboxes have ids from 0 on the disk of the host, whatever range of ids their sandbox
//! has, and programs inside see the ids that they always saw.

use isolet_kit::{Options, Rows, SOON, Sandbox, Server, Value, json, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first id of slot 0, and the number of ids of a slot.
const UID_BASE: u32 = 0x7000_0000;
const UIDS: u32 = 65_536;

/// Creates files of several owners in the workspace and elsewhere, and one with a capability.
const CREATE: &str = "
cd /workspace && echo a >root && echo b >user && chown 1000:1001 user && chmod 600 user &&
cp /bin/true setuid && chown 1000:1001 setuid && chmod 6755 setuid && cp /bin/true capable &&
mkdir -m 1777 open && ln -s root link && chown -h 1002:1002 link &&
cp setuid -p /usr/local/bin/setuid && echo c >/root/last && chown 65534:65534 /root/last &&
python3 -c 'import os, struct
os.setxattr(\"capable\", \"security.capability\", struct.pack(\"<5I\", 0x02000001, 0x400, 0, 0, 0))'
";
/// Shows what `CREATE` made, as programs inside see it.
const SHOW: &str = "
cd /workspace && stat -c '%n %u:%g %a' . * /usr/local/bin/setuid /root/last /root / &&
python3 -c 'import os; print(os.getxattr(\"capable\", \"security.capability\").hex())'
";
const SHOWN: &str = "\
. 0:0 755
capable 0:0 755
link 1002:1002 777
open 0:0 1777
root 0:0 644
setuid 1000:1001 6755
user 1000:1001 600
/usr/local/bin/setuid 1000:1001 6755
/root/last 65534:65534 644
/root 0:0 700
/ 0:0 755
0100000200040000000000000000000000000000
";

fn create_files(sandbox: &Sandbox) {
    let made = sandbox.exec(CREATE);
    assert_eq!(made["exit_code"], 0, "{made}");
    assert_eq!(sandbox.says(SHOW), SHOWN);
}

fn put_to_sleep(sandbox: &Sandbox) {
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// The directories of all sandboxes.
fn directories(server: &Server) -> Vec<PathBuf> {
    let all = fs::read_dir(server.data().join("sandboxes")).expect("it is there");
    all.map(|one| one.expect("an entry").path()).collect()
}

/// The owner and the mode of a file on the disk.
fn on_disk(path: &Path) -> (u32, u32, u32) {
    let about = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    (about.uid(), about.gid(), about.mode() & 0o7777)
}

/// The owner of a file in an image of a disk that nobody has mounted.
fn in_image(image: &Path, path: &str) -> (u32, u32) {
    let mut debugfs = Command::new("debugfs");
    let said = debugfs.args(["-R", &format!("stat {path}")]).arg(image).output();
    let said = String::from_utf8_lossy(&said.expect("debugfs is there").stdout).into_owned();
    let number = |name: &str| {
        let mut words = said.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{path}: {said}"))
    };
    (number("User:"), number("Group:"))
}

/// Gives every sandbox another slot while the server is stopped, as a restore elsewhere may.
fn change_slots(server: &Server, by: u32) {
    let change = "import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as records:
    records.execute('UPDATE sandboxes SET slot = slot + ?', (int(sys.argv[2]),))";
    let mut python = Command::new("python3");
    python.args(["-c", change]).arg(server.data().join("isolet.db")).arg(by.to_string());
    assert!(python.status().expect("python3 is there").success());
}

/// The slots in which agents run, by their user ids on the host.
fn slots(server: &Server) -> Vec<u32> {
    let slot = |pid: i32| {
        let uid = fs::metadata(format!("/proc/{pid}/root/workspace")).expect("it runs").uid();
        uid.checked_sub(UID_BASE).map_or(u32::MAX, |offset| offset / UIDS)
    };
    let mut all: Vec<u32> = server.agents().into_iter().map(slot).collect();
    all.sort_unstable();
    // A session with a scope has another agent.
    all.dedup();
    all
}

/// Promises: B11.
#[test]
fn files_have_ids_from_0_on_the_disk() {
    let server = Server::start();
    let first = server.sandbox();
    let second = server.sandbox();
    create_files(&first);
    create_files(&second);
    assert_eq!(first.says("cat /proc/self/uid_map").split_whitespace().last(), Some("65535"));
    for directory in directories(&server) {
        let at = |path: &str| on_disk(&directory.join(path));
        assert_eq!(at("workspace"), (0, 0, 0o755));
        assert_eq!(at("workspace/root"), (0, 0, 0o644));
        assert_eq!(at("workspace/setuid"), (1000, 1001, 0o6755));
        assert_eq!(at("workspace/link"), (1002, 1002, 0o777));
        assert_eq!(at("usr/upper/local/bin/setuid"), (1000, 1001, 0o6755));
        assert_eq!(at("root/upper/root/last"), (65_534, 65_534, 0o644));
    }
    let small = server.sandbox_with(&json!({"disk_mib": 64}));
    create_files(&small);
    put_to_sleep(&small);
    let image = directories(&server).into_iter().map(|directory| directory.join("disk.ext4"));
    let image = image.into_iter().find(|image| image.is_file()).expect("a disk");
    wait_until("the disk is written", SOON, || {
        (in_image(&image, "workspace/setuid") == (1000, 1001)).then_some(())
    });
    assert_eq!(in_image(&image, "workspace/root"), (0, 0));
    assert_eq!(in_image(&image, "root/upper/root/last"), (65_534, 65_534));
    assert_eq!(small.says(SHOW), SHOWN);
    server.healthy();
}

/// Promises: B11.
#[test]
fn a_sandbox_keeps_its_files_in_another_range_of_ids() {
    let mut server = Server::start();
    let plain = server.sandbox();
    let small = server.sandbox_with(&json!({"disk_mib": 64}));
    for sandbox in [&plain, &small] {
        create_files(sandbox);
        sandbox.command("dev", "cd /tmp; X=kept");
        put_to_sleep(sandbox);
    }
    server.stop();
    change_slots(&server, 10);
    server.launch();
    let mut rows = Rows::new();
    for (name, sandbox) in [("a directory", &plain), ("a disk", &small)] {
        rows.row(name, || {
            assert_eq!(sandbox.says(SHOW), SHOWN);
            assert_eq!(sandbox.command("dev", "pwd; echo $X")["stdout"], "/tmp\nkept\n");
            let write = "cd /workspace; cat user; echo more >>root; mv root open/root; \
                         setpriv --reuid 1000 --regid 1001 --clear-groups sh -c \
                         'echo mine >>user && echo new >open/new && ! cat /root/last 2>/dev/null'; \
                         stat -c %u:%g open/new; chown 7:8 open/new; rm setuid; \
                         rm /usr/local/bin/setuid; ls /usr/local/bin/setuid 2>&1 | wc -l";
            assert_eq!(sandbox.says(write), "b\n1000:1001\n1\n");
        });
    }
    rows.row("a session that sees a part of the files", || {
        let access = json!({"read": [], "write": ["open", "made/deep"]});
        let spec = json!({"id": "part", "file_access": access});
        plain.post("/sessions", &spec).expect(201);
        let said = plain.command("part", "stat -c %u:%g open/new made/deep; echo x >made/deep/x");
        assert_eq!(said["stdout"], "7:8\n0:0\n", "{said}");
    });
    drop(rows);
    assert_eq!(slots(&server), [10, 11]);
    let directory = directories(&server)
        .into_iter()
        .find(|one| !one.join("disk.ext4").try_exists().expect("can be looked at"));
    let workspace = directory.expect("the one without a disk").join("workspace");
    assert_eq!(on_disk(&workspace.join("open/new")), (7, 8, 0o644));
    assert_eq!(on_disk(&workspace.join("made/deep")), (0, 0, 0o755));
    assert_eq!(on_disk(&workspace.join("made/deep/x")), (0, 0, 0o644));
    server.healthy();
}

/// A failed sandbox is read by another agent, and recovered with the same ids.
/// Promises: B11.
#[test]
fn a_failed_sandbox_in_another_range_of_ids_is_read_and_recovered() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    create_files(&sandbox);
    isolet_kit::process::kill(server.agent());
    wait_until("it has failed", SOON, || (sandbox.info()["state"] == "failed").then_some(()));
    server.stop();
    change_slots(&server, 3);
    server.launch();
    let read = |path: &str| sandbox.http.get(&sandbox.path(path)).expect(200).text();
    assert_eq!(read("/files/user"), "b\n");
    sandbox.post("/recover", &json!({})).expect(200);
    assert_eq!(sandbox.says(SHOW), SHOWN);
    assert_eq!(slots(&server), [3]);
    server.healthy();
}

/// The file system of the data directory decides for all new sandboxes.
/// Promises: B11.
#[test]
fn where_ids_cannot_be_mapped_files_have_those_of_the_slot() {
    let server = Options::new().overlay().start();
    let log = server.log();
    assert!(log.contains("the file system of the data directory cannot map ids"), "{log}");
    let sandbox = server.sandbox_with(&json!({"disk_mib": 64}));
    create_files(&sandbox);
    put_to_sleep(&sandbox);
    let image = directories(&server)[0].join("disk.ext4");
    wait_until("the disk is written", SOON, || {
        (in_image(&image, "workspace/setuid") == (UID_BASE + 1000, UID_BASE + 1001)).then_some(())
    });
    assert_eq!(sandbox.says(SHOW), SHOWN);
    put_to_sleep(&sandbox);
    sandbox.delete();
    server.wait_until_tidy();
    let doctor = server.command(&["doctor"]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("files of new sandboxes have the ids of their slot on disk"), "{said}");
}

/// On the disk, a set-user-id program of a tenant's root belongs to root of the host.
/// Promises: B12.
#[test]
fn users_of_the_host_reach_no_file_of_a_tenant() {
    let mut server = Server::start();
    let data = server.data();
    // The directory of a test is closed, that of a server is not.
    let above = data.parent().expect("the test's directory");
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let sandbox = server.sandbox();
    sandbox.says("cp /bin/id /workspace/id; chmod 6755 /workspace/id");
    let program = directories(&server)[0].join("workspace/id");
    assert_eq!(on_disk(&program), (0, 0, 0o6755));
    let as_user = |command: &str| {
        let mut setpriv = Command::new("setpriv");
        let user = ["--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c"];
        setpriv.args(user).arg(command).output().expect("setpriv is there")
    };
    let reaches = |path: &Path| as_user(&format!("stat {}", path.display())).status.success();
    let closed = |server: &Server| {
        assert!(reaches(&server.data()), "the data directory itself can be passed");
        let outcome = as_user(&format!("{} -u", program.display()));
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), "");
        assert!(!reaches(&program) && !reaches(program.parent().expect("a workspace")));
        for name in ["sandboxes", "trash", "orphaned", "credentials", "launcher"] {
            let directory = server.data().join(name);
            let inside = as_user(&format!("ls {0} || cd {0}", directory.display()));
            assert!(!inside.status.success(), "{name}");
            if let Ok(about) = fs::metadata(&directory) {
                assert_eq!(about.mode() & 0o077, 0, "{name}: {:o}", about.mode());
            }
        }
    };
    closed(&server);
    server.stop();
    // As a copy of the data directory may have them.
    for name in ["sandboxes", "trash"] {
        let open = fs::Permissions::from_mode(0o711);
        fs::set_permissions(data.join(name), open).expect("it is ours");
    }
    assert!(reaches(&program), "it was reachable before");
    server.launch();
    closed(&server);
    assert_eq!(sandbox.says("stat -c %u:%a /workspace/id"), "0:6755\n");
    server.healthy();
}

/// A backup of sandboxes is restored with the ids that the files have on disk.
/// Promises: B11.
#[test]
fn a_restored_sandbox_has_its_files_in_another_range_of_ids() {
    let server = Server::start();
    let sandbox = server.sandbox();
    create_files(&sandbox);
    let other = server.start_beside(|data, copy| {
        let backup = data.with_file_name("backup");
        for args in [
            vec!["backup".into(), backup.clone()],
            vec!["restore".into(), "--data-dir".into(), copy.to_owned(), backup.clone()],
        ] {
            let done = server.program().args(&args).output().expect("isolet starts");
            let errors = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{args:?}: {errors}");
        }
        fs::remove_dir_all(&backup).expect("it is ours");
        let image = fs::read_link(data.join("image")).expect("a link");
        std::os::unix::fs::symlink(image, copy.join("image")).expect("it has none");
        let change = "import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as records:
    records.execute('UPDATE sandboxes SET slot = slot + 5')";
        let mut python = Command::new("python3");
        python.args(["-c", change]).arg(copy.join("isolet.db"));
        assert!(python.status().expect("python3 is there").success());
    });
    let restored = other.named(&sandbox.id);
    assert_eq!(restored.info()["state"], Value::from("sleeping"));
    assert_eq!(restored.says(SHOW), SHOWN);
    assert_eq!(slots(&other), [5]);
    assert_eq!(on_disk(&directories(&other)[0].join("workspace/setuid")), (1000, 1001, 0o6755));
    assert_eq!(sandbox.says(SHOW), SHOWN);
    other.healthy();
    server.healthy();
}
