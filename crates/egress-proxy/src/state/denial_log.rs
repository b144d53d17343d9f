//! Denials that are not reported yet. Equal ones are counted instead of repeated.

use isolet_wire::network::{NetworkDenial, ProxyResponse};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

/// Different denials of one sandbox that may wait for their report; more are dropped. They wait at
/// most for a tenth of a second.
const PENDING_MAX: usize = 256;

/// A denied connection or DNS query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Denial {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) protocol: &'static str,
    pub(crate) rule: String,
}

/// The pending denials of each sandbox, with how often each occurred.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    pending: Mutex<HashMap<Ipv4Addr, HashMap<Denial, u32>>>,
}

impl DenialLog {
    pub(crate) fn record(&self, sandbox: Ipv4Addr, denial: Denial) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let denials = pending.entry(sandbox).or_default();
        if denials.len() < PENDING_MAX || denials.contains_key(&denial) {
            let times = denials.entry(denial).or_insert(0);
            *times = times.saturating_add(1);
        }
    }

    /// Takes all pending denials, as messages to the server.
    pub(crate) fn take(&self) -> Vec<ProxyResponse> {
        let pending =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        let messages = pending.into_iter().flat_map(|(address, denials)| {
            denials.into_iter().map(move |(denial, times)| {
                let Denial { host, port, protocol, rule } = denial;
                let protocol = protocol.to_owned();
                let refused = NetworkDenial { host, port, protocol, rule, times };
                ProxyResponse::Refused { address, refused }
            })
        });
        messages.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: R5.
    #[test]
    fn equal_denials_are_counted_and_their_number_is_bounded() {
        let log = DenialLog::default();
        let sandbox = Ipv4Addr::new(10, 231, 0, 2);
        let denial =
            |host: String| Denial { host, port: Some(1), protocol: "tcp", rule: "x".into() };
        for _ in 0..3 {
            log.record(sandbox, denial("a".into()));
        }
        let messages = log.take();
        assert!(
            matches!(&messages[..], [ProxyResponse::Refused { refused, .. }] if refused.times == 3)
        );
        for number in 0..10_000 {
            log.record(sandbox, denial(number.to_string()));
        }
        assert_eq!(log.take().len(), PENDING_MAX);
        assert!(log.take().is_empty());
    }
}
