//! Counters whose values are those of the broker's metrics.

use ottla_metrics::Metric;
use ottla_metrics::family::Family;

use crate::Broker;

/// Counters of the broker: metric, name and help.
pub(super) fn counted<const COUNT: usize>(
    broker: &Broker,
    rows: [(Metric, &'static str, &'static str); COUNT],
) -> [Family; COUNT] {
    let value = |metric| broker.context.metrics.get(metric) as f64;
    rows.map(|(metric, name, help)| Family::counter(name, help).value(value(metric)))
}
