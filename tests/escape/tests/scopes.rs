//! Every escape of `scope_probes.py`, tried by root in a session with a file scope. The probes run
//! first in a scope that consists only of bind mounts, which shows that they work, and then in a
//! real one.
#![allow(missing_docs)]

use isolet_kit::{Sandbox, Server, Value, json};
use std::process::Command;

const PROBES: &str = include_str!("../scope_probes.py");
/// A naive scope: a private mount namespace with bind mounts over the workspace, for a process that
/// is root of a user namespace and keeps root's capabilities.
const PLAIN: &str = r#"
set -e
cd "$1"
mkdir -p workspace/docs/sub workspace/src workspace/secret workspace/.sessions view
cd workspace
echo canary-5127 > secret/key; echo a > docs/a.txt; echo 1 > one.txt
ln -s ../secret/key docs/relative; ln -s "$1/workspace/secret/key" docs/absolute; ln -s "/proc/1/root$1/workspace/secret/key" docs/proc
export W="$1/workspace"
cd secret; sleep 87654 & export PLANTED_PIDS=$!; exec 3<key; cd ..
unshare --mount sh -c '
  cd "$W"
  mount -t tmpfs none ../view
  mkdir ../view/docs ../view/src; touch ../view/one.txt
  mount --bind docs ../view/docs; mount -o remount,bind,ro ../view/docs
  mount --bind src ../view/src
  mount --bind one.txt ../view/one.txt; mount -o remount,bind,ro ../view/one.txt
  mount --rbind ../view "$W"
  exec 3<&-
  cd /; exec python3 -c "$PROBES"'
kill $PLANTED_PIDS
"#;

fn escapes(said: &str) -> (usize, Vec<String>) {
    let Ok(Value::Object(outcomes)) = serde_json::from_str(said) else {
        panic!("the probes said {said:?}")
    };
    let out = outcomes.iter().filter(|(_, outcome)| {
        outcome.as_str().is_none_or(|text| text.starts_with("out") || text.starts_with("broken"))
    });
    let out = out.map(|(name, outcome)| format!("{name}: {outcome}")).collect();
    (outcomes.len(), out)
}

/// Promises: V4.
#[test]
fn the_probes_get_out_of_plain_bind_mounts() {
    let room = room();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args(["bash", "-c", PLAIN, "bash", room.to_str().expect("a path")])
        .env("PROBES", PROBES)
        .output()
        .expect("setpriv runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let (count, out) = escapes(&said);
    std::fs::remove_dir_all(&room).expect("removed");
    assert!(out.len() >= 20, "of {count} probes only {} got out: {out:#?}", out.len());
    for one in [
        "umount the workspace, lazily",
        "remount a grant",
        "any process's root",
        "processes of others",
    ] {
        assert!(out.iter().any(|name| name.starts_with(one)), "{one}: {said}");
    }
}

/// A world-writable directory, which the caller removes.
fn room() -> std::path::PathBuf {
    let path = std::path::PathBuf::from(format!("/tmp/isolet-scope-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a new directory");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    path
}

/// Files of an unscoped session and of a session with another scope.
fn plant(sandbox: &Sandbox) -> String {
    let planted = sandbox.command(
        "default",
        "mkdir -p docs/sub src secret; echo canary-5127 > secret/key; echo a > docs/a.txt; echo 1 > one.txt
         ln -s ../secret/key docs/relative; ln -s /workspace/secret/key docs/absolute
         ln -s /proc/1/root/workspace/secret/key docs/proc
         for p in /tmp /var/tmp /run /root /home /dev/shm; do echo canary-5127 > $p/planted; done
         ipcmk -Q >/dev/null; python3 -c 'import ctypes as c; l=c.CDLL(None); print(l.shmget(0x5127,4096,0o1666), l.semget(0x5127,1,0o1666), l.msgget(0x5127,0o1666))'
         cd secret; CANARY=canary-5127 sleep 87654 3<key & cd ..; echo pid $!",
    );
    let said = planted["stdout"].as_str().expect("text").to_owned();
    assert!(!said.contains("-1"), "{said}");
    let other = json!({"id": "other", "file_access": {"write": ["secret"]}});
    sandbox.post("/sessions", &other).expect(201);
    sandbox.command("other", "cd secret; CANARY=canary-5127 sleep 87654 3<key &");
    let pids = said.lines().find_map(|line| line.strip_prefix("pid ")).expect("a pid");
    // The scope's own pid namespace has only few pids.
    format!("{pids} 2 3 4 5 6 7 8 9 10 11 12")
}

/// Promises: V4.
#[test]
fn root_in_a_scope_gets_nowhere() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let pids = plant(&sandbox);
    let spec = json!({"id": "one", "file_access": {"read": ["docs", "one.txt"], "write": ["src"]}});
    sandbox.post("/sessions", &spec).expect(201);
    let path = sandbox.path("/sessions/one/files/.sessions/one/probes.py");
    sandbox.http.send("PUT", &path, Some(PROBES.as_bytes())).expect(201);
    let run = format!("PLANTED_PIDS='{pids}' python3 /workspace/.sessions/one/probes.py");
    let said = sandbox.command("one", &run);
    let (count, out) = escapes(said["stdout"].as_str().expect("text"));
    assert!(count > 90, "only {count} probes ran");
    assert!(out.is_empty(), "{} of {count} got out: {out:#?}", out.len());
    let exec = json!({"command": run, "session": "one"});
    let said = sandbox.post("/exec", &exec).expect(200).json();
    let (_, out) = escapes(said["stdout"].as_str().expect("text"));
    assert!(out.is_empty(), "by exec {} of {count} got out: {out:#?}", out.len());
    server.healthy();
}

/// Another session, which sees both, continuously exchanges a directory and a symbolic link to a
/// path that was not granted. What the scope's files API opens is inside the scope, or nothing.
/// Promises: V4.
#[test]
fn heavy_i4_an_exchanged_symlink_does_not_lead_out_of_a_scope() {
    let server = Server::start();
    let sandbox = server.sandbox();
    plant(&sandbox);
    let spec = json!({"id": "one", "file_access": {"write": ["src"]}});
    sandbox.post("/sessions", &spec).expect(201);
    let racer = "cd src; mkdir d; echo inside >d/key; ln -s ../secret link\n\
                 python3 - <<'END' &\nimport ctypes\nc = ctypes.CDLL(None)\n\
                 while True: c.syscall(316, -100, b'd', -100, b'link', 2)\nEND\necho racing";
    assert_eq!(sandbox.command("race", racer)["stdout"], "racing\n");
    let at = |name: &str| sandbox.path(&format!("/sessions/one/files/src/d/{name}"));
    let mut inside = 0;
    let mut outside = 0;
    for _ in 0..isolet_kit::tries(1000, 50_000) {
        let reply = sandbox.http.get(&at("key"));
        assert!(!reply.text().contains("canary"), "it led out");
        inside += usize::from(reply.text() == "inside\n");
        outside += usize::from(reply.status == 404);
        sandbox.http.send("PUT", &at("new"), Some(b"new"));
    }
    assert!(inside > 50 && outside > 50, "the race did not run: {inside}, {outside}");
    let secret = sandbox.says("cd secret && ls && cat key");
    assert_eq!(secret, "key\ncanary-5127\n");
    server.healthy();
}
