//! Tiered storage: `kafka.server:type=BrokerTopicMetrics` for all tiered topics together and for
//! each of them, and the reads. Like Kafka, a broker without tiered storage has none of these.

use super::labels::partition_labels;
use super::timed::timed;
use crate::Broker;
use ottla_metrics::family::Family;
use ottla_remote::{TierCounter, TierGauges};

/// Kafka's name, the meaning, and the value.
type Gauge = (&'static str, &'static str, fn(&TierGauges) -> u64);

#[rustfmt::skip]
const GAUGES: [Gauge; 7] = [
    ("RemoteCopyLagBytes", "Bytes of closed local segments that are not in remote storage yet", |gauges| gauges.copy_lag.bytes),
    ("RemoteCopyLagSegments", "Closed local segments that are not in remote storage yet", |gauges| gauges.copy_lag.segments),
    ("RemoteDeleteLagBytes", "Bytes of segments in remote storage that have expired and are not deleted yet", |gauges| gauges.delete_lag.bytes),
    ("RemoteDeleteLagSegments", "Segments in remote storage that have expired and are not deleted yet", |gauges| gauges.delete_lag.segments),
    ("RemoteLogMetadataCount", "Segments that the metadata of remote storage lists, in any state", |gauges| gauges.log.segments as u64),
    ("RemoteLogSizeBytes", "Bytes of segments in remote storage", |gauges| gauges.log.size_bytes),
    ("RemoteLogSizeComputationTime", "Time that the last computation of the size in remote storage took, in milliseconds", |gauges| gauges.size_computation_ms),
];

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let Some(remote_logs) = broker.remote_logs() else {
        return;
    };
    let (all, topics) = remote_logs.numbers();
    let name = |of: &str| format!("kafka_server_brokertopicmetrics_{}", of.to_lowercase());
    for counter in TierCounter::ALL {
        let mut family = Family::counter(name(counter.name()), counter.help())
            .value(all.counts[counter as usize] as f64);
        for (topic, numbers) in &topics {
            let count = numbers.counts[counter as usize];
            family.push([("topic", topic.to_string())], count as f64);
        }
        families.push(family);
    }
    for (gauge, help, value) in GAUGES {
        let mut family = Family::gauge(name(gauge), help).value(value(&all.gauges) as f64);
        for (topic, numbers) in &topics {
            let value = value(&numbers.gauges);
            family.push([("topic", topic.to_string())], value as f64);
        }
        families.push(family);
    }
    let meanings = [
        "Time to read a partition from remote storage in the last minutes, in milliseconds",
        "Reads of partitions from remote storage that were timed",
        "Total time to read partitions from remote storage, in milliseconds",
    ];
    families.extend(timed(
        "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",
        meanings,
        &broker.context.metrics.remote_reads(),
    ));
    let manager = |of: &str| format!("kafka_log_remote_remotelogmanager_{of}");
    let idle = Family::gauge(
        manager("remotelogmanagertasksavgidlepercent"),
        "Part of remote.log.manager.copier.thread.pool.size that copies nothing",
    );
    families.push(idle.value(remote_logs.idle_copiers()));
    let mut of_both = Family::gauge(
        manager("retentionsizeinpercent"),
        "Size of the partition in both tiers, in percent of retention.bytes",
    );
    let mut of_local = Family::gauge(
        manager("localretentionsizeinpercent"),
        "Size of the partition on the local disk, in percent of local.retention.bytes",
    );
    for (partition, retention) in remote_logs.retention() {
        let labels = partition_labels(&partition.topic, partition.partition.0);
        of_both.push(labels.clone(), retention.percent as f64);
        of_local.push(labels, retention.local_percent as f64);
    }
    families.extend([of_both, of_local]);
    #[rustfmt::skip]
    let meanings = [
        ("copy", "Average time that the quota of copies to remote storage held one back in the last minute, in milliseconds", "Longest time that the quota of copies to remote storage held one back in the last minute, in milliseconds"),
        ("fetch", "Average time that the quota of reads from remote storage held one back in the last minute, in milliseconds", "Longest time that the quota of reads from remote storage held one back in the last minute, in milliseconds"),
    ];
    for ((of, average, max), time) in meanings.into_iter().zip(remote_logs.throttle_times()) {
        let name =
            |stat: &str| format!("kafka_server_remotelogmanager_remote_{of}_throttle_time_{stat}");
        families.push(Family::gauge(name("avg"), average).value(time.average));
        families.push(Family::gauge(name("max"), max).value(time.max));
    }
    // Kafka has both, and the second is deprecated.
    for domain in ["kafka_log_remote", "org_apache_kafka_storage_internals_log"] {
        let name = |of: &str| format!("{domain}_remotestoragethreadpool_{of}");
        #[rustfmt::skip]
        let gauges = [
            (name("remotelogreaderavgidlepercent"), "Part of remote.log.reader.threads that reads nothing", remote_logs.idle_readers()),
            (name("remotelogreadertaskqueuesize"), "Queued reads from remote storage", remote_logs.waiting_reads() as f64),
        ];
        families.extend(Family::gauges(gauges));
    }
    #[rustfmt::skip]
    let counters = [
        ("kafka_server_delayedremotefetchmetrics_expires", "Fetches that timed out while they waited for remote storage (remote.fetch.max.wait.ms)", remote_logs.expired_fetches() as f64),
        ("kafka_server_delayedremotelistoffsetsmetrics_expires", "Searches by time in remote storage that timed out (remote.list.offsets.request.timeout.ms)", remote_logs.expired_searches() as f64),
    ];
    families.extend(Family::counters(counters));
    let available = Family::gauge(
        "ottla_remote_read_memory_available_bytes",
        "Memory for reads from remote storage that is not in use",
    );
    families.push(available.value(remote_logs.available_read_bytes() as f64));
}
