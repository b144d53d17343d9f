//! Tests the registry's guarantees with concurrent callers, without any process.

use crate::agent_client::pool::Watched;
use crate::live::entry::SandboxEntry;
use crate::live::registry::{Absence, DEPARTED_MAX, Registry, Reserved};
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::SandboxSpec;
use crate::model::record::{Record, RecordBody};
use std::path::Path;
use std::sync::{Arc, Barrier};

fn body() -> RecordBody {
    RecordBody::plan(&Config::new("/nowhere".into(), Path::new("/nowhere")), SandboxSpec::default())
        .unwrap()
}

fn entry(record: Record) -> Arc<SandboxEntry> {
    let metrics = Arc::new(isolet_metrics::Metrics::new("test"));
    let watched = Arc::new(Watched::default());
    SandboxEntry::new(record, Path::new("/nowhere"), Vec::new(), &watched, &metrics)
}

fn reserve(registry: &Registry, tenant: &str, id: &str, max: u32) -> Result<Reserved, Error> {
    let tenant = TenantId::parse(tenant).unwrap();
    let id = SandboxId::parse(id).unwrap();
    registry.reserve(&tenant, &id, max, body(), &mut None, entry)
}

/// The results of a hundred concurrent callers.
fn race(registry: &Registry, id: impl Fn(usize) -> String + Sync) -> Vec<Result<Reserved, Error>> {
    let start = Barrier::new(100);
    std::thread::scope(|scope| {
        let one = |n| {
            let start = &start;
            let id = &id;
            scope.spawn(move || {
                start.wait();
                reserve(registry, "t", &id(n), 10)
            })
        };
        let threads: Vec<_> = (0..100).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_hundred_creates_at_a_limit_of_ten_make_ten() {
    let registry = Registry::new(&[]);
    let got = race(&registry, |n| format!("box{n}"));
    assert_eq!(got.iter().filter(|got| matches!(got, Ok(Reserved::New(_)))).count(), 10);
    let refused =
        |got: &&Result<Reserved, Error>| matches!(got, Err(Error::TooManySandboxes { max: 10 }));
    assert_eq!(got.iter().filter(refused).count(), 90);
    assert!(reserve(&registry, "u", "box0", 10).is_ok(), "another tenant's are not counted");
}

#[test]
fn a_hundred_callers_of_one_id_meet_in_one_sandbox() {
    let registry = Registry::new(&[]);
    let mut names = Vec::new();
    let mut new = 0;
    for got in race(&registry, |_| "same".to_owned()) {
        match got.map_err(|error| error.to_string()).unwrap() {
            Reserved::New(entry) => {
                new += 1;
                names.push(entry.name.clone());
            }
            Reserved::Existing(entry) => names.push(entry.name.clone()),
        }
    }
    names.dedup();
    assert_eq!((new, names.len()), (1, 1));
}

#[test]
fn a_uid_range_belongs_to_one_and_is_given_again_last() {
    let registry = Registry::new(&[0, 2]);
    let slot = |id: &str| match reserve(&registry, "t", id, 10) {
        Ok(Reserved::New(entry)) => entry,
        _ => panic!("not new"),
    };
    let a = slot("a");
    let b = slot("b");
    assert_eq!((a.slot, b.slot), (3, 4));
    registry.remove(&a);
    assert_eq!(slot("a").slot, 5, "ranges never used come first");
    registry.remove(&a);
    assert!(
        registry.find(&a.tenant, &a.id).is_some(),
        "the new one of that id is not taken for the old"
    );
}

#[test]
fn pages_follow_each_other() {
    let registry = Registry::new(&[]);
    for id in ["c", "a", "b"] {
        reserve(&registry, "t", id, 10).map_err(|error| error.to_string()).unwrap();
    }
    let tenant = TenantId::parse("t").unwrap();
    let first = registry.list(&tenant, None, 2);
    assert_eq!(first.items.iter().map(|info| info.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let second = registry.list(&tenant, first.next.as_ref(), 2);
    assert_eq!((second.items.len(), second.next), (1, None));
    assert!(registry.list(&TenantId::parse("u").unwrap(), None, 2).items.is_empty());
}

/// Departures are forgotten when there are too many. The ids that a server holds from its start were
/// among them, so that an empty sandbox could be created in place of one that the object store has.
#[test]
fn a_held_id_is_not_forgotten_with_the_departures() {
    let registry = Registry::new(&[]);
    let tenant = TenantId::parse("t").unwrap();
    let id = |id: &str| SandboxId::parse(id).unwrap();
    registry.leaves(&tenant, &id("held"), Absence::Held);
    for number in 0..=DEPARTED_MAX {
        registry.leaves(&tenant, &id(&format!("left{number}")), Absence::Departed);
    }
    assert!(!registry.has_departed(&tenant, &id("left0")));
    assert!(matches!(reserve(&registry, "t", "held", 10), Err(Error::Departed(_))));
    assert_eq!(registry.returns(&tenant, &id("held")), Some(Absence::Held));
    assert_eq!(registry.returns(&tenant, &id("held")), None);
    assert!(reserve(&registry, "t", "held", 10).is_ok());
}
