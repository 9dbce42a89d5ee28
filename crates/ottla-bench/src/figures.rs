//! The figures that a run can produce, under the names used in scenarios, results and reports.
//!
//! MB are 2^20 bytes of record values unless the label says otherwise, as in Kafka's tools.

use indexmap::IndexMap;
use serde::Serialize;

/// Values of figures by name.
pub type Figures = IndexMap<String, f64>;

/// Which direction is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
    /// Informative, neither good nor bad.
    Neither,
}

/// The description of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub label: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

const fn figure(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
) -> Figure {
    Figure {
        name,
        label,
        unit,
        better,
    }
}

use Better::{Higher, Lower, Neither};

/// Every figure; tables show them in this order.
#[rustfmt::skip]
pub const FIGURES: &[Figure] = &[
    figure("produce.records_per_second", "produced", "rec/s", Higher),
    figure("produce.mb_per_second", "produced", "MB/s", Higher),
    figure("produce.stored_mb_per_second", "stored, after compression", "MB/s", Neither),
    figure("produce.compression_ratio", "values to stored bytes", "", Neither),
    figure("produce.failed", "failed sends", "records", Lower),
    figure("produce.lost", "acknowledged and lost", "records", Lower),
    figure("produce.seconds", "producing took", "s", Neither),
    figure("consume.records_per_second", "consumed", "rec/s", Higher),
    figure("consume.mb_per_second", "consumed", "MB/s", Higher),
    figure("consume.stored_mb_per_second", "consumed, before decompression", "MB/s", Neither),
    figure("search.records_per_second", "highest rate held", "rec/s", Higher),
    figure("delay_ms", "behind at the end", "ms", Lower),
    figure("ack.mean_ms", "acknowledged, mean", "ms", Lower),
    figure("ack.p50_ms", "acknowledged, p50", "ms", Lower),
    figure("ack.p95_ms", "acknowledged, p95", "ms", Lower),
    figure("ack.p99_ms", "acknowledged, p99", "ms", Lower),
    figure("ack.p99_9_ms", "acknowledged, p99.9", "ms", Lower),
    figure("ack.max_ms", "acknowledged, max", "ms", Lower),
    figure("ack_from_send.p99_ms", "acknowledged since sent, p99", "ms", Lower),
    figure("ack_from_send.max_ms", "acknowledged since sent, max", "ms", Lower),
    figure("e2e.mean_ms", "end to end, mean", "ms", Lower),
    figure("e2e.p50_ms", "end to end, p50", "ms", Lower),
    figure("e2e.p95_ms", "end to end, p95", "ms", Lower),
    figure("e2e.p99_ms", "end to end, p99", "ms", Lower),
    figure("e2e.p99_9_ms", "end to end, p99.9", "ms", Lower),
    figure("e2e.max_ms", "end to end, max", "ms", Lower),
    figure("e2e_from_send.p99_ms", "end to end since sent, p99", "ms", Lower),
    figure("e2e_from_send.max_ms", "end to end since sent, max", "ms", Lower),
    figure("broker.cpu_seconds_per_gb", "broker's processor time", "s/GB", Lower),
    figure("broker.peak_memory_mb", "broker's peak memory", "MB", Lower),
    figure("broker.disk_written_mb", "broker wrote to disks", "MB", Lower),
    figure("broker.disk_read_mb", "broker read from disks", "MB", Lower),
    figure("broker.major_page_faults", "broker's major page faults", "", Lower),
    figure("broker.minor_page_faults", "broker's minor page faults", "", Lower),
    figure("broker.voluntary_switches", "broker's voluntary context switches", "", Lower),
    figure("broker.involuntary_switches", "broker's involuntary context switches", "", Lower),
    figure("generator.cpu_seconds_per_gb", "load generator's processor time", "s/GB", Neither),
];

pub fn known(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

/// Formats a value with a precision that suits its magnitude.
pub fn shown(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "–".to_owned(),
        _ if size >= 1000.0 => crate::scenario::quantities::shown_count(value),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, figure) in FIGURES.iter().enumerate() {
            assert!(FIGURES[index + 1..].iter().all(|it| it.name != figure.name));
        }
        assert_eq!(known("delay_ms").unwrap().unit, "ms");
        assert!(known("delay").is_none());
    }

    #[test]
    fn values_are_rounded_by_magnitude() {
        let all = [821_557.4, 193.04, 40.21, 0.123, 0.0123, 0.0].map(shown);
        assert_eq!(all, ["821,557", "193", "40.2", "0.12", "0.012", "0"]);
    }
}
