//! What a pulled snapshot contains.

use super::*;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

/// What `find` says of a tree: type, mode, owner, size, links, time and target of each name. The
/// first id of owners is subtracted.
fn listed(root: &Path, first_id: u32) -> Vec<String> {
    let format = "%P %y %m %U %G %s %n %T@ %l\n";
    let found = Command::new("find").arg(root).args(["-printf", format]).output().unwrap();
    let plain = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in [3, 4] {
            words[at] = (words[at].parse::<u32>().unwrap() - first_id).to_string();
        }
        if words[1] == "d" {
            // The links of directories and their sizes depend on the file system.
            words[5] = "-".into();
            words[6] = "-".into();
        }
        words.join(" ")
    };
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().map(plain).collect();
    lines.sort();
    lines
}

fn node(path: &Path, kind: FileType) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), 0).unwrap();
}

fn fill(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file"), "text").unwrap();
    fs::hard_link(root.join("a/file"), root.join("a/b/second")).unwrap();
    fs::hard_link(root.join("a/file"), root.join("third")).unwrap();
    symlink("/etc/shadow", root.join("absolute")).unwrap();
    symlink("a", root.join("to-directory")).unwrap();
    fs::write(root.join("setuid"), "x").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("noise"), noise(5 << 20, 1)).unwrap();
    node(&root.join("pipe"), FileType::Fifo);
    node(&root.join("whiteout"), FileType::CharacterDevice);
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"middle", 32 << 20).unwrap();
    setxattr(root.join("a"), "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    setxattr(root.join("setuid"), "user.note", b"\0\xff", XattrFlags::empty()).unwrap();
}

/// Gives the files to the ids from `first` on.
fn own(root: &Path, first: u32) {
    for entry in listed(root, 0) {
        let path = root.join(entry.split(' ').next().unwrap());
        std::os::unix::fs::lchown(&path, Some(first + 1000), Some(first + 7)).unwrap();
    }
    chown(root, Some(first), Some(first)).unwrap();
    // After the owner, whose change removes it.
    fs::set_permissions(root.join("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pulled_snapshot_equals_the_pushed_one_with_owners_from_0_up() {
    let place = Place::new().await;
    let from = place.workspace();
    fill(&from);
    own(&from, 300_000);
    let _socket = UnixListener::bind(from.join("socket")).unwrap();
    let root = Root { name: "workspace".into(), kind: RootKind::Tree };
    let source = Source { root, path: from.clone(), ids: OwnerIds::From(300_000) };
    let none = Checkpoint::default();
    let pushed = place.push_sources("t", "one", vec![source], &none).await.unwrap();
    assert_eq!(pushed.left_out, 1, "the socket");
    fs::remove_file(from.join("socket")).unwrap();
    let parent = fs::File::open(&from).unwrap();
    parent.set_modified(fs::metadata(&from).unwrap().modified().unwrap()).unwrap();

    let (manifest, _) = place.pull("t", "one", "pulled").await.unwrap();
    let to = place.path("pulled/workspace");
    let differs = |line: &String| !line.starts_with(" d");
    let wanted: Vec<_> = listed(&from, 300_000).into_iter().filter(differs).collect();
    assert_eq!(listed(&to, 0).into_iter().filter(differs).collect::<Vec<_>>(), wanted);
    assert_eq!(manifest.record, json!({"for": "one"}));
    assert_eq!(manifest.entries, 14);
    assert_eq!(fs::read(to.join("noise")).unwrap(), fs::read(from.join("noise")).unwrap());
    assert_eq!(fs::read(to.join("sparse")).unwrap(), fs::read(from.join("sparse")).unwrap());
    assert!(fs::metadata(to.join("sparse")).unwrap().blocks() < 2048, "holes stay holes");
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode("a/b/second"), inode("third"));
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(to.join("a"), "user.overlay.opaque", &mut value).unwrap();
    assert_eq!(&value[..length], b"y");
    let length = rustix::fs::getxattr(to.join("setuid"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..length], b"\0\xff");
    let mut left: Vec<_> = fs::read_dir(place.path("pulled")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left.remove(0).file_name(), "workspace");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_disk_keeps_its_holes() {
    let place = Place::new().await;
    let image = place.path("disk.ext4");
    let disk = fs::File::create(&image).unwrap();
    disk.set_len(1 << 30).unwrap();
    disk.write_all_at(&noise(3 << 20, 2), 100 << 20).unwrap();
    disk.write_all_at(b"end", (1 << 30) - 3).unwrap();
    let root = Root { name: "disk.ext4".into(), kind: RootKind::File };
    let disk = Source { root, path: image.clone(), ids: OwnerIds::Server };
    let shells = Root { name: "shells".into(), kind: RootKind::Tree };
    fs::write(place.workspace().join("dev"), "state").unwrap();
    let shells = Source { root: shells, path: place.workspace(), ids: OwnerIds::Server };
    let none = Checkpoint::default();
    let pushed = place.push_sources("t", "one", vec![disk, shells], &none).await.unwrap();
    assert!(pushed.sent_bytes < 4 << 20, "{} bytes", pushed.sent_bytes);
    place.pull("t", "one", "pulled").await.unwrap();
    let pulled = place.path("pulled/disk.ext4");
    let about = fs::metadata(&pulled).unwrap();
    assert_eq!((about.len(), about.mode() & 0o777), (1 << 30, 0o600));
    assert!(about.blocks() * 512 < 4 << 20);
    assert!(Command::new("cmp").args([&image, &pulled]).status().unwrap().success());
    assert_eq!(fs::read_to_string(place.path("pulled/shells/dev")).unwrap(), "state");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_files_are_few_objects() {
    let place = Place::new().await;
    for folder in 0..20 {
        let folder = place.workspace().join(folder.to_string());
        fs::create_dir(&folder).unwrap();
        for file in 0..100_u64 {
            fs::write(folder.join(file.to_string()), noise(300, file)).unwrap();
        }
    }
    place.push("t", "one").await.unwrap();
    let objects = ["packs", "index", "snapshots"].iter().map(|kind| place.objects(kind).len());
    assert_eq!(objects.collect::<Vec<_>>(), [1, 1, 1]);
    place.pull("t", "one", "pulled").await.unwrap();
    assert_eq!(listed(&place.path("pulled/workspace"), 0), listed(&place.workspace(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_only_its_own_snapshots() {
    let place = Place::new().await;
    fs::write(place.workspace().join("secret"), noise(1 << 20, 9)).unwrap();
    place.push("one", "snap").await.unwrap();
    let other = place.repository.tenant("other");
    assert!(matches!(other.snapshot("snap").await, Err(Error::NoSnapshot(_))));
    assert!(matches!(other.delete("snap").await, Err(Error::NoSnapshot(_))));
    assert!(other.snapshots().await.unwrap().is_empty());
    // What one tenant has sent does not show in the push of another: it sends all of the noise.
    let second = place.push("other", "snap").await.unwrap();
    assert!(second.sent_bytes >= 1 << 20, "{}", second.sent_bytes);
    assert_eq!(place.repository.tenant("one").snapshots().await.unwrap().len(), 1);
    // Objects of one tenant do not open as another's.
    let of = |tenant: usize| place.objects("snapshots")[tenant].clone();
    fs::copy(of(0), of(1)).unwrap();
    let mut failures = 0;
    for tenant in ["one", "other"] {
        let read = place.repository.tenant(tenant).snapshot("snap").await;
        failures += u32::from(matches!(read, Err(Error::Damaged { .. })));
    }
    assert_eq!(failures, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_contents_do_not_show_in_the_store() {
    let place = Place::new().await;
    fs::write(place.workspace().join("plain-name"), "plain text ".repeat(100)).unwrap();
    place.push("plain-tenant", "plain-snapshot").await.unwrap();
    let found = Command::new("grep").args(["-rlE", "plain"]).arg(place.path("store")).output();
    assert!(found.unwrap().stdout.is_empty());
    let names = Command::new("find").arg(place.path("store")).output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&names).contains("plain"));
}
