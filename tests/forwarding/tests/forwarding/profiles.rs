//! Network profiles through the API of a node.

use crate::cluster::Cluster;
use isolet_kit::{Http, Reply, json};
use std::sync::atomic::Ordering;

const WEB: &str = "/v1/network-profiles/web";

fn put(node: &Http, path: &str, host: &str) -> Reply {
    let rules = json!({ "allow": [host] });
    node.send("PUT", path, Some(rules.to_string().as_bytes()))
}

/// Promises: FW9.
#[test]
fn a_profile_is_changed_for_all_nodes_or_not_at_all() {
    let cluster = Cluster::start(2);
    let [a, b] = ["a", "b"].map(|name| cluster.node(name).http());
    put(&a, WEB, "one.example").expect(201);
    assert_eq!(b.get(WEB).expect(200).json()["allow"], json!(["one.example"]));
    put(&b, WEB, "two.example").expect(200);
    assert_eq!(a.get(WEB).expect(200).json()["allow"], json!(["two.example"]));
    cluster.directory.is_cut_off.store(true, Ordering::SeqCst);
    // What a single server refuses is refused before the fleet is asked.
    put(&a, WEB, "http://").expect(400);
    put(&a, "/v1/network-profiles/none", "x.example").expect(400);
    a.delete("/v1/network-profiles/none").expect(400);
    assert_eq!(put(&a, WEB, "three.example").expect(503).error(), "fleet_unavailable");
    assert_eq!(b.delete(WEB).expect(503).error(), "fleet_unavailable");
    for node in [&a, &b] {
        assert_eq!(node.get(WEB).expect(200).json()["allow"], json!(["two.example"]));
    }
    cluster.directory.is_cut_off.store(false, Ordering::SeqCst);
    a.delete(WEB).expect(204);
    assert_eq!(b.delete(WEB).expect(404).error(), "no_network_profile");
    b.get(WEB).expect(404);
}
