//! Sends ended spans to the receiver, in batches, from a task of its own.
//!
//! A request never waits for the receiver: its spans go into a bounded queue, and are dropped when
//! the queue is full. Not the SDK's `BatchSpanProcessor`: it starts a thread, and reports dropped
//! spans only when it starts to drop and when the server stops.

use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Spans that may wait for the export. A span takes about 1 KiB.
const QUEUE_MAX: usize = 4096;
/// Spans in one request to the receiver.
const BATCH_MAX: usize = 512;
/// How long spans are collected before a batch is sent.
const COLLECT: Duration = Duration::from_secs(1);
/// How long the receiver may take for one batch, with all repetitions.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// How long a stopping server waits for the receiver.
const FINISH_MAX: Duration = Duration::from_secs(1);
/// At most one line of the log in this time reports lost spans.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Puts ended spans into the queue.
#[derive(Debug)]
pub(super) struct QueueProcessor {
    queue: Sender<SpanData>,
    dropped: Arc<AtomicU64>,
}

/// The other end of the queue, before the runtime has started.
pub(super) struct Exporter {
    exporter: SpanExporter,
    queue: Receiver<SpanData>,
    losses: Losses,
}

/// Spans that never reached the receiver.
struct Losses {
    /// For lack of space in the queue.
    dropped: Arc<AtomicU64>,
    /// Because the receiver did not accept them.
    failed: u64,
    last_error: String,
    reported: Option<Instant>,
}

/// The queue and both of its ends.
pub(super) fn queue(exporter: SpanExporter) -> (QueueProcessor, Exporter) {
    let (sender, queue) = channel(QUEUE_MAX);
    let dropped = Arc::<AtomicU64>::default();
    let losses = Losses {
        dropped: Arc::clone(&dropped),
        failed: 0,
        last_error: String::new(),
        reported: None,
    };
    (QueueProcessor { queue: sender, dropped }, Exporter { exporter, queue, losses })
}

impl SpanProcessor for QueueProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The task that exports.
pub(super) struct RunningExport {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Exporter {
    pub(super) fn start(mut self) -> RunningExport {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            loop {
                let first = tokio::select! {
                    first = self.queue.recv() => first,
                    () = stopped.cancelled() => self.queue.try_recv().ok(),
                    () = sleep(REPORT_EVERY) => {
                        self.losses.report();
                        continue;
                    }
                };
                let Some(first) = first else { break };
                if self.queue.len() + 1 < BATCH_MAX {
                    tokio::select! {
                        () = sleep(COLLECT) => {}
                        () = stopped.cancelled() => {}
                    }
                }
                self.send(first).await;
            }
            self.losses.reported = None;
            self.losses.report();
        });
        RunningExport { task, stop }
    }

    /// Sends one batch, which begins with `first`.
    async fn send(&mut self, first: SpanData) {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX {
            match self.queue.try_recv() {
                Ok(span) => batch.push(span),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let count = batch.len() as u64;
        match timeout(EXPORT_MAX, self.exporter.export(batch)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.losses.add(count, error.to_string()),
            Err(_) => self.losses.add(count, "the receiver did not answer in time".to_owned()),
        }
        self.losses.report();
    }
}

impl Losses {
    fn add(&mut self, count: u64, error: String) {
        self.failed += count;
        self.last_error = error;
    }

    /// Logs the losses since the last report, if there are any and the last report is old enough.
    fn report(&mut self) {
        let recent = self.reported.is_some_and(|last| last.elapsed() < REPORT_EVERY);
        if recent || (self.failed == 0 && self.dropped.load(Ordering::Relaxed) == 0) {
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let failed = std::mem::take(&mut self.failed);
        let error = std::mem::take(&mut self.last_error);
        self.reported = Some(Instant::now());
        warn!(dropped, failed, error, "spans were not exported");
    }
}

impl RunningExport {
    /// Exports what is left, as far as the receiver accepts it in time.
    pub(super) async fn finish(mut self) {
        self.stop.cancel();
        if timeout(FINISH_MAX, &mut self.task).await.is_err() {
            self.task.abort();
            warn!("the receiver of traces did not accept the last spans in time");
        }
    }
}
