//! A merged tree beside a real overlay of random layers, and beside files that tenants could make.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap as Map;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, DIRECTORY, Mode::empty()).unwrap()
}

fn layer(path: &Path) -> Layer {
    Layer { directory: open(path), id_base: 0 }
}

fn tree(layers: &[PathBuf]) -> MergedTree {
    let layers = layers.iter().map(|path| layer(path)).collect();
    // Exact, because two writes may have the same time.
    MergedTree::new(Layers::overlay(layers), Vec::new(), true)
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Everything that a tree shows: path, type, mode, and content or target.
fn shown(tree: &MergedTree, max: usize) -> Map<String, (FileKind, u32, Vec<u8>)> {
    let root = tree.find(b"/", true).unwrap().unwrap();
    let mut all = Map::new();
    let mut request = ListRequest { recursive: true, hidden: true, max, ..ListRequest::default() };
    loop {
        let page = tree.list(&root, &request, later(), &AtomicBool::new(false)).unwrap();
        for file in &page.found {
            let mut content = file.target.clone().unwrap_or_default();
            if file.stat.kind == FileKind::File {
                let found = tree.find(&file.path, false).unwrap().unwrap();
                std::io::Read::read_to_end(&mut found.open().unwrap(), &mut content).unwrap();
            }
            let old = all.insert(text(&file.path), (file.stat.kind, file.stat.mode, content));
            assert!(old.is_none(), "{} twice", text(&file.path));
        }
        let Some(last) = page.found.last().filter(|_| page.more) else { return all };
        request.after = Some(last.path.clone());
    }
}

/// What the kernel shows below a directory.
fn real(top: &Path) -> Map<String, (FileKind, u32, Vec<u8>)> {
    let mut all = Map::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let (kind, content) = if about.is_dir() {
                left.push(path.clone());
                (FileKind::Directory, Vec::new())
            } else if about.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                (FileKind::Symlink, target.into_os_string().into_encoded_bytes())
            } else if about.is_file() {
                (FileKind::File, fs::read(&path).unwrap())
            } else {
                (FileKind::Other, Vec::new())
            };
            let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
            all.insert(name, (kind, about.mode() & 0o7777, content));
        }
    }
    all
}

/// A change that a program makes in an overlay.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, usize, u8),
    Directory(usize, usize),
    Link(usize, usize),
    Remove(usize, usize),
    Fifo(usize, usize),
    /// Starts the next layer.
    Layer,
}

const NAMES: [&str; 4] = ["a", "b", ".c", "d e"];

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..20_usize, 0..NAMES.len());
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|((at, name), byte)| Step::Write(at, name, byte)),
        4 => place().prop_map(|(at, name)| Step::Directory(at, name)),
        1 => place().prop_map(|(at, name)| Step::Link(at, name)),
        4 => place().prop_map(|(at, name)| Step::Remove(at, name)),
        1 => place().prop_map(|(at, name)| Step::Fifo(at, name)),
        2 => Just(Step::Layer),
    ]
}

/// The directories below a path, in a fixed order.
fn directories(top: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = real(top)
        .into_iter()
        .filter(|(_, (kind, ..))| *kind == FileKind::Directory)
        .map(|(path, _)| top.join(path))
        .collect();
    all.insert(0, top.to_owned());
    all
}

/// A real overlay with `userxattr`, of which one layer after the other is written.
struct Overlay {
    folder: tempfile::TempDir,
    /// The top one first; the first one is being written.
    layers: Vec<PathBuf>,
    mounted: bool,
}

impl Overlay {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("l0");
        fs::create_dir(&base).unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        let mut new = Self { folder, layers: vec![base], mounted: false };
        new.next();
        new
    }

    fn mnt(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn next(&mut self) {
        self.unmount();
        let number = self.layers.len();
        let upper = self.folder.path().join(format!("l{number}"));
        let work = self.folder.path().join(format!("w{number}"));
        fs::create_dir(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let lower: Vec<String> =
            self.layers.iter().map(|path| path.display().to_string()).collect();
        let options = format!(
            "userxattr,lowerdir={},upperdir={},workdir={}",
            lower.join(":"),
            upper.display(),
            work.display()
        );
        let done = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(self.mnt())
            .status()
            .unwrap();
        assert!(done.success(), "{options}");
        self.layers.insert(0, upper);
        self.mounted = true;
    }

    fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            assert!(Command::new("umount").arg(self.mnt()).status().unwrap().success());
        }
    }

    fn apply(&mut self, step: &Step) {
        let mnt = self.mnt();
        let at = |at: &usize, name: &usize| {
            let all = directories(&mnt);
            all[at % all.len()].join(NAMES[*name])
        };
        // A step that cannot be done where it is drawn does nothing.
        let _ = match step {
            Step::Write(place, name, byte) => {
                let path = at(place, name);
                match fs::symlink_metadata(&path) {
                    // A named pipe would wait for its reader.
                    Ok(about) if !about.is_file() => Ok(()),
                    _ => fs::write(path, [*byte; 3]),
                }
            }
            Step::Directory(place, name) => fs::create_dir(at(place, name)),
            Step::Link(place, name) => std::os::unix::fs::symlink("../a/./b", at(place, name)),
            Step::Remove(place, name) => {
                let path = at(place, name);
                match fs::symlink_metadata(&path) {
                    Ok(about) if about.is_dir() => {
                        isolet_sys::tree::remove(&path).map_err(std::io::Error::from)
                    }
                    _ => fs::remove_file(path),
                }
            }
            Step::Fifo(place, name) => Command::new("mkfifo")
                .arg(at(place, name))
                .stderr(std::process::Stdio::null())
                .status()
                .map(drop),
            Step::Layer => {
                self.next();
                Ok(())
            }
        };
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn changes(from: &MergedTree, to: &MergedTree, max: usize) -> Vec<(String, ChangeKind)> {
    let cancelled = AtomicBool::new(false);
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let request = DiffRequest { after, max, until: later(), cancelled: &cancelled };
        let page = from.diff(to, &request).unwrap();
        all.extend(page.changes.iter().map(|change| (text(&change.path), change.kind)));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_merged_tree_shows_what_a_real_overlay_shows(
        steps in prop::collection::vec(step(), 0..60),
        max in 1..9_usize,
    ) {
        let mut overlay = Overlay::new();
        let mut old = None;
        for step in &steps {
            if matches!(step, Step::Layer) {
                old = Some((overlay.layers.clone(), real(&overlay.mnt())));
            }
            overlay.apply(step);
        }
        let now = real(&overlay.mnt());
        let merged = tree(&overlay.layers);
        prop_assert_eq!(&shown(&merged, max), &now);
        // The difference between the state before the last layer and now.
        if let Some((layers, before)) = old {
            let mut wanted = Map::new();
            for (path, file) in &now {
                match before.get(path) {
                    None => _ = wanted.insert(path.clone(), ChangeKind::Added),
                    Some(old) if old != file => _ = wanted.insert(path.clone(), ChangeKind::Changed),
                    Some(_) => {}
                }
            }
            for path in before.keys().filter(|path| !now.contains_key(*path)) {
                wanted.insert(path.clone(), ChangeKind::Removed);
            }
            let found = changes(&tree(&layers), &merged, max);
            let sorted = found.windows(2).all(|pair| {
                parts(pair[0].0.as_bytes()).lt(parts(pair[1].0.as_bytes()))
            });
            prop_assert!(sorted, "{:?}", found);
            prop_assert_eq!(found.into_iter().collect::<Map<_, _>>(), wanted);
        }
    }
}

#[test]
fn links_stay_in_the_tree_and_special_files_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("top");
    fs::create_dir_all(top.join("in/er")).unwrap();
    fs::write(folder.path().join("secret"), "outside").unwrap();
    fs::write(top.join("in/file"), "inside").unwrap();
    let link =
        |target: &str, name: &str| std::os::unix::fs::symlink(target, top.join(name)).unwrap();
    link("../secret", "up");
    link("../../../../../../secret", "far");
    link("/in/file", "absolute");
    link("in/er/../file", "around");
    link("loop", "loop");
    link(folder.path().join("secret").to_str().unwrap(), "host");
    link("/proc/self/root", "magic");
    assert!(Command::new("mkfifo").arg(top.join("fifo")).status().unwrap().success());
    assert!(
        Command::new("mknod")
            .arg(top.join("null"))
            .args(["c", "1", "3"])
            .status()
            .unwrap()
            .success()
    );
    let tree = tree(std::slice::from_ref(&top));
    for name in ["up", "far", "host", "magic/etc/passwd", "in/../../secret"] {
        assert!(tree.find(name.as_bytes(), true).unwrap().is_none(), "{name}");
    }
    for name in ["absolute", "around", "/in/file", "in//./file", "../../in/file"] {
        let found = tree.find(name.as_bytes(), true).unwrap().expect(name);
        assert_eq!(std::io::read_to_string(found.open().unwrap()).unwrap(), "inside", "{name}");
    }
    assert_eq!(tree.find(b"loop", true).unwrap_err(), Errno::LOOP);
    assert_eq!(tree.find(b"in/file/x", true).unwrap_err(), Errno::NOTDIR);
    for name in ["fifo", "null"] {
        let found = tree.find(name.as_bytes(), true).unwrap().expect(name);
        assert_eq!((found.stat.kind, found.open().err()), (FileKind::Other, Some(Errno::INVAL)));
    }
}

#[test]
fn a_mounted_tree_hides_what_is_below_it_and_has_no_whiteouts() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let work = folder.path().join("work");
    fs::create_dir_all(root.join("workspace/hidden")).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "a").unwrap();
    assert!(
        Command::new("mknod").arg(work.join("w")).args(["c", "0", "0"]).status().unwrap().success()
    );
    let below = || vec![("workspace", Layers::plain(layer(&work)))];
    let tree = MergedTree::new(Layers::overlay(vec![layer(&root)]), below(), false);
    let all: Vec<String> = shown(&tree, 2).into_keys().collect();
    assert_eq!(all, ["workspace", "workspace/a", "workspace/w"]);
    assert!(tree.find(b"workspace/../workspace/a", true).unwrap().is_some());
}

#[test]
fn the_same_size_and_time_with_other_content_is_found_in_exact_copies() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for (top, text) in [(&one, "aaa"), (&other, "bbb")] {
        fs::create_dir(top).unwrap();
        fs::write(top.join("f"), text).unwrap();
        fs::write(top.join("touched"), "same").unwrap();
        fs::write(top.join("mode"), "same").unwrap();
        fs::File::open(top.join("f")).unwrap().set_modified(time).unwrap();
    }
    fs::set_permissions(other.join("mode"), fs::Permissions::from_mode(0o4755)).unwrap();
    let of =
        |path: &Path, exact| MergedTree::new(Layers::overlay(vec![layer(path)]), Vec::new(), exact);
    let exact = changes(&of(&one, true), &of(&other, true), 10);
    assert_eq!(
        exact,
        [("f".to_owned(), ChangeKind::Changed), ("mode".to_owned(), ChangeKind::Changed)]
    );
    let times = changes(&of(&one, false), &of(&other, false), 10);
    assert_eq!(times, [("mode".to_owned(), ChangeKind::Changed)]);
}

/// A list went on for seconds after its client had left.
///
/// Promises: T29.
#[test]
fn t21_a_list_that_nobody_waits_for_ends() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "").unwrap();
    let tree = tree(&[directory.path().to_owned()]);
    let root = tree.find(b"/", true).unwrap().unwrap();
    let request = ListRequest { recursive: true, max: 10, ..ListRequest::default() };
    let list = |cancelled| tree.list(&root, &request, later(), &AtomicBool::new(cancelled));
    assert_eq!(list(false).unwrap().found.len(), 1);
    assert_eq!(list(true).unwrap_err(), Errno::CANCELED);
}
