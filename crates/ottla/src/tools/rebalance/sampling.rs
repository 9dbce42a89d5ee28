//! The image of a cluster: its brokers, disks and partitions, and the write rate of producers,
//! measured as the growth of the logs between two descriptions of the log directories.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{anyhow, bail};
use ottla_client::Admin;
use ottla_client::admin::{EndpointType, TopicDescription};
use ottla_config::nearest_name;
use ottla_protocol::messages::DescribeClusterResponse;
use ottla_rebalance::{Broker, Image, Options, Partition, Replica};
use ottla_rebalance_apply::{Directories, directories};

use crate::tools::reassign_partitions::assignment_file::shown;
use crate::tools::topic_filter::TopicFilter;

/// How many partitions an error names.
const NAMED: usize = 5;

/// The topics whose partitions may move.
pub(super) struct Topics {
    included: TopicFilter,
    excluded: Option<TopicFilter>,
    /// The value of `--topics`.
    named: Option<String>,
}

impl Topics {
    pub(super) fn new(included: Option<&str>, excluded: Option<&str>) -> anyhow::Result<Topics> {
        let filter = |flag: &str, text: &str| {
            TopicFilter::new(text).map_err(|_| {
                anyhow!("{flag} {text}: not a regular expression; give one, such as 'orders.*', or a name")
            })
        };
        let included_filter = included.map(|text| filter("--topics", text)).transpose()?;
        let excluded_filter = excluded.map(|text| filter("--exclude-topics", text));
        Ok(Topics {
            included: included_filter.unwrap_or_else(TopicFilter::all),
            excluded: excluded_filter.transpose()?,
            named: included.map(str::to_owned),
        })
    }

    /// Each alternative of `--topics` must match a topic: with a mistyped one, there would be nothing
    /// to do for it, which looks like success.
    fn check(&self, topics: &[String]) -> anyhow::Result<()> {
        let Some(named) = &self.named else {
            return Ok(());
        };
        // A comma may be inside of parentheses; then the parts are no patterns, and the whole is.
        let parts = named.split(',').map(str::trim);
        let mut filters: Vec<_> = parts
            .filter(|part| !part.is_empty())
            .map(|part| (part, TopicFilter::new(part)))
            .collect();
        if filters.iter().any(|(_, filter)| filter.is_err()) {
            filters = vec![(named.as_str(), TopicFilter::new(named))];
        }
        for (part, filter) in filters {
            let filter = filter?;
            if topics.iter().any(|topic| filter.is_allowed(topic, false)) {
                continue;
            }
            let names = topics.iter().map(String::as_str);
            let similar = nearest_name(part, names);
            let meant = similar.map_or(String::new(), |name| format!("; did you mean {name}?"));
            bail!("--topics {part}: no topic has such a name{meant}");
        }
        Ok(())
    }

    fn may_move(&self, topic: &str) -> bool {
        let excluded = self.excluded.as_ref();
        self.included.is_allowed(topic, false)
            && !excluded.is_some_and(|it| it.is_allowed(topic, false))
    }
}

/// Describes the cluster, and measures the write rate of producers for a while if a plan can depend
/// on it. Options that do not fit the cluster are refused first.
pub(super) async fn image(
    admin: &Admin,
    topics: &Topics,
    options: &Options,
    sample_seconds: u64,
    tells: bool,
) -> anyhow::Result<Image> {
    topics.check(&admin.list_topics(true).await?)?;
    let cluster = admin.describe_cluster(EndpointType::Broker, true).await?;
    let ongoing = admin.list_partition_reassignments().await?;
    if !ongoing.is_empty() {
        let mut names: Vec<String> = ongoing.keys().take(NAMED).map(shown).collect();
        if let Some(more @ 1..) = ongoing.len().checked_sub(NAMED) {
            names.push(format!("and {more} more"));
        }
        bail!(
            "partitions are being reassigned: {}; wait until they are done (ottla reassign-partitions --list), or \
             continue or cancel their plan (ottla rebalance apply or cancel)",
            names.join(", ")
        );
    }
    let alive = cluster.brokers.iter().filter(|it| !it.is_fenced);
    let alive: BTreeSet<i32> = alive.map(|it| it.broker_id).collect();
    let described = admin
        .describe_topics(&admin.list_topics(true).await?)
        .await?;
    let known = known_brokers(&cluster, &described);
    options.check(&known, &alive)?;
    let before = directories(admin, alive.iter().copied()).await?;
    let sample_seconds = match may_change(&known, &described, topics) {
        true => sample_seconds,
        false => 0,
    };
    if sample_seconds > 0 {
        if tells {
            eprintln!("Measuring the write rate of producers for {sample_seconds} s …");
        }
        tokio::time::sleep(Duration::from_secs(sample_seconds)).await;
    }
    let after = match sample_seconds {
        0 => None,
        _ => Some(directories(admin, alive.iter().copied()).await?),
    };
    let described = admin
        .describe_topics(&admin.list_topics(true).await?)
        .await?;
    let sizes = Sizes {
        before: replicas_of(&before),
        after: replicas_of(after.as_ref().unwrap_or(&before)),
        seconds: alive
            .iter()
            .map(|id| {
                let until = after.as_ref().map_or(before[id].at, |after| after[id].at);
                (*id, until.duration_since(before[id].at).as_secs_f64())
            })
            .collect(),
    };
    let partitions: Vec<Partition> = described
        .iter()
        .flat_map(|topic| partitions(topic, topics.may_move(&topic.name), &sizes))
        .collect();
    let broker = |id: i32| {
        let registered = cluster.brokers.iter().find(|it| it.broker_id == id);
        let directories = after.as_ref().unwrap_or(&before).get(&id);
        Broker {
            id,
            rack: registered
                .and_then(|it| it.rack.as_ref())
                .map(ToString::to_string),
            is_alive: alive.contains(&id),
            log_dirs: directories.map(Directories::log_dirs).unwrap_or_default(),
        }
    };
    Ok(Image {
        brokers: known_brokers(&cluster, &described)
            .into_iter()
            .map(broker)
            .collect(),
        partitions,
    })
}

/// Whether a plan can depend on what producers write: there are several brokers, and partitions
/// that may move.
fn may_change(brokers: &BTreeSet<i32>, described: &[TopicDescription], topics: &Topics) -> bool {
    let mut movable = described.iter().filter(|it| topics.may_move(&it.name));
    brokers.len() > 1 && movable.any(|it| !it.partitions.is_empty())
}

/// The brokers that are registered or have replicas.
fn known_brokers(cluster: &DescribeClusterResponse, topics: &[TopicDescription]) -> BTreeSet<i32> {
    let partitions = topics.iter().flat_map(|it| &it.partitions);
    let with_replicas = partitions.flat_map(|it| &it.replicas).copied();
    let registered = cluster.brokers.iter().map(|it| it.broker_id);
    with_replicas.chain(registered).collect()
}

type OfReplicas<'a> = BTreeMap<i32, BTreeMap<(&'a str, i32), (u64, usize)>>;

fn replicas_of(directories: &BTreeMap<i32, Directories>) -> OfReplicas<'_> {
    directories
        .iter()
        .map(|(id, it)| (*id, it.replicas()))
        .collect()
}

/// The sizes of all replicas at the two moments.
struct Sizes<'a> {
    before: OfReplicas<'a>,
    after: OfReplicas<'a>,
    /// The time between, for each broker.
    seconds: BTreeMap<i32, f64>,
}

impl Sizes<'_> {
    /// How fast a replica has grown, in bytes per second. Deleted segments hide growth, so the
    /// largest of the replicas in sync counts.
    fn growth(&self, broker: i32, key: (&str, i32)) -> Option<u64> {
        let before = self.before.get(&broker)?.get(&key)?.0;
        let after = self.after.get(&broker)?.get(&key)?.0;
        let seconds = self.seconds.get(&broker).filter(|it| **it > 0.0)?;
        Some((after.saturating_sub(before) as f64 / seconds) as u64)
    }
}

fn partitions(topic: &TopicDescription, may_move: bool, sizes: &Sizes) -> Vec<Partition> {
    let partition = |it: &ottla_client::admin::PartitionDescription| {
        let key = (topic.name.as_str(), it.partition);
        let place = |broker: i32| sizes.after.get(&broker)?.get(&key).copied();
        let replicas = it.replicas.iter().map(|broker| Replica {
            broker: *broker,
            log_dir: place(*broker).map(|(_, dir)| dir),
            is_in_sync: it.isr.contains(broker),
        });
        let size = it.replicas.iter().filter_map(|broker| place(*broker));
        let growth = it
            .isr
            .iter()
            .filter_map(|broker| sizes.growth(*broker, key));
        Partition {
            topic: topic.name.clone(),
            number: it.partition,
            replicas: replicas.collect(),
            leader: it.leader,
            size_bytes: size.map(|(size, _)| size).max().unwrap_or(0),
            bytes_in: growth.max().unwrap_or(0),
            is_movable: may_move,
        }
    };
    topic.partitions.iter().map(partition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicDescription {
        TopicDescription {
            name: "t".to_owned(),
            topic_id: Default::default(),
            is_internal: false,
            partitions: vec![ottla_client::admin::PartitionDescription {
                partition: 0,
                leader: Some(1),
                replicas: vec![1, 2, 3],
                isr: vec![1, 2],
                eligible_leader_replicas: None,
                last_known_elr: None,
            }],
        }
    }

    #[test]
    fn nothing_is_measured_for_a_plan_without_a_choice() {
        let all = Topics::new(None, None).unwrap();
        let others = Topics::new(None, Some("t")).unwrap();
        let described = [topic()];
        let both = BTreeSet::from([1, 2]);
        assert!(may_change(&both, &described, &all));
        assert!(!may_change(&both, &described, &others));
        assert!(!may_change(&both, &[], &all));
        assert!(!may_change(&BTreeSet::from([1]), &described, &all));
    }

    #[test]
    fn topics_are_included_and_excluded() {
        let topics = Topics::new(Some("orders.*"), Some("orders-old")).unwrap();
        let may_move = |topic: &str| topics.may_move(topic);
        assert!(may_move("orders-new") && !may_move("orders-old") && !may_move("other"));
        assert!(
            Topics::new(None, None)
                .unwrap()
                .may_move("__consumer_offsets")
        );
        for (included, excluded, flag) in [
            (Some("["), None, "--topics [: "),
            (None, Some("("), "--exclude-topics (: "),
        ] {
            let refused = Topics::new(included, excluded).err().expect("no pattern");
            assert!(refused.to_string().starts_with(flag), "{refused}");
        }
    }

    #[test]
    fn the_error_names_a_mistyped_topic() {
        let check = |named: Option<&str>| {
            let topics = Topics::new(named, None).unwrap();
            let checked = topics.check(&["orders-eu".to_owned(), "payments".to_owned()]);
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(check(None), None);
        assert_eq!(check(Some("orders.*, payments")), None);
        assert_eq!(check(Some("(orders,payments).*")), None);
        assert_eq!(
            check(Some("orders.*,paymnets")).as_deref(),
            Some("--topics paymnets: no topic has such a name; did you mean payments?")
        );
        assert_eq!(
            check(Some("(x,y)")).as_deref(),
            Some("--topics (x,y): no topic has such a name")
        );
    }

    #[test]
    fn the_replica_that_grew_most_gives_the_growth() {
        let at = |one: u64, two: u64| {
            BTreeMap::from([
                (1, BTreeMap::from([(("t", 0), (one, 0))])),
                (2, BTreeMap::from([(("t", 0), (two, 1))])),
            ])
        };
        let sizes = Sizes {
            before: at(1000, 900),
            // Broker 1 has deleted a segment.
            after: at(700, 1900),
            seconds: BTreeMap::from([(1, 10.0), (2, 10.0)]),
        };
        let topic = topic();
        let partition = &partitions(&topic, true, &sizes)[0];
        assert_eq!((partition.size_bytes, partition.bytes_in), (1900, 100));
        let dirs: Vec<_> = partition
            .replicas
            .iter()
            .map(|it| (it.log_dir, it.is_in_sync))
            .collect();
        assert_eq!(dirs, [(Some(0), true), (Some(1), true), (None, false)]);
    }
}
