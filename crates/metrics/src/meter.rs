//! The counters that the work of one sandbox updates.

use crate::metrics::Metrics;
use crate::streams::Stream;
use crate::tenants::TenantMetrics;
use std::sync::Arc;
use std::time::Duration;

/// Counts the bytes and commands of one sandbox in the totals of the server and of its tenant.
#[derive(Debug)]
pub struct Meter {
    metrics: Arc<Metrics>,
    tenant: Arc<TenantMetrics>,
}

impl Meter {
    /// The meter of a sandbox of this tenant.
    #[must_use]
    pub fn new(metrics: &Arc<Metrics>, tenant: &str) -> Arc<Self> {
        let tenant = metrics.tenants.of(tenant);
        Arc::new(Self { metrics: Arc::clone(metrics), tenant })
    }

    /// Counts the bytes of one frame, read or write.
    pub fn bytes(&self, stream: Stream, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        self.metrics.streams.add(stream, bytes);
        self.tenant.bytes.inc_by(bytes);
    }

    /// Counts a command of a shell that has ended.
    pub fn command(&self, duration: Duration) {
        self.metrics.commands.shell.observe(duration);
        self.tenant.commands.inc();
    }

    /// Counts a program without a shell that has ended.
    pub fn program(&self, duration: Duration) {
        self.metrics.commands.program.observe(duration);
        self.tenant.commands.inc();
    }
}
