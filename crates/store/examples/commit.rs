//! What one commit costs with each setting of `synchronous`: `cargo run --release --example commit [dir]`.

use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    for mode in ["NORMAL", "FULL"] {
        let file = dir.join(format!("isolet-commit-{}-{mode}.db", std::process::id()));
        let db = rusqlite::Connection::open(&file)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", mode)?;
        db.execute_batch("CREATE TABLE t (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT")?;
        let mut micros = Vec::new();
        for n in 0..2000 {
            let start = Instant::now();
            db.prepare_cached("INSERT INTO t VALUES (?1, ?2)")?
                .execute([format!("{n}"), "x".repeat(600)])?;
            micros.push(start.elapsed().as_micros());
        }
        micros.sort_unstable();
        println!("{mode}: p50 {} us, p99 {} us", micros[1000], micros[1980]);
        drop(db);
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", file.display()));
        }
    }
    Ok(())
}
