//! The history of ended sandboxes, and network profiles: by tenant, and bounded.

use isolet_store::{EndedSandbox, HISTORY_MAX, ProfileRow, SandboxRow, Store, UsageTotals};
use std::collections::HashSet;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("isolet.db")).unwrap();
    (dir, store)
}

fn past(tenant: &str, n: usize) -> EndedSandbox {
    let sums = UsageTotals { count: 1, cpu_us: 10, memory_mib_ms: 100 };
    EndedSandbox { tenant: tenant.to_owned(), body: n.to_string(), sums }
}

async fn made(store: &Store, tenant: &str, n: usize) -> String {
    let name = format!("{tenant}{n}");
    let id = n.to_string();
    let state = "running".to_owned();
    let body = "{}".to_owned();
    let slot = u32::try_from(n).unwrap();
    let sandbox =
        SandboxRow { name: name.clone(), tenant: tenant.to_owned(), id, slot, state, body };
    store.insert(sandbox).await.unwrap();
    name
}

/// Promises: D5.
#[tokio::test]
async fn an_end_is_kept_once_and_sums_outlive_what_is_held() {
    let (_dir, store) = store();
    for n in 0..HISTORY_MAX + 3 {
        let name = made(&store, "t", n).await;
        store.remove_ended(&name, past("t", n)).await.unwrap();
    }
    // A second attempt, as after an error that followed the first.
    store.remove_ended("t0", past("t", 0)).await.unwrap();
    let held = store.history("t").await.unwrap();
    assert_eq!(held.len(), HISTORY_MAX);
    assert_eq!((held[0].as_str(), held[HISTORY_MAX - 1].as_str()), ("1002", "3"));
    let count = HISTORY_MAX as u64 + 3;
    let all = UsageTotals { count, cpu_us: 10 * count, memory_mib_ms: 100 * count };
    assert_eq!(store.totals("t").await.unwrap(), all);
    let name = made(&store, "u", 5000).await;
    store.remove_ended(&name, past("u", 1)).await.unwrap();
    assert_eq!(store.history("u").await.unwrap(), ["1"]);
    assert_eq!(store.totals("u").await.unwrap().count, 1);
    assert_eq!(
        store.history("t").await.unwrap().len(),
        HISTORY_MAX,
        "the other tenant's history is unchanged"
    );
    assert_eq!(store.totals("nobody").await.unwrap(), UsageTotals::default());
}

/// Promises: D6.
#[tokio::test]
async fn profiles_are_a_tenants_own_and_bounded() {
    let (_dir, store) = store();
    let put = async |tenant: &str, name: &str, max| {
        store.put_profile(tenant, name, format!("{tenant} {name}"), max).await.unwrap()
    };
    assert_eq!(put("t", "b", 2).await, Some(true));
    assert_eq!(put("t", "a", 2).await, Some(true));
    assert_eq!(put("t", "c", 2).await, None);
    assert_eq!(put("t", "a", 2).await, Some(false), "an existing profile is replaced");
    assert_eq!(put("u", "a", 2).await, Some(true));
    let names: Vec<_> = store.profiles("t").await.unwrap().into_iter().map(|one| one.0).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(!store.remove_profile("u", "b").await.unwrap());
    assert!(store.remove_profile("t", "b").await.unwrap());
    assert_eq!(store.profiles("u").await.unwrap(), [("a".to_owned(), "u a".to_owned())]);
}

#[tokio::test]
async fn profiles_are_replaced_by_those_of_another_node() {
    let (_dir, store) = store();
    let row = |tenant: &str, name: &str, body: &str| ProfileRow {
        tenant: tenant.into(),
        name: name.into(),
        body: body.into(),
    };
    store.set_profiles(vec![row("t", "a", "1"), row("u", "a", "2")]).await.unwrap();
    store.set_profiles(vec![row("t", "b", "3"), row("t", "a", "4")]).await.unwrap();
    let start = (String::new(), String::new());
    let all = store.all_profiles(start.clone(), 9).await.unwrap();
    assert_eq!(all, [row("t", "a", "4"), row("t", "b", "3"), row("u", "a", "2")]);
    let page = store.all_profiles(("t".into(), "a".into()), 1).await.unwrap();
    assert_eq!(page, [row("t", "b", "3")]);
    let kept = HashSet::from([("t".to_owned(), "b".to_owned()), ("v".into(), "a".into())]);
    assert_eq!(store.retain_profiles(kept).await.unwrap(), 2);
    assert_eq!(store.all_profiles(start, 9).await.unwrap(), [row("t", "b", "3")]);
}
