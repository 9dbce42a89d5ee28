//! The state of the broker and of its cluster: `KafkaServer`, `ReplicaManager`, `Partition`,
//! `KafkaController`, `raft-metrics`, `broker-metadata-metrics`.

use std::sync::Arc;

use ottla_metadata::MetadataImage;

use crate::Broker;
use ottla_metrics::family::Family;

pub(super) fn collect(broker: &Arc<Broker>, families: &mut Vec<Family>) {
    let state = Family::gauge(
        "kafka_server_kafkaserver_brokerstate",
        "0 not running, 1 starting, 2 recovering, 3 running, 6 about to stop, 7 stopping",
    );
    families.push(state.value(f64::from(broker.state() as u8)));
    let labels = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("cluster_id", broker.cluster_id().to_string()),
        ("node_id", broker.broker_id().0.to_string()),
    ];
    let info = Family::gauge("ottla_info", "Version and identity of this node");
    families.push(info.sample(labels, 1.0));
    partitions(broker, families);
    controller(broker, families);
    raft(broker, families);
}

/// Counts over the partitions of this broker, and gauges for each partition that it leads.
fn partitions(broker: &Arc<Broker>, families: &mut Vec<Family>) {
    let image = broker.metadata();
    let this_broker = broker.broker_id();
    let (mut led, mut hosted, mut offline, mut under_replicated) = (0, 0, 0, 0);
    let (mut under_min_isr, mut at_min_isr, mut reassigning) = (0, 0, 0);
    let gauge = |name: &str, help| Family::gauge(format!("kafka_cluster_partition_{name}"), help);
    let mut replicas_count = gauge("replicascount", "Replicas in the partition's assignment");
    let mut in_sync = gauge("insyncreplicascount", "Replicas that are in sync");
    let mut is_under_replicated = gauge("underreplicated", "Whether a replica is not in sync");
    let help = "Whether fewer than min.insync.replicas are in sync";
    let mut is_under_min_isr = gauge("underminisr", help);
    let help = "Whether exactly min.insync.replicas are in sync";
    let mut is_at_min_isr = gauge("atminisr", help);
    let help = "Records above the last stable offset";
    let mut stable_lag = gauge("laststableoffsetlag", help);
    for partition in broker.partitions.load().iter() {
        hosted += 1;
        offline += usize::from(partition.is_lost());
        let Some(registration) = image
            .topics
            .by_id(partition.topic_id)
            .and_then(|topic| topic.partition(partition.topic_partition.partition))
        else {
            continue;
        };
        if registration.leader != this_broker {
            continue;
        }
        led += 1;
        reassigning += usize::from(registration.is_reassigning());
        let (replicas, isr) = (registration.replicas.len(), registration.isr.len());
        let min_isr = partition.settings().replica.min_insync_replicas.max(1);
        // The effective `min.insync.replicas` is at most the number of replicas.
        let min_isr = min_isr.min(replicas);
        let facts = [isr < replicas, isr < min_isr, isr == min_isr];
        under_replicated += usize::from(facts[0]);
        under_min_isr += usize::from(facts[1]);
        at_min_isr += usize::from(facts[2]);
        let labels = super::labels::partition_labels(
            &partition.topic_partition.topic,
            partition.topic_partition.partition.0,
        );
        replicas_count.push(labels.clone(), replicas as f64);
        in_sync.push(labels.clone(), isr as f64);
        for (family, fact) in [
            &mut is_under_replicated,
            &mut is_under_min_isr,
            &mut is_at_min_isr,
        ]
        .into_iter()
        .zip(facts)
        {
            family.push(labels.clone(), f64::from(u8::from(fact)));
        }
        let reader = partition.reader();
        let lag = reader.high_watermark().since(reader.last_stable_offset());
        stable_lag.push(labels, lag as f64);
    }
    #[rustfmt::skip]
    let counts = [
        ("partitioncount", "Partitions with a replica on this broker", hosted),
        ("leadercount", "Partitions that this broker leads", led),
        ("offlinereplicacount", "Replicas on failed log directories", offline),
        ("underreplicatedpartitions", "Led partitions with a replica that is not in sync", under_replicated),
        ("underminisrpartitioncount", "Led partitions with fewer replicas in sync than min.insync.replicas", under_min_isr),
        ("atminisrpartitioncount", "Led partitions with exactly min.insync.replicas replicas in sync", at_min_isr),
        ("reassigningpartitions", "Led partitions that are being moved", reassigning),
    ];
    families.extend(counts.map(|(name, help, count)| {
        Family::gauge(format!("kafka_server_replicamanager_{name}"), help).value(count as f64)
    }));
    families.extend([
        replicas_count,
        in_sync,
        is_under_replicated,
        is_under_min_isr,
        is_at_min_isr,
        stable_lag,
    ]);
}

fn controller(broker: &Broker, families: &mut Vec<Family>) {
    let image = broker.metadata();
    let is_active = broker
        .controller()
        .is_some_and(|controller| controller.status().leader == Some(broker.broker_id()));
    let (mut partitions, mut offline, mut not_preferred) = (0, 0, 0);
    for registration in image
        .topics
        .iter()
        .flat_map(|topic| topic.partitions().map(|(_, registration)| registration))
    {
        partitions += 1;
        offline += usize::from(!registration.has_leader());
        not_preferred += usize::from(registration.leader != registration.preferred_replica());
    }
    let brokers = image.cluster.brokers().count();
    let unfenced = image.cluster.unfenced_brokers().count();
    #[rustfmt::skip]
    let gauges = [
        ("activecontrollercount", "1 where this node is the active controller", usize::from(is_active)),
        ("activebrokercount", "Brokers that are not fenced", unfenced),
        ("fencedbrokercount", "Brokers that are fenced", brokers - unfenced),
        ("globaltopiccount", "Topics of the cluster", image.topics.len()),
        ("globalpartitioncount", "Partitions of the cluster", partitions),
        ("offlinepartitionscount", "Partitions without a leader", offline),
        ("preferredreplicaimbalancecount", "Partitions whose leader is not their preferred replica", not_preferred),
    ];
    families.extend(gauges.map(|(name, help, value)| {
        Family::gauge(format!("kafka_controller_kafkacontroller_{name}"), help).value(value as f64)
    }));
}

fn raft(broker: &Broker, families: &mut Vec<Family>) {
    let image = broker.metadata();
    let last_applied = Family::gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "The last metadata record that this broker has applied",
    );
    let offset = image.provenance.last_contained_offset;
    families.push(last_applied.value(offset.value() as f64));
    metadata_levels(&image, families);
    let Some(status) = broker.controller().map(|controller| controller.status()) else {
        return;
    };
    let state = status.state_name;
    // From version 1.0 on, the exporter removes the suffix `_info`.
    for name in ["current_state", "current_state_info"] {
        let name = format!("kafka_server_raft_metrics_{name}");
        let role = Family::gauge(name, "Role of this node in the metadata quorum");
        families.push(role.sample([("state", state.to_owned())], 1.0));
    }
    #[rustfmt::skip]
    let gauges = [
        ("current_leader", "The leader of the metadata quorum; -1 if there is none", status.leader.map_or(-1, |leader| i64::from(leader.0))),
        ("current_epoch", "The epoch of the metadata quorum's leader", i64::from(status.epoch.0)),
        ("high_watermark", "High watermark of the metadata log", status.high_watermark.0),
        ("log_end_offset", "Log end offset of the metadata log", status.log_end_offset.0),
        ("number_of_voters", "Voters of the metadata quorum", status.voters.len() as i64),
    ];
    families.extend(gauges.map(|(name, help, value)| {
        Family::gauge(format!("kafka_server_raft_metrics_{name}"), help).value(value as f64)
    }));
}

/// `kafka.server:type=MetadataLoader`: the finalized feature levels.
fn metadata_levels(image: &MetadataImage, families: &mut Vec<Family>) {
    let version = f64::from(image.metadata_version().feature_level());
    let name = "kafka_server_metadataloader_currentmetadataversion";
    families.push(Family::gauge(name, "The level of metadata.version").value(version));
    let mut finalized = Family::gauge(
        "kafka_server_metadataloader_finalizedlevel",
        "The level at which a feature is finalized",
    );
    finalized.push([("featureName", "metadataVersion".to_owned())], version);
    for (feature, level) in image.features.levels() {
        finalized.push([("featureName", camel_case(feature))], f64::from(level));
    }
    families.push(finalized);
}

/// The label of this metric contains `groupVersion` for `group.version`.
fn camel_case(feature: &str) -> String {
    let mut parts = feature.split('.');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at_checked(1).unwrap_or((part, ""));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}
