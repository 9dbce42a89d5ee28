use super::*;
use crate::config::ClientConfig;

fn sensors() -> Arc<ConsumerSensors> {
    let windows = Windows {
        count: 2,
        length_ms: 30_000,
    };
    Arc::new(ConsumerSensors::new(windows, GroupProtocol::Classic))
}

fn read(sensors: &ConsumerSensors) -> Metrics {
    sensors.read(&Client::unconnected(ClientConfig::default()))
}

fn part(records: usize, bytes: usize) -> Extent {
    Extent { records, bytes }
}

/// As in `FetchMetricsAggregator`: one value per request, and one per topic in it.
#[tokio::test]
async fn a_response_counts_once_in_total_and_once_per_topic() {
    let sensors = sensors();
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let tally = RequestTally::new(sensors.clone());
    tally.on_drained(&a, part(1, 10));
    tally.on_drained(&a, part(2, 30));
    tally.on_drained(&b, part(3, 60));
    let early = read(&sensors).value("fetch-size-avg");
    assert!(
        early.is_some_and(f64::is_nan),
        "not before all is read: {early:?}"
    );
    drop(tally);
    let measured = read(&sensors);
    assert_eq!(measured.value("fetch-size-avg"), Some(100.0));
    assert_eq!(measured.value("records-per-request-avg"), Some(6.0));
    assert_eq!(measured.value("bytes-consumed-total"), Some(100.0));
    let of = |name, topic| measured.value_of(name, &[("topic", topic)]);
    assert_eq!(of("fetch-size-avg", "a"), Some(40.0));
    assert_eq!(of("fetch-size-max", "a"), Some(40.0));
    assert_eq!(of("records-per-request-avg", "a"), Some(3.0));
    assert_eq!(of("fetch-size-avg", "b"), Some(60.0));
}

/// A response in a session omits partitions without news. Only a response with partitions has a
/// fetch size.
#[tokio::test]
async fn empty_responses_do_not_count_for_sizes() {
    let sensors = sensors();
    drop(RequestTally::new(sensors.clone()));
    let measured = read(&sensors);
    assert!(measured.value("fetch-size-avg").is_some_and(f64::is_nan));
    assert_eq!(measured.value("records-consumed-total"), Some(0.0));
    let topic: Arc<str> = "a".into();
    RequestTally::new(sensors.clone()).on_drained(&topic, part(0, 0));
    RequestTally::new(sensors.clone()).on_drained(&topic, part(2, 50));
    assert_eq!(read(&sensors).value("fetch-size-avg"), Some(25.0));
}
