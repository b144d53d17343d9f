//! The state of a session's shell comes back after a sleep, and saving it changes nothing.

use isolet_kit::{Rows, SOON, Sandbox, Server, Value, json, one, wait_until};
use std::time::{Duration, Instant};

/// Requests sleep as soon as the earlier clients have disconnected.
fn put_to_sleep(sandbox: &Sandbox) {
    wait_until("it can be put to sleep", SOON, || {
        let reply = sandbox.post("/sleep", &json!({}));
        assert!(matches!(reply.status, 200 | 409), "{}", reply.text());
        (reply.status == 200).then_some(())
    });
}

/// The output of a session's command, including one that failed.
fn says(sandbox: &Sandbox, session: &str, text: &str) -> String {
    let answer = sandbox.command(session, text);
    let part = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    part("stdout") + &part("stderr")
}

/// The files that contain saved shell states, with their sizes.
fn saved_files(server: &Server) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for sandbox in std::fs::read_dir(server.data().join("sandboxes")).expect("it is there") {
        let folder = sandbox.expect("an entry").path().join("shells");
        let Ok(files) = std::fs::read_dir(folder) else { continue };
        for file in files.flatten() {
            use std::os::unix::fs::PermissionsExt;
            let about = file.metadata().expect("it is there");
            assert_eq!(about.permissions().mode() & 0o777, 0o600);
            found.push((file.file_name().to_string_lossy().into_owned(), about.len()));
        }
    }
    found.retain(|(name, _)| !name.starts_with('.'));
    found.sort();
    found
}

fn saved(server: &Server, session: &str) {
    wait_until("it is saved", SOON, || {
        saved_files(server).iter().any(|(id, _)| id == session).then_some(())
    });
}

/// For each kind of state: its name, the command that creates it, and the command that shows it,
/// before and after a sleep.
const HELD: [(&str, &str, &str); 33] = [
    ("directory", "mkdir -p '/tmp/a b'\\''c'; cd \"/tmp/a b'c\"", "pwd; echo $OLDPWD"),
    ("directory behind a link", "ln -s /usr /tmp/l; cd /tmp/l/lib", "pwd; pwd -P"),
    ("directory with odd bytes", "mkdir $'/tmp/\\n\\xff'; cd $'/tmp/\\n\\xff'", "pwd | od -c"),
    ("umask", "umask 027", "umask"),
    ("plain variable", "x='a  b'", "echo \"$x\"; env | grep -c ^x="),
    ("exported variable", "export E='e  e'", "printenv E"),
    (
        "newlines, quotes and dollars",
        "x=$'a\\nb\\n'\\''\"$(date)`id`\\\\!'",
        "printf %s \"$x\" | od -c",
    ),
    ("control bytes", "x=$'\\001\\033[0m\\177\\r\\t'", "printf %s \"$x\" | od -c"),
    ("bytes that are no text", "x=$'\\xff\\xfe€'", "printf %s \"$x\" | od -c"),
    (
        "a text like a declaration",
        "x=$'1\\ndeclare -- PATH=\"\"\\ndeclare -r z=1'",
        "echo \"$x\" ${z-no}",
    ),
    ("empty variable", "x=", "echo ${x+set}"),
    ("unset variable of the environment", "unset HOME LANG", "echo ${HOME-unset} ${LANG-unset}"),
    ("unset separator", "unset IFS", "echo ${IFS-unset}"),
    ("separator", "IFS=$'\\n:'", "a=b:c; set -- $a; echo $#; set --"),
    ("variable hidden from programs", "export -n HOME", "echo $HOME; printenv HOME"),
    ("indexed array", "a=(1 'b c' [7]=$'x\\ny')", "declare -p a"),
    (
        "associative array",
        "declare -A m=([a]=1 ['b \"c']='d e' [$'\\n']=n)",
        "echo \"${m[a]}${m[b \\\"c]}${#m[@]}\"",
    ),
    ("exported array", "declare -ax ax=(1 2)", "declare -p ax"),
    ("integer", "declare -i n=5", "n=n+2; echo $n; n=5"),
    ("upper and lower case", "declare -u u=abc; declare -l l=ABC", "declare -p u l"),
    (
        "read-only variable",
        "readonly r=1; declare -ar ra=(1 2)",
        "r=2; echo $r ${ra[1]}; declare -p r ra",
    ),
    ("name reference", "x=1; declare -n ref=x", "echo $ref ${!ref}; declare -p ref"),
    ("declared, without a value", "declare -i none; export nothing", "declare -p none nothing"),
    ("arguments", "set -- 'a b' '' \"c'd\"", "printf '<%s>' \"$@\""),
    ("functions", "f() { local x=$1; echo \"<$x>\"; }; export -f f", "f 'a b'; bash -c 'f in'"),
    ("function with a here-document", "f() { cat <<E\n$1 'x'\n\tE\nE\n}; ", "f a; declare -f f"),
    (
        "functions with odd names",
        "a-b() { echo 1; }; x:y() { echo 2; }; function if { echo 3; }; ü() { echo 4; }; function + { echo 5; }",
        "a-b; x:y; \\if; ü; +",
    ),
    (
        "function that needs extglob",
        "shopt -s extglob\ng() { case $1 in @(a|b)*) echo in;; !(x)) echo out;; esac; }",
        "g ab; g c; g x; shopt -u extglob; g b; shopt -s extglob",
    ),
    (
        "function and alias of the same words",
        "h() { ll; }; ll() { echo f; }; alias ll='echo alias' h2=h",
        "h; h2; ll; alias",
    ),
    (
        "functions named as builtins",
        "cd() { builtin cd \"$@\" && echo moved; }; declare() { echo mine; }; set() { echo set; }; shopt() { echo shopt; }; alias() { echo alias; }",
        "cd /; declare x; set -e; shopt; alias",
    ),
    ("options", "set -fu -o pipefail; shopt -s nullglob globstar dotglob", "set +o; shopt -p"),
    ("errexit", "f() { set -e; }; f", "echo $-"),
    ("traps", "trap 'echo \"it'\\''s\"' USR1", "trap; kill -USR1 $$; echo on"),
];

/// Promises: L10.
#[test]
fn shell_state_comes_back_after_a_sleep() {
    let (server, sandbox) = one();
    let session = |at: usize| format!("s{at}");
    let mut before = Vec::new();
    for (at, (_, make, tell)) in HELD.iter().enumerate() {
        sandbox.command(&session(at), make);
        before.push(says(&sandbox, &session(at), tell));
    }
    for turn in 0..2 {
        put_to_sleep(&sandbox);
        assert_eq!(saved_files(&server).len(), HELD.len());
        assert_eq!(sandbox.exec("true")["lost"], json!([]), "nothing is lost");
        let mut rows = Rows::new();
        for (at, (name, _, tell)) in HELD.iter().enumerate() {
            rows.row(&format!("{name}, {turn}"), || {
                assert_eq!(says(&sandbox, &session(at), tell), before[at]);
            });
        }
    }
    let reported = sandbox.command("s0", "true");
    assert!(reported.get("lost").is_none(), "everything was restored: {reported}");
    server.http().delete(&sandbox.path("/sessions/s1")).expect(204);
    assert!(saved_files(&server).iter().all(|(id, _)| id != "s1"), "gone with its session");
    sandbox.delete();
    assert_eq!(saved_files(&server), []);
}

/// Promises: L10.
#[test]
fn state_of_ended_and_deleted_shells_does_not_come_back() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("a shell that has ended", || {
        sandbox.command("ended", "x=1");
        saved(&server, "ended");
        sandbox.command("ended", "exit 3");
        put_to_sleep(&sandbox);
        assert_eq!(says(&sandbox, "ended", "echo [$x]"), "[]\n");
        sandbox.command("ended", "x=2");
        put_to_sleep(&sandbox);
        assert_eq!(says(&sandbox, "ended", "echo [$x]; exit"), "[2]\n");
        assert_eq!(says(&sandbox, "ended", "echo [$x]"), "[]\n", "the next one is new");
    });
    rows.row("a session that was deleted and created again", || {
        sandbox.command("again", "x=1");
        put_to_sleep(&sandbox);
        server.http().delete(&sandbox.path("/sessions/again")).expect(204);
        assert_eq!(says(&sandbox, "again", "echo [$x]"), "[]\n");
    });
    rows.row("a shell that is not used between two sleeps", || {
        sandbox.command("twice", "x=1");
        for _ in 0..3 {
            put_to_sleep(&sandbox);
            sandbox.exec("true");
        }
        assert_eq!(says(&sandbox, "twice", "echo [$x]"), "[1]\n");
    });
    rows.row("a session with a scope", || {
        let spec = json!({"id": "scoped", "file_access": {"write": ["mine"]}});
        sandbox.post("/sessions", &spec).expect(201);
        sandbox.command("scoped", "cd /workspace/mine; x=1");
        saved(&server, "scoped");
        sandbox.command("scoped", "x=2; sleep 1000 & disown");
        put_to_sleep(&sandbox);
        let first = sandbox.command("scoped", "pwd; echo [$x]");
        let reported = (&first["stdout"], &first["lost"]);
        assert_eq!(reported, (&json!("/workspace/mine\n[2]\n"), &json!(["processes"])), "{first}");
        server.http().delete(&sandbox.path("/sessions/scoped")).expect(204);
        assert!(saved_files(&server).iter().all(|(id, _)| id != "scoped"));
    });
    rows.row("an ephemeral sandbox", || {
        let gone = server.sandbox_with(&json!({"persistent": false}));
        let folders = saved_files(&server);
        gone.command("s", "x=1");
        put_to_sleep(&gone);
        assert_eq!(saved_files(&server), folders);
        let first = gone.command("s", "echo [$x]");
        assert_eq!(
            (&first["stdout"], &first["lost"]),
            (&json!("[]\n"), &json!(["shells", "files"]))
        );
    });
    rows.row("variables added to the environment during the sleep", || {
        sandbox.command("env", "export A=shell; unset B");
        put_to_sleep(&sandbox);
        let change = json!({"env": {"A": "new", "C": "c"}});
        server.http().patch(&sandbox.path(""), &change).expect(200);
        assert_eq!(says(&sandbox, "env", "echo $A $C"), "shell c\n");
    });
}

/// Promises: L11.
#[test]
fn a_save_changes_nothing_that_a_command_can_see() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let look = |name: &str, make: &str, tell: &str, expected: &str| {
        let mut shell = sandbox.session(name);
        shell.run(make);
        saved(&server, name);
        let outcome = shell.run(tell);
        let said = String::from_utf8_lossy(&outcome.out).into_owned() + &outcome.errors();
        assert_eq!(said, expected, "{name}");
    };
    rows.row("status", || look("a", "(exit 7)", "echo $?", "7\n"));
    rows.row("jobs", || {
        look(
            "b",
            "sleep 1000 & p=$!",
            "[ $! = $p ] && jobs; kill $p; wait $p; echo $?",
            "[1]+  Running                 sleep 1000 &\n143\n",
        );
    });
    rows.row("waiting for a job that has ended", || {
        look("c", "(exit 9) & p=$!", "wait $p; echo $?; wait; echo $?", "9\n0\n");
    });
    rows.row("traps", || {
        let make = "trap 'echo exit >>/tmp/t' EXIT; trap 'echo $BASH_COMMAND >>/tmp/t' DEBUG; \
             trap 'echo err >>/tmp/t' ERR; trap 'echo ret >>/tmp/t' RETURN; >/tmp/t";
        look(
            "d",
            make,
            "grep -c '^exi[t]$\\|^er[r]$\\|^re[t]$\\|alias [-]p' /tmp/t; trap - DEBUG EXIT",
            "0\n",
        );
    });
    rows.row("options", || {
        look(
            "e",
            "set -euo pipefail -C -f",
            "echo $-",
            "efhuBCs\n".replace("efhuBCs", "efhiuBCs").as_str(),
        )
    });
    rows.row("children that a trap handles", || {
        let mut shell = sandbox.session("f");
        shell.run("trap 'echo child' CHLD");
        std::thread::park_timeout(Duration::from_millis(1500));
        shell.run("echo on").is("on\n", 0);
    });
    rows.row("processes", || {
        let mut shell = sandbox.session("g");
        shell.run("x=1").is("", 0);
        saved(&server, "g");
        shell.run("ps -o stat= --ppid $$ | grep -c Z").is("0\n", 1);
    });
    rows.row("functions that shadow builtins", || {
        let make =
            "declare() { echo mine; }; printf() { echo mine; }; set() { echo mine; }; x=kept";
        look("h", make, "echo $x", "kept\n");
    });
}

/// Promises: L12.
#[test]
fn state_that_cannot_be_saved_is_reported() {
    let (_server, sandbox) = one();
    sandbox.command("small", "x=1");
    sandbox.command("large", "x=$(head -c 5000000 /dev/zero | tr '\\0' a)");
    let pid = says(&sandbox, "stopped", "x=1; echo $$");
    let private = sandbox.shell();
    drop(private);
    sandbox.exec(&format!("kill -STOP {pid}"));
    put_to_sleep(&sandbox);
    let first = sandbox.command("small", "echo $x");
    assert_eq!(first["stdout"], "1\n");
    assert_eq!(first["lost"], json!(["shells", "shell_state"]), "{first}");
    let lost = first["lost_state"].as_array().expect("a list").clone();
    let reported = |lost: &Value| (lost["session"].clone(), lost["why"].clone());
    let reported: Vec<_> = lost.iter().map(reported).collect();
    let expected = [("large", "too_large"), ("stopped", "no_answer")];
    assert_eq!(reported, expected.map(|(session, why)| (json!(session), json!(why))), "{first}");
    assert_eq!(says(&sandbox, "large", "echo ${#x}"), "0\n");
}

/// Promises: L12.
#[test]
fn a_new_server_saves_the_state_that_a_killed_one_did_not() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.command("s", "x=1");
    server.kill();
    server.launch();
    saved(&server, "s");
    sandbox.command("s", "x=2");
    server.restart();
    put_to_sleep(&sandbox);
    server.restart();
    let first = sandbox.command("s", "echo $x");
    assert_eq!((&first["stdout"], &first["lost"]), (&json!("2\n"), &json!([])), "{first}");
}

/// A state that cannot be restored (here: damaged on the disk) does not prevent the shell from
/// opening.
/// Promises: L12.
#[test]
fn state_that_cannot_be_restored_is_reported_and_the_shell_opens() {
    let (server, sandbox) = one();
    sandbox.command("s", "x=1; f() { :; }");
    put_to_sleep(&sandbox);
    let folder = std::fs::read_dir(server.data().join("sandboxes")).expect("there").next();
    let file = folder.expect("a sandbox").expect("an entry").path().join("shells/s");
    for damage in [&b"cd /usr\0if then\0exit 5"[..], b"exec /no\0kill -9 $$", b"\xff\0\0(", b""] {
        std::fs::write(&file, damage).expect("writes");
        assert_eq!(says(&sandbox, "s", "echo on"), "on\n", "{damage:?}");
        sandbox.command("s", "y=1");
        put_to_sleep(&sandbox);
    }
    assert_eq!(says(&sandbox, "s", "echo $y"), "1\n");
}

/// Promises: L11.
#[test]
fn a_command_does_not_pay_for_the_save() {
    let (server, sandbox) = one();
    let mut shell = sandbox.session("s");
    // Not larger, because programs under test are not optimized and the agent parses the saved
    // state.
    shell.run("x=$(head -c 40000 /dev/zero | tr '\\0' a); y=$x");
    let mut took = Vec::new();
    let mut usual = Vec::new();
    for n in 0..12 {
        shell.run("x=$x");
        // Around the moment at which the state is saved.
        std::thread::park_timeout(Duration::from_millis(994 + n));
        let begin = Instant::now();
        shell.run(":").is("", 0);
        took.push(begin.elapsed());
        // Now nothing is saved.
        let begin = Instant::now();
        shell.run(":").is("", 0);
        usual.push(begin.elapsed());
    }
    saved(&server, "s");
    took.sort();
    usual.sort();
    // A loaded machine takes longer for both.
    let most = Duration::from_millis(25).max(usual[6] * 8);
    assert!(took[6] < most, "{took:?}, and without a save {usual:?}");
}
