//! Trees that change between and during the two passes of a copy.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(fixture.at("from")).unwrap();
        fixture
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Runs a script in the directory that is copied.
    fn run(&self, script: &str) {
        let mut bash = std::process::Command::new("bash");
        let done = bash.args(["-ec", script]).current_dir(self.at("from")).status().unwrap();
        assert!(done.success(), "{script}");
    }

    fn links(&self) -> PathBuf {
        let links = self.at("links");
        isolet_sys::tree::remove(&links).unwrap();
        fs::create_dir(&links).unwrap();
        links
    }

    fn first(&self) -> LiveCopy {
        let mut check = |_| Ok(());
        let links = self.links();
        let since = StillMoment::now(&links).unwrap();
        let from = self.at("from");
        copy_live(CopyMethod::Full, since, &from, &self.at("to"), &links, &mut check).unwrap()
    }

    fn complete(&self, live: LiveCopy) -> Copied {
        let mut check = |_| Ok(());
        let links = self.at("links");
        let to = self.at("to");
        let copied = live.complete(CopyMethod::Full, &self.at("from"), &to, &links, &mut check);
        // A name there counts as a name of the file.
        isolet_sys::tree::remove(&links).unwrap();
        copied.unwrap()
    }

    /// Everything that `find` shows of a tree, with the contents and extended attributes.
    fn shown(&self, tree: &str) -> String {
        let script = "find . -printf '%P %y %m %U:%G %n %s %l %T@\\n' | sort; \
                      find . -type f | sort | xargs -r -d '\\n' md5sum; \
                      find . ! -type l | sort | xargs -r -d '\\n' python3 -c 'import os, sys\n\
                      for path in sys.argv[1:]:\n\
                      \x20   names = sorted(os.listxattr(path))\n\
                      \x20   if names: print(path, [(name, os.getxattr(path, name)) for name in names])'";
        let mut bash = std::process::Command::new("bash");
        let output = bash.args(["-c", script]).current_dir(self.at(tree)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn assert_same(&self) {
        assert_eq!(self.shown("to"), self.shown("from"));
    }
}

const TREE: &str = "mkdir -p a/b/c d e/f; echo 1 >a/1; echo 2 >a/b/2; ln a/1 d/hard; ln -s ../a d/soft; \
    mkfifo e/pipe; head -c 300000 /dev/urandom >e/f/large; chmod 4755 a/1; chown 5:6 a/b; \
    mknod e/white c 0 0; for i in $(seq 50); do echo $i >d/$i; done; python3 -c 'import os; os.setxattr(\"e\", \"user.x\", b\"1\")'";

/// Every kind of change, none of which moves the times of the files below what it changes.
const CHANGES: &str = "echo more >>a/b/2; rm a/1; mv d d2; mkdir d; echo other >d/1; mv e/f a/f; \
    python3 -c 'import os; os.removexattr(\"e\", \"user.x\"); os.setxattr(\"e\", \"user.y\", b\"2\")'; chmod 700 a/b/c; rm e/white; ln -s x e/white; \
    ln d2/2 a/linked; mkdir -p new/deep; mv d2/3 new/deep; rm -r a/b/c; touch a/b/c; \
    truncate -s 100 a/f/large; touch -d @1000 a/b/2; mkdir -p swap1/s swap2/s; echo 1 >swap1/s/f; \
    echo 2 >swap2/s/f";

#[test]
fn two_passes_copy_an_unchanged_tree_once() {
    let fixture = Fixture::new();
    fixture.run(TREE);
    // Older than what may be in progress.
    std::thread::sleep(IN_PROGRESS * 2);
    let live = fixture.first();
    let inode = || fs::metadata(fixture.at("to/e/f/large")).unwrap().ino();
    let first = inode();
    let copied = fixture.complete(live);
    fixture.assert_same();
    assert_eq!(inode(), first, "not copied again");
    assert_eq!(copied.entries, 64);
}

#[test]
fn the_second_pass_finds_every_change() {
    let fixture = Fixture::new();
    fixture.run(TREE);
    std::thread::sleep(IN_PROGRESS + TICKS * 2);
    let live = fixture.first();
    fixture.run(CHANGES);
    fixture.complete(live);
    fixture.assert_same();
}

/// The names of the file are old, one in a directory that is moved, and one in another that stays.
#[test]
fn names_of_a_file_in_a_moved_directory_stay_names_of_one_file() {
    for moved in
        ["mv b z", "mv b 0", "mkdir c; mv b c/b", "mv b z; echo more >>a/f", "mv b z; rm a/g"]
    {
        let fixture = Fixture::new();
        fixture.run("mkdir a b; echo 1 >a/f; ln a/f b/f; ln a/f a/g; echo 2 >b/h; ln b/h b/i");
        std::thread::sleep(IN_PROGRESS + TICKS * 2);
        let live = fixture.first();
        fixture.run(moved);
        fixture.complete(live);
        fixture.assert_same();
        let inodes = |tree: &str| {
            let script = "find . -type f -printf '%i %p\\n' | sort -k2";
            let mut bash = std::process::Command::new("bash");
            let output = bash.args(["-c", script]).current_dir(fixture.at(tree)).output().unwrap();
            let mut known: Vec<String> = Vec::new();
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines()
                .map(|line| {
                    let (inode, path) = line.split_once(' ').unwrap();
                    if !known.iter().any(|one| one == inode) {
                        known.push(inode.to_owned());
                    }
                    let number = known.iter().position(|one| one == inode).unwrap();
                    format!("{number} {path}")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(inodes("to"), inodes("from"), "{moved}");
    }
}

/// Names that the second pass takes from the copies of the first count once.
#[test]
fn the_size_of_files_in_a_moved_directory_is_counted() {
    let fixture = Fixture::new();
    fixture.run("mkdir b; head -c 6000 /dev/urandom >b/f; ln b/f b/g");
    std::thread::sleep(IN_PROGRESS + TICKS * 2);
    let live = fixture.first();
    fixture.run("mv b z");
    let copied = fixture.complete(live);
    fixture.assert_same();
    assert_eq!(copied, Copied { entries: 4, bytes: 6000 });
}

/// Two directories whose files have the same names, sizes and times change places.
#[test]
fn directories_that_were_exchanged_are_copied_again() {
    let fixture = Fixture::new();
    fixture.run("mkdir a b; echo 1 >a/f; echo 2 >b/f; touch -d @1000 a/f b/f a b");
    std::thread::sleep(IN_PROGRESS + TICKS * 2);
    let live = fixture.first();
    fixture.run("mv a c; mv b a; mv c b");
    fixture.complete(live);
    fixture.assert_same();
    assert_eq!(fs::read_to_string(fixture.at("to/a/f")).unwrap(), "2\n");
}

#[test]
fn what_changes_within_the_clock_tick_of_the_first_pass_is_copied() {
    for turn in 0..50 {
        let fixture = Fixture::new();
        fs::write(fixture.at("from/f"), "before").unwrap();
        let live = fixture.first();
        fs::write(fixture.at("from/f"), "afterw").unwrap();
        fixture.complete(live);
        assert_eq!(fs::read_to_string(fixture.at("to/f")).unwrap(), "afterw", "{turn}");
    }
}

/// A write to a page that was mapped and changed before does not move the times of the file until
/// the page is on the disk.
#[test]
fn a_write_to_mapped_memory_is_copied() {
    let fixture = Fixture::new();
    fs::write(fixture.at("from/f"), vec![b'0'; 4096]).unwrap();
    let program = "import mmap, sys\n\
        file = open('f', 'r+b')\n\
        memory = mmap.mmap(file.fileno(), 4096)\n\
        memory[0] = ord('1')\n\
        print('mapped', flush=True)\n\
        for line in sys.stdin:\n\
        \x20   memory[0] = ord(line[0])\n\
        \x20   print('written', flush=True)\n";
    let mut python = std::process::Command::new("python3");
    python.args(["-c", program]).current_dir(fixture.at("from"));
    python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    // Longer than a clock tick, so that the first write has an earlier time.
    std::thread::sleep(IN_PROGRESS + TICKS * 2);
    let live = fixture.first();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"2\n").unwrap();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    fixture.complete(live);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(fs::read(fixture.at("to/f")).unwrap()[0], b'2');
}

#[test]
fn a_clock_that_was_set_back_makes_everything_new() {
    let second = Duration::from_secs(1);
    assert_eq!(earlier((10, 5), Duration::new(2, 3)), (8, 2));
    assert_eq!(earlier((10, 5), Duration::new(2, 6)), (7, 999_999_999));
    assert!(!is_set_back((10, 0), (11, 0), second));
    assert!(!is_set_back((10, 0), (10, 985_000_000), second), "ticks");
    assert!(is_set_back((10, 0), (10, 900_000_000), second));
    assert!(is_set_back((10, 0), (9, 0), Duration::ZERO.max(TICKS)));
    let fixture = Fixture::new();
    fixture.run(TREE);
    fixture.run("ln a/1 e/other");
    let mut live = fixture.first();
    live.since.time.0 += 3600;
    live.limit.0 += 3600;
    fixture.run("echo changed >a/1");
    fixture.complete(live);
    fixture.assert_same();
}

/// While a program changes the tree all the time, the first pass ends and the second one is exact.
#[test]
fn a_busy_tree_is_copied_exactly_once_it_stands_still() {
    let fixture = Fixture::new();
    fixture.run(TREE);
    fs::set_permissions(fixture.at("from"), fs::Permissions::from_mode(0o711)).unwrap();
    let stop = fixture.at("stop");
    let script = format!(
        "i=0; while [ ! -e {} ]; do i=$((i + 1)); mkdir -p w/$i/x; echo $i >w/$i/x/f; echo $i >>a/b/2; \
         mv w/$i/x a/x$i; rm -rf w/$((i - 3)) a/x$((i - 2)); mv d d.new; mv d.new d; done",
        stop.display()
    );
    let mut bash = std::process::Command::new("bash");
    let mut child = bash.args(["-c", &script]).current_dir(fixture.at("from")).spawn().unwrap();
    let live = fixture.first();
    fs::write(&stop, "").unwrap();
    child.wait().unwrap();
    fixture.complete(live);
    fixture.assert_same();
}

#[test]
fn a_tree_that_is_too_deep_is_refused_by_the_first_pass() {
    let fixture = Fixture::new();
    let mut at = rustix::fs::open(fixture.at("from"), OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..crate::walk::LEVELS_MAX {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, "d", OFlags::PATH, Mode::empty()).unwrap();
    }
    let links = fixture.links();
    let since = StillMoment::now(&links).unwrap();
    let from = fixture.at("from");
    let to = fixture.at("to");
    let copied = copy_live(CopyMethod::Full, since, &from, &to, &links, &mut |_| Ok(()));
    assert!(matches!(copied, Err(CopyError::TooDeep { .. })), "{copied:?}");
    // The standard library would go down by paths.
    isolet_sys::tree::remove(&from).unwrap();
    isolet_sys::tree::remove(&to).unwrap();
}
