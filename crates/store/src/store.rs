//! [`Store`], the handle of the records. All jobs run on one thread.

mod answers;
mod history;
mod key_uses;
mod ownership;
mod profiles;
mod removals;
mod sandboxes;
mod snapshots;
mod webhooks;

pub use answers::EXPIRED_STEP;
pub use profiles::ProfileRow;

use crate::error::Error;
use crate::records::Records;
use crate::schema;
use isolet_metrics::{DurationHistogram, StoreMetrics};
use rusqlite::Connection;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of queued jobs; further callers wait.
const QUEUE_MAX: usize = 1024;

type Job = Box<dyn FnOnce(&mut Records) + Send>;

/// The records of a data directory. Clones share one thread and connection.
#[derive(Clone)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    broken: Arc<AtomicBool>,
    metrics: StoreMetrics,
}

impl Store {
    /// Opens, creates or migrates the records. Blocks.
    ///
    /// # Errors
    /// [`Error::Newer`] if a later version wrote them; [`Error::Lost`]; [`Error::Full`];
    /// [`Error::Sqlite`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        let connection = schema::open(file).map_err(|error| match error {
            Error::Sqlite(message) if !message.starts_with(&*file.to_string_lossy()) => {
                Error::Sqlite(format!("{}: {message}", file.display()))
            }
            other => other,
        })?;
        let mut records = Records::new(connection, file)?;
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE_MAX);
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    // A panic in one job rolls its transaction back and drops its answer.
                    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| job(&mut records)));
                }
            })
            .map_err(|error| Error::Sqlite(error.to_string()))?;
        Ok(Self { jobs, broken: Arc::default(), metrics: StoreMetrics::default() })
    }

    /// Counts the durations of jobs in these metrics instead of ones that nobody reads.
    #[must_use]
    pub fn with_metrics(self, metrics: StoreMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Number of jobs that wait for the store's thread.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }

    /// Checks that a copied file is one consistent state of the records. A missing file is left to
    /// [`Store::open`]. Blocks.
    ///
    /// # Errors
    /// [`Error::Torn`].
    pub fn check(file: &Path) -> Result<(), Error> {
        if std::fs::metadata(file).map_or(true, |about| about.len() == 0) {
            return Ok(());
        }
        schema::check(file)
    }

    /// Whether the disk has failed: the records are read-only until they are opened again.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Runs a job that writes on the store's thread, and waits for its result. A queued job runs even if the
    /// caller is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] also while removals wait for space, since they are written first.
    pub(crate) async fn write<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.run(|records| {
            records.apply_pending()?;
            job(&mut records.connection)
        })
        .await
    }

    /// Runs a job that only reads, which works on a full disk too.
    pub(crate) async fn read<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Records) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.submit(self.metrics.reads.clone(), |records| {
            match records.apply_pending() {
                // A disk whose sync failed must not be used again: the next sync would succeed.
                Err(Error::Unsynced) => Err(Error::Unsynced),
                // Removals that cannot be written are still in memory, and the job respects them.
                _ => job(records),
            }
        })
        .await
    }

    /// Runs a job without applying the pending removals first. Removals do that themselves.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Records) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.submit(self.metrics.writes.clone(), job).await
    }

    async fn submit<R: Send + 'static>(
        &self,
        durations: DurationHistogram,
        job: impl FnOnce(&mut Records) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (sender, result_receiver) = oneshot::channel();
        let broken = Arc::clone(&self.broken);
        let job: Job = Box::new(move |records| {
            let begun = Instant::now();
            let mut result = job(records);
            durations.observe(begun.elapsed());
            if matches!(result, Err(Error::Unsynced)) && !broken.swap(true, Ordering::Relaxed) {
                let _ = records.connection.pragma_update(None, "query_only", true);
            }
            if broken.load(Ordering::Relaxed) && matches!(result, Err(Error::Sqlite(_))) {
                result = Err(Error::Unsynced);
            }
            let _ = sender.send(result);
        });
        self.jobs.send(job).await.map_err(|_| Error::Closed)?;
        result_receiver.await.map_err(|_| Error::Closed)?
    }
}
