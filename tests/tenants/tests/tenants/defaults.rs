//! What a server does without any configuration.

use isolet_kit::{Http, SOON, Server, wait_until};
use std::os::unix::fs::PermissionsExt;

/// Promises: T18.
#[test]
fn t18_the_defaults_are_safe() {
    let mut server = Server::start();
    let data = server.data();
    let port = server.port();
    server.stop();
    let bare = |listen: Option<String>, data: &std::path::Path| {
        let mut program = server.program();
        program
            .env_remove("ISOLET_API_KEY")
            .env_remove("ISOLET_LISTEN")
            .env("ISOLET_DATA_DIR", data)
            .env("ISOLET_ALLOW_PLAINTEXT", "1")
            .arg("serve");
        program.envs(listen.map(|listen| ("ISOLET_LISTEN".to_owned(), listen)));
        program
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        program.spawn().expect("it starts")
    };
    let empty = data.join("../empty");
    let refused =
        bare(Some(format!("0.0.0.0:{port}")), &empty).wait_with_output().expect("it ends");
    assert!(!refused.status.success(), "it would listen on all addresses without a key");
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("isolet keys add"), "{reason}");
    // Without a configured key the server creates one: mode 0600, 401 without it, 200 with it, and
    // never printed to a pipe.
    let other = data.join("../other");
    let mut child = bare(Some(format!("127.0.0.1:{port}")), &other);
    let http = Http::new(port, None);
    wait_until("it answers", SOON, || http.try_send("GET", "/health", None).is_ok().then_some(()));
    assert_eq!(http.get("/v1/sandboxes").status, 401);
    let file = other.join("key");
    let key = std::fs::read_to_string(&file).expect("a key was created").trim().to_owned();
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!((mode & 0o777, key.len() >= 24), (0o600, true));
    assert_eq!(Http::new(port, Some(&key)).get("/v1/sandboxes").status, 200);
    isolet_kit::process::signal(
        i32::try_from(child.id()).expect("small"),
        isolet_kit::process::TERM,
    );
    wait_until("it ends", SOON, || child.try_wait().expect("our child"));
    let said = child.wait_with_output().expect("it has ended");
    let said = [said.stdout, said.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains(&key), "the key was printed to a pipe");
}

#[test]
fn the_default_address_is_loopback() {
    let server = Server::start();
    let shown =
        server.program().env_remove("ISOLET_LISTEN").args(["serve", "--print-config"]).output();
    let shown = shown.expect("it starts");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("127.0.0.1:7300"), "{text}");
    assert!(!text.contains(server.key()), "{text}");
}
