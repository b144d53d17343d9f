//! Resolves a name to addresses that may be dialled.

use super::upstream;
use crate::state::dns_cache::{ADDRESSES_MAX, CachedAnswer};
use crate::state::sandbox::SandboxEntry;
use crate::state::table::SandboxTable;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Shortest TTL of an answer, in seconds, so that a name does not change with each query.
const TTL_MIN_S: u64 = 5;
/// Longest TTL of an answer, in seconds.
const TTL_MAX_S: u64 = 300;

/// Why a name was not resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("no such host")]
    NoSuchHost,
    /// None of the resolvers answered in time.
    #[error("no resolver answers")]
    NoAnswer,
    /// All addresses of the name are closed, for this reason.
    #[error("its addresses are closed ({0})")]
    Closed(&'static str),
    /// The sandbox has too many lookups in flight.
    #[error("too many names are looked up")]
    TooMany,
}

/// The addresses of a name that are not closed. Answers are cached for their TTL.
///
/// # Errors
/// [`ResolveError`]
pub(crate) async fn addresses(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    name: &str,
) -> Result<CachedAnswer, ResolveError> {
    let guard = sandboxes.guard();
    if let Some(mut cached) = sandbox.cached_answer(name) {
        cached.addresses.retain(|address| guard.closed(*address).is_none());
        if !cached.addresses.is_empty() {
            return Ok(cached);
        }
    }
    let absolute_name =
        Name::from_ascii(format!("{name}.")).map_err(|_| ResolveError::NoSuchHost)?;
    let query = Query::query(absolute_name, RecordType::A);
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    let mut closed_reason = None;
    let mut ttl_s = TTL_MAX_S;
    for record in records(sandboxes, sandbox, &query).await? {
        ttl_s = ttl_s.min(u64::from(record.ttl));
        let RData::A(address) = record.data else { continue };
        match guard.closed(address.0) {
            None if addresses.len() < ADDRESSES_MAX => addresses.push(address.0),
            None => {}
            Some(reason) => closed_reason = Some(reason),
        }
    }
    let ttl = Duration::from_secs(ttl_s.clamp(TTL_MIN_S, TTL_MAX_S));
    match closed_reason {
        Some(reason) if addresses.is_empty() => return Err(ResolveError::Closed(reason)),
        _ if addresses.is_empty() => {}
        _ => sandbox.cache_answer(name, addresses.clone(), ttl),
    }
    Ok(CachedAnswer { addresses, ttl })
}

/// The records with which the resolvers answer a query.
///
/// # Errors
/// [`ResolveError`]
pub(crate) async fn records(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    query: &Query,
) -> Result<Vec<Record>, ResolveError> {
    let _permit = sandbox.limits.lookups.try_acquire().map_err(|_| ResolveError::TooMany)?;
    let resolvers = sandboxes.resolvers();
    let response = upstream::query(&resolvers, query).await.ok_or(ResolveError::NoAnswer)?;
    match response.metadata.response_code {
        ResponseCode::NoError => Ok(response.answers),
        ResponseCode::NXDomain => Err(ResolveError::NoSuchHost),
        _ => Err(ResolveError::NoAnswer),
    }
}
