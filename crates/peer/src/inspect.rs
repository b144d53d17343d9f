//! Checks the files of a node, for `isolet doctor`.

use crate::files::{self, EXPIRY_WARNING_S, PeerFiles};
use crate::parsed::Anchor;
use crate::tls::{self, Identity, LoadError};
use isolet_clock::rfc3339;
use isolet_wire::node::NodeName;
use std::os::unix::fs::MetadataExt;

/// How long before its end a CA is a warning, in seconds: its rotation takes time.
const AUTHORITY_WARNING_S: i64 = 180 * 86_400;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Ok,
    /// It works, and will not for ever.
    Warning,
    /// Other nodes refuse this one, or it refuses them.
    Failure,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub message: String,
    /// What the operator can do.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, message: String) -> Self {
        Self { name, verdict: Verdict::Ok, message, remedy: None }
    }

    fn bad(name: &'static str, verdict: Verdict, message: String, remedy: String) -> Self {
        Self { name, verdict, message, remedy: Some(remedy) }
    }
}

/// Checks the files of a node: whether they belong together, who may read the key, whether other
/// nodes accept the certificate, until when, and the age of the revocation lists. `node` is the
/// configured name. Blocks.
#[must_use]
pub fn inspect(files: &PeerFiles, node: Option<&NodeName>, now_s: i64) -> Vec<Check> {
    let mut checks = vec![key_file(files)];
    let identity = match Identity::load(files, &[]) {
        Ok(identity) => identity,
        Err(error) => {
            let remedy = remedy_of(&error);
            checks.push(Check::bad("files", Verdict::Failure, error.to_string(), remedy));
            return checks;
        }
    };
    checks.push(certificate(&identity, files, node));
    checks.push(expiry(&identity, now_s));
    checks.extend(identity.anchors.iter().map(|anchor| authority(anchor, now_s)));
    checks.extend(lists(&identity, files, now_s));
    checks
}

fn remedy_of(error: &LoadError) -> String {
    match error {
        LoadError::NoList { .. } => "copy ca.pem and revoked.pem of the CA to this node".to_owned(),
        LoadError::File { .. } | LoadError::Expired(_) => {
            "copy the files that `isolet cluster issue` wrote to this node".to_owned()
        }
        _ => "issue a certificate to this node: isolet cluster issue NODE".to_owned(),
    }
}

fn key_file(files: &PeerFiles) -> Check {
    let name = "key";
    let shown = files.key.display();
    match std::fs::metadata(&files.key) {
        Err(error) => Check::bad(
            name,
            Verdict::Failure,
            format!("{shown}: {error}"),
            "copy the files that `isolet cluster issue` wrote to this node".to_owned(),
        ),
        Ok(about) if about.mode() & 0o077 != 0 => Check::bad(
            name,
            Verdict::Failure,
            format!("other users may read {shown} (mode {:04o})", about.mode() & 0o7777),
            format!("chmod 600 {shown}; revoke the certificate if others had access"),
        ),
        Ok(_) => Check::ok(name, format!("{shown}, readable by its owner only")),
    }
}

fn certificate(identity: &Identity, files: &PeerFiles, node: Option<&NodeName>) -> Check {
    let name = "certificate";
    let own = &identity.own;
    let shown = files.certificate.display();
    let again = format!("isolet cluster issue {}", node.unwrap_or(&own.node));
    if let Some(node) = node.filter(|node| **node != own.node) {
        let message = format!("{shown} is that of {}; this node is {node}", own.node);
        return Check::bad(name, Verdict::Failure, message, again);
    }
    match identity.verify_own() {
        Ok(()) => {
            Check::ok(name, format!("{shown}, of {}, serial number {}", own.node, own.serial))
        }
        Err(reason) => {
            let message = format!("other nodes refuse {shown}: {reason}");
            Check::bad(name, Verdict::Failure, message, again)
        }
    }
}

fn expiry(identity: &Identity, now_s: i64) -> Check {
    let name = "expiry";
    let own = &identity.own;
    let date = rfc3339(own.expires_at_s.saturating_mul(1000));
    let renew =
        format!("isolet cluster renew {}; the server reads new files without a restart", own.node);
    let left_s = own.expires_at_s.saturating_sub(now_s);
    if left_s <= 0 {
        Check::bad(name, Verdict::Failure, format!("expired at {date}"), renew)
    } else if left_s < EXPIRY_WARNING_S {
        Check::bad(name, Verdict::Warning, format!("expires at {date}"), renew)
    } else {
        Check::ok(name, format!("valid until {date}"))
    }
}

fn authority(anchor: &Anchor, now_s: i64) -> Check {
    let name = "authority";
    let date = rfc3339(anchor.expires_at_s.saturating_mul(1000));
    let message = format!("{}, valid until {date}", anchor.name);
    if anchor.expires_at_s - now_s < AUTHORITY_WARNING_S {
        let remedy = "isolet cluster rotate-ca start".to_owned();
        return Check::bad(name, Verdict::Warning, message, remedy);
    }
    Check::ok(name, message)
}

fn lists(identity: &Identity, files: &PeerFiles, now_s: i64) -> Vec<Check> {
    let name = "revocation list";
    let lists = files::read(&files.revoked).ok();
    let lists = lists.and_then(|text| tls::lists_by_authority(&identity.anchors, &text).ok());
    let check = |list: crate::parsed::RevocationList| {
        let found = format!("number {}, {} revoked", list.number, list.count);
        match list.next_update_s {
            Some(next) if next < now_s => Check::bad(
                name,
                Verdict::Warning,
                format!("{found}; a newer one was due at {}", rfc3339(next.saturating_mul(1000))),
                "isolet cluster renew; then copy revoked.pem to every node".to_owned(),
            ),
            _ => Check::ok(name, found),
        }
    };
    lists.unwrap_or_default().into_iter().map(check).collect()
}
