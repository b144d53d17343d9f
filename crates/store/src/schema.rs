//! The tables, as a list of migrations.

use crate::error::{Error, this_version};
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Step `n` migrates schema version `n` to `n + 1`. A released step is never edited.
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
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, tenant TEXT NOT NULL, label TEXT NOT NULL,
        read_only INTEGER NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER, revoked_ms INTEGER
    ) STRICT;
", "
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
", "
    ALTER TABLE keys ADD COLUMN used_ms INTEGER;
", "
    CREATE TABLE snapshots (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,
        UNIQUE (tenant, id)
    ) STRICT;
", "
    CREATE TABLE ownership (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, suspended INTEGER NOT NULL,
        view TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
", "
    CREATE TABLE webhooks (
        tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE webhook_progress (
        tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
"];

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
    if refuse_newer(&connection, file)? == 0 {
        refuse_lost(file)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    migrate(&mut connection, file)?;
    sign(file);
    Ok(connection)
}

/// The file beside the records that names the last version that opened them, for the error of an
/// earlier version.
const WRITER: &str = "version";
/// The longest name of a version that is repeated in an error, in characters.
const WRITER_CHARS_MAX: usize = 60;

/// The version that wrote these records.
fn writer(file: &Path) -> String {
    let text = fs::read_to_string(file.with_file_name(WRITER)).unwrap_or_default();
    let plain = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let line: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(plain)
        .take(WRITER_CHARS_MAX)
        .collect();
    if line.is_empty() { "a later version of isolet".to_owned() } else { line }
}

/// Names this version as the last one that opened the records. A failure changes only the words of a
/// later error, so it is no error.
fn sign(file: &Path) {
    let path = file.with_file_name(WRITER);
    let line = format!("{}\n", this_version());
    if fs::read_to_string(&path).is_ok_and(|text| text == line) {
        return;
    }
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path);
    let _ = open.and_then(|mut to| to.write_all(line.as_bytes()));
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

/// Returns the schema version, and refuses one of a later release before anything is written.
pub(crate) fn refuse_newer(connection: &Connection, file: &Path) -> Result<usize, Error> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = STEPS.len() as i64;
    match usize::try_from(found) {
        Ok(version) if found <= known => Ok(version),
        _ => Err(Error::Newer { file: file.to_owned(), writer: writer(file), found, known }),
    }
}

fn migrate(connection: &mut Connection, file: &Path) -> Result<(), Error> {
    // An immediate transaction, so that two processes that open a new file migrate it in turn.
    let all = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version = refuse_newer(&all, file)?;
    for step in &STEPS[version..] {
        all.execute_batch(step)?;
    }
    if version < STEPS.len() {
        all.pragma_update(None, "user_version", STEPS.len() as i64)?;
    }
    Ok(all.commit()?)
}
