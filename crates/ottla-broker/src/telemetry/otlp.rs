//! Decodes pushes: OpenTelemetry metrics (`opentelemetry.proto.metrics.v1.MetricsData`). Gauges and
//! sums are read, the rest is ignored. The bytes come from clients, so nothing here may panic.

use std::sync::Arc;

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
    /// Shared by the values of a metric, because a push may have a long name and many values.
    pub(crate) name: Arc<str>,
    pub(crate) kind: ClientMetricKind,
    pub(crate) labels: Box<[(String, String)]>,
    pub(crate) value: f64,
}

/// The overhead of the allocation of a label's string.
const ALLOCATION_BYTES: usize = 16;

impl ClientMetric {
    /// An upper bound of the memory and of the exported text.
    pub(super) fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| {
            size_of::<(String, String)>() + key.len() + value.len() + 2 * ALLOCATION_BYTES
        });
        size_of::<ClientMetric>() + self.name.len() + labels.sum::<usize>()
    }
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
    #[prost(bool, optional, tag = "2")]
    bool_value: Option<bool>,
    #[prost(int64, optional, tag = "3")]
    int_value: Option<i64>,
    #[prost(double, optional, tag = "4")]
    double_value: Option<f64>,
}

impl AnyValue {
    /// `None` if it is empty, or an array, a list or bytes, which no label can have.
    fn into_text(self) -> Option<String> {
        let number = self.int_value.map(|it| it.to_string());
        self.string_value
            .or(number)
            .or(self.bool_value.map(|it| it.to_string()))
            .or(self.double_value.map(|it| it.to_string()))
            .filter(|text| !text.is_empty())
    }
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
        let name: Arc<str> = metric.name.into();
        if let Some(gauge) = metric.gauge {
            let kind = ClientMetricKind::Gauge;
            metrics.extend(points(&name, kind, gauge.data_points));
        }
        if let Some(sum) = metric.sum {
            let kind = match sum.is_monotonic {
                true => ClientMetricKind::Counter,
                false => ClientMetricKind::Gauge,
            };
            metrics.extend(points(&name, kind, sum.data_points));
        }
    }
    Some(metrics)
}

fn points(
    name: &Arc<str>,
    kind: ClientMetricKind,
    points: Vec<NumberDataPoint>,
) -> impl Iterator<Item = ClientMetric> {
    points.into_iter().filter_map(move |point| {
        let value = point.as_double.or(point.as_int.map(|it| it as f64))?;
        let labels = point.attributes.into_iter().filter_map(|attribute| {
            let text = attribute.value?.into_text()?;
            (!attribute.key.is_empty()).then_some((attribute.key, text))
        });
        Some(ClientMetric {
            name: Arc::clone(name),
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
        let attribute = |key: &str, set: fn(&mut AnyValue)| {
            let mut value = AnyValue::default();
            set(&mut value);
            KeyValue {
                key: key.to_owned(),
                value: Some(value),
            }
        };
        let point = |as_double, as_int| NumberDataPoint {
            as_double,
            as_int,
            attributes: vec![
                attribute("node_id", |value| value.string_value = Some("1".to_owned())),
                attribute("is_controller", |value| value.bool_value = Some(false)),
                attribute("shard", |value| value.int_value = Some(-7)),
                attribute("share", |value| value.double_value = Some(0.5)),
                // A list, which is not read.
                attribute("others", |_| {}),
                attribute("", |value| value.int_value = Some(1)),
            ],
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
        let labels = [
            ("node_id", "1"),
            ("is_controller", "false"),
            ("shard", "-7"),
            ("share", "0.5"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(
            read,
            [
                ClientMetric {
                    name: "a".into(),
                    kind: ClientMetricKind::Gauge,
                    labels: labels.clone().into(),
                    value: 1.5,
                },
                ClientMetric {
                    name: "b".into(),
                    kind: ClientMetricKind::Counter,
                    labels: labels.into(),
                    value: 7.0,
                },
            ]
        );
    }

    #[test]
    fn a_long_name_with_many_values_is_stored_once() {
        let point = NumberDataPoint {
            as_double: Some(1.0),
            as_int: None,
            attributes: Vec::new(),
        };
        let metric = Metric {
            name: "n".repeat(100_000),
            gauge: Some(Gauge {
                data_points: vec![point; 1000],
            }),
            sum: None,
        };
        let data = MetricsData {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics {
                    metrics: vec![metric],
                }],
            }],
        };
        let read = read(data.encode_to_vec().into()).expect("good bytes");
        assert!(read.iter().all(|it| Arc::ptr_eq(&it.name, &read[0].name)));
        // The text has the name a thousand times.
        let bytes: usize = read.iter().map(ClientMetric::bytes).sum();
        assert!(bytes > 100_000_000, "{bytes}");
    }

    #[test]
    fn invalid_bytes_are_refused_or_empty() {
        assert_eq!(read(Bytes::from_static(b"\xff\xff\xff")), None);
        assert_eq!(read(Bytes::new()), Some(Vec::new()));
        for length in 0..200u8 {
            let bytes: Vec<u8> = (0..length).map(|it| it.wrapping_mul(37)).collect();
            // Must return for any input.
            let _ = read(bytes.into());
        }
    }
}
