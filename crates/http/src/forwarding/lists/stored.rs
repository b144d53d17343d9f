//! Sandboxes that only the object store has, as a part of the list of the node that received the request.
//! The other nodes list only what they have, so each is listed once.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::fleet::StoredAway;
use crate::foundation::error::ApiError;
use crate::foundation::pagination::Pagination;
use isolet_sandbox::{SandboxId, SandboxInfo};

/// A part of the list of a tenant's stored sandboxes.
#[derive(Debug, Default)]
pub(crate) struct StoredPart {
    pub(crate) sandboxes: Vec<StoredAway>,
    /// Whether there are more behind the last one.
    pub(crate) more: bool,
    /// Whether they are missing, because etcd cannot be read.
    pub(crate) is_incomplete: bool,
}

/// A sandbox in a list.
#[derive(Debug)]
pub(crate) enum Listed {
    Here(SandboxInfo),
    Stored(StoredAway),
}

impl Listed {
    pub(crate) fn info(self) -> SandboxInfo {
        match self {
            Self::Here(info) => info,
            Self::Stored(away) => away.info,
        }
    }

    fn id(&self) -> &SandboxId {
        match self {
            Self::Here(info) => &info.id,
            Self::Stored(away) => &away.info.id,
        }
    }
}

/// A page of the sandboxes of this node and of those that only the object store has.
#[derive(Debug)]
pub(crate) struct ListedPage {
    pub(crate) items: Vec<Listed>,
    /// The id of the last item, if there are more.
    pub(crate) last: Option<String>,
    /// As of [`StoredPart`].
    pub(crate) is_incomplete: bool,
}

/// The stored sandboxes of the caller behind `after`. There are none without a fleet, and for another
/// node.
pub(crate) async fn part(
    app: &App,
    caller: &Caller,
    after: Option<&SandboxId>,
    limit: usize,
) -> StoredPart {
    let Some(joined) = app.fleet.as_ref().filter(|_| !caller.forwarded) else {
        return StoredPart::default();
    };
    match joined.fleet.stored_page(&caller.tenant, after, limit).await {
        Ok((sandboxes, more)) => StoredPart { sandboxes, more, is_incomplete: false },
        // The sandboxes of nodes are listed without etcd.
        Err(error) => {
            tracing::warn!(%error, "sandboxes that only the object store has cannot be listed");
            StoredPart { is_incomplete: true, ..StoredPart::default() }
        }
    }
}

/// A page, sorted by id. A sandbox that has just been restored here is not listed twice.
///
/// # Errors
/// Errors of the service.
pub(crate) async fn page(
    app: &App,
    caller: &Caller,
    paging: &Pagination,
) -> Result<ListedPage, ApiError> {
    let after = paging.after.as_ref();
    let own = app.service.list(&caller.tenant, after, paging.limit).await?;
    let StoredPart { sandboxes, more, is_incomplete } =
        part(app, caller, after, paging.limit).await;
    let mut more = more || own.next.is_some();
    let mut items: Vec<Listed> = own.items.into_iter().map(Listed::Here).collect();
    items.extend(sandboxes.into_iter().map(Listed::Stored));
    // Stable: of two with the same id, the one of this node comes first and stays.
    items.sort_by(|one, other| one.id().cmp(other.id()));
    items.dedup_by(|one, other| one.id() == other.id());
    more |= items.len() > paging.limit;
    items.truncate(paging.limit);
    let last = items.last().filter(|_| more).map(|last| last.id().to_string());
    Ok(ListedPage { items, last, is_incomplete })
}
