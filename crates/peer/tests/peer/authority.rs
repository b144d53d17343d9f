//! The directory of the CA: files, permissions, commands that were interrupted, and `inspect`.

use crate::fleet::{Fleet, name, now_s};
use isolet_peer::PeerFiles;
use isolet_peer::certificates::{CertificateError, CertificateState, Cluster, Index, Revocation};
use isolet_peer::inspect::{Verdict, inspect};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const DAY_S: i64 = 86_400;

fn modes(directory: &Path) -> Vec<(String, u32)> {
    let mut all: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().mode() & 0o7777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn all_files_are_private() {
    let mut fleet = Fleet::new();
    fleet.issue("node-1");
    for (directory, files) in [
        ("ca", vec!["ca-1-key.pem", "ca.pem", "index.json", "lock", "revoked.pem"]),
        ("node-1", vec!["ca.pem", "node-key.pem", "node.pem", "revoked.pem"]),
    ] {
        let directory = fleet.directory(directory);
        assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
        let expected: Vec<_> = files.into_iter().map(|file| (file.to_owned(), 0o600)).collect();
        assert_eq!(modes(&directory), expected);
    }
    let index = std::fs::read_to_string(fleet.directory("ca").join("index.json")).unwrap();
    assert!(!index.contains("PRIVATE KEY"));
}

#[test]
fn a_directory_has_one_ca_and_one_command_at_a_time() {
    let fleet = Fleet::new();
    let ca = fleet.directory("ca");
    assert!(matches!(Cluster::open(&ca, now_s()), Err(CertificateError::Busy(_))));
    drop(fleet.cluster);
    assert!(matches!(Cluster::init(&ca, now_s()), Err(CertificateError::Exists(_))));
    let missing = fleet.folder.path().join("missing");
    assert!(matches!(Cluster::open(&missing, now_s()), Err(CertificateError::Missing(_))));
    assert!(!missing.try_exists().unwrap(), "a wrong directory is not created");
    let key = ca.join("ca-1-key.pem");
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let mut cluster = Cluster::open(&ca, now_s()).unwrap();
    let refused = cluster.sign_lists(now_s()).unwrap_err();
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
}

#[test]
fn the_files_of_a_node_are_not_replaced_by_those_of_another_one() {
    let mut fleet = Fleet::new();
    fleet.issue("node-1");
    let directory = fleet.directory("node-1");
    let before = std::fs::read(directory.join("node.pem")).unwrap();
    let issued = fleet.cluster.issue(&name("node-2"), 90, &directory, now_s());
    assert!(matches!(issued, Err(CertificateError::OtherNode { .. })), "{issued:?}");
    assert_eq!(std::fs::read(directory.join("node.pem")).unwrap(), before);
    assert_eq!(fleet.cluster.index().certificates().len(), 1, "nothing was issued");
}

#[test]
fn a_certificate_ends_with_its_ca() {
    let mut fleet = Fleet::new();
    let end = fleet.cluster.index().authorities()[0].expires_at_s;
    fleet.cluster.issue(&name("node-1"), 90, &fleet.directory("node-1"), end - DAY_S).unwrap();
    assert_eq!(fleet.cluster.index().certificates()[0].expires_at_s, end);
    let late = fleet.cluster.issue(&name("node-1"), 90, &fleet.directory("node-1"), end);
    assert!(matches!(late, Err(CertificateError::AuthorityExpired(_))), "{late:?}");
}

/// Each command is interrupted behind the index, before the files that are made from it.
#[test]
fn an_interrupted_command_is_completed_by_the_next_one() {
    let mut fleet = Fleet::new();
    fleet.issue("node-1");
    let ca = fleet.directory("ca");
    let saved = |file: &str| std::fs::read(ca.join(file)).unwrap();
    let before = [saved("ca.pem"), saved("revoked.pem")];
    fleet.cluster.start_rotation(now_s()).unwrap();
    fleet.cluster.revoke(&Revocation::Node(name("node-1")), now_s()).unwrap();
    let wanted = saved("ca.pem");
    let [old_ca, old_lists] = before;
    std::fs::write(ca.join("ca.pem"), &old_ca).unwrap();
    std::fs::write(ca.join("revoked.pem"), &old_lists).unwrap();
    std::fs::write(ca.join("index.json.new"), "half").unwrap();
    let Fleet { folder, cluster } = fleet;
    drop(cluster);
    let mut cluster = Cluster::open(&ca, now_s()).unwrap();
    assert_eq!(saved("ca.pem"), wanted);
    assert_ne!(saved("revoked.pem"), old_lists);
    cluster.switch_rotation(now_s()).unwrap();
    // `finish` was interrupted before it deleted the key.
    let key = saved("ca-1-key.pem");
    cluster.finish_rotation(now_s()).unwrap();
    std::fs::write(ca.join("ca-1-key.pem"), key).unwrap();
    drop(cluster);
    Cluster::open(&ca, now_s()).unwrap();
    assert!(!ca.join("ca-1-key.pem").try_exists().unwrap());
    drop(folder);
}

#[test]
fn states_and_due_renewals_follow_from_time_and_revocation() {
    let mut fleet = Fleet::new();
    let now = now_s();
    for node in ["node-1", "node-2", "node-1"] {
        fleet.issue_until(node, now + 90 * DAY_S);
    }
    fleet.issue_until("node-3", now + 10 * DAY_S);
    let states = |index: &Index, at: i64| -> Vec<CertificateState> {
        index.certificates().iter().map(|record| index.state(record, at)).collect()
    };
    use CertificateState::{Expired, Replaced, Revoked, Valid};
    let index = fleet.cluster.index().clone();
    assert_eq!(states(&index, now), [Replaced, Valid, Valid, Valid]);
    assert_eq!(states(&index, now + 11 * DAY_S), [Replaced, Valid, Valid, Expired]);
    assert_eq!(index.due(30 * DAY_S, now), [name("node-3")]);
    let last = index.certificates()[2].serial.clone();
    fleet.cluster.revoke(&Revocation::Certificate(last.clone()), now).unwrap();
    assert_eq!(states(fleet.cluster.index(), now), [Valid, Valid, Revoked, Valid]);
    let again = fleet.cluster.revoke(&Revocation::Certificate(last), now).unwrap();
    assert_eq!(again, []);
    let unknown = fleet.cluster.revoke(&Revocation::Node(name("node-9")), now);
    assert!(matches!(unknown, Err(CertificateError::Unknown(_))));
    fleet.cluster.revoke(&Revocation::Node(name("node-3")), now).unwrap();
    assert_eq!(fleet.cluster.index().due(30 * DAY_S, now), [], "a revoked node is not renewed");
    // What expired long ago is forgotten.
    let later = now + 200 * DAY_S;
    fleet.cluster.issue(&name("node-4"), 90, &fleet.directory("node-4"), later).unwrap();
    assert_eq!(fleet.cluster.index().certificates().len(), 1);
}

#[test]
fn doctor_finds_what_other_nodes_would_refuse() {
    let mut fleet = Fleet::new();
    let files = fleet.issue("node-1");
    let own = name("node-1");
    let found = |files: &PeerFiles, at: i64| -> Vec<(&'static str, Verdict)> {
        let bad = |check: &isolet_peer::inspect::Check| check.verdict != Verdict::Ok;
        let checks = inspect(files, Some(&own), at);
        assert!(
            checks.iter().all(|check| (check.verdict == Verdict::Ok) == check.remedy.is_none())
        );
        checks.into_iter().filter(bad).map(|check| (check.name, check.verdict)).collect()
    };
    let now = now_s();
    assert_eq!(found(&files, now), []);
    assert_eq!(found(&files, now + 80 * DAY_S), [("expiry", Verdict::Warning)]);
    assert_eq!(
        found(&files, now + 200 * DAY_S),
        [("expiry", Verdict::Failure), ("revocation list", Verdict::Warning)]
    );
    assert_eq!(
        inspect(&files, Some(&name("node-2")), now)[1].message,
        format!("{} is that of node-1; this node is node-2", files.certificate.display())
    );
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(found(&files, now), [("key", Verdict::Failure)]);
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
    fleet.cluster.revoke(&Revocation::Node(own.clone()), now).unwrap();
    fleet.distribute("node-1");
    assert_eq!(found(&files, now), [("certificate", Verdict::Failure)]);
    let other = fleet.issue("node-2");
    std::fs::copy(&other.key, &files.key).unwrap();
    assert_eq!(found(&files, now), [("files", Verdict::Failure)]);
    let foreign = Fleet::new();
    std::fs::copy(foreign.cluster.authorities_file(), &files.ca).unwrap();
    assert_eq!(found(&files, now), [("files", Verdict::Failure)]);
    std::fs::remove_file(&files.revoked).unwrap();
    assert_eq!(found(&files, now), [("files", Verdict::Failure)]);
}
