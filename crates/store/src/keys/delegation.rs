//! Keys that create other keys of their tenant: what is checked in the transaction that adds the key.

use super::Key;
use crate::error::Error;
use rusqlite::{Connection, OptionalExtension, params};

/// How long a key that has expired or was revoked counts against [`KeyLimits::recent_max`], in ms.
pub(super) const RECENT_MS: i64 = 86_400_000;

/// The limits on the keys of a tenant that one of its keys creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// Maximum number of keys that are neither revoked nor expired.
    pub valid_max: usize,
    /// Maximum number of keys with those that were revoked or have expired within a day.
    pub recent_max: usize,
}

/// The creation of a key by another key of its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// The id of the key that creates the other one; `None`: the key from the environment.
    pub creator: Option<String>,
    /// The limits of the tenant.
    pub limits: KeyLimits,
}

impl Delegation {
    /// Checks that the creator may add this key.
    pub(super) fn check(&self, connection: &Connection, new: &Key) -> Result<(), Error> {
        let now = new.created_at_ms;
        if let Some(creator) = &self.creator {
            let is_valid = connection
                .prepare_cached(
                    "SELECT 1 FROM keys WHERE id = ?1 AND revoked_ms IS NULL \
                     AND (expires_ms IS NULL OR expires_ms > ?2)",
                )?
                .query_row(params![creator, now], |_| Ok(()))
                .optional()?;
            is_valid.ok_or(Error::CreatorEnded)?;
        }
        let recent = now.saturating_sub(RECENT_MS);
        let (valid, recent): (i64, i64) = connection
            .prepare_cached(
                "SELECT count(*) FILTER (WHERE ended > ?2), count(*) FILTER (WHERE ended > ?3) \
                 FROM (SELECT min(coalesce(expires_ms, ?4), coalesce(revoked_ms, ?4)) AS ended \
                       FROM keys WHERE tenant = ?1)",
            )?
            .query_row(params![new.tenant, now, recent, i64::MAX], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let KeyLimits { valid_max, recent_max } = self.limits;
        let reaches = |count: i64, most: usize| usize::try_from(count).is_ok_and(|n| n >= most);
        if reaches(valid, valid_max) {
            return Err(Error::TooManyKeys { most: valid_max });
        }
        if reaches(recent, recent_max) {
            return Err(Error::TooManyRecentKeys { most: recent_max });
        }
        Ok(())
    }
}
