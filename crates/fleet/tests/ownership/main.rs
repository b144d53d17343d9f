//! What a node does with its sandboxes when it loses its lease and when it gets one again: with a real
//! etcd, the real lease guard, and the kernel.

mod earlier_disk;
mod etcd;
mod fixture;
mod many;
mod node_class;
mod store_class;
mod superseding;
