//! A snapshot of a sandbox whose files change all the time holds the files of one moment.
//!
//! `recorder.py` changes files in the three directories that a sandbox stores apart, one system call
//! at a time, and records each change before it makes it. It runs outside of the sandbox, writes
//! through `/proc/PID/root`, and is a member of the control groups that a snapshot freezes. The files
//! of a copy must be the result of the first N changes, where change N was made between the request
//! and its answer.

use isolet_kit::{LONG, Options, SOON, Sandbox, Server, Value, json, process, tries, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const RECORDER: &str = include_str!("recorder.py");
/// Files beside the recorded ones, so that a copy takes a while.
const BALLAST: &str = "for d in /workspace /opt /usr/local; do mkdir $d/rec $d/ballast
    for i in {1..40}; do head -c 20000 /dev/urandom >$d/ballast/$i; done; done";

/// About the size of a recorded change.
const CHANGE_BYTES: u64 = 80;

/// The mode in octal, the number of names, and the contents or the target, by path.
type Files = BTreeMap<String, (String, u64, String)>;

/// What the recorded changes result in.
#[derive(Default)]
struct Model {
    /// The mode, and an inode of `inodes` or the target of a symbolic link.
    names: BTreeMap<String, Entry>,
    inodes: Vec<Inode>,
}

#[derive(Clone)]
enum Entry {
    Directory,
    Link(String),
    File(usize),
}

struct Inode {
    mode: u64,
    text: String,
}

impl Model {
    fn apply(&mut self, line: &str) {
        let words: Vec<Value> = serde_json::from_str(line).expect("a change");
        let text = |at: usize| words[at].as_str().expect("a text").to_owned();
        let number = |at: usize| words[at].as_u64().expect("a number");
        let path = text(1);
        match text(0).as_str() {
            "create" => {
                self.inodes.push(Inode { mode: 0o600, text: String::new() });
                self.names.insert(path, Entry::File(self.inodes.len() - 1));
            }
            "write" => {
                let start = usize::try_from(number(2)).expect("small");
                let new = text(3);
                let old = &mut self.inode(&path).text;
                let end = (start + new.len()).min(old.len());
                old.replace_range(start..end, &new);
            }
            "truncate" => {
                let size = usize::try_from(number(2)).expect("small");
                self.inode(&path).text.truncate(size);
            }
            "chmod" => self.inode(&path).mode = number(2),
            "rename" => self.rename(&path, &text(2)),
            "link" => {
                let same = self.names[&path].clone();
                self.names.insert(text(2), same);
            }
            "symlink" => drop(self.names.insert(text(2), Entry::Link(path))),
            "mkdir" => drop(self.names.insert(path, Entry::Directory)),
            "unlink" | "rmdir" => drop(self.names.remove(&path).expect("it is there")),
            other => panic!("{other}"),
        }
    }

    fn inode(&mut self, path: &str) -> &mut Inode {
        match self.names[path] {
            Entry::File(at) => &mut self.inodes[at],
            _ => panic!("{path} is not a file"),
        }
    }

    /// A directory takes what is below it along.
    fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> = self
            .names
            .keys()
            .filter(|name| *name == from || name.starts_with(&below))
            .cloned()
            .collect();
        for name in moved {
            let entry = self.names.remove(&name).expect("it is there");
            self.names.insert(format!("{to}{}", &name[from.len()..]), entry);
        }
    }

    fn files(&self) -> Files {
        let mut links: BTreeMap<usize, u64> = BTreeMap::new();
        for entry in self.names.values() {
            if let Entry::File(at) = entry {
                *links.entry(*at).or_default() += 1;
            }
        }
        let show = |entry: &Entry| match entry {
            Entry::Directory => ("0o40777".to_owned(), 1, String::new()),
            Entry::Link(target) => ("0o120777".to_owned(), 1, target.clone()),
            Entry::File(at) => {
                let inode = &self.inodes[*at];
                (format!("0o{:o}", 0o100_000 | inode.mode), links[at], inode.text.clone())
            }
        };
        self.names.iter().map(|(name, entry)| (name.clone(), show(entry))).collect()
    }
}

/// A running recorder. It ends with its sandbox.
struct Recorder {
    child: Child,
    log: PathBuf,
}

impl Recorder {
    /// Starts to change the files of a sandbox. `pause_s` is the time between two changes.
    fn start(server: &Server, sandbox: &Sandbox, folder: &Path, pause_s: &str) -> Self {
        assert_eq!(sandbox.exec(BALLAST)["exit_code"], 0);
        let pid = process_inside(server, sandbox).to_string();
        let log = folder.join(&sandbox.id);
        let seed = sandbox.id.bytes().map(u64::from).sum::<u64>().to_string();
        let mut command = Command::new("python3");
        command.args(["-c", RECORDER, "write", &pid]).arg(&log).args([&seed, pause_s]);
        let child = command.stdin(Stdio::null()).spawn().expect("python3 starts");
        Self { child, log }
    }

    /// The changes that were recorded so far.
    fn changes(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    fn count(&self) -> usize {
        self.changes().len()
    }

    /// Waits until some more changes were made.
    fn wait_for(&mut self, more: u64) {
        let size = |log: &Path| fs::metadata(log).map_or(0, |log| log.len());
        let enough = size(&self.log) + more * CHANGE_BYTES;
        wait_until("files change", LONG, || {
            let ended = self.child.try_wait().expect("its child");
            assert!(ended.is_none(), "the recorder ended: {ended:?}");
            (size(&self.log) >= enough).then_some(())
        });
    }

    /// Runs a request. Returns its answer, and how many changes may have been made at its moment.
    fn during<T>(&self, request: impl FnOnce() -> T) -> (T, RangeInclusive<usize>) {
        // The last change that was recorded may not be made yet.
        let from = self.count().saturating_sub(1);
        let answer = request();
        (answer, from..=self.count())
    }

    /// The number of changes within a range that result in these files.
    fn moment(&self, within: &RangeInclusive<usize>, seen: &Files) -> Option<usize> {
        let mut model = Model::default();
        let changes = self.changes();
        let mut made = changes.iter();
        for number in 0..=*within.end() {
            // The first comparison is quick, and rules most moments out.
            let same_number = model.names.len() == seen.len();
            if within.contains(&number) && same_number && model.files() == *seen {
                return Some(number);
            }
            if let Some(change) = made.next() {
                model.apply(change);
            }
        }
        None
    }
}

impl Recorder {
    /// What differs from the moment within a range that differs least, and the last changes of that.
    fn nearest(&self, within: &RangeInclusive<usize>, seen: &Files) -> String {
        let mut model = Model::default();
        let changes = self.changes();
        let mut made = changes.iter();
        let mut best: Option<(usize, Vec<String>)> = None;
        for number in 0..=*within.end() {
            if within.contains(&number) {
                let files = model.files();
                let paths = files.keys().chain(seen.keys()).collect::<BTreeSet<_>>();
                let differ = paths.into_iter().filter(|path| files.get(*path) != seen.get(*path));
                let differ: Vec<String> = differ.cloned().collect();
                if best.as_ref().is_none_or(|(_, least)| differ.len() < least.len()) {
                    best = Some((number, differ));
                }
            }
            if let Some(change) = made.next() {
                model.apply(change);
            }
        }
        let Some((number, differ)) = best else { return String::new() };
        let about = |path: &String| {
            let name = format!("\"{path}\"");
            let own: Vec<_> =
                changes.iter().enumerate().filter(|(_, line)| line.contains(&name)).collect();
            let last = own.iter().rev().take(6).map(|(at, line)| format!("\n    {at}: {line}"));
            format!("\n  {path}: {:?}{}", seen.get(path), last.collect::<String>())
        };
        let all: String = differ.iter().map(about).collect();
        format!("nearest to {number}, except{all}")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pid of a process that runs in a sandbox.
fn process_inside(server: &Server, sandbox: &Sandbox) -> i32 {
    let mark = format!("MARK={}", sandbox.id);
    let body = json!({"id": "mark", "argv": ["sleep", "7777"], "env": {"MARK": sandbox.id}});
    sandbox.post("/processes", &body).expect(201);
    let own = |pid: &i32| {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        env.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
    };
    wait_until("it runs", SOON, || server.processes("sleep").into_iter().find(|pid| own(pid)))
}

fn dump(sandbox: &Sandbox) -> Files {
    let body = json!({"argv": ["python3", "-c", RECORDER, "dump"], "max_output_bytes": 8 << 20});
    let answer = sandbox.post("/exec", &body).expect(200).json();
    let text = answer["stdout"].as_str().expect("a text");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Checks that the files of a new sandbox are those of one moment within a range, and deletes it.
fn check(recorder: &Recorder, within: &RangeInclusive<usize>, copy: &Sandbox, what: &str) {
    let seen = dump(copy);
    if recorder.moment(within, &seen).is_none() {
        let any = recorder.moment(&(0..=recorder.count()), &seen);
        let nearest = recorder.nearest(within, &seen);
        panic!("{what} has the files of no moment in {within:?}; at any time: {any:?}; {nearest}");
    }
    copy.delete();
}

/// Takes snapshots and forks of a sandbox whose files change, and checks each.
fn record(server: &Server, folder: &Path, disk_mib: u64, snapshots: usize, pause_s: &str) {
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
    let mut recorder = Recorder::start(server, &sandbox, folder, pause_s);
    let mut earliest = None;
    for number in 0..snapshots {
        recorder.wait_for(40);
        let (copy, within) = if number % 4 == 3 {
            let (forked, within) =
                recorder.during(|| sandbox.post("/fork", &json!({"count": 1})).expect(201).json());
            (forked["forks"][0]["id"].as_str().expect("an id").to_owned(), within)
        } else {
            let (taken, within) =
                recorder.during(|| sandbox.post("/snapshots", &json!({})).expect(201).json());
            assert!(taken["frozen_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{taken}");
            let id = taken["id"].as_str().expect("an id");
            let copy = server.sandbox_with(&json!({"snapshot": id}));
            if earliest.is_none() {
                earliest = Some((id.to_owned(), within.clone()));
            } else {
                http.delete(&format!("/v1/snapshots/{id}")).expect(200);
            }
            (copy.id, within)
        };
        check(
            &recorder,
            &within,
            &server.named(&copy),
            &format!("copy {number} of {}", sandbox.id),
        );
    }
    recorder.wait_for(40);
    let pid = i32::try_from(recorder.child.id()).expect("small");
    process::kill(pid);
    let _ = recorder.child.wait();
    let all = recorder.count();
    let end = recorder.moment(&(all.saturating_sub(1)..=all), &dump(&sandbox));
    assert!(end.is_some(), "the original is not what was written: {:#?}", dump(&sandbox));
    if let Some((id, within)) = earliest {
        sandbox.post("/restore", &json!({"snapshot": id})).expect(200);
        check(&recorder, &within, &sandbox, "a restored sandbox");
        http.delete(&format!("/v1/snapshots/{id}")).expect(200);
    } else {
        sandbox.delete();
    }
    drop(recorder);
}

/// Records this number of sandboxes at the same time.
fn moments(server: Server, disk_mib: u64, sandboxes: usize, snapshots: usize) {
    let folder = TempDir::new().expect("a directory");
    // Many recorders without a pause would leave no processor for the server.
    let pause_s = if sandboxes > 10 { "0.02" } else { "0.0005" };
    std::thread::scope(|scope| {
        for _ in 0..sandboxes {
            scope.spawn(|| record(&server, folder.path(), disk_mib, snapshots, pause_s));
        }
    });
    server.healthy();
}

/// Promises: SN1.
#[test]
fn a_copy_of_changing_files_is_one_moment_with_a_disk() {
    moments(Server::start(), 128, 6, 4);
}

/// Promises: SN1.
#[test]
fn a_copy_of_changing_files_is_one_moment_without_a_disk() {
    moments(Server::start(), 0, 6, 4);
}

/// The check of the other tests finds a copy that was made without freezing the sandbox.
#[test]
fn files_that_are_read_while_they_change_are_of_no_moment() {
    let server = Server::start();
    let folder = TempDir::new().expect("a directory");
    let sandbox = server.sandbox();
    let mut recorder = Recorder::start(&server, &sandbox, folder.path(), "0");
    recorder.wait_for(200);
    wait_until("a copy is of no moment", SOON, || {
        let (seen, within) = recorder.during(|| dump(&sandbox));
        recorder.moment(&within, &seen).is_none().then_some(())
    });
    drop(recorder);
    sandbox.delete();
}

/// How many sandboxes and snapshots of each the long tests have; `make soak` sets the full number.
fn many(disk_mib: u64, options: Options) {
    moments(options.start(), disk_mib, tries(10, 50), tries(5, 20));
}

/// Promises: SN1.
#[test]
#[ignore = "minutes: make soak"]
fn soak_moments_of_50_sandboxes_with_disks() {
    many(128, Options::new().loop_disk("ext4", 40_000, &[]));
}

/// Promises: SN1.
#[test]
#[ignore = "minutes: make soak"]
fn soak_moments_of_50_sandboxes_on_ext4() {
    many(0, Options::new().loop_disk("ext4", 40_000, &[]));
}

/// Promises: SN1.
#[test]
#[ignore = "minutes: make soak"]
fn soak_moments_of_50_sandboxes_on_xfs() {
    many(0, Options::new().loop_disk("xfs", 20_000, &[]));
}

/// Promises: SN1.
#[test]
#[ignore = "minutes: make soak"]
fn soak_moments_of_50_sandboxes_with_disks_on_xfs() {
    many(128, Options::new().loop_disk("xfs", 20_000, &[]));
}

/// Promises: SN1.
#[test]
#[ignore = "minutes: make soak"]
fn soak_moments_of_50_sandboxes_on_btrfs() {
    many(0, Options::new().loop_disk("btrfs", 20_000, &[]));
}
