//! Frees the memory of journals of files that no client has asked for in a while.

use crate::live::inner::Inner;
use crate::service::repeat::repeat;
use std::sync::Arc;
use std::time::Duration;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_mins(1);

/// Drops idle journals. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    repeat(INTERVAL, move || inner.journal_memory.drop_idle()).await;
}
