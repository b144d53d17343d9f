//! Fields of a record that become paths. They are checked where a record is read: it may come from a
//! backup or an object store, and be forged.

use crate::model::ids::SandboxId;
use crate::model::record::is_internal_name;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Reads the token of a restore in place, which names a directory below `DATA/restores`.
pub(super) fn restore_token<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    let token = Option::<String>::deserialize(from)?;
    match token.as_deref().is_none_or(is_internal_name) {
        true => Ok(token),
        false => Err(D::Error::custom("an invalid token of a restore")),
    }
}

/// Reads the name of a directory below `DATA/superseded/TENANT`: `ID-TIME`.
pub(super) fn superseded_target<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    let target = Option::<String>::deserialize(from)?;
    let is_valid = |target: &str| {
        let parts = target.rsplit_once('-');
        parts.is_some_and(|(id, time)| SandboxId::parse(id).is_ok() && time.parse::<u64>().is_ok())
    };
    match target.as_deref().is_none_or(is_valid) {
        true => Ok(target),
        false => Err(D::Error::custom("an invalid directory of superseded files")),
    }
}
