//! Searches every readable file inside a sandbox for secrets of the server and of other sandboxes.
#![allow(missing_docs)]

use isolet_kit::{Http, Options, Rows, Sandbox, json};

/// Part of every planted secret; put together inside, so that the search does not find itself.
const CANARY: [&str; 2] = ["canary-7f3a", "91d2-planted"];

fn search(sandbox: &Sandbox) -> Vec<String> {
    sandbox.search(CANARY)
}

/// Promises: K1.
#[test]
fn e47_e48_no_secret_of_the_server_or_of_others_is_found_inside() {
    let canary = CANARY.concat();
    let mut server = Options::new()
        .env("ISOLET_TEST_SECRET", &format!("environment-{canary}"))
        .env("RUST_LOG", "debug")
        .config(&format!("# {canary}\n[images.aliases]\n\"{canary}\" = \"host\"\n"))
        .start();
    let key = server.add_key(&["--tenant", "other", "--label", &canary]);
    std::fs::write(server.data().join("secret"), &canary).expect("writes");
    std::fs::write(server.data().join("key"), &canary).expect("writes");
    let spec = json!({"metadata": {"a": canary}, "env": {"SECRET": canary}});
    let session = json!({"id": "s", "env": {"SECRET": canary}, "metadata": {"a": canary}});
    let fill = |sandbox: &Sandbox| {
        sandbox.post("/sessions", &session).expect(201);
        let write = format!(
            "echo {canary} | tee /workspace/a /tmp/a /root/a /etc/a /dev/shm/a /usr/local/a >/dev/null; \
             (exec -a {canary} sleep 1000) & X={canary}; pwd"
        );
        assert_eq!(sandbox.command("s", &write)["exit_code"], 0);
        let put = sandbox.path(&format!("/files/{canary}"));
        sandbox.http.send("PUT", &put, Some(canary.as_bytes())).expect(201);
    };
    // Another sandbox of the same tenant, and one of another tenant.
    fill(&server.sandbox_with(&spec));
    let other = Http::new(server.port(), Some(&key));
    let theirs = other.post("/v1/sandboxes", &spec).expect(201).json();
    let id = theirs["id"].as_str().expect("an id").to_owned();
    fill(&Sandbox { id, http: other });
    let sandbox = server.sandbox();
    let mut rows = Rows::new();
    rows.row("the search finds a planted word", || {
        sandbox
            .exec(&format!("echo -n 'before {canary}' >/workspace/own; ln -s /{canary} /tmp/link"));
        assert_eq!(search(&sandbox), ["/tmp/link (link)", "/workspace/own"]);
        sandbox.exec("rm /workspace/own /tmp/link");
    });
    rows.row("as root", || assert_eq!(search(&sandbox), [""; 0]));
    rows.row("in a shell, whose variables are its own", || {
        let mut shell = sandbox.session("s");
        let said = shell.run(&format!(
            "set; env; mount; cat /proc/*/{{environ,cmdline,mountinfo}} 2>/dev/null | grep -ac {}",
            CANARY[0]
        ));
        assert!(!said.text().contains(&canary), "{}", said.text());
    });
    rows.row("in an ephemeral one that woke on a restarted server", || {
        server.restart();
        let fresh = server.sandbox_with(&json!({"persistent": false}));
        fresh.exec(&format!("echo {canary} >/workspace/a"));
        isolet_kit::wait_until("it sleeps", isolet_kit::SOON, || {
            (fresh.post("/sleep", &json!({})).status == 200).then_some(())
        });
        assert_eq!(search(&fresh), [""; 0]);
    });
}
