//! The families of a timer: quantiles of the last minutes, and count and sum since the start.

use ottla_metrics::family::Family;
use ottla_metrics::histogram::{QUANTILES, Summary};

/// `meanings` are those of the quantiles, of the count and of the sum.
pub(super) fn timed(name: &str, meanings: [&'static str; 3], summary: &Summary) -> [Family; 3] {
    let [of_quantiles, of_count, of_sum] = meanings;
    let mut quantiles = Family::gauge(name, of_quantiles);
    for (quantile, value) in QUANTILES.into_iter().zip(summary.quantiles_ms) {
        quantiles.push([("quantile", quantile.to_owned())], value);
    }
    let count = Family::gauge(format!("{name}_count"), of_count);
    let sum = Family::gauge(format!("{name}_sum"), of_sum);
    [
        quantiles,
        count.value(summary.count as f64),
        sum.value(summary.sum_ms),
    ]
}
