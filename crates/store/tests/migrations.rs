//! Records of every schema since the baseline, as `schemas/<version>.sql`, migrate to the latest
//! schema without a change of what they contain.
//!
//! A new step in `schema.rs` needs a dump of the schema before it as `schemas/<version>.sql`: records
//! with at least one row in each table, from `sqlite3 isolet.db .dump`, followed by
//! `PRAGMA user_version = <version>;`.

use isolet_store::Store;
use rusqlite::Connection;
use rusqlite::types::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The schema of the commit that `tests/baseline/commit` names.
const BASELINE: i64 = 2;

/// Columns and rows of each table.
type Tables = BTreeMap<String, (Vec<String>, Vec<Vec<Value>>)>;

fn dump_file(version: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/schemas/{version}.sql"))
}

fn user_version(connection: &Connection) -> i64 {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn texts(connection: &Connection, query: &str) -> Vec<String> {
    let mut statement = connection.prepare(query).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The definitions of tables and indexes, without differences of white space.
fn definitions(connection: &Connection) -> Vec<String> {
    let all = texts(connection, "SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name");
    let words = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    all.iter().map(words).collect()
}

/// The content of the tables. Columns that `of` does not have are left out.
fn content(connection: &Connection, of: Option<&Tables>) -> Tables {
    let query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'";
    let mut tables = Tables::new();
    for table in texts(connection, query) {
        let info = format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid");
        let mut columns = texts(connection, &info);
        match of.map(|of| of.get(&table)) {
            Some(None) => continue,
            Some(Some((old, _))) => columns.retain(|column| old.contains(column)),
            None => {}
        }
        let list = columns.join(", ");
        let query = format!("SELECT {list} FROM {table} ORDER BY {list}");
        let mut statement = connection.prepare(&query).unwrap();
        let row = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|at| row.get(at)).collect();
        let rows = statement.query_map([], row).unwrap().map(Result::unwrap).collect();
        tables.insert(table, (columns, rows));
    }
    tables
}

#[tokio::test]
async fn records_of_every_schema_since_the_baseline_migrate_without_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = folder.path().join("fresh.db");
    drop(Store::open(&fresh).unwrap());
    let fresh = Connection::open(&fresh).unwrap();
    let latest = user_version(&fresh);
    assert!(latest >= BASELINE);
    for version in BASELINE..=latest {
        let dump = dump_file(version);
        let sql = fs::read_to_string(&dump);
        let sql = sql.unwrap_or_else(|error| panic!("{}: {error}; add it", dump.display()));
        let file = folder.path().join(format!("{version}.db"));
        let old = Connection::open(&file).unwrap();
        old.execute_batch(&sql).unwrap();
        assert_eq!(user_version(&old), version, "{}", dump.display());
        let before = content(&old, None);
        for (table, (_, rows)) in &before {
            assert!(!rows.is_empty(), "{}: {table} has no row", dump.display());
        }
        drop(old);
        let store = Store::open(&file).unwrap();
        let (sandboxes, bad) = store.sandboxes().await.unwrap();
        assert_eq!((sandboxes.len(), bad.len()), (before["sandboxes"].1.len(), 0));
        drop(store);
        let new = Connection::open(&file).unwrap();
        assert_eq!(user_version(&new), latest, "schema {version}");
        assert_eq!(definitions(&new), definitions(&fresh), "schema {version}");
        assert_eq!(content(&new, Some(&before)), before, "schema {version}");
        assert_eq!(texts(&new, "PRAGMA integrity_check"), ["ok"]);
        let orphans = "SELECT count(*) FROM pragma_foreign_key_check";
        let orphans: i64 = new.query_row(orphans, [], |row| row.get(0)).unwrap();
        assert_eq!(orphans, 0, "schema {version}");
    }
    assert!(
        !dump_file(latest + 1).try_exists().expect("its folder"),
        "no server writes schema {}",
        latest + 1
    );
}
