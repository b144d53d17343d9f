//! Follows the owners of all sandboxes in etcd, each with its epoch: the revision of the transaction that
//! made it the owner.

use super::worker;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isolet_fleet_tests::EtcdClient;
use isolet_kit::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The keys of all owners.
const PREFIX: &str = "isolet/owners/default/";
/// The pause before etcd is asked again.
const RETRY: Duration = Duration::from_millis(200);

/// The owner of a sandbox from an epoch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerChange {
    /// The number of the sandbox.
    pub(super) number: usize,
    /// The index of the node; `None`: nobody owns it.
    pub(super) node: Option<usize>,
    pub(super) epoch: u64,
}

/// A running watch. It ends when it is dropped.
pub(super) struct Owners {
    shared: Arc<Shared>,
    following: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    watch: Mutex<Option<Child>>,
}

impl Owners {
    /// Starts to follow the owners. Each change is sent after etcd has committed it.
    pub(super) fn follow(etcd: EtcdClient) -> (Self, Receiver<OwnerChange>) {
        let (changes, received) = channel();
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let following = std::thread::spawn(move || {
            while !own.ended.load(Ordering::SeqCst) {
                // A watch ends when its member does, or misses a compaction: all is listed again.
                if follow_once(&etcd, &own, &changes).is_none() {
                    std::thread::park_timeout(RETRY);
                }
            }
        });
        (Self { shared, following: Some(following) }, received)
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let watch = self.shared.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut watch) = watch {
            let _ = watch.kill();
            let _ = watch.wait();
        }
        if let Some(following) = self.following.take() {
            let _ = following.join();
        }
    }
}

/// Lists all owners, then sends each change until the watch ends. `None`: etcd does not answer.
fn follow_once(etcd: &EtcdClient, shared: &Shared, changes: &Sender<OwnerChange>) -> Option<()> {
    let list = etcd.ask(&["get", "--prefix", PREFIX, "-w", "json"])?;
    let list: Value = list.parse().ok()?;
    for one in list["kvs"].as_array().into_iter().flatten() {
        changes.send(owner(one, false)?).ok()?;
    }
    let from = (list["header"]["revision"].as_u64()? + 1).to_string();
    let mut watch = etcd.command(&["watch", "--prefix", PREFIX, "--rev", &from, "-w", "json"]);
    watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watch = watch.spawn().ok()?;
    let lines = BufReader::new(watch.stdout.take()?);
    *shared.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
    if shared.ended.load(Ordering::SeqCst) {
        return None;
    }
    for line in lines.lines() {
        let answer: Value = line.ok()?.parse().ok()?;
        for event in answer["Events"].as_array().into_iter().flatten() {
            // The type of a deletion is 1; that of a put is 0 and left out.
            if let Some(change) = owner(&event["kv"], event["type"] == 1) {
                changes.send(change).ok()?;
            }
        }
    }
    let ended = shared.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
    ended.map(|mut watch| drop(watch.wait()))
}

fn owner(key_value: &Value, is_deletion: bool) -> Option<OwnerChange> {
    let text = |field: &str| {
        let bytes = STANDARD.decode(key_value[field].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let number = worker::number(text("key")?.strip_prefix(PREFIX)?)?;
    let epoch = key_value["mod_revision"].as_u64()?;
    if is_deletion {
        return Some(OwnerChange { number, node: None, epoch });
    }
    let value: Value = text("value")?.parse().ok()?;
    let name = value["node"].as_str()?;
    let node = crate::NODES.iter().position(|known| *known == name);
    Some(OwnerChange { number, node, epoch })
}
