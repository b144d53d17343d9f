//! The sessions of an image: with their settings and the saved states of their shells, as one JSON
//! text. It may come from an archive that another server or a client made, so that everything in it is checked as
//! if a client had sent it. Only the bash inside a sandbox evaluates the states.

use crate::model::ids::SessionId;
use crate::model::info::{SESSIONS_MAX, SessionSpec};
use crate::model::input::{Environment, Metadata, WorkingDirectory};
use crate::model::sessions::{Session, WORKSPACE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isolet_wire::response::STATE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The version of the format.
const VERSION: u32 = 1;
/// Maximum timeout of commands, in ms: a day, as for the sessions of clients.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// The sessions that a new sandbox gets from its image.
#[derive(Debug, Default)]
pub(crate) struct ImageSessions {
    /// Ids and records.
    pub(crate) records: Vec<(SessionId, String)>,
    /// The saved states of shells, of some of the sessions.
    pub(crate) states: Vec<(SessionId, Vec<u8>)>,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    v: u32,
    sessions: Vec<DocumentSession>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentSession {
    id: SessionId,
    record: Session,
    /// Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

impl ImageSessions {
    /// Writes sessions, given with their records and states.
    ///
    /// # Errors
    /// What is wrong with a record.
    pub(crate) fn write(
        sessions: Vec<(SessionId, &str, Option<Vec<u8>>)>,
    ) -> Result<Vec<u8>, String> {
        let session = |(id, record, state): (SessionId, &str, Option<Vec<u8>>)| {
            let record = serde_json::from_str(record)
                .map_err(|error| format!("the record of session {id}: {error}"))?;
            Ok(DocumentSession { id, record, state: state.map(|state| STANDARD.encode(state)) })
        };
        let sessions = sessions.into_iter().map(session).collect::<Result<_, String>>()?;
        let document = Document { v: VERSION, sessions };
        serde_json::to_vec(&document).map_err(|error| error.to_string())
    }

    /// Reads and checks sessions. They count as created now.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let Version { v } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if v != VERSION {
            return Err(format!("their format has version {v}, and this server knows {VERSION}"));
        }
        let document: Document = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let mut seen = BTreeSet::from([SessionId::default_session()]);
        seen.extend(document.sessions.iter().map(|session| session.id.clone()));
        if seen.len() > SESSIONS_MAX {
            return Err(format!("more than {SESSIONS_MAX} sessions"));
        }
        let mut all = Self::default();
        let mut ids = BTreeSet::new();
        for DocumentSession { id, record, state } in document.sessions {
            let wrong = |reason: String| format!("session {id}: {reason}");
            if !ids.insert(id.clone()) {
                return Err(wrong("is listed twice".to_owned()));
            }
            let session = checked(record).map_err(wrong)?;
            all.records
                .push((id.clone(), session.json().map_err(|error| wrong(error.to_string()))?));
            let Some(state) = state else { continue };
            let state = STANDARD.decode(state).map_err(|error| wrong(error.to_string()))?;
            if state.len() > STATE_BYTES_MAX {
                return Err(wrong(format!("a state of more than {STATE_BYTES_MAX} bytes")));
            }
            all.states.push((id, state));
        }
        Ok(all)
    }
}

/// The session that a client would get who requests these settings.
fn checked(record: Session) -> Result<Session, String> {
    if record.life.is_some() {
        return Err("has a lifetime".to_owned());
    }
    if record.command_timeout_ms > TIMEOUT_MS_MAX {
        return Err(format!("command_timeout_ms is more than {TIMEOUT_MS_MAX}"));
    }
    if let Some(access) = &record.file_access {
        access.check().map_err(|error| error.to_string())?;
    }
    let input = |error: crate::model::input::BadInput| error.to_string();
    let spec = SessionSpec {
        id: None,
        cwd: Some(WorkingDirectory::parse(record.cwd).map_err(input)?),
        env: Environment::parse(record.env).map_err(input)?,
        command_timeout_ms: Some(record.command_timeout_ms),
        metadata: Metadata::parse(record.metadata).map_err(input)?,
        life: None,
        file_access: record.file_access,
    };
    Session::plan(spec, WORKSPACE.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record(change: &Value) -> Value {
        let mut record = json!({
            "cwd": "/tmp", "env": {}, "command_timeout_ms": 0, "metadata": {},
            "created_at_ms": 1, "last_activity_ms": 1,
        });
        for (name, value) in change.as_object().unwrap() {
            record[name] = value.clone();
        }
        record
    }

    fn read(sessions: &Value) -> Result<ImageSessions, String> {
        ImageSessions::read(json!({"v": 1, "sessions": sessions}).to_string().as_bytes())
    }

    /// Promises: TP6.
    #[test]
    fn sessions_are_read_as_they_were_written() {
        let id = |text: &str| SessionId::parse(text).unwrap();
        let scoped = record(&json!({"file_access": {"read": [], "write": ["mine"]}})).to_string();
        let plain = record(&json!({"env": {"A": "b"}})).to_string();
        let bytes = vec![0, 255, b'x'];
        let text = ImageSessions::write(vec![
            (id("a"), &plain, Some(bytes.clone())),
            (id("b"), &scoped, None),
        ]);
        let found = ImageSessions::read(&text.unwrap()).unwrap();
        assert_eq!(found.states, [(id("a"), bytes)]);
        let session = |n: usize| serde_json::from_str::<Session>(&found.records[n].1).unwrap();
        assert_eq!((session(0).cwd.as_str(), &*session(0).env["A"]), ("/tmp", "b"));
        assert!(session(0).created_at_ms > 1, "it was created with the sandbox");
        assert_eq!(session(1).file_access.unwrap().write, ["mine"]);
    }

    /// Promises: TP6.
    #[test]
    fn what_no_client_could_request_is_refused() {
        let one = |change: Value| json!([{"id": "a", "record": record(&change)}]);
        let many: Vec<Value> = (0..SESSIONS_MAX)
            .map(|n| json!({"id": format!("s{n}"), "record": record(&json!({}))}))
            .collect();
        let state = STANDARD.encode(vec![b'x'; STATE_BYTES_MAX + 1]);
        let plain = record(&json!({}));
        for (sessions, word) in [
            (json!([{"id": "../a", "record": plain}]), "session"),
            (json!([{"id": "a", "record": plain}, {"id": "a", "record": plain}]), "twice"),
            (one(json!({"cwd": ""})), "cwd"),
            (one(json!({"env": {"A=": "b"}})), "env"),
            (one(json!({"metadata": {"a": "x".repeat(20_000)}})), "metadata"),
            (one(json!({"command_timeout_ms": 86_400_001_u64})), "command_timeout_ms"),
            (one(json!({"life": {"ttl_s": 1, "ends_idle": true, "across": false}})), "lifetime"),
            (one(json!({"file_access": {"write": ["../a"]}})), "file_access"),
            (json!([{"id": "a", "record": plain, "state": "*"}]), "session a"),
            (json!([{"id": "a", "record": plain, "state": state}]), "bytes"),
            (json!([{"id": "a", "record": plain, "other": 1}]), "other"),
            (json!(many), "1024"),
        ] {
            let error = read(&sessions).unwrap_err();
            assert!(error.contains(word), "{word}: {error}");
        }
        let later = ImageSessions::read(br#"{"v":2,"anything":[]}"#).unwrap_err();
        assert!(later.contains("version 2"), "{later}");
        assert!(ImageSessions::read(b"").is_err() && ImageSessions::read(b"{}").is_err());
        assert!(read(&json!([{"id": "default", "record": plain}])).is_ok());
    }
}
