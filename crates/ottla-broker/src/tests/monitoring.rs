//! The monitoring files agree with the metrics of a running node: the reference page, the
//! dashboard, the alerts and the page for operators. The alerts agree with their how-to page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

use ottla_metrics::family::{Family, Kind};
use regex::Regex;
use serde_json::Value;

use super::TestBroker;
use super::metrics::HTTP;
use super::produce_and_fetch::{batch, fetch_from, produce_to};
use super::tiered_storage;

/// Names that PromQL itself, Prometheus and Grafana define.
const PROMQL: &[&str] = &[
    "by",
    "count",
    "job",
    "instance",
    "max",
    "min",
    "predict_linear",
    "rate",
    "sum",
    "topk",
    "up",
];

fn repository(path: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    PathBuf::from(root).join(path)
}

fn read(path: &str) -> String {
    let full = repository(path);
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The metrics of a node with tiered storage that has served a producer and a consumer.
async fn families() -> Vec<Family> {
    let store = tempfile::tempdir().expect("a directory");
    let mut settings = tiered_storage::settings(store.path());
    settings.push(HTTP);
    let broker = TestBroker::start_with(&settings).await;
    let is_tiered = ("remote.storage.enable", "true");
    broker.create_topic("tiered", 1, &[is_tiered]).await;
    let remote_logs = broker.broker().remote_logs().expect("it is tiered");
    while remote_logs.numbers().1.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    broker.create_topic("orders", 1, &[]).await;
    let mut client = broker.connect().await;
    client
        .ask(9, &produce_to("orders", 0, 1, batch(&["a"])))
        .await;
    client.ask(12, &fetch_from("orders", 0, 0)).await;
    // The idle ratio is known from the second sample on.
    for _ in 0..2 {
        broker.broker().context.metrics.worker_idle.look();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    crate::metrics::collect(broker.broker())
}

/// The name that a query uses.
fn queried(family: &Family) -> String {
    match family.kind {
        Kind::Counter => format!("{}_total", family.name),
        Kind::Gauge => family.name.clone(),
    }
}

fn label_keys(family: &Family) -> BTreeSet<String> {
    let labels = family.samples.iter().flat_map(|sample| &sample.labels);
    labels.map(|(key, _)| key.to_string()).collect()
}

/// Metrics whose samples need more than one plain node that has started: another node, TLS, a quota,
/// a run of the tasks of tiered storage.
const LABELS_ELSEWHERE: &[(&str, &str)] = &[
    ("kafka_log_logmanager_remaininglogstorecover", "dir"),
    (
        "kafka_log_logmanager_remainingsegmentstorecover",
        "dir, threadNum",
    ),
    (
        "kafka_log_remote_remotelogmanager_localretentionsizeinpercent",
        "partition, topic",
    ),
    (
        "kafka_log_remote_remotelogmanager_retentionsizeinpercent",
        "partition, topic",
    ),
    (
        "kafka_server_fetcherlagmetrics_consumerlag",
        "clientId, partition, topic",
    ),
    (
        "kafka_server_fetcherstats_bytes",
        "brokerHost, brokerPort, clientId",
    ),
    (
        "kafka_server_fetcherstats_requests",
        "brokerHost, brokerPort, clientId",
    ),
    (
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests",
        "group",
    ),
    (
        "kafka_server_sharegroupmetrics_deadletterqueuerecordcount",
        "group",
    ),
    (
        "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests",
        "group",
    ),
    ("ottla_authorizer_audit_lost", "to"),
    (
        "ottla_tls_certificate_expiry_seconds",
        "alias, listener, subject",
    ),
];

/// The reference: every metric with type, labels and meaning.
fn table(families: &[Family]) -> String {
    let mut rows: BTreeMap<String, (Kind, String, &str)> = BTreeMap::new();
    for family in families {
        let labels: Vec<String> = label_keys(family).into_iter().collect();
        let elsewhere = LABELS_ELSEWHERE
            .iter()
            .find(|(name, _)| *name == family.name);
        let labels = match (labels.is_empty(), elsewhere) {
            (false, _) => labels.join(", "),
            (true, Some((_, labels))) => (*labels).to_owned(),
            // The samples of quotas: `quotas::labels`.
            (true, None) if family.samples.is_empty() => "client_id, user".to_owned(),
            (true, None) => String::new(),
        };
        rows.insert(queried(family), (family.kind, labels, family.help));
    }
    let mut text = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for (name, (kind, labels, help)) in rows {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_page_lists_every_metric() {
    const PAGE: &str = "docs/metrics.md";
    const BEGIN: &str = "<!-- metrics: begin -->\n";
    const END: &str = "<!-- metrics: end -->";
    let families = families().await;
    let without_samples = families.iter().filter(|it| it.samples.is_empty());
    for family in without_samples {
        let is_known = LABELS_ELSEWHERE.iter().any(|it| it.0 == family.name);
        let is_quota = ["produce", "fetch", "request", "controllermutation"]
            .iter()
            .any(|kind| family.name.starts_with(&format!("kafka_server_{kind}_")));
        assert!(is_known || is_quota, "which labels has {}?", family.name);
    }
    let page = read(PAGE);
    let begin = page.find(BEGIN).expect("the table has a place") + BEGIN.len();
    let end = page.find(END).expect("the table's place has an end");
    let table = table(&families);
    if std::env::var_os("OTTLA_WRITE_DOCS").is_some() {
        let text = format!("{}{table}{}", &page[..begin], &page[end..]);
        std::fs::write(repository(PAGE), text).expect("written");
        return;
    }
    assert!(
        page[begin..end] == table,
        "{PAGE} is not up to date; run this test with OTTLA_WRITE_DOCS=1"
    );
}

/// The words of a query that are neither strings nor durations.
fn words(query: &str) -> Vec<String> {
    static STRINGS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#""[^"]*"|\[[^\]]*\]"#).unwrap());
    static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z_]\w*").unwrap());
    let bare = STRINGS.replace_all(query, "");
    let words = WORDS.find_iter(&bare);
    words.map(|it| it.as_str().to_owned()).collect()
}

/// The words of a query that are neither a metric nor a label of one, nor PromQL's.
fn unknown(query: &str, names: &BTreeSet<String>, labels: &BTreeSet<String>) -> Vec<String> {
    let mut words = words(query);
    words.retain(|word| {
        !names.contains(word) && !labels.contains(word) && !PROMQL.contains(&word.as_str())
    });
    words
}

/// Every value with this key, at any depth.
fn values_of<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(text) = value.as_str().filter(|_| name == key) {
                    found.push(text);
                }
                values_of(value, key, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|it| values_of(it, key, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_and_the_alerts_query_metrics_that_exist() {
    let families = families().await;
    let names: BTreeSet<String> = families.iter().map(queried).collect();
    let mut labels: BTreeSet<String> = families.iter().flat_map(label_keys).collect();
    labels.extend(["job".to_owned(), "instance".to_owned()]);

    let dashboard = read("packaging/files/monitoring/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut queries = Vec::new();
    values_of(&dashboard, "expr", &mut queries);
    assert!(queries.len() > 40, "{}", queries.len());
    let mut legends = Vec::new();
    values_of(&dashboard, "legendFormat", &mut legends);
    for legend in legends {
        for word in legend.split("{{").skip(1) {
            let label = word.split("}}").next().unwrap_or_default();
            assert!(labels.contains(label), "{legend}");
        }
    }
    // The variables: `label_values(METRIC, LABEL)`.
    let mut variables = Vec::new();
    values_of(&dashboard, "query", &mut variables);
    variables.retain(|it| it.starts_with("label_values("));
    assert_eq!(variables.len(), 2);
    let variables = variables.iter().map(|it| &it["label_values".len()..]);

    let alerts_file = read("packaging/files/monitoring/alerts.yml");
    let lines_with = |prefix: &'static str| {
        let lines = alerts_file.lines();
        lines.filter_map(move |line| line.trim_start().strip_prefix(prefix))
    };
    let alerts: Vec<&str> = lines_with("expr: ").collect();
    assert!(alerts.len() > 10, "{}", alerts.len());

    let how_to = read("docs/monitoring.md");
    for alert in lines_with("- alert: ") {
        assert!(how_to.contains(&format!("`{alert}`")), "{alert}");
    }
    for line in read("packaging/files/monitoring/prometheus.yml").lines() {
        assert!(line.starts_with('#') || how_to.contains(line), "{line}");
    }

    for query in queries.into_iter().chain(variables).chain(alerts) {
        let unknown = unknown(query, &names, &labels);
        assert_eq!(unknown, [""; 0], "{query}");
    }
    // A query with a misspelt name is found.
    let misspelt = unknown("rate(ottla_log_cold_read_total[5m])", &names, &labels);
    assert_eq!(misspelt, ["ottla_log_cold_read_total"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operations_page_names_metrics_that_exist() {
    static NAMES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:kafka|ottla|process)(?:_[a-z][a-z0-9]*)+\b").unwrap());
    let names: BTreeSet<String> = families().await.iter().map(queried).collect();
    let page = read("docs/operations.md");
    let mut found = 0;
    for name in NAMES.find_iter(&page) {
        assert!(names.contains(name.as_str()), "{}", name.as_str());
        found += 1;
    }
    assert!(found > 20, "{found}");
}
