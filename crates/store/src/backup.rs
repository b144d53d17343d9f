//! Copies of the records for a backup, and the changes that a backup makes in its copy.

use crate::error::Error;
use crate::schema;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, params};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a copy waits for writers of the original.
const WAIT: Duration = Duration::from_secs(30);
/// Pause between two attempts to copy.
const PAUSE: Duration = Duration::from_millis(20);
/// The member of a sandbox's body that holds its exposed ports with the secrets of their links.
const EXPOSED: &str = "exposed";
/// The member of the body that names layers of snapshots.
const LAYERS: &str = "layers";
/// Members of the body that name directories to which the server moves files.
const MOVES: [&str; 2] = ["restore", "superseded"];

/// The exposed ports of sandboxes, by the sandbox's name, as their records store them.
pub type LinkSecrets = BTreeMap<String, Value>;

/// What a backup needs to know about a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSummary {
    /// The server's name for it.
    pub name: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The client's name for it.
    pub id: String,
    /// Index of its uid range.
    pub slot: u32,
    /// The first id that its files have on disk; `u32::MAX` if the record has none.
    pub id_base: u32,
    /// Its state, as in the API.
    pub state: String,
    /// Whether its files survive a sleep.
    pub persistent: bool,
    /// The hosts for which it has credentials.
    pub credential_hosts: Vec<String>,
    /// The digest of its image, or `host`.
    pub image: String,
    /// Paths of the layers of its image below the image directory. A path that is no text is empty.
    pub layers: Vec<String>,
    /// The path of the first content of workspaces of its image below the image directory. One that is
    /// no text is empty.
    pub workspace: Option<String>,
    /// Names of directories from which or to which the server moves its files: after a restore in place,
    /// and when another node has taken it over. One that is no text is empty.
    pub moves: Vec<String>,
    /// The layers of snapshots that its files lie on, the top one first.
    pub snapshot_layers: Vec<SummaryLayer>,
    /// The number of its sessions.
    pub sessions: usize,
}

/// A layer of a snapshot, as a record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryLayer {
    /// The name of its directory; empty if it is no text.
    pub name: String,
    /// The first id that its files have on disk.
    pub id_base: u32,
}

/// What the records of a backup contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// All sandboxes.
    pub sandboxes: Vec<SandboxSummary>,
    /// The number of snapshots, which no backup contains.
    pub snapshots: u64,
}

/// A copy of the records that no server uses.
pub struct CopiedRecords {
    connection: Connection,
    file: PathBuf,
}

/// Reads all sandboxes of records that a server may be using. Blocks.
///
/// # Errors
/// [`Error`].
pub fn sandboxes(file: &Path) -> Result<Vec<SandboxSummary>, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(WAIT)?;
    summaries(&connection)
}

/// Reads the contents of a copy without changing it, and refuses one that is damaged or that a later
/// version wrote. Blocks.
///
/// # Errors
/// [`Error::Torn`], [`Error::Newer`], [`Error`].
pub fn inspect(file: &Path) -> Result<Contents, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let torn =
        |error: rusqlite::Error| Error::Torn { file: file.to_owned(), said: error.to_string() };
    let connection = Connection::open_with_flags(file, flags).map_err(torn)?;
    let said: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(torn)?;
    if said != "ok" {
        return Err(Error::Torn { file: file.to_owned(), said });
    }
    schema::check_version(&connection, file)?;
    contents(&connection)
}

fn contents(connection: &Connection) -> Result<Contents, Error> {
    let count: i64 =
        connection.query_row("SELECT count(*) FROM snapshots", [], |row| row.get(0))?;
    let snapshots = u64::try_from(count).unwrap_or(0);
    Ok(Contents { sandboxes: summaries(connection)?, snapshots })
}

fn summaries(connection: &Connection) -> Result<Vec<SandboxSummary>, Error> {
    let mut query = connection
        .prepare("SELECT name, tenant, id, slot, state, body, (SELECT count(*) FROM sessions WHERE sandbox = name) FROM sandboxes ORDER BY name")?;
    let rows = query.query_map([], |row| {
        let body: String = row.get(5)?;
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let hosts = body["credentials"].as_array().into_iter().flatten();
        let hosts = hosts.filter_map(|one| Some(one["host"].as_str()?.to_owned()));
        let layers = body["root"]["layers"].as_array().into_iter().flatten();
        let layers = layers.map(|layer| layer.as_str().unwrap_or_default().to_owned());
        let own = body[LAYERS].as_array().into_iter().flatten();
        let own = own.map(|layer| SummaryLayer {
            name: layer["name"].as_str().unwrap_or_default().to_owned(),
            id_base: id(&layer["id_base"]),
        });
        let snapshot_layers = own.collect();
        let named = |value: &Value| {
            let text = || value.as_str().unwrap_or_default().to_owned();
            (!value.is_null()).then(text)
        };
        let moves = MOVES.iter().filter_map(|member| named(&body[*member]));
        Ok(SandboxSummary {
            name: row.get(0)?,
            tenant: row.get(1)?,
            id: row.get(2)?,
            slot: row.get(3)?,
            id_base: id(&body["id_base"]),
            state: row.get(4)?,
            persistent: body["persistent"].as_bool().unwrap_or(true),
            credential_hosts: hosts.collect(),
            image: body["image_resolved"].as_str().unwrap_or("host").to_owned(),
            layers: layers.collect(),
            workspace: named(&body["root"]["workspace"]),
            moves: moves.collect(),
            snapshot_layers,
            sessions: usize::try_from(row.get::<_, i64>(6)?).unwrap_or(0),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A value that is no id is as invalid as the largest id, with which no range begins.
fn id(value: &Value) -> u32 {
    value.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX)
}

impl CopiedRecords {
    /// Copies one consistent state of the records to a new file, while servers may write. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn copy(from: &Path, to: &Path) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let source = Connection::open_with_flags(from, flags)?;
        source.busy_timeout(WAIT)?;
        // Created here, because SQLite would make it readable to other users.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
        made.map_err(|error| Error::io(to, &error))?;
        let mut connection = Connection::open(to)?;
        let until = Instant::now() + WAIT;
        {
            let backup = Backup::new(&source, &mut connection)?;
            // All pages in one step: readers of a write-ahead log do not stop its writers.
            while backup.step(-1)? != StepResult::Done {
                if Instant::now() >= until {
                    return Err(Error::Bad("the records are locked by another process"));
                }
                std::thread::sleep(PAUSE);
            }
        }
        Self::prepare(connection, to)
    }

    /// Opens a copy, and refuses one that is damaged or that a later version wrote. Blocks.
    ///
    /// # Errors
    /// [`Error::Torn`], [`Error::Newer`], [`Error`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        schema::check(file)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags)?;
        schema::check_version(&connection, file)?;
        Self::prepare(connection, file)
    }

    fn prepare(connection: Connection, file: &Path) -> Result<Self, Error> {
        // One file without a log, whose free pages hold nothing that was removed.
        connection.pragma_update(None, "journal_mode", "DELETE")?;
        connection.pragma_update(None, "secure_delete", true)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(Self { connection, file: file.to_owned() })
    }

    /// Everything in this copy.
    ///
    /// # Errors
    /// [`Error`].
    pub fn contents(&self) -> Result<Contents, Error> {
        contents(&self.connection)
    }

    /// All sandboxes in this copy.
    ///
    /// # Errors
    /// [`Error`].
    pub fn sandboxes(&self) -> Result<Vec<SandboxSummary>, Error> {
        summaries(&self.connection)
    }

    /// Removes all sandboxes but the named ones, with their sessions, and all snapshots.
    ///
    /// # Errors
    /// [`Error`].
    pub fn retain(&self, names: &HashSet<String>) -> Result<(), Error> {
        for sandbox in self.sandboxes()?.iter().filter(|one| !names.contains(&one.name)) {
            self.connection.execute("DELETE FROM sandboxes WHERE name = ?1", [&sandbox.name])?;
        }
        // A backup does not contain the files of snapshots.
        self.connection.execute("DELETE FROM snapshots", [])?;
        Ok(())
    }

    /// Removes the exposed ports with the secrets of their links, and returns them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn take_link_secrets(&self) -> Result<LinkSecrets, Error> {
        let mut taken = LinkSecrets::new();
        change_bodies(&self.connection, |name, body| {
            let exposed = body.get(EXPOSED).and_then(Value::as_object);
            if exposed.is_none_or(Map::is_empty) {
                return false;
            }
            let was = body.insert(EXPOSED.to_owned(), Value::Object(Map::new()));
            taken.extend(was.map(|was| (name.to_owned(), was)));
            true
        })?;
        Ok(taken)
    }

    /// Lets sandboxes name the layers of snapshots that they had at an earlier moment. Those of other
    /// sandboxes stay.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put_snapshot_layers(
        &self,
        layers: &HashMap<String, Vec<SummaryLayer>>,
    ) -> Result<(), Error> {
        change_bodies(&self.connection, |name, body| {
            let Some(layers) = layers.get(name) else { return false };
            let json = |layer: &SummaryLayer| serde_json::json!({"name": layer.name, "id_base": layer.id_base});
            let was = match layers.is_empty() {
                true => body.remove(LAYERS),
                false => {
                    let layers: Vec<_> = layers.iter().map(json).collect();
                    body.insert(LAYERS.to_owned(), layers.into())
                }
            };
            was != body.get(LAYERS).cloned()
        })
    }

    /// Puts the exposed ports back that [`CopiedRecords::take_link_secrets`] removed.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put_link_secrets(&self, secrets: &LinkSecrets) -> Result<(), Error> {
        change_bodies(&self.connection, |name, body| match secrets.get(name) {
            Some(exposed) => {
                body.insert(EXPOSED.to_owned(), exposed.clone());
                true
            }
            None => false,
        })
    }

    /// Removes the traces of removed rows from the file, and closes it. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn finish(self) -> Result<(), Error> {
        self.connection.execute_batch("VACUUM")?;
        drop(self.connection);
        let file =
            std::fs::File::open(&self.file).map_err(|error| Error::io(&self.file, &error))?;
        file.sync_all().map_err(|error| Error::io(&self.file, &error))
    }
}

/// Gives exposed ports of the wanted sandboxes other secrets, which invalidates their links, while no
/// server runs. Returns the number of ports. Blocks.
///
/// # Errors
/// [`Error`].
pub fn rotate_links(file: &Path, wanted: impl Fn(&SandboxSummary) -> bool) -> Result<u64, Error> {
    let connection = schema::open(file)?;
    let all = summaries(&connection)?;
    let wanted: HashSet<&str> =
        all.iter().filter(|one| wanted(one)).map(|one| one.name.as_str()).collect();
    let mut count = 0;
    let transaction = connection.unchecked_transaction()?;
    change_bodies(&transaction, |name, body| {
        let exposed = body.get_mut(EXPOSED).and_then(Value::as_object_mut);
        let Some(exposed) = exposed.filter(|_| wanted.contains(name)) else { return false };
        for port in exposed.values_mut().filter_map(Value::as_object_mut) {
            port.insert("secret".to_owned(), random_secret().into());
            port.remove("tokens");
            count += 1;
        }
        true
    })?;
    transaction.commit()?;
    Ok(count)
}

fn change_bodies(
    connection: &Connection,
    mut change: impl FnMut(&str, &mut Map<String, Value>) -> bool,
) -> Result<(), Error> {
    let mut query = connection.prepare("SELECT name, body FROM sandboxes")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
    for (name, text) in rows {
        // A record that cannot be parsed stays as it is: the server reports it.
        let Ok(Value::Object(mut body)) = serde_json::from_str(&text) else { continue };
        if change(&name, &mut body) {
            let text = Value::Object(body).to_string();
            let update = "UPDATE sandboxes SET body = ?2 WHERE name = ?1";
            connection.execute(update, params![name, text])?;
        }
    }
    Ok(())
}

/// A secret of 256 random bits in hexadecimal.
fn random_secret() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("random bytes");
    hex::encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(folder: &Path) -> PathBuf {
        let file = folder.join("isolet.db");
        let connection = schema::open(&file).unwrap();
        for (slot, name) in [(0_u32, "a"), (1, "b")] {
            let body = serde_json::json!({
                "v": 1, "id_base": 0, "persistent": slot == 0, "image_resolved": "host",
                "credentials": [{"host": "api.example"}],
                "exposed": {"80": {
                    "secret": format!("hush-{name}"), "name": null, "created_at_ms": 1,
                    "tokens": [{"digest": format!("hush-digest-{name}"), "key": null, "expires_s": 9}],
                }},
            });
            let insert = "INSERT INTO sandboxes VALUES (?1, 't', ?1, ?2, 'running', ?3)";
            connection.execute(insert, params![name, slot, body.to_string()]).unwrap();
            let insert = "INSERT INTO sessions VALUES (?1, 's', '{}')";
            connection.execute(insert, [name]).unwrap();
        }
        file
    }

    #[test]
    fn a_copy_without_secrets_contains_none_of_them_and_takes_them_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = records(folder.path());
        let to = folder.path().join("copy.db");
        let copy = CopiedRecords::copy(&file, &to).unwrap();
        let secrets = copy.take_link_secrets().unwrap();
        assert_eq!(secrets["a"]["80"]["secret"], "hush-a");
        copy.retain(&HashSet::from(["a".to_owned()])).unwrap();
        copy.finish().unwrap();
        let bytes = std::fs::read(&to).unwrap();
        assert!(!bytes.windows(5).any(|part| part == b"hush-"), "a secret is left in the file");
        let back = CopiedRecords::open(&to).unwrap();
        let all = back.sandboxes().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].id.as_str(), all[0].persistent, all[0].sessions), ("a", true, 1));
        assert_eq!(all[0].credential_hosts, ["api.example"]);
        assert_eq!(inspect(&to).unwrap(), Contents { sandboxes: all, snapshots: 0 });
        back.put_link_secrets(&secrets).unwrap();
        assert_eq!(back.take_link_secrets().unwrap()["a"], secrets["a"]);
        assert_eq!(sandboxes(&file).unwrap().len(), 2, "the original is unchanged");
    }

    #[test]
    fn rotated_links_have_other_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = records(folder.path());
        assert_eq!(rotate_links(&file, |one| one.name == "b").unwrap(), 1);
        let records = CopiedRecords::open(&file).unwrap();
        let secrets = records.take_link_secrets().unwrap();
        assert_eq!(secrets["a"]["80"]["secret"], "hush-a");
        assert_ne!(secrets["b"]["80"]["secret"], "hush-b");
        assert!(secrets["a"]["80"].get("tokens").is_some());
        assert_eq!(secrets["b"]["80"].get("tokens"), None);
    }

    #[test]
    fn damaged_and_newer_records_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = records(folder.path());
        let newer = Connection::open(&file).unwrap();
        newer.pragma_update(None, "user_version", 999).unwrap();
        drop(newer);
        assert!(matches!(CopiedRecords::open(&file), Err(Error::Newer { .. })));
        std::fs::write(folder.path().join("x.db"), vec![7u8; 8192]).unwrap();
        let torn = CopiedRecords::open(&folder.path().join("x.db"));
        assert!(matches!(torn, Err(Error::Torn { .. })));
    }
}
