//! How much was copied, on a terminal.

use crate::client::output::size::binary;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::interval;

/// The interval between two updates.
const UPDATE: Duration = Duration::from_millis(200);

/// Counts bytes, and shows them on standard error while it is a terminal.
pub(super) struct Progress {
    bytes: Arc<AtomicU64>,
    /// The size of all of it, if that is known; otherwise 0.
    total: Arc<AtomicU64>,
    started: Instant,
    drawing: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to show the progress, unless it is not wanted.
    pub(super) fn start(quiet: bool) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let total = Arc::new(AtomicU64::new(0));
        let shown = !quiet && std::io::stderr().is_terminal();
        let drawing = shown.then(|| tokio::spawn(draw(bytes.clone(), total.clone())));
        Self { bytes, total, started: Instant::now(), drawing }
    }

    /// Sets the size of all that is copied.
    pub(super) fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Counts copied bytes.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counter, for a thread.
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        self.bytes.clone()
    }

    /// Replaces the progress by the result.
    pub(super) fn finish(&self, target: &str) {
        if self.drawing.is_some() {
            let bytes = self.bytes.load(Ordering::Relaxed);
            let seconds = self.started.elapsed().as_secs_f64().max(0.001);
            let speed = binary((bytes as f64 / seconds) as u64);
            let target = crate::client::output::sanitize(target);
            let text = format!("copied {} to {target} ({speed}/s)", binary(bytes));
            let _ = writeln!(std::io::stderr(), "\r\x1b[Kisolet: {text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(drawing) = &self.drawing {
            drawing.abort();
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

async fn draw(bytes: Arc<AtomicU64>, total: Arc<AtomicU64>) {
    let mut ticks = interval(UPDATE);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let bytes = bytes.load(Ordering::Relaxed);
        let text = match total.load(Ordering::Relaxed) {
            0 => binary(bytes),
            total => {
                let percent = bytes.min(total).saturating_mul(100) / total;
                format!("{} of {} ({percent}%)", binary(bytes), binary(total))
            }
        };
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }
}
