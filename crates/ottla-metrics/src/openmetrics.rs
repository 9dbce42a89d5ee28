//! Exposition in the OpenMetrics text format, which Prometheus scrapes.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::family::{Family, Kind};

/// The `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug)]
struct Collected(Vec<Family>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let (is_counter, metric_type) = match family.kind {
                Kind::Counter => (true, ConstCounter::new(0_u64).metric_type()),
                Kind::Gauge => (false, ConstGauge::new(0.0).metric_type()),
            };
            let mut described =
                encoder.encode_descriptor(&family.name, family.help, None, metric_type)?;
            for sample in &family.samples {
                // Without labels this writes an empty pair of braces, which the format allows.
                let encoder = described.encode_family(&sample.labels)?;
                match is_counter {
                    true => ConstCounter::new(sample.value).encode(encoder)?,
                    false => ConstGauge::new(sample.value).encode(encoder)?,
                }
            }
        }
        Ok(())
    }
}

/// Encodes all families as OpenMetrics text.
pub fn to_openmetrics(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(families)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("writing to a String succeeds");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let families = vec![
            Family::counter(
                "kafka_server_brokertopicmetrics_bytesin",
                "Bytes from producers",
            )
            .value(3.0)
            .sample([("topic", "a \"b\"".to_owned())], 2.0),
            Family::gauge(
                "kafka_controller_kafkacontroller_activecontrollercount",
                "One",
            )
            .value(1.0),
        ];
        assert_eq!(
            to_openmetrics(families),
            "# HELP kafka_server_brokertopicmetrics_bytesin Bytes from producers\n\
             # TYPE kafka_server_brokertopicmetrics_bytesin counter\n\
             kafka_server_brokertopicmetrics_bytesin_total{} 3.0\n\
             kafka_server_brokertopicmetrics_bytesin_total{topic=\"a \\\"b\\\"\"} 2.0\n\
             # HELP kafka_controller_kafkacontroller_activecontrollercount One\n\
             # TYPE kafka_controller_kafkacontroller_activecontrollercount gauge\n\
             kafka_controller_kafkacontroller_activecontrollercount{} 1.0\n\
             # EOF\n"
        );
    }
}
