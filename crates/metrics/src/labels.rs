//! Families whose series are known when the server starts. They exist from the start with the value
//! 0, so that a rate sees their first event, and no update looks one up.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

/// One label with its value.
pub(crate) type Label = [(&'static str, &'static str); 1];

/// The name and the help text of a metric.
pub(crate) struct Described {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) unit: Option<Unit>,
}

/// Describes a metric without a unit.
pub(crate) fn described(name: &'static str, help: &'static str) -> Described {
    Described { name, help, unit: None }
}

impl Described {
    /// Adds the unit, which the name then ends with.
    pub(crate) fn unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// Registers a metric, and returns it.
    pub(crate) fn register<M>(self, registry: &mut Registry, metric: M) -> M
    where
        M: Clone + prometheus_client::registry::Metric,
    {
        match self.unit {
            Some(unit) => {
                registry.register_with_unit(self.name, self.help, unit, metric.clone());
            }
            None => registry.register(self.name, self.help, metric.clone()),
        }
        metric
    }

    /// Registers one series for each value of a label, and returns their handles in that order.
    pub(crate) fn family<M, const N: usize>(
        self,
        registry: &mut Registry,
        label: &'static str,
        values: [&'static str; N],
    ) -> [M; N]
    where
        M: Default + Clone + TypedMetric,
        Family<Label, M>: prometheus_client::registry::Metric,
    {
        debug_assert!(matches!(M::TYPE, MetricType::Counter | MetricType::Histogram));
        let family = self.register(registry, Family::<Label, M>::default());
        values.map(|value| family.get_or_create_owned(&[(label, value)]))
    }

    /// Registers a counter with this name and these labels.
    pub(crate) fn counter(self, registry: &mut Registry) -> Counter {
        self.register(registry, Counter::default())
    }
}
