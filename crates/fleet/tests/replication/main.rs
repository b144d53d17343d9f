//! What all nodes share, with a real etcd and nodes that each have their own records.

#[allow(dead_code, reason = "shared with the tests of isolet-cluster, which use more of it")]
#[path = "../../../cluster/tests/cluster/etcd_server.rs"]
mod etcd_server;
mod interruptions;
mod keys;
mod lists;
mod node;
mod profiles;
mod relay;
mod webhooks;
