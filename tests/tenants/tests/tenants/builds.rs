//! T2: one tenant's builds for another tenant, and hostile uploads.

use isolet_kit::image::{EntryType, Layer};
use isolet_kit::{Http, SOON, Server, Value, json, wait_until};

fn hash(letter: &str) -> String {
    letter.repeat(64)
}

fn archive(name: &str) -> Vec<u8> {
    Layer::new().file(name, b"canary").bytes()
}

/// The path and query of the URL for an upload of files.
fn upload_url(http: &Http, name: &str, hash: &str) -> (String, bool) {
    let link = http.get(&format!("/templates/{name}/files/{hash}")).expect(201).json();
    let url = link["url"].as_str().expect("a URL").to_owned();
    let path = url.splitn(4, '/').nth(3).expect("a path").to_owned();
    (format!("/{path}"), link["present"] == true)
}

fn put(http: &Http, path: &str, body: &[u8]) -> u16 {
    http.send("PUT", path, Some(body)).status
}

/// Promises: T2.
#[test]
fn t2_builds_and_uploads_of_another_tenant_are_answered_like_unknown_ones() {
    let mut server = Server::start();
    let own = server.http();
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    let nobody = server.client(None);
    let (url, _) = upload_url(&own, "tools", &hash("a"));
    assert_eq!(put(&nobody, &url, &archive("a")), 200, "the URL needs no key");
    assert!(upload_url(&own, "tools", &hash("a")).1);
    assert!(!upload_url(&other, "tools", &hash("a")).1);
    let copy = json!([{"type": "copy", "files": hash("a"), "source": "a", "dest": "/opt/"}]);
    let body = json!({"names": ["stolen:1"], "from": "host", "steps": copy});
    assert_eq!(other.post("/v1/images/builds", &body).expect(409).json()["error"], "no_files");
    let requested = own.post("/v3/templates", &json!({"name": "tools"})).expect(202).json();
    let id = requested["buildID"].as_str().expect("an id").to_owned();
    let unknown = "00000000-0000-4000-8000-000000000000";
    let calls = [
        ("GET", "/v1/images/builds/ID"),
        ("DELETE", "/v1/images/builds/ID"),
        ("GET", "/v1/images/builds/ID/log"),
        ("GET", "/templates/tools/builds/ID/status"),
        ("GET", "/templates/tools/builds/ID/logs"),
        ("POST", "/v2/templates/tools/builds/ID"),
    ];
    for (method, path) in calls {
        let answer = |id: &str| {
            let body = (method == "POST").then_some(&b"{}"[..]);
            let reply = other.send(method, &path.replace("ID", id), body);
            (reply.status, reply.text().replace(id, "ID"))
        };
        assert_eq!(answer(&id), answer(unknown), "{method} {path}");
        assert_eq!(answer(&id).0, 404, "{method} {path}");
    }
    assert_eq!(other.get("/v1/images/builds").expect(200).json(), json!([]));
    let body = json!({"steps": [{"type": "COPY", "args": ["a", "/opt/"], "filesHash": hash("a")}]});
    let _ = own.post(&format!("/v2/templates/tools/builds/{id}"), &body).expect(202);
    wait_for(&own, &id);
    for path in ["/templates/aliases/tools", "/templates/tools", "/templates/tools/tags"] {
        let _ = own.get(path).expect(200);
        let _ = other.get(path).expect(404);
    }
    assert_eq!(other.get("/templates").expect(200).json(), json!([]));
    let _ = other.delete("/templates/tools").expect(404);
    let tags = json!({"target": "tools", "tags": ["x"]});
    let _ = other.post("/templates/tags", &tags).expect(404);
    let _ = own.delete("/templates/tools").expect(204);
    let _ = own.get("/templates/aliases/tools").expect(404);
}

fn wait_for(http: &Http, id: &str) {
    wait_until("the build is ready", SOON, || {
        let build = http.get(&format!("/v1/images/builds/{id}")).expect(200).json();
        assert_ne!(build["state"], "failed", "{build}");
        (build["state"] == "ready").then_some(())
    });
}

#[test]
fn a_url_for_an_upload_is_for_these_files_and_this_key_only() {
    let mut server = Server::start();
    let key = server.add_key(&["--tenant", "one"]);
    let own = server.client(Some(&key));
    let nobody = server.client(None);
    let (url, _) = upload_url(&own, "tools", &hash("a"));
    let changed = url.replace("~one~", "~two~");
    assert_ne!(changed, url);
    for bad in [
        url.replace(&hash("a"), &hash("b")),
        changed,
        url.split('?').next().expect("a path").to_owned(),
        format!("{url}0"),
    ] {
        assert_eq!(put(&nobody, &bad, &archive("a")), 401, "{bad}");
        assert_eq!(put(&own, &bad, &archive("a")), 401, "a key does not help: {bad}");
    }
    let id = own.get("/v1/keys/current").expect(200).json()["id"].clone();
    let revoked = server.program().args(["keys", "revoke", id.as_str().expect("an id")]).output();
    assert!(revoked.expect("it starts").status.success());
    assert_eq!(put(&nobody, &url, &archive("a")), 401, "its key is revoked");
}

#[test]
fn hostile_uploads_and_steps_are_refused_with_a_reason() {
    let server = Server::start();
    let http = server.http();
    let path = format!("/v1/images/builds/files/{}", hash("c"));
    let link = |kind, name: &str, to: &str| Layer::new().entry(kind, name, to, 0o644, b"").bytes();
    for (body, word) in [
        (archive("../outside"), "outside"),
        (archive("/etc/passwd"), "absolute"),
        (link(EntryType::Char, "null", ""), "neither a file"),
        (link(EntryType::Link, "a", "../../etc/shadow"), "outside"),
        (b"no archive".to_vec(), "tar archive"),
        (archive("a")[..700].to_vec(), "tar archive"),
    ] {
        let refused = http.send("PUT", &path, Some(&body)).expect(422).json();
        assert_eq!(refused["error"], "bad_files", "{refused}");
        assert!(refused["message"].as_str().expect("a text").contains(word), "{refused}");
        assert_eq!(http.get(&path).expect(200).json()["present"], false);
    }
    for hash in ["short", &"A".repeat(64), &"..%2F".repeat(12)] {
        let reply = http.send("PUT", &format!("/v1/images/builds/files/{hash}"), Some(b""));
        assert_eq!(reply.status, 400, "{hash}: {}", reply.text());
        assert_eq!(http.get(&format!("/templates/a/files/{hash}")).status, 400, "{hash}");
    }
    let body = |steps: Value| json!({"names": ["bad:1"], "from": "host", "steps": steps});
    for (steps, word) in [
        (json!([{"type": "mount"}]), "mount"),
        (json!([{"type": "run"}]), "command or argv"),
        (json!([{"type": "run", "command": "x", "nope": 1}]), "nope"),
        (json!([{"type": "copy", "files": hash("d"), "source": "../x", "dest": "/"}]), "outside"),
        (json!([{"type": "env", "variables": [{"name": "A=B", "value": "x"}]}]), "A=B"),
        (json!(vec![json!({"type": "workdir", "path": "/"}); 501]), "500"),
    ] {
        let refused = http.post("/v1/images/builds", &body(steps)).expect(400).json();
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let named = http.post("/v1/images/builds", &json!({"names": ["Not A Name"], "from": "host"}));
    assert_eq!(named.status, 400, "{}", named.text());
    let digest = format!("a@sha256:{}", hash("a"));
    let named = http.post("/v1/images/builds", &json!({"names": [digest], "from": "host"}));
    assert_eq!(named.status, 400, "{}", named.text());
    let requested = http.post("/v3/templates", &json!({"name": "tools"})).expect(202).json();
    let id = requested["buildID"].as_str().expect("an id");
    let unknown = json!({"steps": [{"type": "MOUNT", "args": []}]});
    let refused = http.post(&format!("/v2/templates/tools/builds/{id}"), &unknown).expect(400);
    assert!(refused.text().contains("unknown type of step"), "{}", refused.text());
    let _ = http.post(&format!("/v2/templates/other/builds/{id}"), &json!({})).expect(404);
    assert!(server.ids(&http).is_empty());
}

#[test]
fn the_builds_of_a_tenant_that_have_not_ended_have_a_limit() {
    let mut server = Server::start();
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    let http = server.http();
    let request = |http: &Http| http.post("/v3/templates", &json!({"name": "tools"})).status;
    let mut accepted = 0;
    while request(&http) == 202 {
        accepted += 1;
        assert!(accepted <= 32);
    }
    assert_eq!((accepted, request(&http)), (32, 429));
    assert_eq!(request(&other), 202, "another tenant is not affected");
}
