//! The metrics of a consumer, with the names of Kafka's `KafkaConsumerMetrics`,
//! `FetchMetricsRegistry` and of its coordinators' metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::Mutex;

use super::records::Extent;
use super::{GroupProtocol, Partition};
use crate::client::Client;
use crate::heartbeats::HeartbeatSensors;
use crate::metrics::{Clock, Metrics, Moment, Sensor, Sheet, Windows, seconds_ago};

const GROUP: &str = "consumer-metrics";
const NODE_GROUP: &str = "consumer-node-metrics";
const COORDINATOR_GROUP: &str = "consumer-coordinator-metrics";
const FETCH_GROUP: &str = "consumer-fetch-manager-metrics";

/// Updated by polls and requests. Shared with the tasks that fetch, join and send heartbeats.
pub(crate) struct ConsumerSensors {
    clock: Clock,
    protocol: GroupProtocol,
    state: Mutex<State>,
}

/// The methods of a rebalance listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListenerCall {
    Assigned,
    Revoked,
    Lost,
}

#[derive(Default)]
struct State {
    poll_began: Option<Instant>,
    /// The time between the starts of the last two polls.
    poll_distance: Duration,
    time_between_polls: Sensor,
    poll_idle_ratio: Sensor,
    commit_sync_time: Duration,
    committed_time: Duration,
    fetching: FetchSensors,
    coordinator: CoordinatorSensors,
}

#[derive(Default)]
struct FetchSensors {
    latency: Sensor,
    throttle_time: Sensor,
    /// The bytes and records of one response, when they have been returned.
    bytes: Sensor,
    records: Sensor,
    lag: Sensor,
    lead: Sensor,
    topics: BTreeMap<Arc<str>, TopicSensors>,
    /// The assigned partitions.
    partitions: BTreeMap<Partition, PartitionSensors>,
}

#[derive(Default)]
struct TopicSensors {
    bytes: Sensor,
    records: Sensor,
}

#[derive(Default)]
struct PartitionSensors {
    lag: Sensor,
    lead: Sensor,
    /// `None` for the leader.
    read_replica: Option<i32>,
}

#[derive(Default)]
struct CoordinatorSensors {
    commit_latency: Sensor,
    heartbeat_latency: Sensor,
    last_heartbeat: Option<Moment>,
    join_latency: Sensor,
    sync_latency: Sensor,
    rebalance_latency: Sensor,
    rebalances_an_hour: Sensor,
    failed_rebalances: Sensor,
    last_rebalance: Option<Moment>,
    /// For the listener's three methods, in the order of [`ListenerCall`].
    callbacks: [Sensor; 3],
}

impl ConsumerSensors {
    pub(super) fn new(windows: Windows, protocol: GroupProtocol) -> ConsumerSensors {
        ConsumerSensors {
            clock: Clock::start(windows),
            protocol,
            state: Mutex::default(),
        }
    }

    /// Records a duration.
    fn record_time(&self, took: Duration, sensor: impl FnOnce(&mut State) -> &mut Sensor) {
        let now = self.clock.now();
        sensor(&mut self.state.lock()).record_time(took, now);
    }

    pub(super) fn on_poll_began(&self) {
        let began = ottla_sync::time::now();
        let mut state = self.state.lock();
        let last = state.poll_began.replace(began);
        state.poll_distance = last.map_or(Duration::ZERO, |last| began - last);
        let distance = state.poll_distance;
        let began = self.clock.at(began);
        state.time_between_polls.record_time(distance, began);
    }

    pub(super) fn on_poll_ended(&self) {
        let ended = ottla_sync::time::now();
        let mut state = self.state.lock();
        let Some(began) = state.poll_began else {
            return;
        };
        let spent = (ended - began).as_secs_f64();
        let all = spent + state.poll_distance.as_secs_f64();
        if all > 0.0 {
            let now = self.clock.at(ended);
            state.poll_idle_ratio.record(spent / all, now);
        }
    }

    pub(super) fn on_commit_awaited(&self, spent: Duration) {
        self.state.lock().commit_sync_time += spent;
    }

    pub(super) fn on_committed_asked(&self, spent: Duration) {
        self.state.lock().committed_time += spent;
    }

    /// A coordinator has answered a commit.
    pub(super) fn on_commit_answered(&self, latency: Duration) {
        self.record_time(latency, |state| &mut state.coordinator.commit_latency);
    }

    pub(super) fn on_joined(&self, latency: Duration) {
        self.record_time(latency, |state| &mut state.coordinator.join_latency);
    }

    pub(super) fn on_synced(&self, latency: Duration) {
        self.record_time(latency, |state| &mut state.coordinator.sync_latency);
    }

    pub(super) fn on_rebalanced(&self, latency: Duration) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let coordinator = &mut state.coordinator;
        coordinator.rebalance_latency.record_time(latency, now);
        coordinator.rebalances_an_hour.record(1.0, now.hourly());
        coordinator.last_rebalance = Some(now);
    }

    pub(super) fn on_rebalance_failed(&self) {
        let now = self.clock.now().hourly();
        let coordinator = &mut self.state.lock().coordinator;
        coordinator.failed_rebalances.record(1.0, now);
    }

    /// A method of the listener has been called, and took this long.
    pub(super) fn on_listener_called(&self, call: ListenerCall, spent: Duration) {
        self.record_time(spent, |state| {
            &mut state.coordinator.callbacks[call as usize]
        });
    }

    /// The assigned partitions have changed.
    pub(super) fn on_assigned<'a>(&self, partitions: impl Iterator<Item = &'a Partition>) {
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.fetching.partitions);
        for partition in partitions {
            let sensors = before.remove(partition).unwrap_or_default();
            state.fetching.partitions.insert(partition.clone(), sensors);
        }
    }

    pub(super) fn on_fetch_answered(&self, latency: Duration, throttle_time_ms: i32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let fetching = &mut state.fetching;
        fetching.latency.record_time(latency, now);
        fetching
            .throttle_time
            .record(f64::from(throttle_time_ms), now);
    }

    pub(super) fn on_read_replica(&self, partition: &Partition, replica: i32) {
        let mut state = self.state.lock();
        if let Some(sensors) = state.fetching.partitions.get_mut(partition) {
            sensors.read_replica = Some(replica);
        }
    }

    /// Records of a partition have been returned. `lag` and `lead` are the new values, if known.
    pub(super) fn on_advanced(&self, partition: &Partition, lag: Option<i64>, lead: Option<i64>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let fetching = &mut state.fetching;
        let mut of_partition = fetching.partitions.get_mut(partition);
        if let Some(lag) = lag {
            fetching.lag.record(lag as f64, now);
            if let Some(sensors) = &mut of_partition {
                sensors.lag.record(lag as f64, now);
            }
        }
        if let Some(lead) = lead {
            fetching.lead.record(lead as f64, now);
            if let Some(sensors) = &mut of_partition {
                sensors.lead.record(lead as f64, now);
            }
        }
    }

    fn on_request_drained(&self, topics: &[(Arc<str>, Extent)]) {
        let now = self.clock.now();
        let fetching = &mut self.state.lock().fetching;
        let mut all = Extent::default();
        for (topic, drained) in topics {
            all.records += drained.records;
            all.bytes += drained.bytes;
            let sensors = fetching.topics.entry(topic.clone()).or_default();
            sensors.bytes.record(drained.bytes as f64, now);
            sensors.records.record(drained.records as f64, now);
        }
        fetching.bytes.record(all.bytes as f64, now);
        fetching.records.record(all.records as f64, now);
    }

    pub(super) fn read(&self, client: &Client) -> Metrics {
        let mut sheet = Sheet::new(&client.config().client_id);
        client.write_metrics(&mut sheet, GROUP, NODE_GROUP);
        let now = self.clock.now();
        let mut state = self.state.lock();
        sheet.begin(GROUP, &[]);
        let last_poll = state.poll_began.map(|began| self.clock.at(began));
        sheet.put("last-poll-seconds-ago", seconds_ago(last_poll, now));
        sheet.put_avg_and_max("time-between-poll", state.time_between_polls.measure(now));
        let idle = state.poll_idle_ratio.measure(now);
        sheet.put("poll-idle-ratio-avg", idle.avg);
        let spent = state.commit_sync_time.as_nanos() as f64;
        sheet.put("commit-sync-time-ns-total", spent);
        let spent = state.committed_time.as_nanos() as f64;
        sheet.put("committed-time-ns-total", spent);
        let assigned = state.fetching.partitions.len();
        state
            .coordinator
            .write(&mut sheet, self.protocol, assigned, now);
        state.fetching.write(&mut sheet, now);
        sheet.finish()
    }
}

impl HeartbeatSensors for ConsumerSensors {
    fn on_heartbeat_sent(&self) {
        let now = self.clock.now();
        self.state.lock().coordinator.last_heartbeat = Some(now);
    }

    fn on_heartbeat_answered(&self, latency: Duration) {
        self.record_time(latency, |state| &mut state.coordinator.heartbeat_latency);
    }
}

impl CoordinatorSensors {
    fn write(&mut self, sheet: &mut Sheet, protocol: GroupProtocol, assigned: usize, now: Moment) {
        sheet.begin(COORDINATOR_GROUP, &[]);
        sheet.put("assigned-partitions", assigned as f64);
        let commits = self.commit_latency.measure(now);
        sheet.put_avg_and_max("commit-latency", commits);
        sheet.put_events("commit", commits);
        let heartbeats = self.heartbeat_latency.measure(now);
        sheet.put("heartbeat-response-time-max", heartbeats.max);
        sheet.put_events("heartbeat", heartbeats);
        let last = seconds_ago(self.last_heartbeat, now);
        sheet.put("last-heartbeat-seconds-ago", last);
        // If the coordinator assigns partitions, there are no joins and syncs.
        if protocol == GroupProtocol::Classic {
            let joins = self.join_latency.measure(now);
            sheet.put_avg_and_max("join-time", joins);
            sheet.put_events("join", joins);
            let syncs = self.sync_latency.measure(now);
            sheet.put_avg_and_max("sync-time", syncs);
            sheet.put_events("sync", syncs);
        }
        let rebalances = self.rebalance_latency.measure(now);
        sheet.put_avg_and_max("rebalance-latency", rebalances);
        sheet.put("rebalance-latency-total", rebalances.total);
        sheet.put("rebalance-total", rebalances.count);
        let hourly = self.rebalances_an_hour.measure(now.hourly()).event_rate * 3600.0;
        sheet.put("rebalance-rate-per-hour", hourly);
        let failed = self.failed_rebalances.measure(now.hourly());
        sheet.put("failed-rebalance-total", failed.count);
        sheet.put("failed-rebalance-rate-per-hour", failed.event_rate * 3600.0);
        let last = seconds_ago(self.last_rebalance, now);
        sheet.put("last-rebalance-seconds-ago", last);
        let [assigned, revoked, lost] = &mut self.callbacks;
        sheet.put_avg_and_max("partition-assigned-latency", assigned.measure(now));
        sheet.put_avg_and_max("partition-revoked-latency", revoked.measure(now));
        sheet.put_avg_and_max("partition-lost-latency", lost.measure(now));
    }
}

impl FetchSensors {
    fn write(&mut self, sheet: &mut Sheet, now: Moment) {
        sheet.begin(FETCH_GROUP, &[]);
        let latency = self.latency.measure(now);
        sheet.put_avg_and_max("fetch-latency", latency);
        sheet.put_events("fetch", latency);
        sheet.put_avg_and_max("fetch-throttle-time", self.throttle_time.measure(now));
        write_consumed(sheet, &mut self.bytes, &mut self.records, now);
        sheet.put("records-lag-max", self.lag.measure(now).max);
        sheet.put("records-lead-min", self.lead.measure(now).min);
        for (topic, sensors) in &mut self.topics {
            sheet.begin(FETCH_GROUP, &[("topic", topic)]);
            write_consumed(sheet, &mut sensors.bytes, &mut sensors.records, now);
        }
        for ((topic, partition), sensors) in &mut self.partitions {
            let partition = partition.to_string();
            sheet.begin(FETCH_GROUP, &[("topic", topic), ("partition", &partition)]);
            let lag = sensors.lag.measure(now);
            sheet.put("records-lag", lag.last);
            sheet.put_avg_and_max("records-lag", lag);
            let lead = sensors.lead.measure(now);
            sheet.put("records-lead", lead.last);
            sheet.put("records-lead-avg", lead.avg);
            sheet.put("records-lead-min", lead.min);
            let replica = sensors.read_replica.unwrap_or(-1);
            sheet.put("preferred-read-replica", f64::from(replica));
        }
    }
}

fn write_consumed(sheet: &mut Sheet, bytes: &mut Sensor, records: &mut Sensor, now: Moment) {
    let bytes = bytes.measure(now);
    sheet.put_avg_and_max("fetch-size", bytes);
    sheet.put_sums("bytes-consumed", bytes);
    let records = records.measure(now);
    sheet.put("records-per-request-avg", records.avg);
    sheet.put_sums("records-consumed", records);
}

/// The sizes of one response, summed up while its partitions are returned, and recorded with the
/// last of them (`org.apache.kafka.clients.consumer.internals.FetchMetricsAggregator`).
pub(super) struct RequestTally {
    sensors: Arc<ConsumerSensors>,
    /// By topic. A response without partitions is not counted.
    drained: Mutex<Vec<(Arc<str>, Extent)>>,
}

impl RequestTally {
    pub(super) fn new(sensors: Arc<ConsumerSensors>) -> Arc<RequestTally> {
        Arc::new(RequestTally {
            sensors,
            drained: Mutex::default(),
        })
    }

    /// The data of a partition has been returned or dropped.
    pub(super) fn on_drained(&self, topic: &Arc<str>, part: Extent) {
        let mut drained = self.drained.lock();
        let index = match drained.iter().position(|(it, _)| it == topic) {
            Some(index) => index,
            None => {
                drained.push((topic.clone(), Extent::default()));
                drained.len() - 1
            }
        };
        let sum = &mut drained[index].1;
        sum.records += part.records;
        sum.bytes += part.bytes;
    }
}

impl Drop for RequestTally {
    fn drop(&mut self) {
        let drained = self.drained.lock();
        if !drained.is_empty() {
            self.sensors.on_request_drained(&drained);
        }
    }
}

/// Reads a consumer's metrics while its owner polls.
///
/// ```no_run
/// # fn example(consumer: &ottla_client::Consumer) {
/// let reader = consumer.metrics_reader();
/// std::thread::spawn(move || {
///     for metric in reader.read() {
///         println!("{metric} {}", metric.value);
///     }
/// });
/// # }
/// ```
#[derive(Clone)]
pub struct ConsumerMetricsReader {
    client: Client,
    sensors: Arc<ConsumerSensors>,
}

impl ConsumerMetricsReader {
    pub(super) fn new(client: Client, sensors: Arc<ConsumerSensors>) -> ConsumerMetricsReader {
        ConsumerMetricsReader { client, sensors }
    }

    /// The current values of all metrics.
    ///
    /// ```no_run
    /// # fn example(reader: &ottla_client::ConsumerMetricsReader) {
    /// println!("{:?}", reader.read().value("records-lag-max"));
    /// # }
    /// ```
    pub fn read(&self) -> Metrics {
        self.sensors.read(&self.client)
    }
}

#[cfg(test)]
mod tests;
