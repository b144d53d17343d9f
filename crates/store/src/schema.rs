//! The tables, as a list of migrations.

use crate::error::Error;
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// SQLite's `application_id` of the records: "isol" in ASCII. Records without it are of an earlier
/// version, whatever the version of their schema is.
const APPLICATION_ID: i32 = 0x6973_6f6c;

/// Step `n` migrates schema version `n` to `n + 1`.
const STEPS: &[&str] = &["
    CREATE TABLE sandboxes (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, slot INTEGER NOT NULL UNIQUE,
        state TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (tenant, id)
    ) STRICT;
    CREATE TABLE sessions (
        sandbox TEXT NOT NULL REFERENCES sandboxes (name) ON DELETE CASCADE,
        id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (sandbox, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE answers (
        tenant TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, answer TEXT NOT NULL,
        expires_ms INTEGER NOT NULL, PRIMARY KEY (tenant, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX answers_expire ON answers (expires_ms);
    CREATE TABLE answer_totals (
        tenant TEXT PRIMARY KEY, count INTEGER NOT NULL, bytes INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER answer_added AFTER INSERT ON answers BEGIN
        INSERT INTO answer_totals VALUES (NEW.tenant, 1, length(CAST(NEW.answer AS BLOB)))
            ON CONFLICT (tenant) DO UPDATE SET count = count + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER answer_deleted AFTER DELETE ON answers BEGIN
        UPDATE answer_totals
            SET count = count - 1, bytes = bytes - length(CAST(OLD.answer AS BLOB))
            WHERE tenant = OLD.tenant;
        DELETE FROM answer_totals WHERE tenant = OLD.tenant AND count <= 0;
    END;
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, tenant TEXT NOT NULL, label TEXT NOT NULL,
        read_only INTEGER NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER,
        revoked_ms INTEGER, used_ms INTEGER, changed INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX keys_changed ON keys (changed);
    CREATE INDEX keys_of ON keys (tenant);
    CREATE TABLE ended (
        n INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX ended_of ON ended (tenant, n);
    CREATE TABLE totals (
        tenant TEXT PRIMARY KEY, count INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
        memory_mib_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE profiles (
        tenant TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE snapshots (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,
        UNIQUE (tenant, id)
    ) STRICT;
    CREATE TABLE ownership (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, suspended INTEGER NOT NULL,
        view TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE webhooks (
        tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE webhook_progress (
        tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE snapshot_numbers (
        sandbox TEXT PRIMARY KEY REFERENCES sandboxes (name) ON DELETE CASCADE,
        number INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
"];

/// The number of the next change of a key, in a statement that adds or revokes one. Readers read only the
/// keys whose `changed` is higher than what they know.
pub(crate) const NEXT_CHANGE: &str = "(SELECT coalesce(max(changed), 0) + 1 FROM keys)";

/// The size to which SQLite cuts its log once everything in the log is in the file, in bytes. A busy log
/// is a few MiB long.
const LOG_BYTES_MAX: i64 = 16 << 20;

/// How long one process waits for another's write: the server's, or that of `isolet keys`.
const BUSY: Duration = Duration::from_secs(5);

/// Opens the file, creates it with mode 0600 if it is missing, and migrates it to the latest schema.
pub(crate) fn open(file: &Path) -> Result<Connection, Error> {
    if fs::metadata(file).map_or(true, |about| about.len() == 0) {
        refuse_lost(file)?;
    }
    // Created here, because SQLite would make it readable to other users. Its log inherits the mode.
    let made = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    made.map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull => Error::Full,
        _ => Error::Sqlite(format!("{}: {error}", file.display())),
    })?;
    let mut connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    if check_version(&connection, file)? == 0 {
        refuse_lost(file)?;
        // Counts only before anything is in the file, which can then give free pages back in small steps.
        // Later it would be written again, which a full disk refuses.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    migrate(&mut connection, file, STEPS)?;
    Ok(connection)
}

/// Opens another connection to a file that [`open`] has opened, which cannot write.
pub(crate) fn open_to_read(file: &Path) -> Result<Connection, Error> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Refuses an empty file if there are directories of sandboxes, which must have had records.
fn refuse_lost(file: &Path) -> Result<(), Error> {
    let directory = file.with_file_name("sandboxes");
    let count = fs::read_dir(&directory).map_or(0, Iterator::count);
    match count {
        0 => Ok(()),
        count => Err(Error::Lost { file: file.to_owned(), directory, count }),
    }
}

/// Checks that the file is consistent, as far as SQLite can tell.
pub(crate) fn check(file: &Path) -> Result<(), Error> {
    let query = || -> rusqlite::Result<String> {
        let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(BUSY)?;
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    let said = query().unwrap_or_else(|error| error.to_string());
    if said == "ok" { Ok(()) } else { Err(Error::Torn { file: file.to_owned(), said }) }
}

/// Returns the schema version, which is 0 for an empty file. Refuses records of an earlier version
/// and a schema of a later version, before anything is written.
pub(crate) fn check_version(connection: &Connection, file: &Path) -> Result<usize, Error> {
    supported(connection, file, STEPS)
}

fn supported(connection: &Connection, file: &Path, steps: &[&str]) -> Result<usize, Error> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if id != APPLICATION_ID && (objects > 0 || found != 0) {
        return Err(Error::EarlierRecords { file: file.to_owned() });
    }
    let known = steps.len() as i64;
    match usize::try_from(found) {
        Ok(version) if found <= known => Ok(version),
        _ => Err(Error::Newer { file: file.to_owned(), found, known }),
    }
}

fn migrate(connection: &mut Connection, file: &Path, steps: &[&str]) -> Result<(), Error> {
    // An immediate transaction, so that two processes that open a new file migrate it in turn.
    let all = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version = supported(&all, file, steps)?;
    for step in &steps[version..] {
        all.execute_batch(step)?;
    }
    if version < steps.len() {
        all.pragma_update(None, "application_id", APPLICATION_ID)?;
        all.pragma_update(None, "user_version", steps.len() as i64)?;
    }
    Ok(all.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version that would follow this one.
    fn next_steps() -> Vec<&'static str> {
        [STEPS, &["ALTER TABLE totals ADD COLUMN invented TEXT NOT NULL DEFAULT 'x'"]].concat()
    }

    #[test]
    fn a_later_version_migrates_records_and_this_one_refuses_them_then() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let mut records = open(&file).unwrap();
        records.execute("INSERT INTO totals VALUES ('t', 1, 2, 3)", []).unwrap();
        let next = next_steps();
        migrate(&mut records, &file, &next).unwrap();
        migrate(&mut records, &file, &next).unwrap();
        let row = records.query_row("SELECT cpu_us, invented FROM totals", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        });
        assert_eq!(row.unwrap(), (2, "x".to_owned()));
        drop(records);
        let error = open(&file).unwrap_err();
        let known = STEPS.len() as i64;
        assert!(matches!(error, Error::Newer { found, .. } if found == known + 1), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("isolet.db has schema {}", known + 1)), "{text}");
    }

    #[test]
    fn records_without_the_application_id_are_of_an_earlier_version() {
        for (id, version) in [(0, 6), (0, 1), (0, 0), (7, 1)] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("isolet.db");
            let records = open(&file).unwrap();
            records.pragma_update(None, "application_id", id).unwrap();
            records.pragma_update(None, "user_version", version).unwrap();
            drop(records);
            let error = open(&file).unwrap_err();
            assert!(matches!(error, Error::EarlierRecords { .. }), "{id} {version}: {error}");
        }
    }
}
