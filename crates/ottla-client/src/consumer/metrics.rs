//! What a consumer measures: the names of Kafka's `KafkaConsumerMetrics`, `FetchMetricsRegistry` and of the
//! metrics of its coordinators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::Mutex;

use super::records::Extent;
use super::{GroupProtocol, Partition};
use crate::client::Client;
use crate::heartbeats::HeartbeatSensors;
use crate::metrics::{Beginning, Metrics, Sensor, Sheet, Windows, seconds_ago};

const GROUP: &str = "consumer-metrics";
const NODE_GROUP: &str = "consumer-node-metrics";
const COORDINATOR_GROUP: &str = "consumer-coordinator-metrics";
const FETCH_GROUP: &str = "consumer-fetch-manager-metrics";

/// Recorded by the poll and the request; shared with the tasks that fetch, join and send heartbeats.
pub(crate) struct ConsumerSensors {
    beginning: Beginning,
    windows: Windows,
    protocol: GroupProtocol,
    state: Mutex<State>,
}

/// What the members of a group are told of their partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Assigned,
    Revoked,
    Lost,
}

struct State {
    poll_began: Option<Instant>,
    /// Between the last two, from beginning to beginning.
    poll_distance: Duration,
    time_between_polls: Sensor,
    poll_idle_ratio: Sensor,
    commit_sync_time: Duration,
    committed_time: Duration,
    fetching: FetchSensors,
    coordinator: CoordinatorSensors,
}

struct FetchSensors {
    latency: Sensor,
    throttle_time: Sensor,
    /// Bytes and records of what one request brought back, once it has been handed out.
    bytes: Sensor,
    records: Sensor,
    lag: Sensor,
    lead: Sensor,
    topics: BTreeMap<Arc<str>, TopicSensors>,
    /// Those that are assigned.
    partitions: BTreeMap<Partition, PartitionSensors>,
}

struct TopicSensors {
    bytes: Sensor,
    records: Sensor,
}

struct PartitionSensors {
    lag: Sensor,
    lead: Sensor,
    /// -1 for the leader.
    read_replica: i32,
}

struct CoordinatorSensors {
    commit_latency: Sensor,
    heartbeat_latency: Sensor,
    last_heartbeat_ms: Option<u64>,
    join_latency: Sensor,
    sync_latency: Sensor,
    rebalance_latency: Sensor,
    rebalances_an_hour: Sensor,
    failed_rebalances: Sensor,
    last_rebalance_ms: Option<u64>,
    /// Of the listener's three methods, in the order of [`Told`].
    callbacks: [Sensor; 3],
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl ConsumerSensors {
    pub(super) fn new(windows: Windows, protocol: GroupProtocol) -> ConsumerSensors {
        let sensor = || Sensor::new(windows);
        ConsumerSensors {
            beginning: Beginning::now(),
            windows,
            protocol,
            state: Mutex::new(State {
                poll_began: None,
                poll_distance: Duration::ZERO,
                time_between_polls: sensor(),
                poll_idle_ratio: sensor(),
                commit_sync_time: Duration::ZERO,
                committed_time: Duration::ZERO,
                fetching: FetchSensors {
                    latency: sensor(),
                    throttle_time: sensor(),
                    bytes: sensor(),
                    records: sensor(),
                    lag: sensor(),
                    lead: sensor(),
                    topics: BTreeMap::new(),
                    partitions: BTreeMap::new(),
                },
                coordinator: CoordinatorSensors {
                    commit_latency: sensor(),
                    heartbeat_latency: sensor(),
                    last_heartbeat_ms: None,
                    join_latency: sensor(),
                    sync_latency: sensor(),
                    rebalance_latency: sensor(),
                    rebalances_an_hour: Sensor::new(windows.hourly()),
                    failed_rebalances: Sensor::new(windows.hourly()),
                    last_rebalance_ms: None,
                    callbacks: [sensor(), sensor(), sensor()],
                },
            }),
        }
    }

    fn now(&self) -> u64 {
        self.beginning.elapsed_ms()
    }

    fn record(&self, took: Duration, sensor: impl FnOnce(&mut CoordinatorSensors) -> &mut Sensor) {
        let now = self.now();
        sensor(&mut self.state.lock().coordinator).record(milliseconds(took), now);
    }

    pub(super) fn on_poll_began(&self) {
        let began = ottla_sync::time::now();
        let mut state = self.state.lock();
        let last = state.poll_began.replace(began);
        state.poll_distance = last.map_or(Duration::ZERO, |last| began - last);
        let distance = milliseconds(state.poll_distance);
        state
            .time_between_polls
            .record(distance, self.beginning.at(began));
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
            let now = self.beginning.at(ended);
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
        self.record(latency, |of| &mut of.commit_latency);
    }

    pub(super) fn on_joined(&self, latency: Duration) {
        self.record(latency, |of| &mut of.join_latency);
    }

    pub(super) fn on_synced(&self, latency: Duration) {
        self.record(latency, |of| &mut of.sync_latency);
    }

    pub(super) fn on_rebalanced(&self, latency: Duration) {
        let now = self.now();
        let mut state = self.state.lock();
        let coordinator = &mut state.coordinator;
        coordinator
            .rebalance_latency
            .record(milliseconds(latency), now);
        coordinator.rebalances_an_hour.record(1.0, now);
        coordinator.last_rebalance_ms = Some(now);
    }

    pub(super) fn on_rebalance_failed(&self) {
        let now = self.now();
        self.state
            .lock()
            .coordinator
            .failed_rebalances
            .record(1.0, now);
    }

    /// The listener has been told, which took so long.
    pub(super) fn on_told(&self, told: Told, spent: Duration) {
        self.record(spent, |of| &mut of.callbacks[told as usize]);
    }

    /// From now on it is these partitions that are read.
    pub(super) fn on_assigned<'a>(&self, partitions: impl Iterator<Item = &'a Partition>) {
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.fetching.partitions);
        for partition in partitions {
            let sensors = before
                .remove(partition)
                .unwrap_or_else(|| PartitionSensors {
                    lag: Sensor::new(self.windows),
                    lead: Sensor::new(self.windows),
                    read_replica: -1,
                });
            state.fetching.partitions.insert(partition.clone(), sensors);
        }
    }

    pub(super) fn on_fetch_answered(&self, latency: Duration, throttle_time_ms: i32) {
        let now = self.now();
        let mut state = self.state.lock();
        state.fetching.latency.record(milliseconds(latency), now);
        state
            .fetching
            .throttle_time
            .record(f64::from(throttle_time_ms), now);
    }

    pub(super) fn on_read_replica(&self, partition: &Partition, replica: i32) {
        let mut state = self.state.lock();
        if let Some(sensors) = state.fetching.partitions.get_mut(partition) {
            sensors.read_replica = replica;
        }
    }

    /// Records of a partition have been handed out; how many are ahead and behind now, where that is known.
    pub(super) fn on_advanced(&self, partition: &Partition, lag: Option<i64>, lead: Option<i64>) {
        let now = self.now();
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
        let now = self.now();
        let fetching = &mut self.state.lock().fetching;
        let mut all = Extent::default();
        for (topic, drained) in topics {
            all.records += drained.records;
            all.bytes += drained.bytes;
            let sensors = fetching.topics.entry(topic.clone());
            let sensors = sensors.or_insert_with(|| TopicSensors {
                bytes: Sensor::new(self.windows),
                records: Sensor::new(self.windows),
            });
            sensors.bytes.record(drained.bytes as f64, now);
            sensors.records.record(drained.records as f64, now);
        }
        fetching.bytes.record(all.bytes as f64, now);
        fetching.records.record(all.records as f64, now);
    }

    pub(super) fn read(&self, client: &Client) -> Metrics {
        let mut sheet = Sheet::new(&client.config().client_id);
        client.write_metrics(&mut sheet, GROUP, NODE_GROUP);
        let now = self.now();
        let mut state = self.state.lock();
        sheet.begin(GROUP, &[]);
        let last_poll = state.poll_began.map(|began| self.beginning.at(began));
        sheet.put("last-poll-seconds-ago", seconds_ago(last_poll, now));
        let between = state.time_between_polls.measure(now);
        sheet.put("time-between-poll-avg", between.avg);
        sheet.put("time-between-poll-max", between.max);
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
        let now = self.now();
        self.state.lock().coordinator.last_heartbeat_ms = Some(now);
    }

    fn on_heartbeat_answered(&self, latency: Duration) {
        self.record(latency, |of| &mut of.heartbeat_latency);
    }
}

impl CoordinatorSensors {
    fn write(&mut self, sheet: &mut Sheet, protocol: GroupProtocol, assigned: usize, now: u64) {
        sheet.begin(COORDINATOR_GROUP, &[]);
        sheet.put("assigned-partitions", assigned as f64);
        let commits = self.commit_latency.measure(now);
        sheet.put("commit-latency-avg", commits.avg);
        sheet.put("commit-latency-max", commits.max);
        sheet.put("commit-rate", commits.event_rate);
        sheet.put("commit-total", commits.count);
        let heartbeats = self.heartbeat_latency.measure(now);
        sheet.put("heartbeat-response-time-max", heartbeats.max);
        sheet.put("heartbeat-rate", heartbeats.event_rate);
        sheet.put("heartbeat-total", heartbeats.count);
        let last = seconds_ago(self.last_heartbeat_ms, now);
        sheet.put("last-heartbeat-seconds-ago", last);
        // Where the coordinator decides there is no meeting.
        if protocol == GroupProtocol::Classic {
            let joins = self.join_latency.measure(now);
            sheet.put("join-time-avg", joins.avg);
            sheet.put("join-time-max", joins.max);
            sheet.put("join-rate", joins.event_rate);
            sheet.put("join-total", joins.count);
            let syncs = self.sync_latency.measure(now);
            sheet.put("sync-time-avg", syncs.avg);
            sheet.put("sync-time-max", syncs.max);
            sheet.put("sync-rate", syncs.event_rate);
            sheet.put("sync-total", syncs.count);
        }
        let rebalances = self.rebalance_latency.measure(now);
        sheet.put("rebalance-latency-avg", rebalances.avg);
        sheet.put("rebalance-latency-max", rebalances.max);
        sheet.put("rebalance-latency-total", rebalances.total);
        sheet.put("rebalance-total", rebalances.count);
        let hourly = self.rebalances_an_hour.measure(now).event_rate * 3600.0;
        sheet.put("rebalance-rate-per-hour", hourly);
        let failed = self.failed_rebalances.measure(now);
        sheet.put("failed-rebalance-total", failed.count);
        sheet.put("failed-rebalance-rate-per-hour", failed.event_rate * 3600.0);
        let last = seconds_ago(self.last_rebalance_ms, now);
        sheet.put("last-rebalance-seconds-ago", last);
        let [assigned, revoked, lost] = &mut self.callbacks;
        let assigned = assigned.measure(now);
        sheet.put("partition-assigned-latency-avg", assigned.avg);
        sheet.put("partition-assigned-latency-max", assigned.max);
        let revoked = revoked.measure(now);
        sheet.put("partition-revoked-latency-avg", revoked.avg);
        sheet.put("partition-revoked-latency-max", revoked.max);
        let lost = lost.measure(now);
        sheet.put("partition-lost-latency-avg", lost.avg);
        sheet.put("partition-lost-latency-max", lost.max);
    }
}

impl FetchSensors {
    fn write(&mut self, sheet: &mut Sheet, now: u64) {
        sheet.begin(FETCH_GROUP, &[]);
        let latency = self.latency.measure(now);
        sheet.put("fetch-latency-avg", latency.avg);
        sheet.put("fetch-latency-max", latency.max);
        sheet.put("fetch-rate", latency.event_rate);
        sheet.put("fetch-total", latency.count);
        let throttle = self.throttle_time.measure(now);
        sheet.put("fetch-throttle-time-avg", throttle.avg);
        sheet.put("fetch-throttle-time-max", throttle.max);
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
            sheet.put("records-lag-avg", lag.avg);
            sheet.put("records-lag-max", lag.max);
            let lead = sensors.lead.measure(now);
            sheet.put("records-lead", lead.last);
            sheet.put("records-lead-avg", lead.avg);
            sheet.put("records-lead-min", lead.min);
            sheet.put("preferred-read-replica", f64::from(sensors.read_replica));
        }
    }
}

fn write_consumed(sheet: &mut Sheet, bytes: &mut Sensor, records: &mut Sensor, now: u64) {
    let bytes = bytes.measure(now);
    sheet.put("fetch-size-avg", bytes.avg);
    sheet.put("fetch-size-max", bytes.max);
    sheet.put("bytes-consumed-rate", bytes.rate);
    sheet.put("bytes-consumed-total", bytes.total);
    let records = records.measure(now);
    sheet.put("records-per-request-avg", records.avg);
    sheet.put("records-consumed-rate", records.rate);
    sheet.put("records-consumed-total", records.total);
}

/// What one request brought back, added up as its partitions are handed out; told when the last of them is
/// done with (`org.apache.kafka.clients.consumer.internals.FetchMetricsAggregator`).
pub(super) struct RequestTally {
    sensors: Arc<ConsumerSensors>,
    /// By topic. An answer without any, to which nothing was new, is not counted.
    drained: Mutex<Vec<(Arc<str>, Extent)>>,
}

impl RequestTally {
    pub(super) fn new(sensors: Arc<ConsumerSensors>) -> Arc<RequestTally> {
        Arc::new(RequestTally {
            sensors,
            drained: Mutex::default(),
        })
    }

    /// A partition's part has been read, or given up.
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
#[derive(Clone)]
pub struct ConsumerMetricsReader {
    client: Client,
    sensors: Arc<ConsumerSensors>,
}

impl ConsumerMetricsReader {
    pub(super) fn new(client: Client, sensors: Arc<ConsumerSensors>) -> ConsumerMetricsReader {
        ConsumerMetricsReader { client, sensors }
    }

    /// All figures, as of now.
    pub fn read(&self) -> Metrics {
        self.sensors.read(&self.client)
    }
}

#[cfg(test)]
mod tests;
