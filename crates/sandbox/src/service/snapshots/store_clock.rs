//! Compares the clock of this server with that of the object store, before anything is deleted by the time of
//! day that another server may restore.

use crate::live::inner::Inner;
use crate::service::Service;

/// By how much the clocks may differ: more than an answer takes, and less than a lifetime that anybody notices.
const DIFFERENCE_MAX_MS: i64 = 60_000;

impl Service {
    /// Checks that the clock of this server agrees with that of the object store.
    ///
    /// # Errors
    /// By how much they differ, or why the store cannot say.
    pub async fn check_clock(&self) -> Result<(), String> {
        self.inner.check_clock().await
    }
}

impl Inner {
    pub(super) async fn check_clock(&self) -> Result<(), String> {
        let repository = self.snapshot_store.repository().await;
        let repository = repository.map_err(|error| error.to_string())?;
        let ahead_ms = repository.clock_ahead_ms().await.map_err(|error| error.to_string())?;
        agrees(ahead_ms)
    }
}

fn agrees(ahead_ms: i64) -> Result<(), String> {
    if ahead_ms.saturating_abs() <= DIFFERENCE_MAX_MS {
        return Ok(());
    }
    let seconds = ahead_ms.saturating_abs() / 1000;
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Err(format!(
        "the clock of this server is {seconds} s {side} that of the object store; set it, for example with a \
         time service"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_within_a_minute() {
        for ms in [0, 60_000, -60_000] {
            assert_eq!(agrees(ms), Ok(()), "{ms}");
        }
        assert!(agrees(61_000).is_err_and(|reason| reason.contains("61 s ahead of")));
        assert!(agrees(-86_400_000).is_err_and(|reason| reason.contains("86400 s behind")));
        assert!(agrees(i64::MIN).is_err());
    }
}
