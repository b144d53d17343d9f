//! File operations, each in a worker process.

mod kit;

use isolet_wire::frame;
use isolet_wire::request::{
    AgentRequest, ByteRange, ExpectedFile, FileRequest, WalkOptions, WriteOptions,
};
use isolet_wire::response::{AgentResponse, FileKind, FileStat, FoundFile, RefusalReason};
use kit::{Agent, Event};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

#[derive(Debug, Default)]
struct Told {
    stat: Option<FileStat>,
    bytes: Vec<u8>,
    entries: Vec<FoundFile>,
}

fn call(agent: &Agent, request: FileRequest) -> Result<Told, RefusalReason> {
    let mut client = agent.connect();
    client.request(&AgentRequest::File(request));
    let mut response = Told::default();
    loop {
        match client.event() {
            Event::Data(data) => response.bytes.extend_from_slice(&data.bytes),
            Event::Response(AgentResponse::FileStat(stat)) => response.stat = Some(stat),
            Event::Response(AgentResponse::FileFound(part)) => response.entries.extend(part),
            Event::Response(AgentResponse::Done) => return Ok(response),
            Event::Response(AgentResponse::Refused { reason, .. }) => return Err(reason),
            Event::Response(response) => panic!("{response:?}"),
        }
    }
}

fn read(path: &str) -> FileRequest {
    FileRequest::Read { path: path.into(), range: ByteRange::WHOLE }
}

fn list(path: &str, max: u32) -> FileRequest {
    let options = WalkOptions { hidden: true, max, ..WalkOptions::default() };
    FileRequest::Walk { path: path.into(), options }
}

fn write(agent: &Agent, path: &str, bytes: &[u8]) -> Result<(FileStat, bool), RefusalReason> {
    write_with(agent, path, bytes, WriteOptions::default(), None)
}

/// Returns the metadata of the written file, and whether it is new.
fn write_with(
    agent: &Agent,
    path: &str,
    bytes: &[u8],
    options: WriteOptions,
    expected: Option<ExpectedFile>,
) -> Result<(FileStat, bool), RefusalReason> {
    let mut client = agent.connect();
    let mut out = Vec::new();
    let request = FileRequest::Write { path: path.into(), options, expected };
    frame::put(&mut out, &AgentRequest::File(request));
    let mut at = 0;
    for part in bytes.chunks(60_000) {
        frame::put_data_head(&mut out, 0, at, "", part.len());
        out.extend_from_slice(part);
        at += part.len() as u64;
    }
    frame::put(&mut out, &AgentRequest::File(FileRequest::End));
    client.stream.write_all(&out).expect("written");
    match client.response() {
        AgentResponse::FileSaved { stat, created } => {
            assert_eq!(client.response(), AgentResponse::Done);
            Ok((stat, created))
        }
        AgentResponse::Refused { reason, .. } => Err(reason),
        response => panic!("{response:?}"),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let agent = Agent::start();
    let path = agent.dir.at("new/dir/file");
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i * 7) as u8).collect();
    let (written, is_new) = write(&agent, &path, &bytes).expect("written");
    let response = call(&agent, read(&path)).expect("read");
    assert!(response.bytes == bytes);
    let stat = response.stat.expect("a stat");
    assert_eq!((&stat, is_new), (&written, true));
    assert_eq!((stat.kind, stat.size, stat.mode), (FileKind::File, 1_000_000, 0o644));
    let part = |range| FileRequest::Read { path: path.clone().into(), range };
    let middle = part(ByteRange::From { offset: 999_990, limit: Some(5) });
    assert_eq!(call(&agent, middle).expect("read").bytes, bytes[999_990..999_995]);
    assert_eq!(call(&agent, part(ByteRange::Last(7))).expect("read").bytes, bytes[999_993..]);
}

/// Promises: W16.
#[test]
fn a_conditional_write_replaces_the_expected_file_only() {
    let agent = Agent::start();
    let path = agent.dir.at("file");
    let options = WriteOptions::default();
    let missing = write_with(&agent, &path, b"new", options, Some(ExpectedFile::Any));
    assert_eq!(missing.unwrap_err(), RefusalReason::Changed);
    let (first, _) = write(&agent, &path, b"first").expect("written");
    let version = |stat: &FileStat| Some(ExpectedFile::Version(stat.version()));
    let (second, is_new) =
        write_with(&agent, &path, b"second", options, version(&first)).expect("written");
    assert!(!is_new && second.inode != first.inode);
    let old = write_with(&agent, &path, b"third", options, version(&first));
    assert_eq!(old.unwrap_err(), RefusalReason::Changed);
    let append = WriteOptions { append: true, ..options };
    let refused = write_with(&agent, &path, b"end", append, version(&second));
    assert_eq!(refused.unwrap_err(), RefusalReason::BadRequest);
    assert_eq!(std::fs::read(&path).expect("read"), b"second");
}

#[test]
fn an_old_file_keeps_its_mode_and_a_link_is_written_through() {
    let agent = Agent::start();
    let path = agent.dir.at("file");
    let link = agent.dir.at("link");
    std::fs::write(&path, "old").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    symlink("file", &link).expect("a link");
    write(&agent, &link, b"new").expect("written");
    assert_eq!(std::fs::read(&path).expect("read"), b"new");
    assert!(std::fs::symlink_metadata(&link).expect("a link").is_symlink());
    let look = FileRequest::Metadata { path: link.into(), follow: false };
    assert_eq!(call(&agent, look).expect("metadata").entries[0].stat.kind, FileKind::Symlink);
    assert_eq!(std::fs::metadata(&path).expect("stat").permissions().mode() & 0o7777, 0o755);
}

#[test]
fn f25_an_upload_that_is_cut_leaves_nothing() {
    let agent = Agent::start();
    let path = agent.dir.at("cut/file");
    let mut client = agent.connect();
    let mut out = Vec::new();
    let options = WriteOptions::default();
    let request = FileRequest::Write { path: path.into(), options, expected: None };
    frame::put(&mut out, &AgentRequest::File(request));
    frame::put_data_head(&mut out, 0, 0, "", 1000);
    out.extend_from_slice(&[1; 500]);
    client.stream.write_all(&out).expect("written");
    let dir = agent.dir.at("cut");
    kit::until("the upload has begun", || std::fs::exists(&dir).is_ok_and(|there| there));
    drop(client);
    let task = format!("/proc/{0}/task/{0}/children", agent.child.id());
    kit::until("its worker has ended", || {
        std::fs::read_to_string(&task).expect("alive").trim().is_empty()
    });
    assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 0);
}

/// A write between two ticks of the kernel's clock leaves the time of a file as it was.
/// Promises: W16.
#[test]
fn a_file_that_changes_after_its_fingerprint_was_taken_gets_another_or_was_unsettled() {
    let agent = Agent::start();
    let folder = agent.dir.at("compared");
    std::fs::create_dir(&folder).expect("made");
    let take = || {
        let mut client = agent.connect();
        let path = folder.clone().into();
        client.request(&AgentRequest::File(FileRequest::Fingerprints { path, recursive: true }));
        let all = match client.response() {
            AgentResponse::FileFingerprints(all) => all,
            other => panic!("{other:?}"),
        };
        assert_eq!(client.response(), AgentResponse::Done);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    let mut settled = 0;
    for round in 0..100 {
        std::fs::write(format!("{folder}/file"), [round]).expect("written");
        let before = take();
        std::fs::write(format!("{folder}/file"), [round + 1]).expect("written");
        let after = take();
        assert!(before.unsettled || before != after, "round {round}: {before:?}");
        settled += u32::from(!before.unsettled);
    }
    assert!(settled > 50, "a file at rest is settled: {settled} of 100");
}

/// A replacement has a second name for a short moment, in which a kill can happen.
/// Promises: W14.
#[test]
fn f25_what_a_killed_writer_has_left_is_hidden_and_removed() {
    let agent = Agent::start();
    let folder = agent.dir.at("left");
    std::fs::create_dir(&folder).expect("made");
    let path = |name: &str| format!("{folder}/{name}");
    let file = std::fs::File::create(path("first")).expect("created");
    let inode = file.metadata().expect("a stat").ino();
    let draft = format!(".isolet-write-{inode:016x}{:016x}", 7);
    std::fs::rename(path("first"), path(&draft)).expect("renamed");
    // These files are the tenant's: the inode differs, or the name has another format.
    for own in [format!(".isolet-write-{:016x}{:016x}", u64::MAX, 7), ".isolet-x".into()] {
        std::fs::write(path(&own), "own").expect("written");
    }
    let list = || call(&agent, list(&folder, 100)).expect("a list").entries.len();
    file.lock().expect("locked");
    assert_eq!(list(), 2);
    assert!(std::fs::exists(path(&draft)).expect("a look"), "it is being written");
    drop(file);
    assert_eq!(list(), 2);
    assert!(!std::fs::exists(path(&draft)).expect("a look"), "its writer has ended");
    assert_eq!(std::fs::read_dir(&folder).expect("a directory").count(), 2);
}

#[test]
fn i5_what_is_no_regular_file_is_refused_at_once() {
    let agent = Agent::start();
    let fifo = agent.dir.at("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let folder = call(&agent, read("/tmp")).expect("a directory has no data");
    assert_eq!(
        (folder.stat.expect("a stat").kind, &folder.bytes[..]),
        (FileKind::Directory, &b""[..])
    );
    for path in ["/dev/zero", fifo.as_str()] {
        assert_eq!(call(&agent, read(path)).unwrap_err(), RefusalReason::WrongKind, "{path}");
    }
    for path in ["/dev/zero", "/tmp", fifo.as_str()] {
        assert_eq!(write(&agent, path, b"x").unwrap_err(), RefusalReason::WrongKind, "{path}");
    }
    for (path, reason) in [
        ("/no/such", RefusalReason::NotFound),
        ("", RefusalReason::BadRequest),
        ("a\0b", RefusalReason::BadRequest),
    ] {
        assert_eq!(call(&agent, read(path)).unwrap_err(), reason, "{path:?}");
    }
}

#[test]
fn lists_are_sorted_and_end_at_their_limit() {
    let agent = Agent::start();
    let dir = agent.dir.at("many");
    assert!(call(&agent, FileRequest::MakeDir { path: dir.clone().into() }).is_ok());
    assert!(call(&agent, FileRequest::MakeDir { path: dir.clone().into() }).is_ok());
    (0..1000).for_each(|at| std::fs::write(format!("{dir}/f{at:04}"), "x").expect("written"));
    let response = call(&agent, list(&dir, 2000)).expect("listed");
    let names: Vec<_> = response.entries.iter().map(|entry| entry.path.clone()).collect();
    assert_eq!(names.len(), 1000);
    assert!(names.is_sorted());
    assert_eq!(call(&agent, list(&dir, 999)).expect("listed").entries.len(), 999);
}

/// Nested directories, each with a file in it, deeper than any path can name.
fn deepen(root: &str, depth: usize) {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut dir = openat(CWD, root, flags, Mode::empty()).expect("open");
    for _ in 0..depth {
        mkdirat(&dir, "d", Mode::RWXU).expect("made");
        openat(&dir, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).expect("made");
        dir = openat(&dir, "d", flags, Mode::empty()).expect("open");
    }
}

#[test]
fn f22_a_deep_tree_is_removed_and_links_are_not_followed() {
    let agent = Agent::start();
    let root = agent.dir.at("tree");
    let keep = agent.dir.at("keep");
    std::fs::create_dir(&keep).expect("made");
    std::fs::write(format!("{keep}/file"), "x").expect("written");
    std::fs::create_dir(&root).expect("made");
    symlink(&keep, format!("{root}/link")).expect("a link");
    deepen(&root, 2000);
    let flat = FileRequest::Remove { path: root.clone().into(), recursive: false };
    assert_eq!(call(&agent, flat).unwrap_err(), RefusalReason::NotEmpty);
    call(&agent, FileRequest::Remove { path: root.clone().into(), recursive: true })
        .expect("removed");
    assert!(!kit::there(&root));
    assert!(kit::there(format!("{keep}/file")));
    let gone = FileRequest::Remove { path: root.into(), recursive: true };
    assert_eq!(call(&agent, gone).unwrap_err(), RefusalReason::NotFound);
}
