//! Cordons that last as long as a value.

use crate::local_fleet::LocalFleet;
use isolet_kit::{SOON, json, wait_until};
use std::collections::BTreeSet;

/// Cordons of all nodes but one. Dropping it removes those that it has made.
pub struct Cordons<'a> {
    fleet: &'a LocalFleet,
    /// The nodes that were not cordoned before.
    made: Vec<&'static str>,
}

impl<'a> Cordons<'a> {
    pub(crate) fn all_but(fleet: &'a LocalFleet, node: &str) -> Self {
        let before = cordoned(fleet, node);
        let names = fleet.nodes.iter().map(|node| node.name);
        let made = names.filter(|name| *name != node && !before.contains(*name)).collect();
        let cordons = Self { fleet, made };
        cordons.change(node, "cordon");
        wait_until("the others are cordoned", SOON, || {
            let now = cordoned(fleet, node);
            cordons.made.iter().all(|name| now.contains(*name)).then_some(())
        });
        cordons
    }

    fn change(&self, through: &str, word: &str) {
        let http = self.fleet.node(through).http();
        for name in &self.made {
            http.post(&format!("/v1/nodes/{name}/{word}"), &json!({})).expect(200);
        }
    }
}

/// The cordoned nodes, as a node knows them.
fn cordoned(fleet: &LocalFleet, through: &str) -> BTreeSet<String> {
    let list = fleet.node(through).http().get("/v1/nodes").expect(200).json();
    let nodes = list["nodes"].as_array().expect("a list").iter();
    let cordoned = nodes.filter(|node| node["cordoned"] == true);
    cordoned.filter_map(|node| node["name"].as_str().map(str::to_owned)).collect()
}

impl Drop for Cordons<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut running = self.fleet.nodes.iter().filter(|node| node.server.is_running());
        let Some(through) = running.next() else { return };
        self.change(through.name, "uncordon");
        for node in self.fleet.nodes.iter().filter(|node| node.server.is_running()) {
            wait_until("the cordons are removed", SOON, || {
                let now = cordoned(self.fleet, node.name);
                self.made.iter().all(|name| !now.contains(*name)).then_some(())
            });
        }
    }
}
