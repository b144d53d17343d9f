//! The values in etcd: JSON with a version.
//!
//! A later version may add fields, which this one keeps when it writes a value again.

use isolet_sandbox::TenantId;
use isolet_sandbox::profiles::Profile;
use isolet_store::KeyDigest;
use isolet_store::keys::KeyRecord;
use isolet_store::keys::LABEL_BYTES_MAX;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

/// Maximum size of the value of an API key, in bytes: a label whose characters are all escaped.
pub(super) const KEY_BYTES_MAX: usize = 4 * 1024;
/// Maximum size of the value of a network profile, in bytes: 512 rules of 260 bytes, and the
/// description.
pub(super) const PROFILE_BYTES_MAX: usize = 160 * 1024;
/// Maximum size of the value of a webhook, in bytes: a URL, 32 patterns, and a label whose characters
/// are all escaped.
pub(super) const WEBHOOK_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of the id of an API key, in bytes.
const KEY_ID_BYTES_MAX: usize = 64;
/// The version of the values. Values of a later one are skipped, except for revocations.
const VERSION: u8 = 1;

/// Why a value is skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadValue {
    /// A later version wrote it.
    #[error("version {0} is newer than this program knows; upgrade this node")]
    Version(u8),
    /// It is not what its key says. Names no part of the value, which may contain a digest.
    #[error("it is not {0}")]
    Malformed(&'static str),
}

/// An API key in etcd. Its id is in the name of the key.
#[derive(Serialize, Deserialize)]
struct KeyValue {
    v: u8,
    /// SHA-256 of the secret, in hexadecimal digits.
    digest: String,
    tenant: String,
    label: String,
    read_only: bool,
    created_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_at_ms: Option<i64>,
}

/// A network profile in etcd. Tenant and name are in the name of the key.
#[derive(Serialize, Deserialize)]
struct ProfileValue {
    v: u8,
    profile: Profile,
}

/// A webhook in etcd. Tenant and id are in the name of the key.
#[derive(Serialize, Deserialize)]
struct WebhookValue {
    v: u8,
    webhook: serde_json::Map<String, Value>,
}

/// The parts of a value that all versions have.
#[derive(Deserialize)]
struct AnyVersion {
    v: u8,
}

/// The value of an API key.
pub(super) fn of_key(key: &KeyRecord) -> Vec<u8> {
    let value = KeyValue {
        v: VERSION,
        digest: hex::encode(key.digest.bytes()),
        tenant: key.tenant.clone(),
        label: key.label.clone(),
        read_only: key.read_only,
        created_at_ms: key.created_at_ms,
        expires_at_ms: key.expires_at_ms,
        revoked_at_ms: key.revoked_at_ms,
    };
    json(&value)
}

/// Reads the value of the API key with this id.
pub(super) fn read_key(id: &str, value: &[u8]) -> Result<KeyRecord, BadValue> {
    let malformed = BadValue::Malformed("an API key");
    if value.len() > KEY_BYTES_MAX || id.len() > KEY_ID_BYTES_MAX || !id.starts_with("key_") {
        return Err(malformed);
    }
    check_version(value, malformed.clone())?;
    let read: KeyValue = serde_json::from_slice(value).map_err(|_| malformed.clone())?;
    let mut digest = [0; 32];
    hex::decode_to_slice(&read.digest, &mut digest).map_err(|_| malformed.clone())?;
    if TenantId::parse(&read.tenant).is_err() || read.label.len() > LABEL_BYTES_MAX {
        return Err(malformed);
    }
    Ok(KeyRecord {
        id: id.to_owned(),
        digest: KeyDigest::from_record(digest),
        tenant: read.tenant,
        label: read.label,
        read_only: read.read_only,
        created_at_ms: read.created_at_ms,
        expires_at_ms: read.expires_at_ms,
        revoked_at_ms: read.revoked_at_ms,
    })
}

/// Whether the value of an API key says that it was revoked, in any version.
pub(super) fn is_revoked(value: &[u8]) -> bool {
    let read: Option<Value> = serde_json::from_slice(value).ok();
    read.is_some_and(|read| read.get("revoked_at_ms").is_some_and(|at| !at.is_null()))
}

/// The value of an API key with a revocation: what etcd has, also of a later version, or `key`.
pub(super) fn revoked(found: &[u8], key: &KeyRecord) -> Vec<u8> {
    let at_ms = key.revoked_at_ms.unwrap_or_else(isolet_clock::now_ms);
    match serde_json::from_slice(found) {
        Ok(Value::Object(mut fields)) if fields.contains_key("v") => {
            fields.insert("revoked_at_ms".to_owned(), at_ms.into());
            json(&fields)
        }
        _ => of_key(&KeyRecord { revoked_at_ms: Some(at_ms), ..key.clone() }),
    }
}

/// The value of a network profile.
pub(super) fn of_profile(profile: &Profile) -> Vec<u8> {
    json(&ProfileValue { v: VERSION, profile: profile.clone() })
}

/// Reads the value of the network profile with this name.
pub(super) fn read_profile(name: &str, value: &[u8]) -> Result<Profile, BadValue> {
    let malformed = BadValue::Malformed("a network profile");
    if value.len() > PROFILE_BYTES_MAX {
        return Err(malformed);
    }
    check_version(value, malformed.clone())?;
    let read: ProfileValue = serde_json::from_slice(value).map_err(|_| malformed.clone())?;
    if read.profile.name != name || read.profile.check().is_err() {
        return Err(malformed);
    }
    Ok(read.profile)
}

/// The value of a webhook; `None`: the body is no object.
pub(super) fn of_webhook(body: &str) -> Option<Vec<u8>> {
    let webhook = serde_json::from_str(body).ok()?;
    Some(json(&WebhookValue { v: VERSION, webhook }))
}

/// Reads the value of a webhook, whose fields [`isolet_webhook`] checks.
pub(super) fn read_webhook(value: &[u8]) -> Result<String, BadValue> {
    let malformed = BadValue::Malformed("a webhook");
    if value.len() > WEBHOOK_BYTES_MAX {
        return Err(malformed);
    }
    check_version(value, malformed.clone())?;
    let read: WebhookValue = serde_json::from_slice(value).map_err(|_| malformed.clone())?;
    serde_json::to_string(&read.webhook).map_err(|_| malformed)
}

fn check_version(value: &[u8], malformed: BadValue) -> Result<(), BadValue> {
    let AnyVersion { v } = serde_json::from_slice(value).map_err(|_| malformed)?;
    if v > VERSION { Err(BadValue::Version(v)) } else { Ok(()) }
}

/// JSON of a value that consists of texts and numbers only, which cannot fail.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> KeyRecord {
        KeyRecord {
            id: "key_1".into(),
            digest: KeyDigest::of("isolet_secret"),
            tenant: "acme".into(),
            label: "\u{1}".repeat(LABEL_BYTES_MAX),
            read_only: true,
            created_at_ms: i64::MAX,
            expires_at_ms: Some(2),
            revoked_at_ms: None,
        }
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let revoked_at = [None, Some(3)];
        for revoked_at_ms in revoked_at {
            let written = KeyRecord { revoked_at_ms, ..record() };
            let value = of_key(&written);
            assert!(value.len() <= KEY_BYTES_MAX, "{}", value.len());
            assert_eq!(read_key("key_1", &value).unwrap(), written);
            assert_eq!(is_revoked(&value), revoked_at_ms.is_some());
        }
        for (from, to) in [("acme", "../x"), ("acme", ""), ("digest\":\"", "digest\":\"0")] {
            let value = String::from_utf8(of_key(&record())).unwrap().replace(from, to);
            assert!(read_key("key_1", value.as_bytes()).is_err(), "{to}");
        }
        assert!(read_key("other", &of_key(&record())).is_err());
        assert!(read_key("key_1", &vec![b' '; KEY_BYTES_MAX + 1]).is_err());
    }

    /// A node that cannot read a key must still stop accepting it, and revoke it for others.
    #[test]
    fn a_revocation_is_read_and_written_in_a_later_version() {
        let later = br#"{"v":9,"digest":"x","new":[1]}"#;
        assert_eq!(read_key("key_1", later), Err(BadValue::Version(9)));
        assert!(!is_revoked(later));
        let own = KeyRecord { revoked_at_ms: Some(5), ..record() };
        let value = revoked(later, &own);
        assert!(is_revoked(&value));
        let fields: Value = serde_json::from_slice(&value).unwrap();
        assert_eq!((&fields["new"][0], &fields["revoked_at_ms"]), (&1.into(), &5.into()));
        for garbage in [b"x".as_slice(), b"[]", b"{}", b"null"] {
            assert_eq!(read_key("key_1", &revoked(garbage, &own)).unwrap(), own);
        }
    }

    #[test]
    fn an_error_does_not_repeat_the_value() {
        let value = String::from_utf8(of_key(&record())).unwrap().replace("true", "\"yes\"");
        let error = read_key("key_1", value.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "it is not an API key");
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let rule = |n: usize| format!("{n:03}.{}.{}.example", "a".repeat(60), "b".repeat(60));
        let profile = Profile {
            name: "web".into(),
            description: "d".into(),
            allow: (0..200).map(rule).collect(),
            deny: vec!["*".into()],
        };
        let value = of_profile(&profile);
        assert_eq!(read_profile("web", &value).unwrap(), profile);
        assert!(read_profile("other", &value).is_err());
        let later = String::from_utf8(value).unwrap().replace("\"v\":1", "\"v\":2");
        assert_eq!(read_profile("web", later.as_bytes()), Err(BadValue::Version(2)));
        let bad = Profile { allow: vec!["http://".into()], ..profile };
        assert!(read_profile("web", &of_profile(&bad)).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_an_error(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read_key("key_1", &value).is_err());
            prop_assert!(read_profile("web", &value).is_err());
            prop_assert!(read_key("key_1", &revoked(&value, &record())).is_ok());
        }
    }
}
