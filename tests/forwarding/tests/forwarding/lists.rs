//! Lists and events of all nodes.

use crate::cluster::Cluster;
use isolet_kit::{LONG, SOON, Stream, json, wait_until};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// The ids of all pages of a list.
fn pages(cluster: &Cluster, node: &str, limit: usize) -> Vec<String> {
    let http = cluster.node(node).http();
    let mut path = format!("/v1/sandboxes?limit={limit}");
    let mut ids = Vec::new();
    loop {
        let page = http.get(&path).expect(200);
        let list = page.json();
        let list = list.as_array().expect("a list");
        assert!(list.len() <= limit);
        ids.extend(list.iter().map(|one| one["id"].as_str().expect("an id").to_owned()));
        let Some(link) = page.header("link") else { return ids };
        path = link.trim_start_matches('<').split('>').next().expect("a path").to_owned();
    }
}

/// Promises: FW7.
#[test]
fn lists_hold_the_sandboxes_of_all_nodes() {
    let cluster = Cluster::start(3);
    let mut all = Vec::new();
    for (at, node) in ["a", "b", "c", "b", "a", "c", "b"].iter().enumerate() {
        cluster.directory.place_on(node);
        let id = format!("box-{at}");
        cluster.node("a").http().post("/v1/sandboxes", &json!({ "id": id })).expect(201);
        all.push(id);
    }
    for limit in [1, 2, 3, 100] {
        for node in ["a", "b", "c"] {
            assert_eq!(pages(&cluster, node, limit), all, "{limit} from {node}");
        }
    }
    let runs = cluster.node("c").http().get("/v1/runs").expect(200).json();
    assert_eq!(runs.as_array().expect("a list").len(), all.len());
    let bad = cluster.node("a").http().get("/v1/sandboxes?limit=0").expect(400);
    assert_eq!(bad.error(), "bad_request");
    for id in ["box-0", "box-1"] {
        cluster.node("c").sandbox(id).post("/snapshots", &json!({})).expect(201);
    }
    let snapshots = cluster.node("c").http().get("/v1/snapshots").expect(200).json();
    assert_eq!(snapshots["snapshots"].as_array().expect("a list").len(), 2);
    assert_eq!(snapshots.get("unreachable_nodes"), None);
    // A node that does not answer is named, and the others' entries are there.
    cluster.node("b").fleet.cut_off();
    let list = cluster.node("a").http().get("/v1/sandboxes").expect(200);
    assert_eq!(list.header("isolet-unreachable-nodes"), Some("b"));
    let ids: Vec<_> =
        list.json().as_array().expect("a list").iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["box-0", "box-2", "box-4", "box-5"]);
    let snapshots = cluster.node("c").http().get("/v1/snapshots").expect(200).json();
    assert_eq!(snapshots["unreachable_nodes"], json!(["b"]));
}

/// Opens the events of all sandboxes, and reads the position at which they begin.
fn follow(cluster: &Cluster, node: &str, last: Option<&str>) -> Stream {
    let mut http = cluster.node(node).http();
    if let Some(last) = last {
        http = http.with("last-event-id", last);
    }
    let stream = http.try_open("GET", "/v1/events", None).expect("an answer");
    assert_eq!(stream.status, 200);
    stream
}

/// Reads until a sandbox is created, and returns its id and the cursor.
fn created(stream: &mut Stream) -> (String, String) {
    loop {
        let event = stream.event().expect("the stream goes on");
        if event.name == "created" {
            let data: isolet_kit::Value = event.data.parse().expect("JSON");
            return (data["sandbox"].as_str().expect("an id").to_owned(), event.id);
        }
    }
}

/// Promises: FW7.
#[test]
fn events_of_all_nodes_are_one_stream_that_can_be_resumed() {
    let cluster = Cluster::start(3);
    let create = |node: &str, id: &str| {
        cluster.directory.place_on(node);
        cluster.node("a").http().post("/v1/sandboxes", &json!({ "id": id })).expect(201);
    };
    let mut stream = follow(&cluster, "a", None);
    create("a", "one");
    create("b", "two");
    let mut seen = BTreeSet::new();
    let mut cursor = String::new();
    for _ in 0..2 {
        let (id, at) = created(&mut stream);
        seen.insert(id);
        cursor = at;
    }
    assert_eq!(seen, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
    assert_eq!(cursor.split(',').count(), 3, "a position for each node: {cursor}");
    drop(stream);
    create("c", "three");
    create("b", "four");
    // The client continues on another node, and gets what it missed once.
    let mut stream = follow(&cluster, "c", Some(&cursor));
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        seen.insert(created(&mut stream).0);
    }
    assert_eq!(seen, BTreeSet::from(["four".to_owned(), "three".to_owned()]));
    create("a", "five");
    assert_eq!(created(&mut stream).0, "five");
    let bad = cluster.node("a").http().with("last-event-id", "x").get("/v1/events").expect(400);
    assert_eq!(bad.error(), "bad_field");
    // A node that stops answering is reported, and the others' events arrive.
    cluster.node("b").fleet.cut_off();
    let lost = wait_until("the node is reported", SOON, || {
        stream.event().filter(|event| event.name == "node_unreachable")
    });
    assert_eq!(lost.data, r#"{"node":"b"}"#);
    create("a", "six");
    assert_eq!(created(&mut stream).0, "six");
    // One that has left the fleet is followed again when it returns.
    cluster.directory.leave("b");
    let looks = || cluster.node("c").fleet.looks.load(Ordering::SeqCst);
    let before = looks();
    // The stream looks for new nodes, and the task of node `b` whether it is still one, equally often.
    wait_until("nobody follows it", LONG, || (looks() > before + 3).then_some(()));
    cluster.runtime.block_on(cluster.node("b").fleet.listen());
    let back = wait_until("the node is reported", SOON, || {
        stream.event().filter(|event| event.name == "node_reachable")
    });
    assert_eq!(back.data, r#"{"node":"b"}"#);
    create("b", "seven");
    assert_eq!(created(&mut stream).0, "seven");
}
