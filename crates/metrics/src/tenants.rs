//! Totals of each tenant, for a bounded number of tenants.

use crate::labels::described;
use crate::requests::whole;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of tenants with series of their own: the first ones that had a sandbox since the start
/// of the server.
pub const TENANTS_MAX: usize = 100;
/// The label of all further tenants. A tenant of this name shares their series.
pub const OTHER_TENANTS: &str = "other";

type TenantLabel = [(&'static str, String); 1];

/// The totals of one tenant, or of all tenants beyond [`TENANTS_MAX`].
#[derive(Debug)]
pub struct TenantMetrics {
    /// Commands and programs that have ended.
    pub commands: Counter,
    /// Bytes between its clients and its sandboxes.
    pub bytes: Counter,
    sandboxes: Gauge,
}

/// The totals of all tenants.
#[derive(Debug)]
pub struct Tenants {
    sandboxes: Family<TenantLabel, Gauge>,
    commands: Family<TenantLabel, Counter>,
    bytes: Family<TenantLabel, Counter>,
    known: Mutex<HashMap<String, Arc<TenantMetrics>>>,
}

impl Tenants {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let sandboxes = described("isolet_tenant_sandboxes", "Sandboxes of a tenant")
            .register(registry, Family::default());
        let commands = described(
            "isolet_tenant_commands",
            "Commands and programs of a tenant that have ended",
        )
        .register(registry, Family::default());
        let bytes = described(
            "isolet_tenant_stream",
            "Bytes between the clients and the sandboxes of a tenant",
        )
        .unit(Unit::Bytes)
        .register(registry, Family::default());
        Self { sandboxes, commands, bytes, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<TenantMetrics>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The totals of a tenant. Takes a lock, so a sandbox holds the result.
    #[must_use]
    pub fn of(&self, tenant: &str) -> Arc<TenantMetrics> {
        let mut known = self.known();
        let name = label(&known, tenant);
        if let Some(metrics) = known.get(name) {
            return Arc::clone(metrics);
        }
        let label = [("tenant", name.to_owned())];
        let metrics = Arc::new(TenantMetrics {
            commands: self.commands.get_or_create_owned(&label),
            bytes: self.bytes.get_or_create_owned(&label),
            sandboxes: self.sandboxes.get_or_create_owned(&label),
        });
        known.insert(name.to_owned(), Arc::clone(&metrics));
        metrics
    }

    /// Sets the number of sandboxes of every tenant. A tenant that is not listed has none.
    pub fn set_sandboxes<'a>(&self, counts: impl Iterator<Item = (&'a str, usize)>) {
        let known = self.known();
        let mut totals: HashMap<&str, usize> = HashMap::new();
        for (tenant, count) in counts {
            *totals.entry(label(&known, tenant)).or_default() += count;
        }
        for (name, metrics) in known.iter() {
            metrics.sandboxes.set(whole(totals.get(name.as_str()).copied().unwrap_or(0)));
        }
    }
}

/// The name under which a tenant is counted.
fn label<'a>(known: &HashMap<String, Arc<TenantMetrics>>, tenant: &'a str) -> &'a str {
    let named = known.len() - usize::from(known.contains_key(OTHER_TENANTS));
    if known.contains_key(tenant) || named < TENANTS_MAX { tenant } else { OTHER_TENANTS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn the_first_tenants_are_named_and_the_rest_share_one_series() {
        let mut registry = Registry::default();
        let tenants = Tenants::register(&mut registry);
        for n in 0..TENANTS_MAX + 50 {
            tenants.of(&format!("t{n}")).commands.inc();
        }
        tenants.of("t3").commands.inc();
        let all: Vec<_> = (0..TENANTS_MAX + 50).map(|n| format!("t{n}")).collect();
        tenants.set_sandboxes(all.iter().map(|name| (name.as_str(), 2)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("isolet_tenant_commands_total{tenant=\"t3\"} 2\n"), "{text}");
        assert!(text.contains("isolet_tenant_commands_total{tenant=\"other\"} 50\n"), "{text}");
        assert!(text.contains("isolet_tenant_sandboxes{tenant=\"other\"} 100\n"), "{text}");
        assert_eq!(text.matches("isolet_tenant_commands_total{").count(), TENANTS_MAX + 1);
        tenants.set_sandboxes([("t3", 1)].into_iter());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("isolet_tenant_sandboxes{tenant=\"t4\"} 0\n"), "{text}");
    }

    #[test]
    fn a_tenant_with_the_name_of_the_rest_takes_no_place() {
        let tenants = Tenants::register(&mut Registry::default());
        let _ = tenants.of(OTHER_TENANTS);
        for n in 0..TENANTS_MAX {
            let _ = tenants.of(&format!("t{n}"));
        }
        let known = tenants.known();
        assert!(known.contains_key("t99") && known.len() == TENANTS_MAX + 1);
    }
}
