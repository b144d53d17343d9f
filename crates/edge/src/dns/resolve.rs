//! From a name to addresses that may be dialled.

use super::upstream;
use crate::state::dns_cache::ADDRESSES_MAX;
use crate::state::sandbox::Link;
use crate::state::table::Links;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Answers hold at least for this long, so that a name does not lead elsewhere with each question.
const TTL_MIN: u64 = 5;
/// And at most for this long.
const TTL_MAX: u64 = 300;

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// It does not exist.
    #[error("no such host")]
    Unknown,
    /// Nobody who is asked for names answers.
    #[error("no resolver answers")]
    Failed,
    /// All its addresses are closed, for this reason.
    #[error("its addresses are closed ({0})")]
    Closed(&'static str),
    /// The link waits for too many names.
    #[error("too many names are looked up")]
    TooMany,
}

/// Addresses of a name, none of them closed, and for how long they hold. What was answered is
/// answered again while it holds.
///
/// # Errors
/// [`Unresolved`]
pub(crate) async fn addresses(
    links: &Links,
    link: &Link,
    name: &str,
) -> Result<(Vec<Ipv4Addr>, Duration), Unresolved> {
    let guard = links.guard();
    if let Some((mut pinned, left)) = link.pinned(name) {
        pinned.retain(|address| guard.closed(*address).is_none());
        if !pinned.is_empty() {
            return Ok((pinned, left));
        }
    }
    let asked = Name::from_ascii(format!("{name}.")).map_err(|_| Unresolved::Unknown)?;
    let answer = records(links, link, &Query::query(asked, RecordType::A)).await?;
    let mut found = Vec::new();
    let mut why = None;
    let mut ttl = TTL_MAX;
    for one in answer {
        ttl = ttl.min(u64::from(one.ttl));
        let RData::A(address) = one.data else { continue };
        match guard.closed(address.0) {
            None if found.len() < ADDRESSES_MAX => found.push(address.0),
            None => {}
            Some(closed) => why = Some(closed),
        }
    }
    let ttl = Duration::from_secs(ttl.clamp(TTL_MIN, TTL_MAX));
    match why {
        Some(why) if found.is_empty() => Err(Unresolved::Closed(why)),
        _ if found.is_empty() => Ok((found, ttl)),
        _ => {
            link.pin(name, found.clone(), ttl);
            Ok((found, ttl))
        }
    }
}

/// What resolvers answer to a question.
///
/// # Errors
/// [`Unresolved`]
pub(crate) async fn records(
    links: &Links,
    link: &Link,
    question: &Query,
) -> Result<Vec<Record>, Unresolved> {
    let _waits = link.lookups.try_acquire().map_err(|_| Unresolved::TooMany)?;
    let resolvers = links.resolvers();
    let answer = upstream::ask(&resolvers, question).await.ok_or(Unresolved::Failed)?;
    match answer.metadata.response_code {
        ResponseCode::NoError => Ok(answer.answers),
        ResponseCode::NXDomain => Err(Unresolved::Unknown),
        _ => Err(Unresolved::Failed),
    }
}
