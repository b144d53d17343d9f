//! When keys were last used.

use super::Store;
use crate::error::Error;
use crate::keys::KeyUse;
use rusqlite::params;

impl Store {
    /// Records uses of keys. An earlier time than the recorded one changes nothing.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn record_key_uses(&self, uses: Vec<KeyUse>) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            for KeyUse { id, at_ms } in &uses {
                transaction
                    .prepare_cached(
                        "UPDATE keys SET used_ms = max(coalesce(used_ms, ?2), ?2) WHERE id = ?1",
                    )?
                    .execute(params![id, at_ms])?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }
}
