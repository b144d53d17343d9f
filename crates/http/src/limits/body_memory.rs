//! The memory of one request's body, out of the budget of all bodies.

use crate::foundation::error::ApiError;
use crate::limits::memory_budget::MemoryShare;
use axum::http::StatusCode;
use std::sync::{Arc, Mutex, PoisonError};

/// The share of one request. All its clones are the same share, which is returned with the last one:
/// the layer that counts requests holds one until the handler has answered.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory(Arc<Mutex<MemoryShare>>);

impl BodyMemory {
    pub(crate) fn new(share: MemoryShare) -> Self {
        Self(Arc::new(Mutex::new(share)))
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// 429 `too_much_memory` when the tenant's part is used up.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), ApiError> {
        let mut share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if share.take(bytes) {
            return Ok(());
        }
        let held = share.held_by_tenant();
        Err(ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_much_memory",
            format!(
                "a request of tenant \"{}\" needs {bytes} bytes of memory to be read; its requests \
                 hold {held} now, and may not hold that much more",
                share.tenant()
            ),
            "try again in a moment, or send fewer large requests at once; the operator of the \
             server can raise [connections] bodies_mib",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory_budget::MemoryBudget;
    use isolet_sandbox::TenantId;

    #[test]
    fn a_refusal_names_the_tenant_and_the_setting_and_the_last_clone_returns_the_memory() {
        let budget = MemoryBudget::new(100);
        let tenant = TenantId::parse("acme").unwrap();
        let memory = BodyMemory::new(budget.share(&tenant));
        let copy = memory.clone();
        copy.take(50).unwrap();
        let failure = memory.take(1).unwrap_err();
        assert_eq!((failure.status().as_u16(), failure.code), (429, "too_much_memory"));
        assert!(failure.message.contains("\"acme\"") && failure.message.contains("hold 50"));
        assert!(failure.hint.contains("[connections] bodies_mib"), "{}", failure.hint);
        drop(memory);
        assert_eq!(budget.held_by(&tenant), 50);
        drop(copy);
        assert_eq!(budget.held_by(&tenant), 0);
    }
}
