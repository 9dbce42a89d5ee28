//! Takes a snapshot: all its parts at the same time, each with as few requests as the protocol
//! allows. Only the metadata must succeed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::{join, join_all, join4};
use ottla_client::admin::{
    DescribedConfigs, EndpointType, GroupListing, OffsetSpec, QuorumDescription,
};
use ottla_client::{Admin, ClientError, Metadata};
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use tokio::sync::Semaphore;

use super::snapshot::{
    Broker, Feature, Group, LogOffsets, Partition, Snapshot, Topic, TopicSettings, lag_behind,
};

/// Topics whose settings are requested at a time.
const TOPICS_PER_REQUEST: usize = 500;
/// Groups whose offsets are requested at a time.
const GROUPS_AT_A_TIME: usize = 8;
/// The settings of topics are requested again after this time, or after a change.
const SETTINGS_AGE_MS: i64 = 60_000;
/// Rates over a shorter time would jump.
const LEAST_INTERVAL_MS: i64 = 2000;
const SHOWN_SETTINGS: [&str; 4] = [
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "min.insync.replicas",
];

/// `forwarded` is for requests that wait for the active controller. `is_outdated` tells whether
/// something was changed since the previous one.
pub(super) async fn take(
    admin: &Admin,
    forwarded: &Admin,
    previous: Option<&Snapshot>,
    is_outdated: bool,
) -> Result<Snapshot, ClientError> {
    let metadata = admin.client().refresh_metadata(None, false).await?;
    let at = now_ms();
    let (brokers, offsets, settings, (groups, (quorum, features))) = join4(
        brokers(admin, &metadata),
        offsets(admin, &metadata),
        settings(admin, &metadata, previous.filter(|_| !is_outdated)),
        join(groups(admin), join(quorum(forwarded), features(admin))),
    )
    .await;
    let (starts, ends) = offsets;
    let sizes = sizes(&brokers);
    let groups = groups.ok().map(|groups| with_lag(groups, &ends));
    let groups_before = previous.and_then(|it| it.groups.as_ref());
    let read = groups.as_ref().zip(groups_before);
    let read = read.map(|(groups, before)| records_read(groups, before));
    let topics = metadata.topics.values().map(|info| {
        let numbers = || info.partitions.iter().map(|it| it.partition);
        let key = |number: i32| (info.name.clone(), number);
        let offsets = numbers().map(|number| LogOffsets {
            start: starts.get(&key(number)).copied(),
            end: ends.get(&key(number)).copied(),
        });
        let leader_bytes = info.partitions.iter().map(|it| {
            let of_partition = sizes.get(&key(it.partition))?;
            of_partition.get(&it.leader).copied()
        });
        let bytes = numbers().flat_map(|number| sizes.get(&key(number)).into_iter().flatten());
        let mut topic = Topic {
            info: info.clone(),
            offsets: offsets.collect(),
            bytes: (!sizes.is_empty()).then(|| bytes.map(|(_, bytes)| *bytes).sum()),
            leader_bytes: leader_bytes.collect(),
            settings: settings.get(&info.name).cloned(),
            records_per_second: None,
            records_out_per_second: None,
        };
        topic.records_per_second = rate(&topic, at, previous);
        topic.records_out_per_second = rate_out(&topic, at, previous, read.as_ref());
        (info.name.clone(), topic)
    });
    let topics = topics.collect();
    let quorum_failure = quorum.as_ref().err().and_then(unanswered);
    Ok(Snapshot {
        at,
        cluster_id: metadata.cluster_id.clone(),
        topics,
        groups,
        quorum: quorum.ok(),
        quorum_failure,
        features,
        brokers,
    })
}

fn rate(topic: &Topic, at: i64, previous: Option<&Snapshot>) -> Option<f64> {
    let previous = previous.filter(|it| at > it.at)?;
    let before = previous.topics.get(&topic.info.name)?;
    if at - previous.at < LEAST_INTERVAL_MS {
        return before.records_per_second;
    }
    // A topic of the same name that was created anew starts at zero.
    let written = (before.info.topic_id == topic.info.topic_id)
        .then(|| Some(topic.end_sum()? - before.end_sum()?))??;
    Some(written.max(0) as f64 * 1000.0 / (at - previous.at) as f64)
}

/// What groups have read of a topic since the previous snapshot, as far as they commit it.
fn rate_out(
    topic: &Topic,
    at: i64,
    previous: Option<&Snapshot>,
    read: Option<&BTreeMap<&str, i64>>,
) -> Option<f64> {
    let previous = previous.filter(|it| at > it.at)?;
    let read = read?;
    if at - previous.at < LEAST_INTERVAL_MS {
        let before = previous.topics.get(&topic.info.name)?;
        return before.records_out_per_second;
    }
    let read = read.get(&*topic.info.name).copied().unwrap_or(0);
    Some(read as f64 * 1000.0 / (at - previous.at) as f64)
}

/// How far the committed offsets of all groups together have moved forwards, by topic. A group's
/// first commit in a partition has nothing to be compared with.
fn records_read<'a>(
    groups: &'a BTreeMap<String, Group>,
    before: &BTreeMap<String, Group>,
) -> BTreeMap<&'a str, i64> {
    let mut read: BTreeMap<&str, i64> = BTreeMap::new();
    for (id, group) in groups {
        let Some(before) = before.get(id) else {
            continue;
        };
        for (partition, (offset, _)) in &group.offsets {
            if let Some((earlier, _)) = before.offsets.get(partition) {
                // Any client can commit any offset.
                let forwards = offset.saturating_sub(*earlier).max(0);
                let of_topic = read.entry(&*partition.0).or_default();
                *of_topic = of_topic.saturating_add(forwards);
            }
        }
    }
    read
}

async fn brokers(admin: &Admin, metadata: &Metadata) -> Vec<Broker> {
    let described = admin.describe_cluster(EndpointType::Broker, true).await;
    let mut brokers: BTreeMap<i32, Broker> = BTreeMap::new();
    for node in metadata.brokers.values() {
        let broker = Broker {
            id: node.id,
            host: node.host.clone(),
            port: node.port,
            rack: node.rack.clone(),
            is_fenced: false,
            log_dirs: None,
        };
        brokers.insert(node.id, broker);
    }
    for node in described.map(|it| it.brokers).unwrap_or_default() {
        let broker = brokers.entry(node.broker_id).or_insert_with(|| Broker {
            id: node.broker_id,
            host: node.host.to_string(),
            port: node.port,
            rack: node.rack.as_ref().map(ToString::to_string),
            is_fenced: true,
            log_dirs: None,
        });
        broker.is_fenced = node.is_fenced;
    }
    let running = brokers.values().filter(|it| !it.is_fenced).map(|it| it.id);
    let dirs = running.map(|id| async move { (id, log_dirs(admin, id).await) });
    for (id, dirs) in join_all(dirs.collect::<Vec<_>>()).await {
        if let Some(broker) = brokers.get_mut(&id) {
            broker.log_dirs = dirs;
        }
    }
    brokers.into_values().collect()
}

/// `None` if they cannot be read.
async fn log_dirs(admin: &Admin, broker: i32) -> Option<Vec<DescribeLogDirsResult>> {
    admin.describe_log_dirs(broker).await.ok()
}

/// The size of each replica, by partition and broker.
fn sizes(brokers: &[Broker]) -> BTreeMap<Partition, BTreeMap<i32, i64>> {
    let mut sizes: BTreeMap<Partition, BTreeMap<i32, i64>> = BTreeMap::new();
    for broker in brokers {
        for topic in broker.log_dirs.iter().flatten().flat_map(|dir| &dir.topics) {
            for partition in topic.partitions.iter().filter(|it| !it.is_future_key) {
                let key = (topic.name.to_string(), partition.partition_index);
                let of_partition = sizes.entry(key).or_default();
                of_partition.insert(broker.id, partition.partition_size);
            }
        }
    }
    sizes
}

type Offsets = BTreeMap<Partition, i64>;

/// The start and end offsets that the leaders return.
async fn offsets(admin: &Admin, metadata: &Metadata) -> (Offsets, Offsets) {
    let partitions = metadata.topics.values().flat_map(|topic| {
        let led = topic.partitions.iter().filter(|it| it.leader >= 0);
        led.map(|it| (topic.name.clone(), it.partition))
    });
    let partitions: Vec<Partition> = partitions.collect();
    let (starts, ends) = join(
        admin.list_offsets_once(&partitions, OffsetSpec::Earliest, false),
        admin.list_offsets_once(&partitions, OffsetSpec::Latest, false),
    )
    .await;
    let known = |listed: BTreeMap<Partition, Result<_, _>>| {
        let known = listed.into_iter();
        known
            .filter_map(
                |(partition, listed): (
                    _,
                    Result<ottla_client::admin::ListedOffset, ClientError>,
                )| { Some((partition, listed.ok()?.offset)) },
            )
            .collect()
    };
    (known(starts), known(ends))
}

async fn settings(
    admin: &Admin,
    metadata: &Metadata,
    previous: Option<&Snapshot>,
) -> BTreeMap<String, TopicSettings> {
    let mut settings = BTreeMap::new();
    let is_recent = |it: &&Snapshot| now_ms() / SETTINGS_AGE_MS == it.at / SETTINGS_AGE_MS;
    if let Some(previous) = previous.filter(is_recent) {
        let known = previous.topics.iter();
        settings.extend(known.filter_map(|(name, it)| Some((name.clone(), it.settings.clone()?))));
    }
    let names = metadata.topics.keys();
    let missing: Vec<String> = names
        .filter(|name| !settings.contains_key(*name))
        .cloned()
        .collect();
    for names in missing.chunks(TOPICS_PER_REQUEST) {
        // Denied or gone: unknown.
        let described = admin.describe_topic_configs(names, &SHOWN_SETTINGS).await;
        let described = described.unwrap_or_default().into_iter();
        settings.extend(described.map(|(name, configs)| (name, shown(&configs))));
    }
    settings
}

fn shown(configs: &DescribedConfigs) -> TopicSettings {
    let text = |name: &str| {
        let config = configs.iter().find(|it| &*it.name == name)?;
        config.value.as_ref().map(ToString::to_string)
    };
    let number = |name: &str| text(name)?.parse().ok();
    TopicSettings {
        retention_ms: number("retention.ms"),
        retention_bytes: number("retention.bytes"),
        cleanup_policy: text("cleanup.policy"),
        min_insync_replicas: number("min.insync.replicas"),
    }
}

struct FoundGroup {
    listing: GroupListing,
    /// With the lag, for share groups.
    offsets: BTreeMap<Partition, (i64, Option<i64>)>,
}

async fn groups(admin: &Admin) -> Result<Vec<FoundGroup>, ClientError> {
    let listings = admin.list_groups(&[], &[]).await?;
    let places = Arc::new(Semaphore::new(GROUPS_AT_A_TIME));
    let found = listings.into_iter().map(|listing| {
        let places = places.clone();
        async move {
            let _place = places.acquire().await;
            let offsets = group_offsets(admin, &listing).await;
            FoundGroup { listing, offsets }
        }
    });
    Ok(join_all(found).await)
}

async fn group_offsets(
    admin: &Admin,
    listing: &GroupListing,
) -> BTreeMap<Partition, (i64, Option<i64>)> {
    let id = &listing.group_id;
    if listing.group_type == "share" {
        let offsets = admin.share_group_offsets(id).await.unwrap_or_default();
        let known = offsets.into_iter();
        return known
            .filter_map(|(partition, it)| it.map(|it| (partition, (it.start_offset, it.lag))))
            .collect();
    }
    let offsets = admin.committed_offsets(id).await.unwrap_or_default();
    let committed = offsets.into_iter();
    committed
        .map(|(partition, it)| (partition, (it.offset, None)))
        .collect()
}

fn with_lag(groups: Vec<FoundGroup>, ends: &Offsets) -> BTreeMap<String, Group> {
    let with_lag = |found: FoundGroup| {
        let mut offsets = found.offsets;
        for (partition, (offset, lag)) in &mut offsets {
            let end = ends.get(partition);
            *lag = lag.or_else(|| end.map(|end| lag_behind(*end, *offset)));
        }
        let group = Group {
            listing: found.listing,
            offsets,
        };
        (group.listing.group_id.clone(), group)
    };
    groups.into_iter().map(with_lag).collect()
}

/// From the brokers of this moment: those of the configuration may be gone.
async fn quorum(forwarded: &Admin) -> Result<QuorumDescription, ClientError> {
    forwarded
        .client()
        .refresh_metadata(Some(&[]), false)
        .await?;
    forwarded.describe_quorum().await
}

/// Why the metadata quorum does not answer. `None` if the user may not see it, or the cluster has none.
fn unanswered(error: &ClientError) -> Option<String> {
    let last = match error {
        ClientError::GaveUp { last, .. } => last.as_ref(),
        other => other,
    };
    let is_unanswered = match last {
        ClientError::NoController { .. } => true,
        ClientError::Broker { code, .. } => code.is_retriable(),
        // Of a broker, whose state other parts of the snapshot show.
        _ => false,
    };
    is_unanswered.then(|| last.to_string())
}

async fn features(admin: &Admin) -> Vec<Feature> {
    let Ok(versions) = admin.api_versions(None).await else {
        return Vec::new();
    };
    let finalized = versions.finalized_features.into_iter();
    let mut features: Vec<Feature> = finalized
        .map(|it| Feature {
            name: it.name.to_string(),
            level: it.max_version_level,
        })
        .collect();
    features.sort_by(|one, other| one.name.cmp(&other.name));
    features
}

pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use ottla_types::ErrorCode;

    use super::*;

    fn groups(offsets: &[(&str, &str, i32, i64)]) -> BTreeMap<String, Group> {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for &(id, topic, partition, offset) in offsets {
            let group = groups.entry(id.to_owned()).or_insert_with(|| Group {
                listing: GroupListing {
                    group_id: id.to_owned(),
                    group_type: "consumer".to_owned(),
                    protocol_type: "consumer".to_owned(),
                    state: "Stable".to_owned(),
                },
                offsets: BTreeMap::new(),
            });
            let partition = (topic.to_owned(), partition);
            group.offsets.insert(partition, (offset, None));
        }
        groups
    }

    #[test]
    fn read_records_are_measured_by_the_movement_of_offsets() {
        let before = groups(&[
            ("one", "a", 0, 10),
            ("one", "a", 1, 10),
            ("one", "b", 0, 50),
            ("two", "a", 0, 0),
        ]);
        let after = groups(&[
            ("one", "a", 0, 17),
            ("one", "a", 1, 10),
            // Its offset was reset.
            ("one", "b", 0, 20),
            ("two", "a", 0, 5),
            // The first commits.
            ("two", "b", 0, 700),
            ("new", "a", 0, 900),
        ]);
        let read = records_read(&after, &before);
        assert_eq!(read, BTreeMap::from([("a", 12), ("b", 0)]));
    }

    #[test]
    fn a_denied_quorum_is_not_taken_for_one_that_does_not_answer() {
        let of = |code: ErrorCode| ClientError::broker("the quorum", code.code(), None::<&str>);
        let gave_up = |last: ClientError| ClientError::GaveUp {
            what: "DescribeQuorum".into(),
            after: std::time::Duration::from_secs(5),
            last: Box::new(last),
        };
        let silent = ClientError::NoController {
            address: "h:9092".into(),
            what: "DescribeQuorum".into(),
            after: std::time::Duration::from_secs(5),
        };
        let reason = unanswered(&gave_up(silent)).unwrap();
        assert!(reason.starts_with("h:9092 answers"), "{reason}");
        assert!(unanswered(&gave_up(of(ErrorCode::NotController))).is_some());
        assert!(unanswered(&of(ErrorCode::ClusterAuthorizationFailed)).is_none());
        // A broker that is away says nothing about the quorum.
        let away = ClientError::Connect {
            address: "h:9092".into(),
            reason: "refused".into(),
        };
        assert!(unanswered(&gave_up(away)).is_none());
    }

    #[test]
    fn offsets_of_any_size_are_compared() {
        let of = |offset| groups(&[("one", "a", 0, offset), ("two", "a", 0, offset)]);
        let (least, most) = (of(i64::MIN), of(i64::MAX));
        let read = records_read(&most, &least);
        assert_eq!(read, BTreeMap::from([("a", i64::MAX)]));
        assert_eq!(records_read(&least, &most), BTreeMap::from([("a", 0)]));
    }
}
