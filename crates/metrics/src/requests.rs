//! Requests, connections and refusals.

use crate::labels::{Label, described};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The status codes with a series of their own.
const CODES: [u16; 5] = [401, 403, 404, 429, 503];
/// The values of the label `code`: [`CODES`], then the other codes by their first digit.
const CODE_LABELS: [&str; 10] =
    ["401", "403", "404", "429", "503", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// How requests of clients were answered or refused.
#[derive(Debug)]
pub struct RequestMetrics {
    responses: [Counter; 10],
    /// Requests that a limit refused.
    pub refused: RefusedRequests,
    /// Connections, packets and lookups of sandboxes that the egress rules denied.
    pub egress_denials: Counter,
    /// Open TCP connections of clients. Set when the metrics are read.
    pub connections: Gauge,
    in_progress: Family<Label, Gauge>,
}

impl RequestMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let responses = described(
            "isolet_http_responses",
            "Responses of the server itself by status: some codes alone, the others by their first digit",
        )
        .family(registry, "code", CODE_LABELS);
        let refused = RefusedRequests::register(registry);
        let egress_denials = described(
            "isolet_egress_denials",
            "Connections, packets and lookups of sandboxes that the egress rules denied",
        )
        .counter(registry);
        let connections = described("isolet_client_connections", "Open connections of clients")
            .register(registry, Gauge::default());
        let in_progress = described(
            "isolet_requests_in_progress",
            "Requests and sockets of clients that are open, by the kind that the limits count",
        )
        .register(registry, Family::default());
        Self { responses, refused, egress_denials, connections, in_progress }
    }

    /// Counts a response of the server itself.
    pub fn responded(&self, status: u16) {
        let own = CODES.iter().position(|code| *code == status);
        let class = || CODES.len() + usize::from(status / 100).clamp(1, 5) - 1;
        self.responses[own.unwrap_or_else(class)].inc();
    }

    /// Sets the number of open requests of one kind.
    pub fn set_in_progress(&self, kind: &'static str, count: usize) {
        self.in_progress.get_or_create(&[("kind", kind)]).set(whole(count));
    }
}

/// A count as the value of a gauge.
pub(crate) fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Requests that a limit refused. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct RefusedRequests {
    /// The tenant's limit on requests of one kind.
    pub kind: Counter,
    /// The tenant's limit on requests of all kinds.
    pub tenant: Counter,
    /// The reserve for tenants with few requests.
    pub reserve: Counter,
    /// All connections of the server are in use.
    pub server: Counter,
    /// The limit on 401 and 404 answers.
    pub not_found: Counter,
}

impl RefusedRequests {
    fn register(registry: &mut Registry) -> Self {
        let reasons = ["kind_limit", "tenant_limit", "reserve", "server_full", "not_found_limit"];
        let [kind, tenant, reserve, server, not_found] =
            described("isolet_refused_requests", "Requests that a limit on connections refused")
                .family(registry, "reason", reasons);
        Self { kind, tenant, reserve, server, not_found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_counts_alone_or_with_its_class() {
        let metrics = RequestMetrics::register(&mut Registry::default());
        for (status, label) in
            [(101, "1xx"), (204, "2xx"), (429, "429"), (409, "4xx"), (500, "5xx"), (503, "503")]
        {
            let at = CODE_LABELS.iter().position(|one| *one == label).unwrap();
            let before = metrics.responses[at].get();
            metrics.responded(status);
            assert_eq!(metrics.responses[at].get(), before + 1, "{status}");
        }
    }
}
