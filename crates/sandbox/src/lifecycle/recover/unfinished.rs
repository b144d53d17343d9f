//! Restores in place and forks that a killed server left unfinished.

use crate::live::snapshots::restores::Restores;
use crate::model::blocking::blocking;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::record::{Record, UNREAD};
use crate::model::state::State;
use isolet_store::Store;
use tracing::{info, warn};

/// Removes copied files whose restore was not recorded.
pub(super) async fn sweep_restores(config: &Config, records: &[Record]) {
    // The record of one that does not read may name them.
    if records.iter().any(|record| record.body.cause.as_deref() == Some(UNREAD)) {
        return;
    }
    let restores = Restores::new(&config.data_dir);
    let named = records.iter().filter_map(|record| record.body.restore.clone()).collect();
    match blocking(move || restores.sweep(&named)).await {
        Ok(Ok(())) => {}
        done => warn!(?done, "files of restores that did not happen are not removed yet"),
    }
}

/// Ends the sandboxes of forks that are not complete. `forks` are the names of their temporary
/// snapshots, whose records are removed when all of their sandboxes are marked: a server that is
/// killed in between leaves none of them either.
pub(super) async fn undo_forks(store: &Store, records: &mut [Record], forks: Vec<String>) {
    for fork in forks {
        let own = |record: &&mut Record| record.body.fork.as_ref() == Some(&fork);
        let mut marked = Ok(());
        for record in records.iter_mut().filter(own) {
            info!(sandbox = %record.id, tenant = %record.tenant, "its fork is not complete; it is removed");
            record.state = State::Destroying;
            marked = marked.and(mark(store, record).await);
        }
        let removed = match marked {
            Ok(()) => store.remove_snapshot(&fork).await.map_err(Error::from),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            warn!(%error, "an incomplete fork is removed again at the next start");
        }
    }
}

async fn mark(store: &Store, record: &Record) -> Result<(), Error> {
    Ok(store.mark_destroying(&record.name, record.body.json()?).await?)
}
