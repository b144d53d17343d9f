//! Kinds that appear and expire, and what happens to the sandboxes that wait.

use super::*;

fn image(name: &str) -> Kind {
    let root = Root { layers: vec![name.to_owned()], cwd: None, uid: 0, gid: 0 };
    Kind { linked: false, root: Some(root) }
}

fn linked() -> Kind {
    Kind { linked: true, root: None }
}

fn made(name: &str, kind: &Kind) -> Made {
    Made { name: name.to_owned(), kind: kind.clone(), ..Made::default() }
}

fn names(all: &[Made]) -> Vec<&str> {
    all.iter().map(|made| made.name.as_str()).collect()
}

/// Promises: Q24.
#[test]
fn a_kind_is_made_ahead_once_somebody_has_asked_for_it() {
    let mut shelves = Shelves::default();
    let now = Instant::now();
    shelves.want(&Kind::default(), now);
    assert_eq!(shelves.next(1, "a"), Some(Kind::default()));
    shelves.put(made("a", &Kind::default()));
    assert_eq!(shelves.next(1, "b"), None, "nobody has asked for a link");
    assert!(matches!(shelves.take(&linked(), now), Taken::None));
    assert_eq!(shelves.next(1, "b"), Some(linked()));
    shelves.put(made("b", &linked()));
    assert!(shelves.has("a") && shelves.has("b") && !shelves.has("c"));
    assert!(matches!(shelves.take(&image("x"), now), Taken::None), "of another kind");
    let Taken::Made(taken) = shelves.take(&linked(), now) else { panic!("it is there") };
    assert_eq!((taken.name.as_str(), shelves.count()), ("b", 1));
}

/// Promises: Q24.
#[test]
fn kinds_are_bounded_and_the_one_not_asked_for_longest_goes() {
    let mut shelves = Shelves::default();
    let now = Instant::now();
    shelves.want(&Kind::default(), now);
    for at in 0..=OTHERS_MAX {
        let kind = image(&at.to_string());
        let name = at.to_string();
        shelves.want(&kind, now);
        assert_eq!(shelves.next(9, &name), Some(kind.clone()));
        shelves.put(made(&name, &kind));
        for n in 1..OTHERS_EACH {
            assert_eq!(shelves.next(9, "more"), Some(kind.clone()), "{n}");
            shelves.put(made("more", &kind));
        }
    }
    assert_eq!(names(&shelves.remove()), ["0", "more"]);
    assert_eq!(shelves.next(9, "plain"), Some(Kind::default()), "the plain kind always stays");
}

/// Promises: Q24.
#[test]
fn what_nobody_asks_for_any_more_is_given_up_and_the_plain_ones_stay() {
    let mut shelves = Shelves::default();
    let now = Instant::now();
    shelves.want(&Kind::default(), now);
    shelves.want(&linked(), now);
    assert_eq!(shelves.age(now), Some(now + STAY));
    for name in ["a", "b"] {
        let kind = shelves.next(1, name).expect("both are short");
        shelves.put(made(name, &kind));
    }
    assert_eq!(shelves.age(now + STAY), None);
    assert_eq!((names(&shelves.remove()), shelves.count()), (vec!["a"], 1));
}

/// Promises: Q24.
#[test]
fn one_that_is_being_made_goes_to_who_waits_unless_it_is_not_to_be_used() {
    let mut shelves = Shelves::default();
    let now = Instant::now();
    shelves.want(&linked(), now);
    assert_eq!(shelves.next(1, "a"), Some(linked()));
    let Taken::Soon(mut promise) = shelves.take(&linked(), now) else { panic!("it is being made") };
    assert!(matches!(shelves.take(&linked(), now), Taken::None), "one waits for it already");
    shelves.put(made("a", &linked()));
    assert_eq!(promise.try_recv().expect("it came").name, "a");
    // Its link goes while it is being made.
    assert_eq!(shelves.next(1, "b"), Some(linked()));
    let Taken::Soon(mut promise) = shelves.take(&linked(), now) else { panic!("it is being made") };
    shelves.lost(|name, _| name == "b");
    shelves.put(made("b", &linked()));
    assert!(promise.try_recv().is_err());
    assert_eq!(names(&shelves.remove()), ["b"]);
    // Or while it waits.
    assert_eq!(shelves.next(1, "c"), Some(linked()));
    shelves.put(made("c", &linked()));
    shelves.lost(|_, kind| kind.linked);
    assert!(matches!(shelves.take(&linked(), now), Taken::None));
    assert_eq!(names(&shelves.remove()), ["c"]);
}

/// Promises: A12.
#[test]
fn layers_are_held_until_what_is_made_of_them_is_removed() {
    let mut shelves = Shelves::default();
    let now = Instant::now();
    shelves.want(&image("x"), now);
    shelves.next(1, "a").expect("it is short");
    shelves.retain(|kind| kind.root.is_none());
    assert!(shelves.busy(|kind| kind.root.is_some()));
    assert_eq!(shelves.roots().len(), 1, "it is being made of it");
    shelves.put(made("a", &image("x")));
    assert_eq!(shelves.roots().len(), 1, "it is not removed yet");
    assert_eq!(names(&shelves.remove()), ["a"]);
    assert_eq!(shelves.roots().len(), 1, "it is being removed");
    shelves.removed(&image("x"));
    assert!(shelves.roots().is_empty() && !shelves.busy(|_| true));
}
