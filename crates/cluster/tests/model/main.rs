//! A model checker tries the protocol under all interleavings, within bounds.
//!
//! Two nodes, one sandbox, and etcd with leases. Each node has a server that may die at any step and
//! start again, whose messages are delayed and lost, and a guard process that may be stopped while the
//! server runs. Clocks of nodes lag behind etcd's within a bound. A watch of etcd may be silent, and
//! the object store may not find what it has. The decisions are those of the crate itself:
//! [`isolet_cluster::protocol::step`] and [`isolet_cluster::protocol::Guard`].
//!
//! The last tests break one rule at a time, and the checker must find a counterexample. So the rules
//! are needed, and the model is able to find what their absence allows.

mod node;
mod rules;
mod steps;
mod world;

use isolet_cluster::model::Class;
use rules::Rules;
use stateright::Checker;
use stateright::Model;
use std::time::Duration;
use std::time::Instant;
use world::Bounds;
use world::Fleet;

const ONE_RUNS: &str = "one node runs the sandbox";
const NEWEST_RUNS: &str = "what runs is the newest push that etcd names";
const NO_STALE_WRITE: &str = "no write of an earlier epoch is accepted";
const KEEPS_RUNNING: &str = "a sandbox of the class node keeps running without a lease";
const TAKEN_OVER: &str = "another node takes over and runs the sandbox";
const MOVED: &str = "the other node runs it while the first one holds its lease";
const RESUMED: &str = "a node resumes its own sandbox under a new registration";
const SUPERSEDED: &str = "a node finds that its sandbox was taken over";

/// The checker stops after this time and reports what it has found until then, so a test that takes
/// as long has failed: its bounds are too wide.
const TIME_LIMIT: Duration = Duration::from_secs(200);
/// The same for wide bounds.
const WIDE_TIME_LIMIT: Duration = Duration::from_secs(1800);

/// What the checker finds: the properties with a counterexample or an example.
fn found(fleet: Fleet, limit: Duration) -> Vec<&'static str> {
    let start = Instant::now();
    let checker = fleet.checker().threads(2).timeout(limit).spawn_bfs().join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    assert!(start.elapsed() < limit, "not all states were checked within {limit:?}");
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    found
}

fn fleet(class: Class, rules: Rules, bounds: Bounds) -> Fleet {
    Fleet { class, rules, bounds }
}

#[test]
fn a_sandbox_of_the_class_store_runs_on_one_node_while_the_other_fails() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::one_fails()), TIME_LIMIT);
    assert_eq!(found, [SUPERSEDED, RESUMED, TAKEN_OVER]);
}

#[test]
fn a_sandbox_of_the_class_store_runs_on_one_node_while_both_lose_their_leases() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::both_fail()), TIME_LIMIT);
    assert_eq!(found, [SUPERSEDED, RESUMED, TAKEN_OVER]);
}

#[test]
fn a_sandbox_that_is_stored_away_runs_on_one_node() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::departs()), TIME_LIMIT);
    assert!(!found.contains(&ONE_RUNS) && !found.contains(&NO_STALE_WRITE), "{found:?}");
    assert!(found.contains(&MOVED), "{found:?}");
}

#[test]
fn a_sandbox_of_the_class_node_runs_on_until_its_node_is_declared_dead() {
    let found = found(fleet(Class::Node, Rules::all(), Bounds::one_fails()), TIME_LIMIT);
    assert!(!found.contains(&KEEPS_RUNNING) && !found.contains(&NO_STALE_WRITE), "{found:?}");
    assert!(found.contains(&SUPERSEDED), "{found:?}");
}

#[test]
fn a_sandbox_of_the_class_store_runs_on_one_node_while_its_guard_is_stopped() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::guard_stops()), TIME_LIMIT);
    assert_eq!(found, [SUPERSEDED, RESUMED, TAKEN_OVER]);
}

#[test]
fn a_node_whose_watch_was_silent_takes_over() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::silent()), TIME_LIMIT);
    assert!(found.contains(&TAKEN_OVER) && !found.contains(&ONE_RUNS), "{found:?}");
}

#[test]
fn what_etcd_names_is_restored_although_the_store_does_not_find_it_once() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::false_answers()), TIME_LIMIT);
    assert!(found.contains(&TAKEN_OVER) && !found.contains(&NEWEST_RUNS), "{found:?}");
}

#[test]
#[ignore = "takes minutes; part of `make soak`"]
fn soak_model_of_many_failures() {
    let found = found(fleet(Class::Store, Rules::all(), Bounds::wide()), WIDE_TIME_LIMIT);
    assert_eq!(found, [SUPERSEDED, RESUMED, TAKEN_OVER]);
}

/// Checks that a broken rule has a counterexample.
#[track_caller]
fn is_found(rules: Rules, property: &'static str) {
    is_found_within(rules, Bounds::one_fails(), property);
}

#[track_caller]
fn is_found_within(rules: Rules, bounds: Bounds, property: &'static str) {
    let checker = fleet(Class::Store, rules, bounds)
        .checker()
        .threads(2)
        .timeout(TIME_LIMIT)
        .finish_when(stateright::HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    let path = checker.discovery(property);
    if let Some(path) = &path {
        println!("{:?}", path.clone().into_actions());
    }
    assert!(path.is_some(), "no counterexample for {rules:?}: {:?}", checker.discoveries().keys());
}

#[test]
fn without_a_guard_two_nodes_run_it() {
    is_found(Rules { guard: false, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn a_takeover_that_ignores_the_lease_runs_it_twice() {
    is_found(Rules { lease_compared: false, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn without_a_margin_a_slow_clock_runs_it_twice() {
    is_found(Rules { margin: 0, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn a_deadline_that_counts_from_the_answer_runs_it_twice() {
    is_found(Rules { counted_from_sending: false, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn a_renewal_by_a_replaced_leader_must_not_move_the_deadline() {
    is_found(Rules { renewals_proved: false, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn a_guard_that_ignores_the_registration_runs_what_was_taken_over() {
    is_found(Rules { registration_compared: false, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn a_node_that_does_not_compare_epochs_runs_what_was_taken_over() {
    is_found(Rules { epochs_compared: false, ..Rules::all() }, ONE_RUNS);
}

#[test]
fn a_sandbox_that_is_stored_away_before_its_end_runs_twice() {
    is_found_within(Rules { stored_after_end: false, ..Rules::all() }, Bounds::departs(), ONE_RUNS);
}

#[test]
fn a_stopped_guard_whose_server_does_not_freeze_runs_it_twice() {
    let rules = Rules { server_freezes: false, ..Rules::all() };
    is_found_within(rules, Bounds::guard_stops(), ONE_RUNS);
}

#[test]
fn a_watch_that_may_be_silent_for_ever_prevents_the_takeover() {
    let rules = Rules { silence_ends: false, ..Rules::all() };
    let found = found(fleet(Class::Store, rules, Bounds::silent()), TIME_LIMIT);
    assert!(!found.contains(&TAKEN_OVER), "{found:?}");
}

#[test]
fn a_store_that_is_believed_when_it_finds_nothing_restores_an_older_state() {
    let rules = Rules { not_found_is_no_answer: false, ..Rules::all() };
    is_found_within(rules, Bounds::false_answers(), NEWEST_RUNS);
}

#[test]
fn without_fences_a_former_owner_overwrites_the_present_one() {
    is_found(Rules { writes_fenced: false, ..Rules::all() }, NO_STALE_WRITE);
}
