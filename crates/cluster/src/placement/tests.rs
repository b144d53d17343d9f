//! Properties of placement.

use super::*;
use crate::model::Epoch;
use crate::model::NodeRecord;
use crate::model::NodeState;
use crate::model::ReportedState;
use proptest::prelude::*;

fn name(index: usize) -> NodeName {
    NodeName::parse(&format!("n{index}")).unwrap()
}

fn label(text: &str) -> Label {
    Label::parse(text).unwrap()
}

fn member(index: usize, memory_mib: u64, reserved_mib: u64) -> Member {
    let mut record =
        NodeRecord::new(1, name(index), "id".into(), "127.0.0.1:1".into(), label("eu"));
    record.capacity.memory_mib = memory_mib;
    record.capacity.sandboxes = 10;
    record.load.memory_reserved_mib = reserved_mib;
    Member {
        record,
        registration: Some(Epoch::of_revision(1)),
        state: NodeState::Ready,
        cordoned: false,
    }
}

fn members(all: impl IntoIterator<Item = Member>) -> Members {
    let all = all.into_iter().map(|member| (member.record.name.clone(), member)).collect();
    Members::new(1, all, Vec::new())
}

fn request(memory_mib: u64) -> PlacementRequest {
    PlacementRequest {
        sandbox: SandboxKey::new("t", "s").unwrap(),
        origin: name(0),
        region: label("eu"),
        class: Class::Node,
        labels: Labels::new(),
        image: None,
        snapshot_nodes: Vec::new(),
        memory_mib,
        reserved_mib: BTreeMap::new(),
        strategy: PlacementStrategy::Spread,
    }
}

fn any_member(index: usize) -> impl Strategy<Value = Member> {
    let load = (0_u64..4000, 0_u64..4000, 0_u32..12, 0_usize..3, any::<bool>());
    (load, 0_usize..4, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        move |((memory, reserved, sandboxes, labels, has_image), state, cordoned, us, store)| {
            let mut member = member(index, memory, reserved);
            member.record.load.sandboxes = sandboxes;
            member.record.store = store;
            for index in 0..labels {
                member.record.labels.insert(label(&format!("l{index}")), label("v"));
            }
            if has_image {
                member.record.load.images.push("0123".into());
            }
            if us {
                member.record.region = label("us");
            }
            member.cordoned = cordoned && index.is_multiple_of(2);
            let states = [NodeState::Ready, NodeState::Suspect, NodeState::Lost, NodeState::Ready];
            member.state = states[state];
            if state == 3 && index.is_multiple_of(3) {
                member.record.state = ReportedState::Stopping;
            }
            member
        },
    )
}

fn any_members() -> impl Strategy<Value = Vec<Member>> {
    (0_usize..8).prop_flat_map(|count| (0..count).map(any_member).collect::<Vec<_>>())
}

fn any_request() -> impl Strategy<Value = PlacementRequest> {
    let demands = (0_usize..3, any::<bool>(), any::<bool>(), proptest::option::of(0_usize..8));
    (demands, 0_usize..8, 0_u64..3000, 0_u64..2000, any::<bool>()).prop_map(
        |((labels, image, store, snapshot), origin, memory, reserved, pack)| {
            let mut request = request(memory);
            request.origin = name(origin);
            request.labels = (0..labels).map(|l| (label(&format!("l{l}")), label("v"))).collect();
            request.image = image.then(|| "0123".to_owned());
            request.class = if store { Class::Store } else { Class::Node };
            request.snapshot_nodes = snapshot.into_iter().map(name).collect();
            request.reserved_mib.insert(name(1), reserved);
            request.strategy =
                if pack { PlacementStrategy::Pack } else { PlacementStrategy::Spread };
            request
        },
    )
}

/// What the module's documentation demands of a node, written independently of the code.
fn fits(request: &PlacementRequest, member: &Member) -> bool {
    let record = &member.record;
    let reserved = request.reserved_mib.get(&record.name).copied().unwrap_or(0);
    let used = record.load.memory_reserved_mib + reserved + request.memory_mib;
    record.region == request.region
        && member.state == NodeState::Ready
        && record.state == ReportedState::Ready
        && !member.cordoned
        && (request.class == Class::Node || record.store)
        && record.load.sandboxes < record.capacity.sandboxes
        // A node whose load is above its capacity has nothing free, which is enough for nothing.
        && (used <= record.capacity.memory_mib || request.memory_mib == 0)
        && request.labels.keys().all(|name| record.labels.contains_key(name))
}

#[test]
fn nodes_without_space_or_pushes_are_passed_over_and_named_when_there_is_no_other() {
    let mut full = member(0, 4000, 0);
    full.record.load.is_full = true;
    let mut stuck = member(1, 4000, 2000);
    stuck.record.store = true;
    stuck.record.load.pushes_stuck = true;
    let mut busy = member(2, 4000, 3000);
    busy.record.store = true;
    let of_store = PlacementRequest { class: Class::Store, ..request(100) };
    let all = members([full.clone(), stuck.clone(), busy]);
    assert_eq!(place(&request(100), &all).unwrap().node, name(1));
    assert_eq!(place(&of_store, &all).unwrap().node, name(2));
    assert_eq!(place(&request(100), &all.without(&[name(1)])).unwrap().node, name(2));
    let refused = place(&of_store, &members([stuck])).unwrap_err().missing;
    assert_eq!(refused, Missing::Pushes { region: label("eu"), nodes: 1 });
    let refused = place(&request(100), &members([full])).unwrap_err().missing;
    assert_eq!(refused, Missing::Disk { region: label("eu"), nodes: 1 });
}

proptest! {
    #[test]
    fn a_place_fits_and_none_means_that_no_node_fits(all in any_members(), request in any_request()) {
        let members = members(all.clone());
        match place(&request, &members) {
            Ok(placed) => {
                let member = members.get(&placed.node).unwrap();
                prop_assert!(fits(&request, member), "{placed:?}");
                prop_assert_eq!(&placed.region, &request.region);
                prop_assert!(!placed.reason.is_empty());
                prop_assert!(placed.reason.len() <= crate::model::REASON_BYTES_MAX);
            }
            Err(none) => {
                prop_assert!(!all.iter().any(|member| fits(&request, member)), "{none}");
                prop_assert!(!none.retry_after.is_zero());
            }
        }
    }

    #[test]
    fn the_order_in_which_nodes_were_learned_is_irrelevant(
        all in any_members(), request in any_request(),
    ) {
        let forward = place(&request, &members(all.clone()));
        let backward = place(&request, &members(all.into_iter().rev()));
        prop_assert_eq!(forward, backward);
    }

    #[test]
    fn a_node_that_cannot_take_it_changes_nothing(
        all in any_members(), more in any_member(9), request in any_request(),
    ) {
        let without = place(&request, &members(all.clone()));
        prop_assume!(!fits(&request, &more));
        let with = place(&request, &members(all.into_iter().chain([more])));
        let node = |place: Result<Placed, NoPlace>| place.ok().map(|placed| placed.node);
        prop_assert_eq!(node(without), node(with));
    }

    #[test]
    fn more_free_memory_never_loses_with_spread(all in any_members(), mut request in any_request()) {
        request.strategy = PlacementStrategy::Spread;
        let first = place(&request, &members(all.clone()));
        if let Ok(placed) = first {
            let relieved = all.into_iter().map(|mut member| {
                if member.record.name == placed.node {
                    member.record.load.memory_reserved_mib = 0;
                }
                member
            });
            prop_assert_eq!(place(&request, &members(relieved)).unwrap().node, placed.node);
        }
    }
}

#[test]
fn spread_takes_the_emptiest_and_pack_the_fullest_that_fits() {
    let all = || members([member(0, 1600, 800), member(1, 1600, 100), member(2, 1600, 1500)]);
    assert_eq!(place(&request(100), &all()).unwrap().node, name(1));
    let pack = |memory| PlacementRequest { strategy: PlacementStrategy::Pack, ..request(memory) };
    assert_eq!(place(&pack(100), &all()).unwrap().node, name(2));
    assert_eq!(place(&pack(200), &all()).unwrap().node, name(0));
}

#[test]
fn what_was_placed_and_is_not_reported_yet_counts() {
    let all = members([member(0, 1600, 0), member(1, 1600, 0)]);
    let mut request = request(1000);
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let placed = place(&request, &all).unwrap();
        *request.reserved_mib.entry(placed.node.clone()).or_default() += 1000;
        used.insert(placed.node);
    }
    assert_eq!(used.len(), 2);
    let none = place(&request, &all).unwrap_err();
    let missing = Missing::Memory { region: label("eu"), needed_mib: 1000, most_free_mib: 600 };
    assert_eq!(none.missing, missing);
    assert!(none.to_string().contains("600 MiB free; retry in 5 s"), "{none}");
}

#[test]
fn a_node_that_has_the_image_is_preferred_until_it_is_much_fuller() {
    let with_image = |reserved| {
        let mut member = member(1, 1600, reserved);
        member.record.load.images.push("abcd".into());
        member
    };
    let image = PlacementRequest { image: Some("abcd".into()), ..request(1) };
    let near = members([member(0, 1600, 0), with_image(200)]);
    let placed = place(&image, &near).unwrap();
    assert_eq!(placed.node, name(1));
    assert!(placed.reason.contains("has the image"), "{}", placed.reason);
    let far = members([member(0, 1600, 0), with_image(600)]);
    assert_eq!(place(&image, &far).unwrap().node, name(0));
    let snapshot = PlacementRequest { snapshot_nodes: vec![name(1)], ..request(1) };
    let far = members([member(0, 1600, 0), member(1, 1600, 400)]);
    assert_eq!(place(&snapshot, &far).unwrap().node, name(1));
}

#[test]
fn equal_nodes_are_chosen_about_equally_often() {
    let all = members((1..5).map(|index| member(index, 1600, 0)));
    let mut counts: BTreeMap<NodeName, u32> = BTreeMap::new();
    for index in 0..400 {
        let sandbox = SandboxKey::new("t", &format!("s{index}")).unwrap();
        let placed = place(&PlacementRequest { sandbox, ..request(1) }, &all).unwrap();
        *counts.entry(placed.node).or_default() += 1;
    }
    assert!(counts.len() == 4 && counts.values().all(|count| *count > 50), "{counts:?}");
    let with_origin = members((0..5).map(|index| member(index, 1600, 0)));
    assert_eq!(place(&request(1), &with_origin).unwrap().node, name(0));
}

#[test]
fn each_demand_that_no_node_meets_is_named() {
    let missing = |request: &PlacementRequest, all: Vec<Member>| {
        place(request, &members(all)).unwrap_err().missing.to_string()
    };
    let elsewhere = PlacementRequest { region: label("us"), ..request(1) };
    assert!(missing(&elsewhere, vec![member(0, 9, 0)]).contains("region us has no node"));
    let gpu = Labels::from([(label("gpu"), label("h100"))]);
    let labelled = PlacementRequest { labels: gpu, ..request(1) };
    assert!(missing(&labelled, vec![member(0, 9, 0)]).contains("gpu=h100"));
    let durable = PlacementRequest { class: Class::Store, ..request(1) };
    assert!(missing(&durable, vec![member(0, 9, 0)]).contains("class store"));
    let cordoned = Member { cordoned: true, ..member(0, 9, 0) };
    assert!(missing(&request(1), vec![cordoned]).contains("none of 1 nodes"));
    let mut full = member(0, 9, 0);
    full.record.load.sandboxes = 10;
    assert!(missing(&request(1), vec![full]).contains("as many sandboxes"));
}
