//! Decodes pushes: OpenTelemetry metrics (`opentelemetry.proto.metrics.v1.MetricsData`). Gauges and
//! sums are read, the rest is ignored. The bytes come from clients, so nothing here may panic.

use bytes::Bytes;
use prost::Message;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientMetricKind {
    /// Monotonic while the client lives.
    Counter,
    Gauge,
}

/// One value in a push.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ClientMetric {
    /// The client's name of the metric: `org.apache.kafka.producer.connection.creation.total`.
    pub(crate) name: String,
    pub(crate) kind: ClientMetricKind,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

// The parts of the protocol that are read, with their tags in
// opentelemetry/proto/metrics/v1/metrics.proto.

#[derive(Clone, PartialEq, Message)]
struct MetricsData {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    sum: Option<Sum>,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct NumberDataPoint {
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    as_int: Option<i64>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
    #[prost(int64, optional, tag = "3")]
    int_value: Option<i64>,
}

/// Decodes a push. `None` if it is malformed.
pub(super) fn read(bytes: Bytes) -> Option<Vec<ClientMetric>> {
    let data = MetricsData::decode(bytes).ok()?;
    let mut metrics = Vec::new();
    let scopes = data.resource_metrics.into_iter();
    for metric in scopes
        .flat_map(|resource| resource.scope_metrics)
        .flat_map(|scope| scope.metrics)
    {
        if let Some(gauge) = metric.gauge {
            let kind = ClientMetricKind::Gauge;
            metrics.extend(points(&metric.name, kind, gauge.data_points));
        }
        if let Some(sum) = metric.sum {
            let kind = match sum.is_monotonic {
                true => ClientMetricKind::Counter,
                false => ClientMetricKind::Gauge,
            };
            metrics.extend(points(&metric.name, kind, sum.data_points));
        }
    }
    Some(metrics)
}

fn points(
    name: &str,
    kind: ClientMetricKind,
    points: Vec<NumberDataPoint>,
) -> impl Iterator<Item = ClientMetric> {
    points.into_iter().filter_map(move |point| {
        let value = point.as_double.or(point.as_int.map(|it| it as f64))?;
        let labels = point.attributes.into_iter().map(|attribute| {
            let value = attribute.value.unwrap_or_default();
            let int = value.int_value.map(|it| it.to_string());
            (
                attribute.key,
                value.string_value.or(int).unwrap_or_default(),
            )
        });
        Some(ClientMetric {
            name: name.to_owned(),
            kind,
            labels: labels.collect(),
            value,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_and_sums_are_read() {
        let point = |as_double, as_int| NumberDataPoint {
            as_double,
            as_int,
            attributes: vec![KeyValue {
                key: "node_id".to_owned(),
                value: Some(AnyValue {
                    string_value: Some("1".to_owned()),
                    int_value: None,
                }),
            }],
        };
        let metrics = vec![
            Metric {
                name: "a".to_owned(),
                gauge: Some(Gauge {
                    data_points: vec![point(Some(1.5), None), point(None, None)],
                }),
                sum: None,
            },
            Metric {
                name: "b".to_owned(),
                gauge: None,
                sum: Some(Sum {
                    data_points: vec![point(None, Some(7))],
                    is_monotonic: true,
                }),
            },
        ];
        let data = MetricsData {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics { metrics }],
            }],
        };
        let read = read(data.encode_to_vec().into()).expect("good bytes");
        let labels = vec![("node_id".to_owned(), "1".to_owned())];
        assert_eq!(
            read,
            [
                ClientMetric {
                    name: "a".to_owned(),
                    kind: ClientMetricKind::Gauge,
                    labels: labels.clone(),
                    value: 1.5,
                },
                ClientMetric {
                    name: "b".to_owned(),
                    kind: ClientMetricKind::Counter,
                    labels,
                    value: 7.0,
                },
            ]
        );
    }

    #[test]
    fn other_bytes_are_refused_or_empty() {
        assert_eq!(read(Bytes::from_static(b"\xff\xff\xff")), None);
        assert_eq!(read(Bytes::new()), Some(Vec::new()));
        for length in 0..200u8 {
            let bytes: Vec<u8> = (0..length).map(|it| it.wrapping_mul(37)).collect();
            // Must return for any input.
            let _ = read(bytes.into());
        }
    }
}
