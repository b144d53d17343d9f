//! The audit log on a real disk: chained, bounded, repaired and verified.

use isolet_store::audit::{
    Audit, AuditDirectory, AuditEntry, Expected, Finding, SEGMENT_BYTES_MAX, SEGMENTS_MAX, verify,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

struct TestAudit {
    data: tempfile::TempDir,
}

impl TestAudit {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap() }
    }

    /// Writes one entry for each of these sandboxes, as one run of a server.
    async fn write(&self, sandboxes: &[&str]) {
        let audit = Audit::open(self.data.path()).unwrap();
        for sandbox in sandboxes {
            audit.put(AuditEntry::now("t", Some(sandbox), "exec.start").with("status", 200));
        }
        audit.flush().await;
    }

    fn place(&self) -> AuditDirectory {
        AuditDirectory::open(self.data.path()).unwrap()
    }

    fn segments(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.data.path().join("audit/tenants/t")).unwrap();
        let mut all: Vec<_> = all.map(|one| one.unwrap().path()).collect();
        all.retain(|path| path.extension().is_some_and(|end| end == "ndjson"));
        all.sort();
        all
    }

    fn lines(&self, sandbox: Option<&str>) -> Vec<String> {
        let mut all = Vec::new();
        let place = self.place();
        let take = |line: &[u8]| {
            all.push(String::from_utf8(line.to_vec()).unwrap());
            true
        };
        place.read("t", sandbox, take).unwrap();
        all
    }

    /// Findings in an export of these lines.
    fn findings(&self, lines: &[String], expected: Expected) -> Vec<Finding> {
        let file = self.data.path().join("export");
        fs::write(&file, lines.concat()).unwrap();
        verify(&self.place(), "t", &file, expected).unwrap().findings
    }
}

#[tokio::test]
async fn entries_are_chained_over_restarts_and_lie_with_their_owner_alone() {
    let log = TestAudit::new();
    log.write(&["a", "b"]).await;
    log.write(&["a"]).await;
    let lines = log.lines(None);
    let all: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seqs: Vec<_> = all.iter().map(|one| one["seq"].as_u64().unwrap()).collect();
    let last: Vec<_> = all.iter().map(|one| one["last"].as_u64().unwrap()).collect();
    assert_eq!((seqs, last), (vec![1, 2, 3], vec![0, 0, 1]));
    assert!(all.windows(2).all(|two| two[1]["prev"] == two[0]["hmac"]));
    assert!(log.place().verify("t").unwrap().holds());
    for path in [log.data.path().join("audit/key"), log.segments()[0].clone()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

/// Promises: T19.
#[tokio::test]
async fn t17_what_was_changed_left_out_moved_or_cut_is_found() {
    let log = TestAudit::new();
    log.write(&["a", "b", "a", "c", "a", "b"]).await;
    let whole = log.lines(None);
    let find = |lines: &[String]| log.findings(lines, Expected::Now);
    assert_eq!(find(&whole), []);
    let mut changed = whole.clone();
    changed[2] = changed[2].replace("200", "201");
    assert_eq!(find(&changed), [Finding::Changed { line: 3, seq: 3 }]);
    let mut signed = whole.clone();
    let at = signed[2].len() - 5;
    let letter = if signed[2].as_bytes()[at] == b'0' { "1" } else { "0" };
    signed[2].replace_range(at..=at, letter);
    assert_eq!(
        find(&signed),
        [Finding::Changed { line: 3, seq: 3 }],
        "only the changed line is reported"
    );
    let mut missing = whole.clone();
    missing.remove(2);
    assert_eq!(find(&missing), [Finding::Missing { from: 3, to: 3 }]);
    let mut moved = whole.clone();
    moved.swap(2, 3);
    assert_eq!(find(&moved), [Finding::Reordered { line: 4, seq: 3 }]);
    let mut twice = whole.clone();
    twice.insert(3, whole[2].clone());
    assert_eq!(find(&twice), [Finding::Reordered { line: 4, seq: 3 }]);
    assert_eq!(find(&whole[..4]), [Finding::Truncated { seq: 4, written: 6 }]);
    assert_eq!(log.findings(&whole[..4], Expected::Earlier), []);
    assert_eq!(find(&whole[2..]), [Finding::Missing { from: 1, to: 2 }]);
    assert_eq!(find(&[]), [Finding::Truncated { seq: 0, written: 6 }]);
    let mut torn = whole.clone();
    torn[5].truncate(30);
    let cut = Finding::Truncated { seq: 5, written: 6 };
    assert_eq!(find(&torn), [Finding::Torn { line: 6 }, cut]);
    let mut foreign = whole.clone();
    foreign.insert(0, "{}\n".to_owned());
    assert_eq!(find(&foreign), [Finding::Unreadable { line: 1 }]);
}

/// Promises: T19.
#[tokio::test]
async fn t17_an_export_that_is_longer_than_its_log_is_refused() {
    let log = TestAudit::new();
    log.write(&["a", "b"]).await;
    let earlier = log.data.path().join("earlier");
    let directory = log.segments()[0].parent().unwrap().to_owned();
    copy(&directory, &earlier);
    log.write(&["a", "b", "a"]).await;
    let whole = log.lines(None);
    let part = log.lines(Some("a"));
    // An attacker puts the log of yesterday back, whose head is signed.
    fs::remove_dir_all(&directory).unwrap();
    copy(&earlier, &directory);
    assert!(log.place().verify("t").unwrap().holds());
    for expected in [Expected::Now, Expected::Earlier] {
        let unknown = Finding::Unknown { line: 3, seq: 3, written: 2 };
        assert_eq!(log.findings(&whole, expected), [unknown]);
        let unknown = Finding::Unknown { line: 2, seq: 3, written: 2 };
        assert_eq!(log.findings(&part, expected), [unknown]);
        assert_eq!(log.findings(&whole[..2], expected), []);
    }
    fs::remove_dir_all(&directory).unwrap();
    let findings = log.findings(&whole, Expected::Now);
    assert_eq!(findings[0], Finding::Unknown { line: 1, seq: 1, written: 0 });
    assert!(findings.contains(&Finding::NoHead), "{findings:?}");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Promises: T19.
#[tokio::test]
async fn t17_a_sandboxs_part_of_a_log_is_looked_through_by_itself() {
    let log = TestAudit::new();
    log.write(&["a", "b", "a", "c", "a", "b", "a"]).await;
    let part = log.lines(Some("a"));
    assert_eq!(part.len(), 4);
    let find = |lines: &[String]| log.findings(lines, Expected::Now);
    assert_eq!(find(&part), []);
    let without = |at: usize| {
        let mut lines = part.clone();
        lines.remove(at);
        lines
    };
    assert_eq!(find(&without(0)), [Finding::Missing { from: 1, to: 1 }]);
    assert_eq!(find(&without(1)), [Finding::Missing { from: 2, to: 4 }]);
    assert_eq!(find(&without(3)), [Finding::Truncated { seq: 5, written: 7 }]);
}

/// Promises: T19.
#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_told() {
    let log = TestAudit::new();
    log.write(&["a", "b"]).await;
    let path = &log.segments()[0];
    let whole = fs::read(path).unwrap();
    // As a killed server leaves it: part of the line is written, and the head is not.
    let head = log.data.path().join("audit/tenants/t/head");
    let note = fs::read(&head).unwrap();
    log.write(&["c"]).await;
    let more = fs::read(path).unwrap();
    fs::write(path, &more[..whole.len() + 50]).unwrap();
    fs::write(&head, note).unwrap();
    log.write(&["d"]).await;
    let lines = log.lines(None);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[2].contains("audit.repaired") && lines[2].contains("\"torn_bytes\":50"));
    assert!(lines[3].contains("\"d\"") && lines[3].contains("\"seq\":4"));
    assert!(log.place().verify("t").unwrap().holds());
}

/// Promises: T19.
#[tokio::test]
async fn t17_a_log_that_was_cut_says_so_for_ever() {
    let log = TestAudit::new();
    log.write(&["a", "b", "c"]).await;
    let path = &log.segments()[0];
    let first = log.lines(None).remove(0);
    fs::write(path, &first).unwrap();
    let cut = Finding::Truncated { seq: 1, written: 3 };
    assert_eq!(log.place().verify("t").unwrap().findings, [cut]);
    log.write(&["d"]).await;
    assert_eq!(
        log.place().verify("t").unwrap().findings,
        [Finding::Missing { from: 2, to: 3 }],
        "later lines do not hide the loss"
    );
    assert!(log.lines(None)[1].contains("\"lost\":2"));
    fs::remove_file(log.data.path().join("audit/tenants/t/head")).unwrap();
    let found = log.place().verify("t").unwrap().findings;
    assert!(found.contains(&Finding::NoHead), "{found:?}");
}

/// Promises: T19.
#[tokio::test]
async fn a_log_is_bounded_and_its_chain_goes_on() {
    let log = TestAudit::new();
    let audit = Audit::open(log.data.path()).unwrap();
    let text = "x".repeat(7000);
    // Entries for more than the maximum number of segments.
    let count = (SEGMENT_BYTES_MAX / 7000) * (SEGMENTS_MAX as u64 + 1);
    for n in 0..count {
        let sandbox = if n == 0 { "once" } else { "a" };
        audit.put(AuditEntry::now("t", Some(sandbox), "file.write").with("path", text.clone()));
        if n % 100 == 0 {
            audit.flush().await;
        }
    }
    audit.flush().await;
    let segments = log.segments();
    assert_eq!(segments.len(), SEGMENTS_MAX);
    let bytes = |path: &PathBuf| fs::metadata(path).unwrap().len();
    assert!(segments.iter().all(|path| bytes(path) <= SEGMENT_BYTES_MAX));
    let verdict = log.place().verify("t").unwrap();
    assert_eq!(verdict.findings, []);
    let (first, last) = verdict.range.unwrap();
    assert!(first > 1 && last == count, "{first} to {last} of {count}");
    assert_eq!(verdict.good, last - first + 1);
    assert!(log.lines(Some("once")).is_empty());
    fs::remove_file(&segments[0]).unwrap();
    let found = log.place().verify("t").unwrap().findings;
    assert!(matches!(found[..], [Finding::Missing { from, .. }] if from == first), "{found:?}");
    drop(audit);
    log.write(&["b"]).await;
    let found = log.place().verify("t").unwrap().findings;
    assert_eq!(found.len(), 1, "also after a restart: {found:?}");
}

#[tokio::test]
async fn tenants_have_logs_of_their_own() {
    let log = TestAudit::new();
    let audit = Audit::open(log.data.path()).unwrap();
    audit.put(AuditEntry::now("t", Some("a"), "exec.start"));
    audit.put(AuditEntry::now("u", Some("a"), "exec.start"));
    let mut read = audit.read("u", Some("a")).await.unwrap();
    let mut own = Vec::new();
    while let Some(piece) = read.next().await.unwrap() {
        own.extend(piece);
    }
    let own = String::from_utf8(own).unwrap();
    assert_eq!(own.lines().count(), 1);
    assert!(own.contains("\"seq\":1,"), "{own}");
    assert_eq!(log.place().tenants().unwrap(), ["t", "u"]);
    // A line of one log is not valid in another.
    assert_eq!(log.findings(&[own], Expected::Now), [Finding::Changed { line: 1, seq: 1 }]);
    assert_eq!(audit.read("nobody", None).await.unwrap().next().await.unwrap(), None);
    // Exports that are not read do not delay others.
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut export = audit.read("t", None).await.unwrap();
        assert!(export.next().await.unwrap().is_some());
        idle.push(export);
    }
    assert!(audit.read("u", None).await.unwrap().next().await.unwrap().is_some());
}

/// Promises: T19.
#[tokio::test]
async fn what_could_not_be_written_is_counted_in_the_log() {
    let log = TestAudit::new();
    let audit = Audit::open(log.data.path()).unwrap();
    audit.put(AuditEntry::now("t", None, "one"));
    audit.flush().await;
    // A directory at the path of the log's file, so that nothing can be appended.
    let path = log.segments().remove(0);
    let kept = path.with_extension("kept");
    fs::rename(&path, &kept).unwrap();
    fs::create_dir(&path).unwrap();
    for name in ["two", "three"] {
        audit.put(AuditEntry { event: name.into(), ..AuditEntry::now("t", None, "") });
    }
    audit.flush().await;
    fs::remove_dir(&path).unwrap();
    fs::rename(&kept, &path).unwrap();
    audit.put(AuditEntry::now("t", None, "four"));
    audit.flush().await;
    let lines = log.lines(None);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].contains("audit.lost") && lines[1].contains("\"count\":2"), "{}", lines[1]);
    assert!(log.place().verify("t").unwrap().holds());
}
