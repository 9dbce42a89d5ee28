//! `topics`: Kafka's `kafka-topics.sh`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use ottla_broker::is_internal_topic;
use ottla_client::admin::{
    ConfigResourceType, DescribedConfigs, NewTopic, PartitionDescription, TopicDescription,
};
use ottla_client::{Admin, ClientError};
use ottla_config::{ConfigSource, InvalidTopicConfig, TopicConfig};
use ottla_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use ottla_types::{ErrorCode, Uuid};

use super::admin_client::Brokers;
use super::java_text::joined as ids;
use super::topic_filter::TopicFilter;
use super::{block_on, java_maps, report_on_stdout};

/// Create, list, describe, alter and delete topics.
///
/// Give one of --create, --list, --describe, --alter and --delete. Settings of an existing topic
/// are changed with `ottla configs`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
pub struct TopicsArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// List the topics.
    #[arg(long, group = "action")]
    list: bool,
    /// Create a topic.
    #[arg(long, group = "action", requires = "topic")]
    create: bool,
    /// Delete topics.
    #[arg(long, group = "action", requires = "topic")]
    delete: bool,
    /// Add partitions to topics.
    #[arg(long, group = "action", requires = "topic")]
    alter: bool,
    /// Show topics, their partitions and replicas.
    #[arg(long, group = "action")]
    describe: bool,
    /// The topic; a regular expression except with --create.
    #[arg(long)]
    topic: Option<String>,
    /// Describe the topic with this id.
    #[arg(long, value_name = "ID", requires = "describe")]
    topic_id: Option<String>,
    /// A setting of the new topic; repeatable.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["list", "delete", "describe"])]
    config: Vec<String>,
    /// Has no effect since Kafka 4.0; use `ottla configs`.
    #[arg(long, value_name = "NAME", hide = true)]
    delete_config: Vec<String>,
    /// Number of partitions of the topic. If it changes, records with the same key may go to
    /// another partition.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["list", "delete", "describe"])]
    partitions: Option<i32>,
    /// Number of replicas of each partition.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["list", "delete", "describe", "alter"])]
    replication_factor: Option<i32>,
    /// The brokers of each partition, such as 1:2,2:3 for two partitions with two replicas each.
    #[arg(long, value_name = "BROKERS", conflicts_with_all = ["list", "delete", "describe"])]
    replica_assignment: Option<String>,
    /// Show only partitions with a replica that is not in sync.
    #[arg(long, requires = "describe", conflicts_with = "topics_with_overrides")]
    under_replicated_partitions: bool,
    /// Show only partitions without a live leader.
    #[arg(long, requires = "describe", conflicts_with = "topics_with_overrides")]
    unavailable_partitions: bool,
    /// Show only partitions with fewer replicas in sync than min.insync.replicas.
    #[arg(long, requires = "describe", conflicts_with = "topics_with_overrides")]
    under_min_isr_partitions: bool,
    /// Show only partitions with exactly min.insync.replicas replicas in sync.
    #[arg(long, requires = "describe", conflicts_with = "topics_with_overrides")]
    at_min_isr_partitions: bool,
    /// Show only topics with settings of their own.
    #[arg(long, requires = "describe")]
    topics_with_overrides: bool,
    /// Succeed without a change if the topic does not exist.
    #[arg(long, conflicts_with_all = ["list", "create"])]
    if_exists: bool,
    /// Succeed if the topic already exists.
    #[arg(long, conflicts_with_all = ["list", "delete", "describe", "alter"])]
    if_not_exists: bool,
    /// Exclude internal topics.
    #[arg(long, conflicts_with_all = ["create", "delete", "alter"])]
    exclude_internal: bool,
    /// Partitions in one response of a broker.
    #[arg(long, value_name = "NUMBER", hide = true)]
    partition_size_limit_per_response: Option<i32>,
}

pub fn run(args: TopicsArgs) -> ExitCode {
    if !args.delete_config.is_empty() {
        eprintln!(
            "--delete-config has no effect since Kafka 4.0; use `ottla configs --alter --delete-config`."
        );
    }
    if args.alter && !args.config.is_empty() {
        let topic = args.topic.as_deref().unwrap_or_default();
        eprintln!(
            "--config belongs to --create; the settings of a topic that exists are changed with `ottla \
             configs --alter --topic {topic} --add-config {}` (kafka-configs.sh), each topic for itself.",
            args.config.join(",")
        );
        return ExitCode::FAILURE;
    }
    block_on(async { report_on_stdout("Error while executing topic command : ", act(&args).await) })
}

async fn act(args: &TopicsArgs) -> anyhow::Result<()> {
    let new_topic = args.create.then(|| new_topic(args)).transpose()?;
    let admin = args.brokers.connect("ottla-topics", None).await?;
    if let Some(topic) = new_topic {
        create(args, &admin, topic).await
    } else if args.alter {
        alter(args, &admin).await
    } else if args.list {
        let topics = matching_topics(args, &admin).await?;
        println!("{}", topics.join("\n"));
        Ok(())
    } else if args.describe {
        describe(args, &admin).await
    } else {
        let topics = matching_topics(args, &admin).await?;
        ensure_found(args, &topics)?;
        for topic in &topics {
            admin.delete_topic(topic).await?;
        }
        Ok(())
    }
}

fn new_topic(args: &TopicsArgs) -> anyhow::Result<NewTopic> {
    let mut configs = BTreeMap::new();
    for setting in &args.config {
        let Some((key, value)) = setting.split_once('=') else {
            bail!(
                "requirement failed: Invalid topic config: all configs to be added must be in the \
                 format \"key=val\"."
            );
        };
        configs.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    let pairs = configs
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    match TopicConfig::resolve(&TopicConfig::default(), pairs) {
        // Settings that only the cluster can judge are left to it.
        Ok(_) | Err(InvalidTopicConfig::Refused { .. }) => {}
        Err(error) => bail!(error),
    }
    if args
        .replication_factor
        .is_some_and(|factor| !(1..=i32::from(i16::MAX)).contains(&factor))
    {
        bail!(
            "The replication factor must be between 1 and {} inclusive",
            i16::MAX
        );
    }
    if args.partitions.is_some_and(|partitions| partitions < 1) {
        bail!("The partitions must be greater than 0");
    }
    let assignments = match &args.replica_assignment {
        Some(_) if args.partitions.is_some() || args.replication_factor.is_some() => bail!(
            "--replica-assignment says how many partitions and replicas there are; leave out \
             --partitions and --replication-factor"
        ),
        Some(text) => parse_assignment(text)?,
        None => Vec::new(),
    };
    Ok(NewTopic {
        name: args.topic.clone().unwrap_or_default(),
        partitions: args.partitions,
        replication_factor: args.replication_factor.map(|factor| factor as i16),
        assignments: (0..).zip(assignments).collect(),
        configs,
    })
}

/// Parses `1:2,2:3`: the brokers of each partition, with the same number for each.
fn parse_assignment(text: &str) -> anyhow::Result<Vec<Vec<i32>>> {
    let mut assignments: Vec<Vec<i32>> = Vec::new();
    for (index, partition) in text.split(',').enumerate() {
        let brokers = partition
            .split(':')
            .map(|broker| broker.trim().parse::<i32>())
            .collect::<Result<Vec<i32>, _>>()
            .with_context(|| {
                format!("--replica-assignment: {partition} is not a list of broker ids; write 1:2")
            })?;
        let distinct: BTreeSet<&i32> = brokers.iter().collect();
        if distinct.len() != brokers.len() {
            bail!("Partition replica lists may not contain duplicate entries: {partition}");
        }
        if assignments
            .first()
            .is_some_and(|first| first.len() != brokers.len())
        {
            bail!("Partition {index} has different replication factor: {brokers:?}");
        }
        assignments.push(brokers);
    }
    Ok(assignments)
}

async fn create(args: &TopicsArgs, admin: &Admin, topic: NewTopic) -> anyhow::Result<()> {
    if topic.name.contains(['.', '_']) {
        println!(
            "WARNING: Topic names with a period ('.') and with an underscore ('_') could collide in \
             metric names. It is best to use either, but not both."
        );
    }
    let name = topic.name.clone();
    let results = admin.create_topics(&[topic], false).await?;
    for result in results {
        let code = ErrorCode::from_code(result.error_code);
        if code == ErrorCode::TopicAlreadyExists && args.if_not_exists {
            return Ok(());
        }
        ClientError::check(&name, result.error_code, result.error_message.as_ref())?;
    }
    println!("Created topic {name}.");
    Ok(())
}

async fn alter(args: &TopicsArgs, admin: &Admin) -> anyhow::Result<()> {
    let topics = matching_topics(args, admin).await?;
    ensure_found(args, &topics)?;
    let Some(count) = args.partitions else {
        bail!(
            "--alter changes how many partitions a topic has: write --partitions; its settings are \
             changed with `ottla configs`"
        );
    };
    let assignments = args.replica_assignment.as_deref();
    let assignments = assignments.map(parse_assignment).transpose()?;
    for topic in &topics {
        let new = match &assignments {
            Some(all) => {
                let described = admin.describe_topics(std::slice::from_ref(topic)).await?;
                let existing = described.first().map_or(0, |topic| topic.partitions.len());
                Some(all.get(existing..).unwrap_or_default().to_vec())
            }
            None => None,
        };
        admin
            .create_partitions(topic, count, new.as_deref())
            .await?;
    }
    Ok(())
}

async fn matching_topics(args: &TopicsArgs, admin: &Admin) -> anyhow::Result<Vec<String>> {
    let filter = match &args.topic {
        Some(pattern) => TopicFilter::new(pattern)?,
        None => TopicFilter::all(),
    };
    let mut topics = admin.list_topics(!args.exclude_internal).await?;
    topics.retain(|topic| filter.is_allowed(topic, args.exclude_internal));
    topics.sort_unstable();
    Ok(topics)
}

fn ensure_found(args: &TopicsArgs, topics: &[String]) -> anyhow::Result<()> {
    match &args.topic {
        Some(topic) if !topic.is_empty() && topics.is_empty() && !args.if_exists => {
            bail!("Topic '{topic}' does not exist as expected")
        }
        _ => Ok(()),
    }
}

async fn describe(args: &TopicsArgs, admin: &Admin) -> anyhow::Result<()> {
    if args.if_exists && args.topic.is_none() && args.topic_id.is_none() {
        bail!("--topic or --topic-id is required to describe a topic");
    }
    let wanted_id = args.topic_id.as_deref().map(str::parse::<Uuid>);
    let wanted_id = wanted_id.transpose()?.filter(|id| !id.is_zero());
    let topics = match wanted_id {
        Some(id) => {
            let metadata = admin.client().refresh_metadata(None, false).await?;
            let name = metadata.topic_name(id).map(str::to_owned);
            let name = name.filter(|name| !(args.exclude_internal && is_internal_topic(name)));
            if name.is_none() && !args.if_exists {
                bail!("TopicId '{id}' does not exist as expected");
            }
            name.into_iter().collect()
        }
        None => {
            let topics = matching_topics(args, admin).await?;
            ensure_found(args, &topics)?;
            topics
        }
    };
    let described = admin.describe_topics(&topics).await?;
    let live: BTreeSet<i32> = admin.client().metadata().brokers.keys().copied().collect();
    // Without an answer, no reassignment is assumed to be in progress.
    let reassignments = admin
        .list_partition_reassignments()
        .await
        .unwrap_or_default();
    let selects_partitions = args.under_replicated_partitions
        || args.unavailable_partitions
        || args.under_min_isr_partitions
        || args.at_min_isr_partitions;
    for topic in &described {
        let mut configs = admin
            .describe_configs(ConfigResourceType::Topic, &topic.name, false)
            .await?;
        java_maps::sort_by_hash(&mut configs, |config| &config.name);
        let own: Vec<String> = configs
            .iter()
            .filter(|config| config.config_source != ConfigSource::Default.code())
            .map(|config| {
                format!(
                    "{}={}",
                    &*config.name,
                    config.value.as_deref().unwrap_or("null")
                )
            })
            .collect();
        if !selects_partitions && (!args.topics_with_overrides || !own.is_empty()) {
            print_topic(topic, &own, &reassignments);
        }
        if args.topics_with_overrides {
            continue;
        }
        let min_isr = min_insync_replicas(&configs);
        for partition in &topic.partitions {
            let reassignment = reassignments.get(&(topic.name.clone(), partition.partition));
            let replicas = replication_factor(partition, reassignment);
            let in_sync = partition.isr.len();
            let unavailable = partition
                .leader
                .is_none_or(|leader| !live.contains(&leader));
            let is_shown = !selects_partitions
                || (args.under_replicated_partitions && replicas > in_sync)
                || (args.unavailable_partitions && unavailable)
                || (args.under_min_isr_partitions
                    && (partition.leader.is_none() || in_sync < min_isr))
                || (args.at_min_isr_partitions && in_sync == min_isr);
            if is_shown {
                print_partition(&topic.name, partition, reassignment);
            }
        }
    }
    Ok(())
}

fn min_insync_replicas(configs: &DescribedConfigs) -> usize {
    configs
        .iter()
        .find(|config| &*config.name == "min.insync.replicas")
        .and_then(|config| config.value.as_deref()?.parse().ok())
        .unwrap_or(1)
}

/// Excludes replicas that are being added or removed.
fn replication_factor(
    partition: &PartitionDescription,
    reassignment: Option<&OngoingPartitionReassignment>,
) -> usize {
    match reassignment {
        Some(moving)
            if moving
                .adding_replicas
                .iter()
                .chain(&moving.removing_replicas)
                .any(|replica| partition.replicas.contains(replica)) =>
        {
            moving.replicas.len() - moving.adding_replicas.len().min(moving.replicas.len())
        }
        _ => partition.replicas.len(),
    }
}

fn print_topic(
    topic: &TopicDescription,
    own_configs: &[String],
    reassignments: &BTreeMap<(String, i32), OngoingPartitionReassignment>,
) {
    let factor = topic.partitions.first().map_or(0, |partition| {
        let reassignment = reassignments.get(&(topic.name.clone(), partition.partition));
        replication_factor(partition, reassignment)
    });
    let id = if topic.topic_id.is_zero() {
        String::new()
    } else {
        format!("\tTopicId: {}", topic.topic_id)
    };
    println!(
        "Topic: {}{id}\tPartitionCount: {}\tReplicationFactor: {factor}\tConfigs: {}",
        topic.name,
        topic.partitions.len(),
        own_configs.join(",")
    );
}

fn print_partition(
    topic: &str,
    partition: &PartitionDescription,
    reassignment: Option<&OngoingPartitionReassignment>,
) {
    let leader = partition
        .leader
        .map_or_else(|| "none".to_owned(), |leader| leader.to_string());
    let mut line = format!(
        "\tTopic: {topic}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}",
        partition.partition,
        ids(&partition.replicas),
        ids(&partition.isr),
    );
    if let Some(moving) = reassignment {
        line += &format!(
            "\tAdding Replicas: {}\tRemoving Replicas: {}",
            ids(&moving.adding_replicas),
            ids(&moving.removing_replicas)
        );
    }
    let or_unknown =
        |replicas: &Option<Vec<i32>>| replicas.as_ref().map_or_else(|| "N/A".to_owned(), ids);
    line += &format!(
        "\tElr: {}\tLastKnownElr: {}",
        or_unknown(&partition.eligible_leader_replicas),
        or_unknown(&partition.last_known_elr)
    );
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::parse_assignment;

    #[test]
    fn assignments_are_parsed() {
        assert_eq!(
            parse_assignment("1:2, 2:3").unwrap(),
            [vec![1, 2], vec![2, 3]]
        );
        for bad in ["1:1", "1:2,3", "x"] {
            assert!(parse_assignment(bad).is_err(), "{bad}");
        }
    }
}
