//! Notices that the configuration files of nodes differ in the limits of tenants.
//!
//! Limits are not copied: each node reads its own configuration file, and reports a digest of them in
//! its record.

use isolet_cluster::model::Members;
use isolet_wire::node::NodeName;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::info;
use tracing::warn;

/// Maximum number of nodes that one line of the log names.
const NAMED_MAX: usize = 10;
/// Pause between two looks, so that restarts of nodes with a new file are one line of the log.
const PAUSE: Duration = Duration::from_secs(30);

/// Logs which nodes have other limits than this one, whenever that changes.
pub(crate) async fn watch(mut members: watch::Receiver<Members>, own: String) {
    let mut known: Vec<NodeName> = Vec::new();
    loop {
        let differing = members.borrow_and_update().with_other_limits(&own);
        if differing != known {
            report(&differing);
            known = differing;
        }
        sleep(PAUSE).await;
        if members.changed().await.is_err() {
            return;
        }
    }
}

fn report(differing: &[NodeName]) {
    if differing.is_empty() {
        info!("all nodes have the same limits of tenants");
        return;
    }
    let named: Vec<&str> = differing.iter().take(NAMED_MAX).map(NodeName::as_str).collect();
    warn!(
        nodes = named.join(", "),
        count = differing.len(),
        "other nodes have other limits, quotas or network profiles in their configuration files; a \
         sandbox gets those of the node that creates it: use the same file on all nodes"
    );
}
