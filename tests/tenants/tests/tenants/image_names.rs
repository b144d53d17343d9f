//! Names that a tenant gives its images: they change nothing for other tenants, and do not take the
//! place of names that the operator has configured.

use isolet_kit::image::{Image, Layer, busybox};
use isolet_kit::{Http, Options, Reply, Rows, Server, Value, json};

/// Imports an image whose file `/who` has this content.
fn import(http: &Http, name: &str, who: &str) -> Value {
    let own = Layer::new().file("who", who.as_bytes()).bytes();
    let archive = Image::new(&[busybox().bytes(), own], &json!({})).layout();
    http.send("POST", &format!("/v1/images/import?name={name}"), Some(&archive)).expect(201).json()
}

fn tag(http: &Http, image: &str, name: &str) -> Reply {
    http.post("/v1/images/tag", &json!({"image": image, "name": name}))
}

/// The digest that a name stands for.
fn digest(http: &Http, name: &str) -> Value {
    http.get(&format!("/v1/images/{name}")).expect(200).json()["digest"].clone()
}

fn client(server: &mut Server, args: &[&str]) -> Http {
    let key = server.add_key(args);
    Http::new(server.port(), Some(&key))
}

/// Promises: A21.
#[test]
fn a_name_of_one_tenant_changes_nothing_for_another() {
    let mut server = Options::new().config("[images]\nshared = \"common\"\n").start();
    let common = client(&mut server, &["--tenant", "common"]);
    let other = client(&mut server, &["--tenant", "other"]);
    let own = server.http();
    let shared = import(&common, "local/tools:1", "common");
    let mine = import(&own, "local/mine:1", "mine");
    for http in [&own, &other] {
        assert_eq!(digest(http, "local/tools:1"), shared["digest"]);
    }

    let answer = tag(&own, "local/mine:1", "local/tools:1").expect(200).json();
    assert_eq!(answer["name"], "docker.io/local/tools:1");
    let both = json!(["docker.io/local/mine:1", "docker.io/local/tools:1"]);
    assert_eq!((&answer["names"], &answer["digest"]), (&both, &mine["digest"]));
    assert_eq!(digest(&own, "local/tools:1"), mine["digest"]);
    for http in [&other, &common] {
        assert_eq!(digest(http, "local/tools:1"), shared["digest"], "it is still the shared image");
    }
    let sandbox = server.sandbox_with(&json!({"image": "local/tools:1"}));
    assert_eq!(sandbox.says("cat /who"), "mine");
    sandbox.delete();

    // Neither a name nor a digest gives access to an image of another tenant, and a shared one belongs
    // to its own.
    let by_digest = format!("local/mine@{}", mine["digest"].as_str().expect("a digest"));
    let mut rows = Rows::new();
    for image in ["local/mine:1", &by_digest, "local/tools:1", "local/never:1"] {
        rows.row(image, || {
            assert_eq!(tag(&other, image, "local/stolen:1").expect(404).error(), "no_image");
            assert_eq!(other.get("/v1/images").json(), json!([]));
        });
    }
    own.delete("/v1/images/local/tools:1").expect(204);
    assert_eq!(digest(&own, "local/tools:1"), shared["digest"], "the shared one is back");
    assert_eq!(digest(&own, "local/mine:1"), mine["digest"], "the image keeps its other name");
    own.delete("/v1/images/local/mine:1").expect(204);
    assert_eq!(own.get("/v1/images").json(), json!([]));
}

/// Promises: A21.
#[test]
fn a_name_that_the_operator_has_configured_is_refused_with_the_reason() {
    let aliases = "[images.aliases]\ntool = \"local/mine:1\"\n\"x.example/box:2\" = \"host\"\n";
    let mut server = Options::new().config(aliases).start();
    let reader = client(&mut server, &["--tenant", "default", "--read-only"]);
    let http = server.http();
    import(&http, "local/mine:1", "mine");
    let listed = json!([
        {"name": "tool", "image": "docker.io/local/mine:1"},
        {"name": "x.example/box:2", "image": "host"},
    ]);
    assert_eq!(reader.get("/v1/images/aliases").expect(200).json(), listed);
    let before = http.get("/v1/images").json();
    let mut rows = Rows::new();
    for name in ["tool", "tool:latest", "docker.io/library/tool", "x.example/box:2"] {
        rows.row(name, || {
            let refused = tag(&http, "local/mine:1", name).expect(409);
            assert_eq!(refused.error(), "image_name_configured");
            let text = refused.text();
            assert!(
                text.contains("stand for local/mine:1") || text.contains("stand for host"),
                "{text}"
            );
        });
    }
    let build = json!({"names": ["tool"], "from": "host"});
    let refused = http.post("/v1/images/builds", &build).expect(409);
    assert_eq!(refused.error(), "image_name_configured", "builds do not take it either");
    assert_eq!(tag(&reader, "tool", "local/second:1").expect(403).error(), "read_only");
    assert_eq!(http.get("/v1/images").json(), before);
    tag(&http, "tool", "local/second:1").expect(200);
    assert_eq!(digest(&http, "local/second:1"), digest(&http, "local/mine:1"));
}

/// Promises: A21.
#[test]
fn names_are_checked_counted_and_recorded() {
    let server = Server::start();
    let http = server.http();
    let image = import(&http, "local/mine:0", "mine");
    let digest = image["digest"].as_str().expect("a digest");
    let mut rows = Rows::new();
    for (name, code) in [
        ("host".to_owned(), "bad_field"),
        (format!("local/mine@{digest}"), "bad_field"),
        ("NOT A NAME".to_owned(), "bad_image"),
        (String::new(), "bad_image"),
        ("a".repeat(600), "bad_image"),
    ] {
        rows.row(&name, || assert_eq!(tag(&http, "local/mine:0", &name).expect(400).error(), code));
    }
    let unknown = json!({"image": "local/mine:0", "name": "local/a:1", "force": true});
    http.post("/v1/images/tag", &unknown).expect(400);
    for number in 1..128 {
        tag(&http, "local/mine:0", &format!("local/mine:{number}")).expect(200);
    }
    let refused = tag(&http, "local/mine:0", "local/mine:128").expect(409);
    assert_eq!(refused.error(), "too_many_names");
    let again = tag(&http, "local/mine:0", "local/mine:5").expect(200).json();
    assert_eq!(again["names"].as_array().expect("names").len(), 128, "it had the name");
    http.delete("/v1/images/local/mine:127").expect(204);
    tag(&http, "local/mine:0", "local/mine:128").expect(200);

    let log = http.get("/v1/audit").expect(200).text();
    let entries = log.lines().map(|line| line.parse::<Value>().expect("JSON"));
    let tags = entries.filter(|entry| entry["event"] == "image.tag");
    let names: Vec<String> =
        tags.map(|entry| entry["data"]["image"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(names.len(), 129, "refused calls changed nothing");
    assert!(names.contains(&"docker.io/local/mine:7".to_owned()), "{names:?}");
}
