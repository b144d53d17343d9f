//! The loop that all kinds have in common: list, watch, and list again when the watch ends.

use crate::replication::error::ReplicationError;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::WatchBatch;
use std::time::Duration;
use tokio::time::Instant;
use tokio::time::MissedTickBehavior;
use tokio::time::interval;
use tokio::time::sleep;
use tokio::time::sleep_until;
use tracing::info;
use tracing::warn;

/// How often a node looks for changes of its own records, which `isolet keys` makes as another
/// process.
const LOOK: Duration = Duration::from_millis(500);
/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause: a node that reaches etcd again must know revoked keys within seconds.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// After how long a watch counts as working, so that the next pause is short again.
const STABLE: Duration = Duration::from_secs(10);
/// After how long everything is listed again without a reason. It finds what no watch reports, such
/// as an etcd that was restored from a backup without a restart that this node noticed.
const RELIST: Duration = Duration::from_mins(10);

/// One kind of keys in etcd, and what this node has of it.
pub(super) trait Replica: Send + Sync + 'static {
    /// The kind, for the log.
    const KIND: &'static str;

    /// The prefix of the keys.
    fn prefix(&self) -> Vec<u8>;

    /// Lists everything and makes both sides equal. Returns the revision of etcd up to which its
    /// changes are known.
    fn join(&mut self) -> impl Future<Output = Result<i64, ReplicationError>> + Send;

    /// Applies changes of etcd.
    fn apply(
        &mut self,
        batch: WatchBatch,
    ) -> impl Future<Output = Result<(), ReplicationError>> + Send;

    /// Looks for changes of this node, and writes them to etcd.
    fn look(&mut self) -> impl Future<Output = Result<(), ReplicationError>> + Send {
        async { Ok(()) }
    }
}

/// Joins for the first time. Returns `None` if the disk is full: then the server starts nevertheless,
/// and [`run`] tries again.
pub(super) async fn first_join<R: Replica>(
    replica: &mut R,
) -> Result<Option<i64>, ReplicationError> {
    match replica.join().await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.is_full_disk() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps both sides equal, from the revision on at which they were. Its owner aborts it.
pub(super) async fn run<R: Replica>(mut replica: R, etcd: Etcd, mut joined: Option<i64>) {
    let kind = R::KIND;
    let mut pause = PAUSE_MIN;
    loop {
        let begun = Instant::now();
        let ended = match joined.take() {
            Some(revision) => follow(&mut replica, &etcd, revision).await,
            None => Ok(()),
        };
        if begun.elapsed() >= STABLE {
            pause = PAUSE_MIN;
        }
        let error = match ended {
            Err(error) => error,
            Ok(()) => match replica.join().await {
                Ok(revision) => {
                    if pause > PAUSE_MIN {
                        info!(kind, "what all nodes share is current again");
                    }
                    joined = Some(revision);
                    continue;
                }
                Err(error) => error,
            },
        };
        let pause_ms = pause.as_millis();
        warn!(kind, %error, pause_ms, "what all nodes share may be outdated here; retrying");
        sleep(with_jitter(pause)).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// Follows the changes of both sides. Ends without an error when everything shall be listed again.
async fn follow<R: Replica>(
    replica: &mut R,
    etcd: &Etcd,
    revision: i64,
) -> Result<(), ReplicationError> {
    let mut watch = etcd.watch(&replica.prefix(), revision + 1).await?;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + with_jitter(RELIST);
    loop {
        tokio::select! {
            batch = watch.next() => replica.apply(batch?).await?,
            _ = looks.tick() => replica.look().await?,
            () = sleep_until(end) => return Ok(()),
        }
    }
}

/// A duration that is up to a quarter longer, so that nodes do not come back all at once.
fn with_jitter(duration: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness the duration is still right.
    let _ = getrandom::fill(&mut byte);
    duration + duration * u32::from(byte[0]) / 1024
}
