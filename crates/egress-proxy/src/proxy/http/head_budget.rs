//! Bounds the memory that long request heads of one sandbox take. A connection that carried one
//! closes, because its buffers live as long as the connection.

use crate::header_size::header_bytes;
use crate::state::sandbox::SandboxEntry;
use hyper::Request;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Longer heads are charged. The memory of shorter ones is bounded by the number of connections.
const LONG_HEAD_BYTES: usize = 16 * 1024;
/// The request line without its target.
const REQUEST_LINE_BYTES: usize = 32;

/// Bytes of a request's head on the wire.
pub(super) fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    REQUEST_LINE_BYTES + target + header_bytes(request.headers())
}

/// The share of a long head in its sandbox's budget; given back on drop.
#[derive(Debug)]
pub(super) struct HeadCharge {
    sandbox: Arc<SandboxEntry>,
    permit: OwnedSemaphorePermit,
}

/// Other requests of the sandbox take the whole budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExhausted;

impl HeadCharge {
    /// Charges a head by its sizes as received and as sent, in bytes; `None`: it is short.
    ///
    /// # Errors
    /// [`BudgetExhausted`]
    pub(super) fn new(
        sandbox: &Arc<SandboxEntry>,
        received_bytes: usize,
        sent_bytes: usize,
    ) -> Result<Option<Self>, BudgetExhausted> {
        if received_bytes.max(sent_bytes) <= LONG_HEAD_BYTES {
            return Ok(None);
        }
        // The head as received, its values with credentials, and the write buffer, which doubles.
        let bytes = received_bytes + 3 * sent_bytes;
        let bytes = u32::try_from(bytes).map_err(|_| BudgetExhausted)?;
        let permit = sandbox.limits.long_heads.clone().try_acquire_many_owned(bytes);
        let permit = permit.map_err(|_| BudgetExhausted)?;
        Ok(Some(Self { sandbox: sandbox.clone(), permit }))
    }
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        self.sandbox.freed_memory.add(self.permit.num_permits());
    }
}
