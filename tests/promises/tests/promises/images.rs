//! Images: pulled from a registry, imported, shared, stored and collected.

use isolet_kit::docker::DockerRegistry;
use isolet_kit::image::{Image, Layer, Registry, busybox};
use isolet_kit::{Http, Options, SOON, Server, Value, json, wait_until};

/// A server that uses this registry.
fn asking(host: &str) -> Server {
    Options::new().config(&format!("[images]\nregistries = [\"{host}\"]\n")).start()
}

fn pulled(http: &Http, name: &str) -> Value {
    http.post("/v1/images/pull", &json!({"image": name})).expect(200).json()
}

/// An image that specifies a user, a working directory and an environment, in two layers: the upper
/// one hides a file and the content of a directory of the lower one.
fn layered() -> Image {
    let low = busybox()
        .directory("etc")
        .file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nann:x:1234:55:Ann:/home/ann:/bin/sh\n")
        .file("etc/group", b"crew:x:77:\n")
        .directory("home/ann")
        .directory("srv/full")
        .file("srv/full/low", b"low")
        .file("srv/hidden", b"hidden")
        .file("srv/kept", b"kept\n");
    let high = Layer::new()
        .directory("srv")
        .file("srv/.wh.hidden", b"")
        .directory("srv/full")
        .file("srv/full/.wh..wh..opq", b"")
        .file("srv/full/high", b"high\n");
    let settings = json!({"Env": ["FROM_IMAGE=yes", "PATH=/bin"], "WorkingDir": "/opt/app", "User": "ann:crew", "Entrypoint": [""], "Cmd": null});
    Image::new(&[low.bytes(), high.bytes()], &settings)
}

/// Promises: A1.
#[test]
fn a_sandbox_is_created_from_an_image_of_a_registry() {
    let registry = DockerRegistry::start();
    let name = registry.push("tools/box", &layered());
    let server = asking(&registry.host());
    let sandbox = server.sandbox_with(&json!({"image": name}));
    let info = sandbox.info();
    assert_eq!(info["image"], name);
    let whole = format!("{}/tools/box@{}", registry.host(), layered().digest);
    assert_eq!(info["image_resolved"], whole);
    let said = sandbox.says("pwd; id -u; id -g; echo $FROM_IMAGE $HOME $USER; echo $BASH_VERSION");
    assert!(said.starts_with("/opt/app\n1234\n77\nyes /home/ann ann\n5."), "{said}");
    assert_eq!(
        sandbox.says("cd /srv; echo * full/*; cat kept full/high"),
        "full kept full/high\nkept\nhigh\n"
    );
    assert_eq!(
        sandbox.says("echo own >/workspace/a; cat /workspace/a; stat -c %u /workspace"),
        "own\n1234\n"
    );
    assert_eq!(sandbox.command("s", "echo in $PWD >f; cat f")["stdout"], "in /opt/app\n");
    sandbox.run("echo shell $PWD").is("shell /opt/app\n", 0);
    server.healthy();
}

/// Promises: A1.
#[test]
fn an_alias_is_the_same_image_in_creates_pulls_and_removals() {
    let registry = DockerRegistry::start();
    let name = registry.push("tools/box", &layered());
    let host = registry.host();
    let server = Options::new()
        .config(&format!(
            "[images]\nregistries = [\"{host}\"]\n[images.aliases]\ntool = \"{name}\"\nown = \"host\"\n"
        ))
        .start();
    let http = server.http();
    assert_eq!(pulled(&http, "tool")["names"], json!([name]));
    let sandbox = server.sandbox_with(&json!({"image": "tool"}));
    assert_eq!(sandbox.says("pwd"), "/opt/app\n");
    sandbox.delete();
    http.delete("/v1/images/tool").expect(204);
    http.get(&format!("/v1/images/{}", name.replace('/', "%2F"))).expect(404);
    let said = http.post("/v1/images/pull", &json!({"image": "own"})).expect(400).text();
    assert!(said.contains("this machine's own programs"), "{said}");
    let spec = json!({"image": "own"});
    assert_eq!(server.sandbox_with(&spec).info()["image_resolved"], "host");
}

/// Promises: A2.
#[test]
fn a_sandbox_keeps_its_image_when_the_tag_moves_on_and_over_sleep_and_restart() {
    let registry = Registry::start();
    let version = |text: &str| {
        let layer = busybox().file("version", text.as_bytes());
        Image::new(&[layer.bytes()], &json!({}))
    };
    let name = registry.has("app", version("one\n"));
    let mut server = asking(&registry.host());
    let sandbox = server.sandbox_with(&json!({"image": name}));
    let resolved = sandbox.info()["image_resolved"].clone();
    registry.has("app", version("two\n"));
    pulled(&server.http(), &name);
    assert_eq!(server.sandbox_with(&json!({"image": name})).says("cat /version"), "two\n");
    server.http().post("/v1/images/gc", &json!({"all": true})).expect(200);
    assert_eq!(sandbox.says("cat /version; echo kept >/new"), "one\n");
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    server.restart();
    server.http().post("/v1/images/gc", &json!({"all": true})).expect(200);
    let sandbox = server.named(&sandbox.id);
    assert_eq!(sandbox.says("cat /version /new"), "one\nkept\n");
    assert_eq!(sandbox.info()["image_resolved"], resolved);
    server.healthy();
}

/// Promises: A3.
#[test]
fn concurrent_pulls_of_an_image_are_one_and_report_progress() {
    let registry = Registry::start();
    let image = layered();
    let name = registry.has("app", image.clone());
    let server = asking(&registry.host());
    let http = server.http();
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..6).map(|_| scope.spawn(|| pulled(&http, &name))).collect();
        for pull in pulls {
            assert_eq!(pull.join().expect("no panic")["digest"], image.digest);
        }
    });
    let manifest: Value = serde_json::from_slice(&image.manifest).expect("JSON");
    let asked = registry.asked();
    for layer in manifest["layers"].as_array().expect("layers") {
        let digest = layer["digest"].as_str().expect("a digest");
        let times = asked.iter().filter(|path| path.ends_with(digest)).count();
        assert_eq!(times, 1, "a layer is fetched once: {asked:?}");
    }
    let mut events =
        http.with("accept", "text/event-stream").events("/v1/images/pull", &json!({"image": name}));
    let mut names = Vec::new();
    while let Some(event) = events.event() {
        names.push(event.name);
    }
    assert_eq!(names.first().map(String::as_str), Some("progress"), "{names:?}");
    assert_eq!(names.last().map(String::as_str), Some("done"), "{names:?}");
    let one = http.get(&format!("/v1/images/{name}")).expect(200).json();
    assert_eq!((one["layers"].clone(), one["user"].clone()), (json!(2), json!("ann")));
    assert_eq!(http.get("/v1/images").expect(200).json()[0]["names"], json!([name]));
}

/// Promises: A2.
#[test]
fn an_imported_image_is_removed_with_its_last_name_but_never_while_in_use() {
    let server = Server::start();
    let http = server.http();
    let archive = layered().layout();
    let refused = http.send("POST", "/v1/images/import", Some(&archive)).expect(422);
    assert!(refused.text().contains("name"), "{}", refused.text());
    let made = http
        .send("POST", "/v1/images/import?name=local/tools:1", Some(&archive))
        .expect(201)
        .json();
    assert_eq!(made["digest"], layered().digest);
    let sandbox = server.sandbox_with(&json!({"image": "local/tools:1"}));
    assert_eq!(sandbox.says("cat /srv/kept"), "kept\n");
    let path = "/v1/images/docker.io/local/tools:1";
    assert_eq!(http.delete(path).expect(409).error(), "image_in_use");
    assert_eq!(sandbox.says("cat /srv/kept"), "kept\n");
    sandbox.delete();
    http.delete(path).expect(204);
    assert_eq!(http.get("/v1/images").json(), json!([]));
    let layers = std::fs::read_dir(server.data().join("images/layers")).expect("layers").count();
    assert_eq!(layers, 0);
    assert_eq!(http.delete(path).expect(404).error(), "no_image");
}

/// Promises: A4.
#[test]
fn an_image_of_one_tenant_is_not_shared_without_the_registry() {
    let registry = Registry::start();
    let image = layered();
    let name = registry.has("app", image);
    let mut server = asking(&registry.host());
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    pulled(&server.http(), &name);
    assert_eq!(other.get("/v1/images").json(), json!([]));
    assert_eq!(other.get(&format!("/v1/images/{name}")).expect(404).error(), "no_image");
    let _ = registry.asked();
    pulled(&other, &name);
    let asked = registry.asked();
    let blobs = asked.iter().filter(|path| path.contains("/blobs/")).count();
    assert_eq!(blobs, 3, "the tenant shows that it may read each layer: {asked:?}");
    pulled(&other, &name);
    assert_eq!(registry.asked().iter().filter(|path| path.contains("/blobs/")).count(), 1);
    registry.fault("/v2/", Some(isolet_kit::image::RegistryFault::Status(403)));
    let third = server.add_key(&["--tenant", "third"]);
    let third = Http::new(server.port(), Some(&third));
    let reply = third.post("/v1/sandboxes", &json!({"image": name})).expect(403);
    assert_eq!(reply.error(), "image_denied");
}

/// Promises: A8.
#[test]
fn f30_a_missing_layer_is_named_and_the_sandbox_can_be_deleted() {
    let server = Server::start();
    let http = server.http();
    let archive = layered().layout();
    http.send("POST", "/v1/images/import?name=local/tools:1", Some(&archive)).expect(201);
    let sandbox = server.sandbox_with(&json!({"image": "local/tools:1"}));
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    std::fs::remove_dir_all(server.data().join("images/layers")).expect("removes");
    std::fs::create_dir(server.data().join("images/layers")).expect("makes");
    let reply = sandbox.post("/exec", &json!({"command": "true"})).expect(409);
    assert_eq!(reply.error(), "image_gone", "{}", reply.text());
    assert!(reply.text().contains("layers/"), "{}", reply.text());
    http.send("POST", "/v1/images/import?name=local/tools:1", Some(&archive)).expect(201);
    assert_eq!(sandbox.says("cat /srv/kept"), "kept\n", "the image is complete again");
    sandbox.delete();
    server.healthy();
}

/// Promises: A13.
#[test]
fn images_imported_while_others_are_removed_all_create_sandboxes() {
    let mut server = Server::start();
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    let http = server.http();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let http = &http;
            scope.spawn(move || {
                let own = Layer::new().file("own", format!("{number}\n").as_bytes());
                let image = Image::new(&[busybox().bytes(), own.bytes()], &json!({}));
                let path = format!("/v1/images/import?name=local/many:{number}");
                http.send("POST", &path, Some(&image.layout())).expect(201);
            });
        }
        scope.spawn(|| {
            for number in 0..6 {
                let text = format!("other {number}");
                let image =
                    Image::new(&[Layer::new().file("a", text.as_bytes()).bytes()], &json!({}));
                let path = "/v1/images/import?name=local/other:1";
                other.send("POST", path, Some(&image.layout())).expect(201);
                other.delete("/v1/images/docker.io/local/other:1").expect(204);
            }
        });
    });
    for number in 0..6 {
        let sandbox = server.sandbox_with(&json!({"image": format!("local/many:{number}")}));
        assert_eq!(sandbox.says("cat /own; cat /etc/hostname"), format!("{number}\nsandbox\n"));
    }
    server.healthy();
}

/// Promises: A15.
#[test]
fn a_removed_imported_image_is_not_replaced_from_a_registry() {
    let registry = Registry::start();
    let stranger = busybox().file("whose", b"stranger\n");
    let name = registry.has("tools", Image::new(&[stranger.bytes()], &json!({})));
    let server = asking(&registry.host());
    let http = server.http();
    let own = Image::new(&[busybox().file("whose", b"own\n").bytes()], &json!({})).layout();
    let path = format!("/v1/images/import?name={name}");
    http.send("POST", &path, Some(&own)).expect(201);
    std::fs::remove_dir_all(server.data().join("images/layers")).expect("removes");
    std::fs::create_dir(server.data().join("images/layers")).expect("makes");
    let refused = http.post("/v1/sandboxes", &json!({"image": name})).expect(409);
    assert_eq!(refused.error(), "image_gone", "{}", refused.text());
    assert!(refused.text().contains("import the image again"), "{}", refused.text());
    assert!(registry.asked().is_empty(), "no registry was asked");
    http.send("POST", &path, Some(&own)).expect(201);
    assert_eq!(server.sandbox_with(&json!({"image": name})).says("cat /whose"), "own\n");
    server.healthy();
}

/// Promises: A1.
#[test]
fn merged_layers_equal_layers_mounted_separately() {
    let registry = Registry::start();
    let mut layers =
        vec![busybox().directory("d").file("d/first", b"1").file("gone", b"x").bytes()];
    for number in 0..40 {
        let mut layer = Layer::new()
            .directory("d")
            .file(&format!("d/{number:02}"), b"x")
            .file("last", format!("{number}\n").as_bytes());
        if number == 5 {
            layer = layer.file(".wh.gone", b"").file("d/.wh.first", b"");
        }
        if number == 39 {
            layer = layer.file("d/.wh.03", b"").file("d/.wh.30", b"");
        }
        layers.push(layer.bytes());
    }
    let name = registry.has("many", Image::new(&layers, &json!({})));
    let server = asking(&registry.host());
    let sandbox = server.sandbox_with(&json!({"image": name}));
    let said = sandbox
        .says("cat /last; cd /d; set -- *; echo $#; test -e /gone; echo $?; echo 03* 30* 3[19]*");
    assert_eq!(said, "39\n38\n1\n03* 30* 31 39\n");
}
