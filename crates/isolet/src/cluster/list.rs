//! `isolet cluster ls`.

use crate::client::list::pretty;
use crate::client::output::write;
use crate::cluster::now_s;
use anyhow::Result;
use isolet_clock::rfc3339;
use isolet_peer::certificates::{AuthorityRecord, AuthorityState, CertificateState, Index};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(directory: &Path, json: bool) -> Result<ExitCode> {
    let index = Index::read(directory)?;
    let now_s = now_s();
    if json {
        let certificates: Vec<Value> = index
            .certificates()
            .iter()
            .map(|record| {
                json!({
                    "serial": record.serial, "node": record.node, "authority": record.authority,
                    "state": index.state(record, now_s), "issued_at_s": record.issued_at_s,
                    "expires_at_s": record.expires_at_s, "revoked_at_s": record.revoked_at_s,
                })
            })
            .collect();
        let authorities: Vec<Value> = index.authorities().iter().map(authority).collect();
        return pretty(&json!({"authorities": authorities, "certificates": certificates}));
    }
    let mut lines = format!("{:<4} {:<9} {:<21} AUTHORITY\n", "CA", "STATE", "EXPIRES");
    for AuthorityRecord { id, name, state, expires_at_s, .. } in index.authorities() {
        let state = match state {
            AuthorityState::Incoming => "incoming",
            AuthorityState::Issuing => "issuing",
            AuthorityState::Outgoing => "outgoing",
        };
        lines.push_str(&format!("{id:<4} {state:<9} {:<21} {name}\n", moment(*expires_at_s)));
    }
    lines.push_str(&format!(
        "\n{:<32} {:<4} {:<9} {:<21} NODE\n",
        "SERIAL", "CA", "STATE", "EXPIRES"
    ));
    for record in index.certificates() {
        let state = match index.state(record, now_s) {
            CertificateState::Valid => "valid",
            CertificateState::Replaced => "replaced",
            CertificateState::Expired => "expired",
            CertificateState::Revoked => "revoked",
        };
        let serial = record.serial.to_string();
        let expires = moment(record.expires_at_s);
        let authority = record.authority;
        let node = &record.node;
        lines.push_str(&format!("{serial:<32} {authority:<4} {state:<9} {expires:<21} {node}\n"));
    }
    write(true, lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// An authority as JSON, without its certificate.
pub(super) fn authority(record: &AuthorityRecord) -> Value {
    json!({
        "id": record.id, "name": record.name, "state": record.state,
        "expires_at_s": record.expires_at_s,
    })
}

/// Seconds since 1970 as text, in UTC.
pub(super) fn moment(seconds: i64) -> String {
    rfc3339(seconds.saturating_mul(1000)).replace(".000Z", "Z")
}
