//! Collects what the node counts, and shows it.
//!
//! Counters are in `ottla-metrics`. Here the gauges of all parts join them under the names that Kafka's JMX metrics have
//! after the usual rules of the JMX exporter, so that dashboards made for Kafka work ([`collect`]). They are read by the
//! HTTP listener and by the reporter that writes files.

mod collect;
mod reporter;

pub(crate) use collect::collect;
pub(crate) use reporter::report_to_files;
