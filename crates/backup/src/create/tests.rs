//! Backups of directories that are damaged, hostile or changing, and restores of them.

use super::*;
use crate::restore::{RestoreOptions, restore};
use crate::verify::verify;
use isolet_jail::{SLOTS, UID_BASE, UIDS};
use isolet_store::FORMAT;
use isolet_store::keys::Keys;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use tempfile::TempDir;

/// A data directory with sandboxes `a`, `b`, …, and a place for backups of it.
struct Fixture {
    folder: TempDir,
}

/// Sandboxes that stand still, but those whose name is in the list.
struct FakeHolds(&'static [&'static str]);

impl Holds for FakeHolds {
    fn hold(&mut self, name: &str) -> Result<Option<Held>, Error> {
        if self.0.contains(&name) {
            return Err(Error::Hold("it does not stand still".to_owned()));
        }
        Ok(Some(Held { state: "running".to_owned(), frozen: true, unsaved_shells: 0 }))
    }

    fn release(&mut self) -> Result<Duration, Error> {
        Ok(Duration::from_millis(1))
    }
}

/// Calls a function when data was read.
struct OnBytes<F>(F);

impl<F: Fn()> Progress for OnBytes<F> {
    fn event(&self, _: &ProgressEvent) {}

    fn bytes(&self, _: u64) {
        self.0();
    }
}

impl Fixture {
    fn new(names: &[&str]) -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(fixture.data().join("sandboxes")).unwrap();
        let file = fixture.data().join("isolet.db");
        drop(Keys::open(&file).unwrap());
        let connection = Connection::open(&file).unwrap();
        for (slot, name) in (0..).zip(names) {
            let first = UID_BASE + slot * UIDS;
            let body = format!("{{\"id_base\":{first}}}");
            let insert = "INSERT INTO sandboxes VALUES (?1, 't', ?1, ?2, 'running', ?3)";
            connection.execute(insert, params![name, slot, body]).unwrap();
            let workspace = fixture.data().join("sandboxes").join(name).join("workspace");
            fs::create_dir_all(&workspace).unwrap();
            let file = workspace.join("f");
            fs::write(&file, name).unwrap();
            chown(&file, Some(first), Some(first)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        }
        fixture
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn workspace(&self, name: &str) -> PathBuf {
        self.data().join("sandboxes").join(name).join("workspace")
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    fn create(&self, holds: &'static [&'static str]) -> Result<Manifest, Error> {
        self.create_with(None, holds, &Quiet)
    }

    fn create_with(
        &self,
        passphrase: Option<Passphrase>,
        holds: &'static [&'static str],
        progress: &dyn Progress,
    ) -> Result<Manifest, Error> {
        let options = BackupOptions {
            data_dir: self.data(),
            target: self.target(),
            with_images: true,
            passphrase,
            check_space: false,
        };
        create(&options, &mut FakeHolds(holds), progress)
    }

    fn restore(&self, to: &Path) -> Result<crate::restore::Restored, Error> {
        let options = RestoreOptions {
            backup: &self.target(),
            data_dir: to,
            passphrase: None,
            check_space: false,
        };
        restore(&options, &Quiet)
    }

    /// Changes the records of the data directory.
    fn change(&self, statement: &str) {
        let connection = Connection::open(self.data().join("isolet.db")).unwrap();
        connection.execute_batch(statement).unwrap();
    }

    /// Changes the records of the backup, and its manifest accordingly.
    fn forge(&self, statement: &str) {
        let path = self.target().join("records.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(statement).unwrap();
        drop(connection);
        let bytes = fs::read(&path).unwrap();
        let file = self.target().join(manifest::FILE);
        let mut text: serde_json::Value =
            serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for one in text["files"].as_array_mut().unwrap() {
            if one["content"] == "records" {
                one["bytes"] = bytes.len().into();
                one["sha256"] = hex::encode(Sha256::digest(&bytes)).into();
            }
        }
        fs::write(file, text.to_string()).unwrap();
    }
}

fn names(manifest: &Manifest) -> Vec<&str> {
    manifest.sandboxes.iter().map(|one| one.name.as_str()).collect()
}

#[test]
fn one_sandbox_does_not_stop_the_backup_of_the_others() {
    let fixture = Fixture::new(&["a", "b", "c", "d", "e"]);
    isolet_sys::tree::remove(&fixture.data().join("sandboxes/b")).unwrap();
    chown(fixture.workspace("d").join("f"), Some(1000), Some(1000)).unwrap();
    let manifest = fixture.create(&["c"]).unwrap();
    assert_eq!(names(&manifest), ["a", "e"]);
    let left_out: Vec<&str> = manifest.left_out.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(left_out, ["b", "c", "d"]);
    assert!(manifest.left_out[2].reason.contains("another user"), "{:?}", manifest.left_out);
    assert!(!fixture.target().join("sandboxes/d.tar.zst").try_exists().unwrap());
    assert_eq!(verify(&fixture.target(), &Quiet).unwrap(), manifest);
    let to = fixture.folder.path().join("to");
    fixture.restore(&to).unwrap();
    assert_eq!(fs::read_to_string(to.join("sandboxes/e/workspace/f")).unwrap(), "e");
    assert!(!to.join("sandboxes/d").try_exists().unwrap());
    assert_eq!(isolet_store::check_format(&to).unwrap(), isolet_store::DataState::Known);
}

#[test]
fn a_backup_of_another_format_is_refused_before_anything_is_written() {
    let fixture = Fixture::new(&["a"]);
    fixture.create(&[]).unwrap();
    let file = fixture.target().join(manifest::FILE);
    let text: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let refused = |change: serde_json::Value| {
        let mut text = text.clone();
        let fields = text.as_object_mut().unwrap();
        fields.extend(change.as_object().unwrap().clone());
        fs::write(&file, text.to_string()).unwrap();
        let to = fixture.folder.path().join("to");
        let error = fixture.restore(&to).unwrap_err();
        assert!(!to.try_exists().unwrap(), "{error}");
        error
    };
    let other = refused(serde_json::json!({"format": 999}));
    assert!(matches!(other, Error::OtherFormat { found: 999, .. }), "{other}");
    let own = format!("has format 999, and this isolet uses format {FORMAT}");
    assert!(other.to_string().contains(&own), "{other}");
    let earlier = refused(serde_json::json!({"format": "isolet-backup", "version": 2}));
    assert!(matches!(earlier, Error::EarlierVersion(_)), "{earlier}");
    let none = refused(serde_json::json!({"format": null}));
    assert!(matches!(none, Error::NoBackup { .. }), "{none}");
}

#[test]
fn a_restored_directory_is_as_closed_as_a_new_one() {
    let fixture = Fixture::new(&["a"]);
    let images = fixture.data().join("images");
    fs::create_dir(&images).unwrap();
    for open in [&images, &fixture.data().join("sandboxes/a")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o6777)).unwrap();
        chown(open, Some(1000), Some(1000)).unwrap();
    }
    fixture.create(&[]).unwrap();
    let to = fixture.folder.path().join("to");
    fixture.restore(&to).unwrap();
    for (path, mode) in [("images", 0o700), ("sandboxes", 0o700), ("sandboxes/a", 0o711)] {
        let about = fs::metadata(to.join(path)).unwrap();
        assert_eq!((about.mode() & 0o7777, about.uid()), (mode, 0), "{path}");
    }
}

/// The path of a layer of an image.
const LAYER: &str = "layers/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/tree";

/// Sets a member in the record of the sandbox `b` to this JSON.
fn set_in_b(member: &str, json: &str) -> String {
    format!(
        "UPDATE sandboxes SET body = json_set(body, '{member}', json('{json}')) WHERE name = 'b'"
    )
}

/// A template on the host's programs made one sandbox that no backup could contain, and none could be
/// written.
///
/// Promises: F48.
#[test]
fn a_sandbox_on_a_template_of_the_host_is_part_of_a_backup() {
    let fixture = Fixture::new(&["a", "b"]);
    let root = format!(r#"{{"layers":["{LAYER}","host"],"workspace":"{LAYER}/workspace"}}"#);
    fixture.change(&set_in_b("$.root", &root));
    let manifest = fixture.create(&[]).unwrap();
    assert_eq!((names(&manifest), manifest.left_out.len()), (vec!["a", "b"], 0));
    assert_eq!(verify(&fixture.target(), &Quiet).unwrap(), manifest);
    fixture.restore(&fixture.folder.path().join("to")).unwrap();
}

/// Promises: F48.
#[test]
fn a_record_that_no_restore_accepts_is_left_out_and_named() {
    let fixture = Fixture::new(&["a", "b", "c"]);
    fixture.change(&set_in_b("$.root", r#"{"layers":["elsewhere/tree"]}"#));
    // This one becomes invalid while the backup is written.
    let progress = OnBytes(|| {
        let statement = set_in_b("$.superseded", r#""..""#).replace("'b'", "'c'");
        fixture.change(&statement);
    });
    let manifest = fixture.create_with(None, &[], &progress).unwrap();
    assert_eq!(names(&manifest), ["a"]);
    let left_out: Vec<_> = manifest.left_out.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(left_out, ["b", "c"]);
    assert!(manifest.left_out[0].reason.contains("elsewhere/tree"), "{:?}", manifest.left_out);
    assert_eq!(verify(&fixture.target(), &Quiet).unwrap(), manifest);
    fixture.restore(&fixture.folder.path().join("to")).unwrap();
}

/// A layer that cannot be archived was tried for the next sandbox that needs it, found in the way, and
/// ended the whole backup.
///
/// Promises: F48.
#[test]
fn sandboxes_with_the_same_damaged_layer_are_left_out_one_by_one() {
    let fixture = Fixture::new(&["a", "b", "c"]);
    let layer = fixture.data().join("snapshots/layers/shared/root");
    fs::create_dir_all(&layer).unwrap();
    fs::write(layer.join("f"), "x").unwrap();
    // A file of a user of the host.
    chown(layer.join("f"), Some(1000), Some(1000)).unwrap();
    let layers = format!(r#"[{{"name":"shared","id_base":{UID_BASE}}}]"#);
    for name in ["'a'", "'b'"] {
        fixture.change(&set_in_b("$.layers", &layers).replace("'b'", name));
    }
    let manifest = fixture.create(&[]).unwrap();
    assert_eq!(names(&manifest), ["c"]);
    let left_out: Vec<_> = manifest.left_out.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(left_out, ["a", "b"]);
    assert!(!fixture.target().join("layers/shared.tar.zst").try_exists().unwrap());
}

/// Promises: F48.
#[test]
fn only_the_owner_reads_the_files_of_a_backup() {
    let fixture = Fixture::new(&["a"]);
    fixture.create(&[]).unwrap();
    for entry in fs::read_dir(fixture.target()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode() & 0o7077;
        assert_eq!(mode, 0, "{:?}", entry.path());
    }
}

/// Promises: F48.
#[test]
fn forged_records_are_refused_by_restore_and_verify() {
    let changes = [
        format!("UPDATE sandboxes SET slot = {SLOTS} WHERE name = 'a'"),
        "UPDATE sandboxes SET slot = 36864 WHERE name = 'a'".to_owned(),
        r#"UPDATE sandboxes SET body = '{"root":{"layers":["../../../../root"]}}'"#.to_owned(),
        r#"UPDATE sandboxes SET body = '{"root":{"layers":[7]}}'"#.to_owned(),
        "UPDATE sandboxes SET body = '{}' WHERE name = 'b'".to_owned(),
        // The archives contain files of other user ids.
        format!("UPDATE sandboxes SET body = '{{\"id_base\":{UID_BASE}}}' WHERE name = 'b'"),
        "UPDATE sandboxes SET body = '{\"id_base\":0}' WHERE name = 'b'".to_owned(),
        "UPDATE sandboxes SET body = '{\"id_base\":1000}' WHERE name = 'b'".to_owned(),
        "UPDATE sandboxes SET body = '{\"id_base\":4294967296}' WHERE name = 'b'".to_owned(),
        // Places from which the server would copy, and to which it would move files.
        set_in_b("$.root", &format!(r#"{{"layers":["{LAYER}/etc/link"]}}"#)),
        set_in_b("$.root", r#"{"layers":["host","host"]}"#),
        set_in_b("$.root", &format!(r#"{{"layers":["{LAYER}"],"workspace":"/root"}}"#)),
        set_in_b("$.root", &format!(r#"{{"layers":["host"],"workspace":"{LAYER}/workspace"}}"#)),
        set_in_b("$.superseded", r#""../../../etc/cron.d""#),
        set_in_b("$.superseded", r#""/etc/cron.d""#),
        set_in_b("$.restore", r#""../../../var/lib/mysql""#),
        set_in_b("$.restore", "7"),
        "INSERT INTO snapshots VALUES ('../../x', 't', 's', '{}')".to_owned(),
    ];
    for change in changes {
        let fixture = Fixture::new(&["a", "b"]);
        fixture.create(&[]).unwrap();
        fixture.forge(&change);
        let to = fixture.folder.path().join("to");
        let refused = fixture.restore(&to).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{change}: {refused}");
        assert!(!to.try_exists().unwrap(), "{change}");
        let refused = verify(&fixture.target(), &Quiet).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{change}: {refused}");
    }
}

#[test]
fn a_forged_name_is_refused_although_records_and_manifest_agree() {
    let fixture = Fixture::new(&["a"]);
    fixture.create(&[]).unwrap();
    fixture.forge("UPDATE sandboxes SET name = '../../mysql', state = 'destroying'");
    let file = fixture.target().join(manifest::FILE);
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    text["sandboxes"][0]["name"] = "../../mysql".into();
    text["files"].as_array_mut().unwrap().retain(|one| one["content"] != "sandbox");
    fs::write(file, text.to_string()).unwrap();
    let to = fixture.folder.path().join("to");
    for refused in [fixture.restore(&to).map(|_| ()), verify(&fixture.target(), &Quiet).map(|_| ())]
    {
        assert!(matches!(refused, Err(Error::NoBackup { .. })), "{refused:?}");
    }
    assert!(!to.try_exists().unwrap());
}

/// `isolet keys rotate audit` replaced the key between the copy of the logs and that of the key.
#[test]
fn audit_logs_are_copied_with_the_key_that_verifies_them() {
    let fixture = Fixture::new(&[]);
    let audit = fixture.data().join("audit");
    let log = audit.join("tenants/t/1.ndjson");
    fs::create_dir_all(audit.join("tenants/t")).unwrap();
    fs::write(&log, "old\n").unwrap();
    fs::write(audit.join("key"), "old").unwrap();
    let rotations = Cell::new(0);
    let progress = OnBytes(|| {
        if rotations.replace(rotations.get() + 1) == 0 {
            fs::write(&log, "new\n").unwrap();
            fs::write(audit.join("key"), "new").unwrap();
        }
    });
    let passphrase = Passphrase::new("correct horse".to_owned()).unwrap();
    fixture.create_with(Some(passphrase.clone()), &[], &progress).unwrap();
    assert!(rotations.get() > 1, "the logs were copied again");
    let to = fixture.folder.path().join("to");
    let options = RestoreOptions {
        backup: &fixture.target(),
        data_dir: &to,
        passphrase: Some(&passphrase),
        check_space: false,
    };
    restore(&options, &Quiet).unwrap();
    assert_eq!(fs::read_to_string(to.join("audit/key")).unwrap(), "new");
    assert_eq!(fs::read_to_string(to.join("audit/tenants/t/1.ndjson")).unwrap(), "new\n");
}

#[test]
fn an_error_of_the_target_ends_the_backup_and_leaves_nothing() {
    let fixture = Fixture::new(&["a"]);
    let target = fixture.target();
    let progress = OnBytes(|| {
        // Another process creates the target before it gets its name.
        fs::create_dir_all(target.join("full")).unwrap();
    });
    let refused = fixture.create_with(None, &[], &progress).unwrap_err();
    assert!(matches!(refused, Error::NotEmpty(_)), "{refused}");
    let names = fs::read_dir(fixture.folder.path()).unwrap().count();
    assert_eq!(names, 2, "the data directory and what the other process created");
}
