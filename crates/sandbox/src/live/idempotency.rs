//! Idempotency keys. Requests with the same key and body have one effect and one answer, however
//! many come and however close together.

use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::model::info::{IdempotencyKey, KEY_BYTES_MAX};
use isolet_store::{AnswerTotals, Store, StoredAnswer};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of keys in progress, over all tenants.
const RUNNING_MAX: usize = 10_000;

/// The limit on the stored answers of a tenant: one every two seconds, for as long as they are stored.
const ANSWERS: AnswerTotals = AnswerTotals { count: 50_000, bytes: 32 << 20 };

type Outcome = Option<Result<(String, bool), Error>>;
type InFlight = HashMap<(TenantId, String), ([u8; 32], watch::Receiver<Outcome>)>;

/// The keys in progress. The store holds the answered ones.
#[derive(Clone)]
pub(crate) struct IdempotencyStore {
    running: Arc<Mutex<InFlight>>,
    answers: AnswerTotals,
}

impl Default for IdempotencyStore {
    fn default() -> Self {
        Self { running: Arc::default(), answers: ANSWERS }
    }
}

/// Removes its key from the map on drop, also if the work panics.
struct Out(Arc<Mutex<InFlight>>, (TenantId, String));

impl Drop for Out {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// The row that the work must write in the same transaction as its effect.
pub(crate) fn row(tenant: &TenantId, once: &IdempotencyKey, answer: String) -> StoredAnswer {
    StoredAnswer { tenant: tenant.to_string(), key: once.key.clone(), body: once.body, answer }
}

impl IdempotencyStore {
    /// Runs `work` unless this key has already been used. Returns the answer and whether it is an
    /// earlier one. The work continues if the caller is dropped.
    pub(crate) async fn run<F>(
        &self,
        store: &Store,
        tenant: &TenantId,
        once: &IdempotencyKey,
        work: F,
    ) -> Result<(String, bool), Error>
    where
        F: Future<Output = Result<String, Error>> + Send + 'static,
    {
        self.run_in(store, tenant, once, |_: &str| true, work).await
    }

    /// The same for work within a sandbox. An earlier answer counts only if it `holds`, which is
    /// false for an answer about an earlier sandbox with the same id.
    pub(crate) async fn run_in<F, H>(
        &self,
        store: &Store,
        tenant: &TenantId,
        once: &IdempotencyKey,
        holds: H,
        work: F,
    ) -> Result<(String, bool), Error>
    where
        F: Future<Output = Result<String, Error>> + Send + 'static,
        H: Fn(&str) -> bool + Clone + Send + Sync + 'static,
    {
        if once.key.is_empty() || once.key.len() > KEY_BYTES_MAX {
            let reason = format!("1 to {KEY_BYTES_MAX} bytes");
            return Err(Error::BadField { field: "Idempotency-Key", reason });
        }
        let key = (tenant.clone(), once.key.clone());
        let mut work = Some(work);
        loop {
            let (mut outcome, first) = match self.join(&key, once) {
                // The request in progress may itself be about to be refused, so the stored answer
                // decides.
                Err(Error::OtherBody) => {
                    let found = store.answer(tenant.as_str(), &once.key).await?;
                    let found =
                        found.filter(|found| found.body == once.body && holds(&found.answer));
                    return found.map(|found| (found.answer, true)).ok_or(Error::OtherBody);
                }
                joined => joined?,
            };
            let joined = first.is_none();
            if let (Some(sender), Some(work)) = (first, work.take_if(|_| !joined)) {
                let out = Out(Arc::clone(&self.running), key.clone());
                let own = self.clone();
                let store = store.clone();
                let once = once.clone();
                let holds = holds.clone();
                tokio::spawn(async move {
                    let result = own.perform(&store, &out.1.0, &once, holds, work).await;
                    // Removed from the map first, so that a new request finds the stored answer.
                    drop(out);
                    let _ = sender.send(Some(result));
                });
            }
            let done = outcome.wait_for(Option::is_some).await;
            let early = |_| Error::Fault("the work of this idempotency key ended early".into());
            let done = done.map_err(early)?.clone();
            let (answer, replayed) =
                done.unwrap_or_else(|| Err(Error::Fault("no outcome".into())))?;
            if joined && !holds(&answer) {
                // The request in progress was for an earlier sandbox with the same id. Its key is
                // no longer in the map, so this call does its own work.
                continue;
            }
            return Ok((answer, replayed || joined));
        }
    }

    /// Joins the work in progress. The first caller receives a sender and does the work.
    fn join(
        &self,
        key: &(TenantId, String),
        once: &IdempotencyKey,
    ) -> Result<(watch::Receiver<Outcome>, Option<watch::Sender<Outcome>>), Error> {
        let mut running: MutexGuard<'_, InFlight> =
            self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((body, outcome)) = running.get(key) {
            return if *body == once.body {
                Ok((outcome.clone(), None))
            } else {
                Err(Error::OtherBody)
            };
        }
        if running.len() >= RUNNING_MAX {
            return Err(Error::ServerFull("too many idempotency keys are at work"));
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(key.clone(), (once.body, receiver.clone()));
        Ok((receiver, Some(sender)))
    }

    async fn perform<F>(
        &self,
        store: &Store,
        tenant: &TenantId,
        once: &IdempotencyKey,
        holds: impl Fn(&str) -> bool,
        work: F,
    ) -> Result<(String, bool), Error>
    where
        F: Future<Output = Result<String, Error>>,
    {
        match store.answer(tenant.as_str(), &once.key).await? {
            // An answer about an earlier sandbox with the same id does not apply.
            Some(found) if !holds(&found.answer) => Ok((work.await?, false)),
            Some(found) if found.body != once.body => Err(Error::OtherBody),
            Some(found) => Ok((found.answer, true)),
            None => {
                self.check_room(store, tenant).await?;
                Ok((work.await?, false))
            }
        }
    }

    /// Checks that one more answer of the tenant may be stored, beside those of the keys in progress, to
    /// which the caller's own belongs.
    async fn check_room(&self, store: &Store, tenant: &TenantId) -> Result<(), Error> {
        // Counted first: an answer that is stored in between counts twice, and none is missed.
        let running = {
            let all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            all.keys().filter(|(owner, _)| owner == tenant).count() as u64
        };
        let stored = store.answer_totals(tenant.as_str()).await?;
        if stored.count + running > self.answers.count || stored.bytes >= self.answers.bytes {
            let AnswerTotals { count, bytes } = stored;
            return Err(Error::TooManyAnswers { count, mib: bytes >> 20 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("isolet.db")).unwrap();
        (dir, store)
    }

    /// Does the work and stores its answer in the same transaction, like the creation of a session.
    async fn effect(
        store: Store,
        tenant: TenantId,
        once: IdempotencyKey,
        count: Arc<AtomicU32>,
    ) -> Result<String, Error> {
        let n = count.fetch_add(1, Ordering::SeqCst);
        let session = isolet_store::SessionRow {
            sandbox: "a".into(),
            id: format!("s{n}"),
            body: "{}".into(),
        };
        let answer = format!("answer {n}");
        store.insert_session(session, Some(row(&tenant, &once, answer.clone()))).await?;
        Ok(answer)
    }

    async fn sandbox(store: &Store) {
        let row = isolet_store::SandboxRow {
            name: "a".into(),
            tenant: "t".into(),
            id: "i".into(),
            slot: 0,
            state: "running".into(),
            body: "{}".into(),
        };
        store.insert(row).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_key_raced_a_hundred_times_has_one_effect() {
        let (_dir, store) = store();
        sandbox(&store).await;
        let onces = IdempotencyStore::default();
        let count = Arc::new(AtomicU32::new(0));
        let tenant = TenantId::parse("t").unwrap();
        let once = IdempotencyKey::new("key", "POST /x", b"{}");
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let onces = onces.clone();
                let store = store.clone();
                let tenant = tenant.clone();
                let once = once.clone();
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    let work = effect(store.clone(), tenant.clone(), once.clone(), count);
                    onces.run(&store, &tenant, &once, work).await.unwrap()
                })
            })
            .collect();
        let mut first = 0;
        for task in tasks {
            let (answer, replayed) = task.await.unwrap();
            assert_eq!(answer, "answer 0");
            first += u32::from(!replayed);
        }
        assert_eq!((count.load(Ordering::SeqCst), first), (1, 1));
        assert_eq!(store.sessions().await.unwrap().0.len(), 1);
    }

    #[tokio::test]
    async fn another_body_is_refused_while_it_runs_and_after() {
        let (_dir, store) = store();
        sandbox(&store).await;
        let onces = IdempotencyStore::default();
        let count = Arc::new(AtomicU32::new(0));
        let tenant = TenantId::parse("t").unwrap();
        let one = IdempotencyKey::new("key", "r", b"1");
        let two = IdempotencyKey::new("key", "r", b"2");
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let work = {
            let effect = effect(store.clone(), tenant.clone(), one.clone(), Arc::clone(&count));
            async move {
                wait.await.ok();
                effect.await
            }
        };
        let never = || async { panic!("must not run") };
        let (first, second) = tokio::join!(onces.run(&store, &tenant, &one, work), async {
            let refused = onces.run(&store, &tenant, &two, never()).await;
            go.send(()).unwrap();
            refused
        });
        assert_eq!(first.unwrap(), ("answer 0".to_owned(), false));
        assert!(matches!(second, Err(Error::OtherBody)));
        assert!(matches!(onces.run(&store, &tenant, &two, never()).await, Err(Error::OtherBody)));
        let other = TenantId::parse("u").unwrap();
        let theirs = effect(store.clone(), other.clone(), two.clone(), count);
        assert_eq!(
            onces.run(&store, &other, &two, theirs).await.unwrap(),
            ("answer 1".to_owned(), false)
        );
    }

    #[tokio::test]
    async fn an_answer_about_an_earlier_life_counts_for_nothing() {
        let (_dir, store) = store();
        sandbox(&store).await;
        let onces = IdempotencyStore::default();
        let tenant = TenantId::parse("t").unwrap();
        let first = IdempotencyKey::new("key", "r", b"1");
        let work = effect(store.clone(), tenant.clone(), first.clone(), Arc::default());
        onces.run(&store, &tenant, &first, work).await.unwrap();
        let earlier = |answer: &str| answer != "answer 0";
        let other = IdempotencyKey::new("key", "r", b"2");
        let count = Arc::new(AtomicU32::new(1));
        let work = effect(store.clone(), tenant.clone(), other.clone(), count);
        let done = onces.run_in(&store, &tenant, &other, earlier, work).await.unwrap();
        assert_eq!(done, ("answer 1".to_owned(), false));
    }

    #[tokio::test]
    async fn a_call_that_joined_work_of_an_earlier_life_does_its_own() {
        let (_dir, store) = store();
        sandbox(&store).await;
        let onces = IdempotencyStore::default();
        let tenant = TenantId::parse("t").unwrap();
        let once = IdempotencyKey::new("key", "r", b"1");
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let effect_of = |n| {
            let count = Arc::new(AtomicU32::new(n));
            effect(store.clone(), tenant.clone(), once.clone(), count)
        };
        let slow = effect_of(0);
        let old = async move {
            wait.await.ok();
            slow.await
        };
        let earlier = |answer: &str| answer != "answer 0";
        let second = onces.run_in(&store, &tenant, &once, earlier, effect_of(1));
        let start = async move { go.send(()).unwrap() };
        let (first, second, ()) =
            tokio::join!(onces.run(&store, &tenant, &once, old), second, start);
        assert_eq!(first.unwrap(), ("answer 0".to_owned(), false));
        assert_eq!(second.unwrap(), ("answer 1".to_owned(), false));
    }

    #[tokio::test]
    async fn work_that_failed_may_be_tried_again() {
        let (_dir, store) = store();
        sandbox(&store).await;
        let onces = IdempotencyStore::default();
        let tenant = TenantId::parse("t").unwrap();
        let once = IdempotencyKey::new("key", "r", b"");
        let failed = onces.run(&store, &tenant, &once, async { Err(Error::Stopping) }).await;
        assert!(matches!(failed, Err(Error::Stopping)));
        let panicked = onces.run(&store, &tenant, &once, async { panic!("a fault") }).await;
        assert!(matches!(panicked, Err(Error::Fault(_))));
        let again = effect(store.clone(), tenant.clone(), once.clone(), Arc::default());
        assert_eq!(onces.run(&store, &tenant, &once, again).await.unwrap().0, "answer 0");
    }

    /// Promises: P20.
    #[tokio::test]
    async fn a_tenant_stores_a_limited_number_of_answers_and_keeps_those_it_has() {
        let (_dir, store) = store();
        sandbox(&store).await;
        let answers = AnswerTotals { count: 3, bytes: 1000 };
        let onces = IdempotencyStore { answers, ..IdempotencyStore::default() };
        let count = Arc::new(AtomicU32::new(0));
        let run = async |tenant: &str, key: &str| {
            let tenant = TenantId::parse(tenant).unwrap();
            let once = IdempotencyKey::new(key, "r", b"");
            let work = effect(store.clone(), tenant.clone(), once.clone(), Arc::clone(&count));
            onces.run(&store, &tenant, &once, work).await
        };
        for key in ["a", "b", "c"] {
            run("t", key).await.unwrap();
        }
        let refused = run("t", "d").await;
        assert!(matches!(refused, Err(Error::TooManyAnswers { count: 3, .. })), "{refused:?}");
        assert_eq!(count.load(Ordering::SeqCst), 3, "the work was not begun");
        assert_eq!(run("t", "a").await.unwrap(), ("answer 0".to_owned(), true));
        run("u", "d").await.unwrap();
        let long = isolet_store::StoredAnswer {
            tenant: "v".into(),
            key: "long".into(),
            body: [0; 32],
            answer: "x".repeat(1000),
        };
        store.insert_answer(long).await.unwrap();
        assert!(matches!(run("v", "d").await, Err(Error::TooManyAnswers { .. })));
    }
}
