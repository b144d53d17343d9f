//! Tests how kinds are added and discarded, and what happens to waiting creates.

use super::*;

fn image(name: &str) -> PoolKind {
    let root = Root { layers: vec![name.to_owned()], cwd: None, uid: 0, gid: 0 };
    PoolKind { has_veth: false, root: Some(root) }
}

fn with_veth() -> PoolKind {
    PoolKind { has_veth: true, root: None }
}

fn made(name: &str, kind: &PoolKind) -> PreparedSandbox {
    PreparedSandbox { name: name.to_owned(), kind: kind.clone(), ..PreparedSandbox::default() }
}

fn names(all: &[PreparedSandbox]) -> Vec<&str> {
    all.iter().map(|made| made.name.as_str()).collect()
}

/// Promises: Q24.
#[test]
fn a_kind_is_prepared_after_its_first_request() {
    let mut stock = WarmStock::default();
    let now = Instant::now();
    stock.want(&PoolKind::default(), now);
    assert_eq!(stock.next(1, "a"), Some(PoolKind::default()));
    stock.put(made("a", &PoolKind::default()));
    assert_eq!(stock.next(1, "b"), None, "nobody has asked for a link");
    assert!(matches!(stock.take(&with_veth(), now), Taken::None));
    assert_eq!(stock.next(1, "b"), Some(with_veth()));
    stock.put(made("b", &with_veth()));
    assert!(stock.has("a") && stock.has("b") && !stock.has("c"));
    assert!(matches!(stock.take(&image("x"), now), Taken::None), "of another kind");
    let Taken::Made(taken) = stock.take(&with_veth(), now) else { panic!("it is there") };
    assert_eq!((taken.name.as_str(), stock.count()), ("b", 1));
}

/// Promises: Q24.
#[test]
fn kinds_are_bounded_and_the_least_recently_requested_is_dropped() {
    let mut stock = WarmStock::default();
    let now = Instant::now();
    stock.want(&PoolKind::default(), now);
    for at in 0..=OTHERS_MAX {
        let kind = image(&at.to_string());
        let name = at.to_string();
        stock.want(&kind, now);
        assert_eq!(stock.next(9, &name), Some(kind.clone()));
        stock.put(made(&name, &kind));
        for n in 1..OTHERS_EACH {
            assert_eq!(stock.next(9, "more"), Some(kind.clone()), "{n}");
            stock.put(made("more", &kind));
        }
    }
    assert_eq!(names(&stock.remove()), ["0", "more"]);
    assert_eq!(stock.next(9, "plain"), Some(PoolKind::default()), "the plain kind always stays");
}

/// Promises: Q24.
#[test]
fn a_kind_without_requests_is_dropped_and_the_plain_kind_stays() {
    let mut stock = WarmStock::default();
    let now = Instant::now();
    stock.want(&PoolKind::default(), now);
    stock.want(&with_veth(), now);
    assert_eq!(stock.age(now), Some(now + STAY));
    for name in ["a", "b"] {
        let kind = stock.next(1, name).expect("both are short");
        stock.put(made(name, &kind));
    }
    assert_eq!(stock.age(now + STAY), None);
    assert_eq!((names(&stock.remove()), stock.count()), (vec!["a"], 1));
}

/// Promises: Q24.
#[test]
fn a_sandbox_in_preparation_goes_to_the_waiting_request_unless_it_is_stale() {
    let mut stock = WarmStock::default();
    let now = Instant::now();
    stock.want(&with_veth(), now);
    assert_eq!(stock.next(1, "a"), Some(with_veth()));
    let Taken::Soon(mut promise) = stock.take(&with_veth(), now) else {
        panic!("it is being made")
    };
    assert!(matches!(stock.take(&with_veth(), now), Taken::None), "one waits for it already");
    stock.put(made("a", &with_veth()));
    assert_eq!(promise.try_recv().expect("it came").name, "a");
    // The veth pair is lost while the sandbox is being created.
    assert_eq!(stock.next(1, "b"), Some(with_veth()));
    let Taken::Soon(mut promise) = stock.take(&with_veth(), now) else {
        panic!("it is being made")
    };
    stock.lost(|name, _| name == "b");
    stock.put(made("b", &with_veth()));
    assert!(promise.try_recv().is_err());
    assert_eq!(names(&stock.remove()), ["b"]);
    // The veth pair is lost while the sandbox waits.
    assert_eq!(stock.next(1, "c"), Some(with_veth()));
    stock.put(made("c", &with_veth()));
    stock.lost(|_, kind| kind.has_veth);
    assert!(matches!(stock.take(&with_veth(), now), Taken::None));
    assert_eq!(names(&stock.remove()), ["c"]);
}

/// Promises: A12.
#[test]
fn layers_are_held_until_their_sandboxes_are_removed() {
    let mut stock = WarmStock::default();
    let now = Instant::now();
    stock.want(&image("x"), now);
    stock.next(1, "a").expect("it is short");
    stock.retain(|kind| kind.root.is_none());
    assert!(stock.busy(|kind| kind.root.is_some()));
    assert_eq!(stock.roots().len(), 1, "it is being made of it");
    stock.put(made("a", &image("x")));
    assert_eq!(stock.roots().len(), 1, "it is not removed yet");
    assert_eq!(names(&stock.remove()), ["a"]);
    assert_eq!(stock.roots().len(), 1, "it is being removed");
    stock.removed(&image("x"));
    assert!(stock.roots().is_empty() && !stock.busy(|_| true));
}
