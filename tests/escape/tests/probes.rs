//! Every escape of `probes.py`, as root inside, as a plain user, in a shell, and as a grandchild:
//! each answer of the kernel must be one that is known to be safe.
#![allow(missing_docs)]

use isolet_kit::{Sandbox, Server};
use serde_json::{Map, Value, json};

const PROBES: &str = include_str!("../probes.py");
const PYTHON: &str = "/usr/bin/python3 /tmp/probes.py";

/// The outcomes that are safe for probes whose names have this prefix; the first matching line
/// decides.
const SAFE: &[(&str, &[&str])] = &[
    ("descriptors", &["0 1 2"]),
    ("cwd", &["/workspace"]),
    ("write a program of the image", &["ok", "EACCES"]),
    ("write ", &["EACCES", "EROFS", "ENOENT"]),
    ("cgroup files", &["0 files"]),
    ("mount ", &["EPERM"]),
    ("mount_setattr", &["EPERM"]),
    ("mknod ", &["EPERM", "EACCES"]),
    ("devices", &["fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"]),
    ("open /dev/", &["ENOENT"]),
    ("chroot and walk up", &["same", "EPERM"]),
    ("clone3", &["ENOSYS"]),
    ("setns 1 ", &["EACCES", "EPERM"]),
    ("/proc/1/", &["EACCES", "EPERM"]),
    ("become the agent's user", &["EINVAL", "EPERM"]),
    ("read /proc/", &["0 bytes", "EACCES", "ENOENT"]),
    ("list /proc/", &["0 files", "ENOENT"]),
    ("see /sys/", &["ENOENT"]),
    ("x32 call", &["EPERM", "ENOSYS"]),
    ("socket UNIX", &["ok"]),
    ("socket INET", &["ok", "EPERM", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"]),
    ("socket NETLINK", &["ok", "ESOCKTNOSUPPORT"]),
    ("socket ", &["EAFNOSUPPORT"]),
    ("netlink ROUTE", &["ok"]),
    ("netlink ", &["EAFNOSUPPORT"]),
    ("modules loaded", &["0"]),
    ("abstract sockets", &["0 seen"]),
    ("host sockets", &["0 seen"]),
    ("connect ", &["ENOENT", "ECONNREFUSED"]),
    ("listening agent", &["EACCES"]),
    ("interfaces", &["lo"]),
    ("reach ", &["ENETUNREACH", "ECONNREFUSED"]),
    ("set-user-id program", &["same"]),
    ("uid_map", &["0 1 65535"]),
    ("real time", &["EPERM"]),
    ("nice -20", &["EACCES", "EPERM"]),
    ("oom_score_adj", &["EACCES"]),
    ("raise ", &["refused"]),
    ("mlockall", &["ENOMEM", "EAGAIN", "EPERM"]),
    ("huge pages", &["ENOMEM"]),
    ("ioctl ", &["EPERM"]),
    ("controlling terminal", &["ENXIO"]),
    ("see /home", &["user"]),
    ("see /etc/shadow", &["52 bytes", "EACCES"]),
    ("see /", &["ENOENT", "EACCES"]),
    ("kcmp", &["EPERM"]),
    ("", &["EPERM"]),
];

fn load(sandbox: &Sandbox) {
    let body = json!({ "argv": ["tee", "/tmp/probes.py"], "stdin": PROBES });
    let answer = sandbox.post("/exec", &body).expect(200).json();
    assert_eq!(answer["exit_code"], 0, "{answer}");
}

fn probe(said: &str) -> Map<String, Value> {
    match serde_json::from_str(said) {
        Ok(Value::Object(outcomes)) => outcomes,
        _ => panic!("the probes said {said:?}"),
    }
}

/// Every outcome that is not listed as safe.
fn unsafe_ones(outcomes: &Map<String, Value>) -> Vec<String> {
    let safe = |name: &str, outcome: &str| {
        let (_, safe) = SAFE
            .iter()
            .find(|(prefix, _)| name.starts_with(prefix))
            .expect("the last line matches everything");
        safe.contains(&outcome)
    };
    outcomes
        .iter()
        .filter(|(name, _)| *name != "posture")
        .map(|(name, outcome)| (name, outcome.as_str().unwrap_or("?")))
        .filter(|(name, outcome)| !safe(name, outcome))
        .map(|(name, outcome)| format!("{name}: {outcome}"))
        .collect()
}

fn check(who: &str, said: &str) -> Map<String, Value> {
    let outcomes = probe(said);
    assert!(outcomes.len() > 250, "{who}: only {} probes ran", outcomes.len());
    let bad = unsafe_ones(&outcomes);
    assert!(
        bad.is_empty(),
        "{who}: {} of {} got through:\n{}",
        bad.len(),
        outcomes.len(),
        bad.join("\n")
    );
    outcomes
}

/// A table that accepts everything would prove nothing: outside a sandbox, the probes that are
/// harmless there succeed.
#[test]
fn the_probes_succeed_outside_a_sandbox() {
    let reads = "import json, os, socket\nr = {}\ndef t(n, f):\n  try: r[n] = f() or 'ok'\n  except OSError: r[n] = 'EPERM'\n\
                 t('/proc/1/environ', lambda: bool(open('/proc/1/environ', 'rb').read(1)) and 'ok')\n\
                 t('/proc/1/exe', lambda: os.readlink('/proc/1/exe') and 'ok')\n\
                 t('/proc/1/root', lambda: os.readlink('/proc/1/root') and 'ok')\n\
                 t('devices', lambda: ' '.join(sorted(os.listdir('/dev'))))\n\
                 t('socket PACKET 3', lambda: socket.socket(17, 3).close())\n\
                 t('see /boot', lambda: str(os.listdir('/boot')))\n\
                 t('uid_map', lambda: open('/proc/self/uid_map').read())\n\
                 print(json.dumps(r))";
    let output = std::process::Command::new("/usr/bin/python3").args(["-c", reads]).output();
    let bad = unsafe_ones(&probe(&String::from_utf8_lossy(&output.expect("python3").stdout)));
    assert!(bad.len() >= 4, "{bad:?}");
}

/// Promises: B5, G15.
#[test]
fn e1_to_e52_root_inside_gets_nowhere() {
    let server = Server::start();
    let sandbox = server.sandbox();
    load(&sandbox);
    let outcomes = check("root", &sandbox.says(PYTHON));
    // Inherited, permitted, effective, bounding and ambient capabilities, no_new_privs, seccomp,
    // filters, user ids.
    let posture = outcomes["posture"].as_str().unwrap_or_default();
    let words: Vec<&str> = posture.split(' ').collect();
    assert!(!posture.contains('|'), "threads differ: {posture}");
    assert_eq!((words[0], words[4]), ("0000000000000000", "0000000000000000"), "{posture}");
    assert_eq!((words[1], words[2]), (words[3], words[3]), "{posture}");
    // CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT SETFCAP
    assert_eq!(words[3], "00000000800405fb", "{posture}");
    assert_eq!(words[5..], ["1", "2", "2", "0,0,0,0"], "{posture}");
    server.healthy();
}

/// Promises: B5.
#[test]
fn e1_to_e52_a_plain_user_gets_nowhere() {
    let server = Server::start();
    let sandbox = server.sandbox();
    load(&sandbox);
    let text = format!("setpriv --reuid 1000 --regid 1000 --clear-groups {PYTHON}");
    let outcomes = check("user 1000", &sandbox.says(&text));
    let posture = outcomes["posture"].as_str().unwrap_or_default();
    assert!(posture.ends_with("1 2 2 1000,1000,1000,1000"), "{posture}");
    assert_eq!(posture.split(' ').nth(2), Some("0000000000000000"), "{posture}");
}

/// Promises: B5.
#[test]
fn e1_to_e52_a_shell_and_its_grandchildren_get_nowhere() {
    let server = Server::start();
    let sandbox = server.sandbox();
    load(&sandbox);
    let mut shell = sandbox.shell();
    // Programs of a shell inherit its internal descriptors, which are pipes and a memory file.
    let close = "exec 56>&- 57>&- 58>&- 59>&- 3>&- 4>&-;";
    let outcome = shell.run(&format!("( ( {close} {PYTHON} ) )"));
    check("grandchild of a shell", &String::from_utf8_lossy(&outcome.out));
    let kinds = shell
        .run("ls -l /proc/self/fd | tail -n +2 | awk '{print $NF}' | sed 's/:.*//' | sort -u")
        .text();
    for kind in kinds.split_whitespace() {
        let known = ["pipe", "/dev/null", "/memfd", "(deleted)", "/proc"]
            .iter()
            .any(|ok| kind.starts_with(ok));
        assert!(known, "a descriptor of a command is {kind}");
    }
    shell.close();
}

/// Promises: B5.
#[test]
fn e16_the_agent_survives_every_signal() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let agent = server.agent();
    let begun = isolet_kit::process::started(agent);
    let said = sandbox.says(
        "for s in $(seq 1 64); do kill -$s 1 2>/dev/null && echo $s; done; kill -STOP -1; echo end",
    );
    assert!(said.lines().all(|line| line == "end"), "{said}");
    assert_eq!(sandbox.says("echo alive"), "alive\n");
    assert_eq!(isolet_kit::process::started(agent), begun);
}

/// Promises: B4.
#[test]
fn e17_e47_changed_programs_affect_neither_the_image_nor_others() {
    let server = Server::start();
    let one = server.sandbox();
    let other = server.sandbox();
    let digest = || {
        std::process::Command::new("sha256sum")
            .arg("/usr/bin/id")
            .output()
            .expect("sha256sum")
            .stdout
    };
    let before = digest();
    assert_eq!(
        one.says("echo changed > /usr/bin/id; cat /usr/bin/id; rm -rf /usr/share; echo $?"),
        "changed\n0\n"
    );
    assert_eq!(digest(), before, "the host's own program");
    assert!(std::path::Path::new("/usr/share").is_dir());
    assert!(other.says("id").starts_with("uid=0(root)"), "the other sandbox's program");
}

/// Promises: B4.
#[test]
fn root_inside_is_root_of_its_own_files() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let mut shell = sandbox.shell();
    shell.run("touch /usr/x /etc/y && ls /usr/x").is("/usr/x\n", 0);
    shell.run("useradd -m bob && id -un bob").is("bob\n", 0);
    shell.run("chown bob:bob /usr/x && stat -c %U /usr/x").is("bob\n", 0);
    shell.run("setpriv --reuid bob --regid bob --init-groups id -un").is("bob\n", 0);
    shell
        .run("python3 -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\", 80)); print(1)'")
        .is("1\n", 0);
    assert!(std::fs::metadata("/usr/x").is_err());
    shell.close();
}

/// Promises: B4.
#[test]
fn e36_host_uids_are_in_the_sandboxs_own_range() {
    let server = Server::start();
    let one = server.sandbox();
    let other = server.sandbox();
    for sandbox in [&one, &other] {
        let map = sandbox.says("cat /proc/self/uid_map");
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "1", "65535"]);
        sandbox.post("/processes", &json!({"command": "sleep 1000"})).expect(201);
    }
    use std::os::unix::fs::MetadataExt;
    let owners = isolet_kit::wait_until("both programs run", isolet_kit::SOON, || {
        let all = server.processes("sleep");
        let owner = |pid: i32| Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid());
        let owners: Vec<u32> = all.into_iter().filter_map(owner).collect();
        (owners.len() == 2).then_some(owners)
    });
    assert_ne!(owners[0], owners[1]);
    assert!(owners.iter().all(|uid| *uid >= 0x7000_0000 && uid % 65_536 == 0), "{owners:?}");
}

/// An agent creates a cgroup for each background process: in its own directory, one level deep, and
/// in limited number. The sandbox's own limits stay under the host's control.
/// Promises: B5.
#[test]
fn an_agent_creates_cgroups_within_bounds_and_changes_no_limit() {
    use std::os::unix::fs::MetadataExt;
    let server = Server::start();
    let sandbox = server.sandbox();
    let body = json!({ "command": "sleep 1000" });
    sandbox.post("/processes", &body).expect(201);
    let tenants: Vec<_> = server.cgroups().iter().map(|group| group.join("tenant")).collect();
    let tenants: Vec<_> =
        tenants.into_iter().filter(|group| group.try_exists().is_ok_and(|there| there)).collect();
    assert!(!tenants.is_empty());
    for tenant in tenants {
        let says = |file: &str| std::fs::read_to_string(tenant.join(file)).expect("is there");
        assert_eq!(says("cgroup.max.depth").trim(), "1");
        assert_eq!(says("cgroup.max.descendants").trim(), "1024");
        for entry in std::fs::read_dir(&tenant).expect("a directory") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("known");
            let owned = entry.metadata().expect("is there").uid() != 0;
            let handed = kind.is_dir() || entry.file_name() == "cgroup.procs";
            assert_eq!(owned, handed, "{:?}", entry.path());
        }
    }
}

/// Promises: B3, H10.
#[test]
fn e38_e51_nothing_outlives_a_delete() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let mut shell = sandbox.shell();
    shell.run("(setsid nohup sleep 1000 >/dev/null 2>&1 &); (sleep 1000 & ) ; sleep 1000 & kill -STOP $!; echo ok");
    let _ = sandbox.says("python3 -c 'import os\nfor _ in range(50):\n  if os.fork()==0: os._exit(0)\nimport time; time.sleep(0.1)'");
    isolet_kit::wait_until("ended orphans are reaped", isolet_kit::SOON, || {
        (sandbox.says("ps -eo stat | grep -c Z || true").trim() == "0").then_some(())
    });
    sandbox.delete();
    server.healthy();
    server.wait_until_tidy();
}
