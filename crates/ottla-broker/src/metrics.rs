//! Collects and exports metrics.
//!
//! `ottla-metrics` contains the counters. [`collect`] adds the gauges of all parts, and names
//! everything as the JMX exporter with its usual rules names Kafka's MBeans, so that dashboards for
//! Kafka work. The HTTP listener and the file reporter read the result.

mod collect;
mod latencies;
mod reporter;

pub(crate) use collect::collect;
pub use latencies::{RequestActivity, RequestLatency};
pub(crate) use reporter::report_to_files;
