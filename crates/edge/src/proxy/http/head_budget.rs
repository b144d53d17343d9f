//! Memory that long heads of requests take: a sandbox's share of it is bounded, and a connection
//! that has carried one ends, since its buffers stay as long as it does.

use crate::header_size::header_bytes;
use crate::state::sandbox::Link;
use hyper::Request;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Longer heads are counted. What shorter ones take is bounded by the number of connections.
const LONG_BYTES: usize = 16 * 1024;
/// The request line beside its address.
const LINE_BYTES: usize = 32;

/// Bytes of a request's head on the wire.
pub(super) fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    LINE_BYTES + target + header_bytes(request.headers())
}

/// What a long head may take of its sandbox's share, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    link: Arc<Link>,
    permit: OwnedSemaphorePermit,
}

/// The sandbox's share is taken by other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Charge {
    /// Charges a head that came with so many bytes and goes on with so many; `None`: it is short.
    ///
    /// # Errors
    /// [`Exhausted`]
    pub(super) fn new(
        link: &Arc<Link>,
        came: usize,
        goes: usize,
    ) -> Result<Option<Self>, Exhausted> {
        if came.max(goes) <= LONG_BYTES {
            return Ok(None);
        }
        // As it came, with its values, and as it is written: into a buffer that doubles.
        let bytes = u32::try_from(came + 3 * goes).map_err(|_| Exhausted)?;
        let permit = link.long_heads.clone().try_acquire_many_owned(bytes);
        let permit = permit.map_err(|_| Exhausted)?;
        Ok(Some(Self { link: link.clone(), permit }))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.link.freed.add(self.permit.num_permits());
    }
}
