//! Images that nodes copy from each other.

use isolet_fleet_tests::{FleetOptions, LocalFleet, RegistryRelay};
use isolet_kit::docker::DockerRegistry;
use isolet_kit::image::{Image, Layer, Registry, RegistryFault, busybox, digest};
use isolet_kit::{Http, LONG, Reply, Sandbox, Value, json, wait_until};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The port of the registry on 127.0.0.1 of every node. The namespaces are private, so it is free.
const PORT: u16 = 5001;

/// A fleet that may contact the registry.
fn fleet() -> LocalFleet {
    let config = format!("[images]\nregistries = [\"127.0.0.1:{PORT}\"]\n");
    LocalFleet::with(&FleetOptions { config, ..FleetOptions::default() })
}

/// The way of each node to a registry in the clients' namespace.
fn relays(fleet: &LocalFleet, registry: SocketAddr) -> [RegistryRelay; 3] {
    crate::NODES.map(|node| RegistryRelay::start(fleet.node(node).network(), PORT, registry))
}

/// The registry that misbehaves on command, in the namespace of the clients, and the way of each node
/// to it.
fn registry_of(fleet: &LocalFleet) -> (Registry, [RegistryRelay; 3]) {
    let registry = Registry::start();
    let relays = relays(fleet, registry.host().parse().expect("an address"));
    (registry, relays)
}

/// The name of an image of that registry.
fn named(name: &str) -> String {
    format!("127.0.0.1:{PORT}/{name}:1")
}

/// The layer that only images of this word have, with `bytes` that do not compress.
fn layer(word: &str, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(bytes)
    .collect();
    Layer::new().file("word", word.as_bytes()).file("noise", &noise).bytes()
}

fn image(word: &str, bytes: usize) -> (Image, Vec<u8>) {
    let own = layer(word, bytes);
    // The blobs are not compressed, which registries allow, so that a test need not wait for it.
    let layers = vec![busybox().bytes(), own.clone()];
    let diff_ids = layers.iter().map(|layer| digest(layer)).collect();
    (Image::of_blobs(layers, diff_ids, &json!({})), own)
}

fn pull(http: &Http, name: &str) -> Reply {
    http.post("/v1/images/pull", &json!({"image": name}))
}

/// Pulls with a progress stream, and returns the last progress.
fn watched_pull(http: &Http, name: &str) -> (Value, String) {
    let reply = pull(&http.with("accept", "text/event-stream"), name).expect(200).text();
    let mut last = reply.lines().filter_map(|line| line.strip_prefix("data: {\"done\""));
    let last = last.next_back().unwrap_or_else(|| panic!("no progress: {reply}"));
    (serde_json::from_str(&format!("{{\"done\"{last}")).expect("JSON"), reply.clone())
}

/// Where the layers of a finished pull came from, the lowest one first: `disk`, `registry`, or the name
/// of a node.
fn sources(progress: &Value) -> Vec<String> {
    let from = |layer: &Value| {
        let from = layer["node"].as_str().or(layer["from"].as_str());
        from.unwrap_or_default().to_owned()
    };
    progress["layers"].as_array().expect("layers").iter().map(from).collect()
}

fn metric(http: &Http, name: &str) -> f64 {
    let text = http.get("/metrics").expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no metric {name}")).parse().expect("a number")
}

const RECEIVED: &str = "isolet_image_peer_bytes_total{direction=\"received\"}";
const SENT: &str = "isolet_image_peer_bytes_total{direction=\"sent\"}";
const FAILED: &str = "isolet_image_peer_layers_total{result=\"failure\"}";
const PULLED: &str = "isolet_image_pulled_bytes_total";

fn blobs(asked: &[String]) -> Vec<&String> {
    asked.iter().filter(|path| path.contains("/blobs/")).collect()
}

/// Creates a sandbox from an image on a node.
fn create(fleet: &LocalFleet, node: &str, id: &str, image: &str) -> Sandbox {
    fleet.create_with(node, &json!({"id": id, "image": image, "memory_mib": 64}))
}

/// The directory of the tree of a layer on a node.
fn tree(fleet: &LocalFleet, node: &str, layer: &[u8]) -> PathBuf {
    let name = digest(layer);
    let name = name.trim_start_matches("sha256:");
    fleet.node(node).server.data().join("images/layers").join(name).join("tree")
}

/// Promises: FL30.
#[test]
fn a_layer_comes_from_the_registry_once_and_then_from_nodes_that_have_it() {
    let fleet = fleet();
    let mut registry = DockerRegistry::start();
    let relays = relays(&fleet, registry.address());
    let (made, own) = image("once", 3_000_000);
    registry.push("box", &made);
    let name = named("box");
    let (progress, _) = watched_pull(&fleet.node("a").http(), &name);
    assert_eq!(sources(&progress), ["registry", "registry"]);
    assert_eq!(blobs(&relays[0].asked()).len(), 3, "two layers and the configuration");

    // Concurrent pulls on another node share one transfer, which takes no layer from the registry.
    let b = fleet.node("b").http();
    let pulling = [(); 3].map(|()| {
        let http = b.clone();
        let name = name.clone();
        std::thread::spawn(move || pull(&http, &name))
    });
    for reply in pulling {
        let pulled = reply.join().expect("no panic").expect(200).json();
        assert_eq!(pulled["digest"].as_str(), Some(&*made.digest));
    }
    let sandbox = create(&fleet, "b", "b1", &name);
    assert_eq!(sandbox.says("cat /word; stat -c %s /noise"), "once3000000\n");
    let asked = relays[1].asked();
    let config: Value = serde_json::from_slice(&made.manifest).expect("JSON");
    let config = config["config"]["digest"].as_str().expect("text").to_owned();
    assert_eq!(blobs(&asked), [&format!("/v2/box/blobs/{config}")], "{asked:?}");
    assert!(metric(&b, RECEIVED) > 3_000_000.0);
    assert_eq!(metric(&b, PULLED), 0.0);
    assert!(metric(&fleet.node("a").http(), SENT) > 3_000_000.0);
    assert!(fleet.node("b").server.log().contains("layers_from_nodes=2"), "the log says so");

    // A tenant that has proven nothing downloads the layers itself, as on one server.
    let mut fleet = fleet;
    let key = fleet.node_mut("c").server.add_key(&["--tenant", "other"]);
    let c = fleet.node("c");
    let (progress, _) = watched_pull(&c.server.client(Some(&key)), &name);
    assert_eq!(sources(&progress), ["registry", "registry"]);
    assert_eq!(blobs(&relays[2].asked()).len(), 3);
    // The layers are on that disk now, and other nodes know that this tenant may read them.
    let (progress, _) = watched_pull(&c.http(), &name);
    assert_eq!(sources(&progress), ["disk", "disk"]);
    assert_eq!(blobs(&relays[2].asked()).len(), 1, "the configuration");
    assert_eq!(metric(&c.http(), RECEIVED), 0.0);

    // The registry decides who may read an image, also when all nodes have its layers.
    registry
        .ask_for_passwords("ann:$2b$05$3lPDdBTE9my4vY98xR1S2.Mjn7yNmLo3ZbGRe8SvEB.LraQCX4zV.\n");
    let refused = pull(&b, &name).expect(403);
    assert_eq!(refused.error(), "image_denied");
    // No client reaches the paths of nodes.
    let wanted = json!({"tenant": "default", "layer": digest(&own)});
    for path in ["/fleet/images/layer", "/fleet/images/image", "/fleet/call"] {
        let reply = fleet.node("a").http().post(path, &wanted);
        assert_eq!(reply.status, 404, "{path}: {}", reply.text());
    }
}

/// Promises: FL31.
#[test]
fn a_node_that_sends_wrong_bytes_or_dies_is_replaced_by_the_registry() {
    let mut fleet = fleet();
    let (registry, _relays) = registry_of(&fleet);
    let (wrong, own) = image("right", 100_000);
    registry.has("wrong", wrong);
    pull(&fleet.node("a").http(), &named("wrong")).expect(200);
    std::fs::write(tree(&fleet, "a", &own).join("word"), "wrong").expect("writes");
    let b = fleet.node("b").http();
    let (progress, text) = watched_pull(&b, &named("wrong"));
    assert_eq!(sources(&progress), ["a", "registry"], "{text}");
    assert_eq!(create(&fleet, "b", "b1", &named("wrong")).says("cat /word"), "right");
    assert_eq!(metric(&b, FAILED), 1.0);
    let log = fleet.node("b").server.log();
    assert!(
        log.contains("could not be copied from another node") && log.contains("node=\"a\""),
        "{log}"
    );
    assert!(log.contains("has the digest"), "{log}");

    // A file that is shorter ends the transfer in the middle.
    let (short, own) = image("whole", 4_000_000);
    registry.has("short", short);
    pull(&fleet.node("a").http(), &named("short")).expect(200);
    let file = std::fs::OpenOptions::new().write(true).open(tree(&fleet, "a", &own).join("noise"));
    file.expect("there").set_len(2_000_000).expect("shortens");
    let (progress, text) = watched_pull(&b, &named("short"));
    assert_eq!(sources(&progress), ["disk", "registry"], "{text}");
    assert_eq!(create(&fleet, "b", "b2", &named("short")).says("stat -c %s /noise"), "4000000\n");

    // The node is killed while it sends. On a busy machine it may have sent all before: then another
    // image is tried.
    let word = (0..5).map(|number| format!("large{number}")).find(|word| {
        let (large, _) = image(word, 96_000_000);
        registry.has(word, large);
        let a = fleet.node("a").http();
        pull(&a, &named(word)).expect(200);
        let before = metric(&a, SENT);
        let c = fleet.node("c").http();
        wait_until("node c knows that node a is back", LONG, || {
            (c.get("/v1/nodes/a").expect(200).json()["state"] == "ready").then_some(())
        });
        let pulling = {
            let name = named(word);
            std::thread::spawn(move || watched_pull(&c, &name))
        };
        wait_until("the transfer has begun", LONG, || (metric(&a, SENT) > before).then_some(()));
        fleet.node_mut("a").server.kill();
        let (progress, text) = pulling.join().expect("no panic");
        let sources = sources(&progress);
        let is_cut = sources.last().is_some_and(|source| source == "registry");
        if !is_cut {
            assert_eq!(sources.last().map(String::as_str), Some("a"), "{text}");
            fleet.node_mut("a").server.launch();
        }
        is_cut
    });
    let word = word.expect("a transfer that is cut");
    let log = fleet.node("c").server.log();
    let begun_with_a =
        log.contains("could not be copied from another node") && log.contains("node=\"a\"");
    assert!(begun_with_a, "it began with the node: {log}");
    assert_eq!(
        create(&fleet, "c", "c1", &named(&word)).says("cat /word; stat -c %s /noise"),
        format!("{word}96000000\n")
    );
    fleet.node_mut("a").server.launch();
}

/// Promises: FL32.
#[test]
fn knowing_a_digest_gives_no_tenant_a_layer_of_another_node() {
    let mut fleet = fleet();
    let (registry, _relays) = registry_of(&fleet);
    let (private, own) = image("secret", 100_000);
    registry.has("private", private.clone());
    let name = named("private");
    pull(&fleet.node("a").http(), &name).expect(200);
    // A tenant has its own repository say that its image has the layer, which it cannot read.
    registry.has("stolen", private);
    let blob = digest(&own);
    registry.fault(&format!("stolen/blobs/{blob}"), Some(RegistryFault::Status(404)));
    let key = fleet.node_mut("b").server.add_key(&["--tenant", "other"]);
    let thief = fleet.node("b").server.client(Some(&key));
    let refused = pull(&thief, &named("stolen"));
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert_eq!(metric(&fleet.node("b").http(), RECEIVED), 0.0);
    // The owner of the layer gets it.
    let (progress, _) = watched_pull(&fleet.node("b").http(), &name);
    assert_eq!(sources(&progress).last().map(String::as_str), Some("a"));
}

/// Promises: FL33.
#[test]
fn an_image_that_no_registry_has_is_copied_from_the_node_that_has_it() {
    let mut fleet = fleet();
    let (made, _) = image("imported", 100_000);
    let a = fleet.node("a").http();
    let import = a.send("POST", "/v1/images/import?name=my-image", Some(&made.layout()));
    import.expect(201);
    let sandbox = create(&fleet, "b", "b1", "my-image");
    assert_eq!(sandbox.says("cat /word"), "imported");
    let listed = fleet.node("b").http().get("/v1/images").expect(200).json();
    assert_eq!(
        (listed[0]["digest"].as_str(), listed[0]["source"].as_str()),
        (Some(&*made.digest), Some("archive"))
    );

    // An image of a sandbox lies on the layers of the first one.
    sandbox.says("echo installed >/tool; echo kept >/workspace/file");
    let snapshot = sandbox.post("/snapshots", &json!({})).expect(201).json();
    let commit = |snapshot: &Value| {
        let spec = json!({"snapshot": snapshot["id"], "name": "tools:1"});
        fleet.node("b").http().post("/v1/images", &spec).expect(201);
    };
    commit(&snapshot);
    let tools = create(&fleet, "c", "c1", "tools:1");
    assert_eq!(tools.says("cat /word /tool /workspace/file"), "importedinstalled\nkept\n");

    // The name stands for what it stands for on the node where it was given.
    sandbox.says("echo newer >/tool");
    commit(&sandbox.post("/snapshots", &json!({})).expect(201).json());
    let tools = create(&fleet, "c", "c2", "tools:1");
    assert_eq!(tools.says("cat /tool"), "newer\n");
    fleet.node("b").http().delete("/v1/images/tools:1").expect(204);
    let gone = fleet.node("c").http().post("/v1/sandboxes", &json!({"image": "tools:1"}));
    assert!([403, 404, 502].contains(&gone.status), "a registry is asked: {}", gone.text());

    // Another tenant has no such image.
    let key = fleet.node_mut("c").server.add_key(&["--tenant", "other"]);
    let other = fleet.node("c").server.client(Some(&key));
    let refused = other.post("/v1/sandboxes", &json!({"image": "my-image"}));
    assert!([403, 404, 502].contains(&refused.status), "{}", refused.text());

    // A layer that is damaged there is reported.
    let (made, own) = image("damaged", 1000);
    let import = a.send("POST", "/v1/images/import?name=bad-image", Some(&made.layout()));
    import.expect(201);
    std::fs::write(tree(&fleet, "a", &own).join("word"), "DAMAGED").expect("writes");
    let c = fleet.node("c").http();
    for node in ["a", "b"] {
        c.post(&format!("/v1/nodes/{node}/cordon"), &json!({})).expect(200);
    }
    let spec = json!({"id": "damaged", "image": "bad-image"});
    let damaged = wait_until("it is placed on the node that lacks the image", LONG, || {
        let answer = c.post("/v1/sandboxes", &spec);
        if answer.status == 201 {
            c.delete("/v1/sandboxes/damaged");
        }
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(damaged.error(), "image_not_copied");
    assert!(damaged.text().contains("node \\\"a\\\""), "{}", damaged.text());
}
