//! Comparisons in progress. Calls for the same page of two snapshots share one, so that many of them cost
//! no more than one: files of snapshots never change.

use crate::model::error::Error;
use crate::model::ids::TenantId;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, WeakShared};
use isolet_storage::merged::DiffPage;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a comparison returns to all who wait for it.
type Outcome = Result<Arc<DiffPage>, Error>;
type Comparison = BoxFuture<'static, Outcome>;

/// The comparisons that a call waits for.
#[derive(Default)]
pub(crate) struct Comparisons(Mutex<HashMap<ComparedPage, WeakShared<Comparison>>>);

/// What two comparisons have in common that return the same page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ComparedPage {
    pub(crate) tenant: TenantId,
    /// The names of the directories of both snapshots.
    pub(crate) directories: [String; 2],
    pub(crate) after: Option<Vec<u8>>,
}

/// One call that waits for a comparison.
struct Waiting<'a> {
    comparisons: &'a Comparisons,
    page: &'a ComparedPage,
}

impl Comparisons {
    /// Waits for the comparison that is in progress for this page, or for the one that `start` returns.
    /// The comparison is dropped with the last call that waits for it.
    pub(crate) async fn join(
        &self,
        page: &ComparedPage,
        start: impl FnOnce() -> Comparison,
    ) -> Outcome {
        let comparison = {
            let mut running = self.lock();
            let found = running.get(page).and_then(WeakShared::upgrade);
            found.unwrap_or_else(|| {
                let new = start().shared();
                running.extend(new.downgrade().map(|weak| (page.clone(), weak)));
                new
            })
        };
        // Dropped after `comparison`, which the wait owns.
        let _waiting = Waiting { comparisons: self, page };
        comparison.await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ComparedPage, WeakShared<Comparison>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut running = self.comparisons.lock();
        if running.get(self.page).is_some_and(|weak| weak.upgrade().is_none()) {
            running.remove(self.page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::sync::Semaphore;

    const CALLS: usize = 16;

    fn page(after: Option<&str>) -> ComparedPage {
        let tenant = "t".parse().unwrap();
        let directories = ["a", "b"].map(str::to_owned);
        ComparedPage { tenant, directories, after: after.map(|after| after.as_bytes().to_vec()) }
    }

    /// A comparison that ends when the semaphore has a permit. Holds the value until it ends.
    fn comparison<T: Send + 'static>(end: &Arc<Semaphore>, held: T) -> Comparison {
        let end = Arc::clone(end);
        async move {
            let _held = held;
            end.acquire_owned().await.expect("not closed").forget();
            Ok(Arc::new(DiffPage::default()))
        }
        .boxed()
    }

    async fn leaves(call: impl Future<Output = Outcome>) {
        assert!(tokio::time::timeout(Duration::ZERO, call).await.is_err(), "it waits");
    }

    /// Sixteen comparisons of the same snapshots cost sixteen times as much as one.
    ///
    /// Promises: T29.
    #[tokio::test]
    async fn t21_calls_for_the_same_page_share_one_comparison() {
        let comparisons = Comparisons::default();
        let end = Arc::new(Semaphore::new(0));
        let started = AtomicU32::new(0);
        let pages = [page(None), page(Some("x"))];
        let join = |page| {
            comparisons.join(page, || {
                started.fetch_add(1, Ordering::Relaxed);
                comparison(&end, ())
            })
        };
        let calls = (0..CALLS).map(|_| join(&pages[0])).chain([join(&pages[1])]);
        let calls = futures_util::future::join_all(calls);
        // Once all calls wait.
        let end_all = async {
            tokio::task::yield_now().await;
            assert_eq!(started.load(Ordering::Relaxed), 2);
            end.add_permits(2);
        };
        let (outcomes, ()) = tokio::join!(calls, end_all);
        let pages: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        let same = |one: &&Arc<DiffPage>| Arc::ptr_eq(one, &pages[0]);
        assert_eq!(pages.iter().filter(same).count(), CALLS);
        assert!(comparisons.lock().is_empty());
    }

    /// The call that started it leaves: the others keep what was compared. The last one ends it.
    ///
    /// Promises: T29.
    #[tokio::test]
    async fn t21_a_shared_comparison_ends_with_the_last_call() {
        let comparisons = Comparisons::default();
        let end = Arc::new(Semaphore::new(0));
        let held = Arc::new(());
        let page = page(None);
        let join = || comparisons.join(&page, || comparison(&end, Arc::clone(&held)));
        let mut other = Box::pin(join());
        leaves(other.as_mut()).await;
        leaves(join()).await;
        assert_eq!(Arc::strong_count(&held), 2, "one comparison, which is still in progress");
        let last = Box::pin(join());
        drop(other);
        end.add_permits(1);
        last.await.unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
        leaves(join()).await;
        assert_eq!(Arc::strong_count(&held), 1, "nobody waits for it any more");
        assert!(comparisons.lock().is_empty());
    }
}
