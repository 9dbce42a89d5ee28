//! `reassign-partitions`: Kafka's `kafka-reassign-partitions.sh`.
//!
//! Like Kafka's tool, it prints errors to standard output: as `Error: …`, or without this prefix
//! where the message is complete in itself.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::admin::{EndpointType, TopicDescription};
use ottla_client::{Admin, ClientError};
use ottla_controller::{UsableBroker, place_on_brokers};
use ottla_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use ottla_types::{BrokerId, ErrorCode};

use super::java_text::joined as ids;
use super::{admin_client, block_on, java_exceptions};
use assignment_file::{
    Assignment, Partition, Replica, duplicates, read_assignment, read_topics, shown, to_json,
};

pub(super) mod assignment_file;
mod log_dir_moves;
pub(super) mod throttles;

use log_dir_moves::Terse;

/// Move replicas of partitions to other brokers, or to other log directories of their brokers.
///
/// --generate proposes an assignment and prints the current one; --execute starts the assignment in
/// a file; --verify shows its progress, and lifts the throttle once it is complete. The file:
/// {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs":
/// ["/path"]}]}, where "log_dirs" is optional, and "any" means no particular directory.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
pub struct ReassignPartitionsArgs {
    #[command(flatten)]
    bootstrap: admin_client::Bootstrap,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Propose an assignment of topics to brokers; nothing is changed.
    #[arg(
        long,
        group = "action",
        requires = "topics_to_move_json_file",
        requires = "broker_list"
    )]
    generate: bool,
    /// Start the assignment in the file.
    #[arg(long, group = "action", requires = "reassignment_json_file")]
    execute: bool,
    /// Show the progress of the assignment in the file; lift the throttle once it is complete.
    #[arg(long, group = "action", requires = "reassignment_json_file")]
    verify: bool,
    /// Cancel the moves in the file that are under way.
    #[arg(long, group = "action", requires = "reassignment_json_file")]
    cancel: bool,
    /// List the reassignments under way.
    #[arg(long, group = "action")]
    list: bool,
    /// JSON file with the replicas of each partition.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["generate", "list"])]
    reassignment_json_file: Option<String>,
    /// With --generate: JSON file that names topics: {"version": 1, "topics": [{"topic": "t"}]}.
    #[arg(long, value_name = "FILE", requires = "generate")]
    topics_to_move_json_file: Option<String>,
    /// With --generate: the brokers to spread the replicas over, ids separated by commas.
    #[arg(long, value_name = "IDS", requires = "generate")]
    broker_list: Option<String>,
    /// With --generate: ignore racks.
    #[arg(long, requires = "generate")]
    disable_rack_aware: bool,
    /// With --execute: bytes per second between brokers, at least 1024.
    #[arg(long, value_name = "BYTES", requires = "execute", allow_hyphen_values = true, default_value_t = -1, hide_default_value = true)]
    throttle: i64,
    /// With --execute: bytes per second between directories of a broker, at least 1024.
    #[arg(long, value_name = "BYTES", requires = "execute", allow_hyphen_values = true, default_value_t = -1, hide_default_value = true)]
    replica_alter_log_dirs_throttle: i64,
    /// With --execute or --cancel: how long to wait for moves between directories to begin.
    #[arg(long, value_name = "MS", conflicts_with_all = ["generate", "list", "verify"], default_value_t = 10_000)]
    timeout: u64,
    /// With --execute: start the assignment even if another is under way, or change the throttle of
    /// a running one.
    #[arg(long, requires = "execute")]
    additional: bool,
    /// With --execute: refuse to change the number of replicas of a partition.
    #[arg(long, requires = "execute")]
    disallow_replication_factor_change: bool,
    /// With --verify or --cancel: leave throttles as they are.
    #[arg(long, conflicts_with_all = ["generate", "list", "execute"])]
    preserve_throttles: bool,
}

pub fn run(args: ReassignPartitionsArgs) -> ExitCode {
    block_on(async {
        let Err(error) = act(&args).await else {
            return ExitCode::SUCCESS;
        };
        if let Some(terse) = error.downcast_ref::<Terse>() {
            println!("{terse}");
        } else {
            match error.downcast_ref::<ClientError>() {
                Some(error) if error.code().is_some() => {
                    println!("Error: {}", java_exceptions::shown(error));
                }
                _ => println!("Error: {error:#}"),
            }
        }
        ExitCode::FAILURE
    })
}

async fn act(args: &ReassignPartitionsArgs) -> anyhow::Result<()> {
    let is_controller = args.bootstrap.endpoint_type() == EndpointType::Controller;
    if is_controller && !args.cancel && !args.list {
        bail!(
            "--bootstrap-controller can be used with --cancel and --list only; write --bootstrap-server"
        );
    }
    let connect = async || {
        let config = args.command_config.as_deref();
        args.bootstrap
            .connect(config, "reassign-partitions-tool")
            .await
    };
    if let (Some(topics), Some(brokers)) = (&args.topics_to_move_json_file, &args.broker_list) {
        let brokers = parse_brokers(brokers)?;
        let topics = read_topics(topics)?;
        let twice = duplicates(&topics);
        if !twice.is_empty() {
            bail!(
                "List of topics to reassign contains duplicate entries: [{}]",
                twice.join(", ")
            );
        }
        return generate(
            &connect().await?,
            &topics,
            &brokers,
            !args.disable_rack_aware,
        )
        .await;
    }
    let Some(file) = &args.reassignment_json_file else {
        return list(&connect().await?).await;
    };
    let assignment = read_assignment(file)?;
    if args.execute {
        let partitions = assignment.checked()?;
        execute(&connect().await?, args, &partitions, &assignment).await
    } else if args.cancel {
        cancel(&connect().await?, args, &assignment).await
    } else {
        verify(&connect().await?, args, &assignment).await
    }
}

fn parse_brokers(list: &str) -> anyhow::Result<Vec<i32>> {
    let mut brokers = Vec::new();
    for id in list.split(',') {
        match id.trim().parse() {
            Ok(id) => brokers.push(id),
            Err(_) => bail!("--broker-list: {id:?} is not a broker ID; give IDs such as 0,1,2"),
        }
    }
    let twice = duplicates(&brokers);
    if !twice.is_empty() {
        bail!("Broker list contains duplicate entries: {twice:?}");
    }
    Ok(brokers)
}

/// The topics, or an error that names a missing one.
async fn describe(admin: &Admin, names: &[String]) -> Result<Vec<TopicDescription>, ClientError> {
    let mut described = Vec::new();
    for name in names {
        match admin.describe_topics(std::slice::from_ref(name)).await {
            Err(error) if is_unknown(&error) => {
                let message = format!("Topic {name} not found.");
                let code = ErrorCode::UnknownTopicOrPartition.code();
                return Err(ClientError::broker("topics", code, Some(message)));
            }
            result => described.extend(result?),
        }
    }
    Ok(described)
}

/// Whether the topic does not exist. Brokers return the first of these codes for a name that no topic
/// can have.
pub(super) fn is_unknown(error: &ClientError) -> bool {
    matches!(
        error.code(),
        Some(ErrorCode::InvalidTopicException | ErrorCode::UnknownTopicOrPartition)
    )
}

fn replicas_of(topics: &[TopicDescription]) -> BTreeMap<Partition, Vec<i32>> {
    let of = |topic: &TopicDescription| {
        let name = topic.name.clone();
        let partitions = topic.partitions.clone().into_iter();
        partitions.map(move |it| ((name.clone(), it.partition), it.replicas))
    };
    topics.iter().flat_map(of).collect()
}

/// The current log directories of these replicas.
async fn current_log_dirs(
    admin: &Admin,
    partitions: &BTreeMap<Partition, Vec<i32>>,
) -> anyhow::Result<BTreeMap<Replica, String>> {
    let live: BTreeSet<i32> = admin.client().metadata().brokers.keys().copied().collect();
    let replicas: Vec<Replica> = partitions
        .iter()
        .flat_map(|(partition, brokers)| brokers.iter().map(|it| (*it, partition.clone())))
        .filter(|(broker, _)| live.contains(broker))
        .collect();
    let found = log_dir_moves::log_dirs_of(admin, replicas.iter()).await?;
    let known = found.into_iter();
    Ok(known
        .filter_map(|(replica, it)| it.current.map(|path| (replica, path)))
        .collect())
}

async fn generate(
    admin: &Admin,
    topics: &[String],
    brokers: &[i32],
    is_rack_aware: bool,
) -> anyhow::Result<()> {
    let described = describe(admin, topics).await?;
    let current = replicas_of(&described);
    let log_dirs = current_log_dirs(admin, &current).await?;
    let cluster = admin.describe_cluster(EndpointType::Broker, false).await?;
    let usable: Vec<UsableBroker> = cluster
        .brokers
        .iter()
        .filter(|broker| brokers.contains(&broker.broker_id))
        .map(|broker| UsableBroker {
            id: BrokerId(broker.broker_id),
            rack: broker.rack.clone().filter(|_| is_rack_aware),
            fenced: false,
        })
        .collect();
    let rackless = usable.iter().filter(|broker| broker.rack.is_none()).count();
    if is_rack_aware && rackless != 0 && rackless != usable.len() {
        bail!(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make \
             replica assignment without rack information."
        );
    }
    let mut proposed = BTreeMap::new();
    for topic in &described {
        let factor = topic.partitions.first().map_or(0, |it| it.replicas.len());
        let placed = place_on_brokers(
            usable.clone(),
            &mut rand::random::<u64>,
            topic.partitions.len(),
            i32::try_from(factor)?,
        );
        let placed = placed.map_err(anyhow::Error::msg)?;
        for (partition, replicas) in (0..).zip(placed) {
            let ids = replicas.into_iter().map(BrokerId::value).collect();
            proposed.insert((topic.name.clone(), partition), ids);
        }
    }
    println!(
        "Current partition replica assignment\n{}\n\nProposed partition reassignment configuration\n{}",
        to_json(&current, &log_dirs),
        to_json(&proposed, &BTreeMap::new())
    );
    Ok(())
}

async fn execute(
    admin: &Admin,
    args: &ReassignPartitionsArgs,
    proposed: &BTreeMap<Partition, Vec<i32>>,
    assignment: &Assignment,
) -> anyhow::Result<()> {
    let ongoing = admin.list_partition_reassignments().await?;
    if !args.additional && !ongoing.is_empty() {
        return Err(Terse(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override \
             this and create a new partition assignment in addition to the existing one. The --additional \
             flag can also be used to change the throttle by resubmitting the current reassignment."
                .to_owned(),
        )
        .into());
    }
    let live: BTreeSet<i32> = admin.client().metadata().brokers.keys().copied().collect();
    if let Some(unknown) = proposed.values().flatten().find(|id| !live.contains(id)) {
        bail!("Unknown broker id {unknown}");
    }
    let names: BTreeSet<String> = proposed.keys().map(|(topic, _)| topic.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let mut current = replicas_of(&describe(admin, &names).await?);
    current.retain(|partition, _| proposed.contains_key(partition));
    let missing = proposed.keys().filter(|it| !current.contains_key(*it));
    let missing: Vec<String> = missing.map(shown).collect();
    if !missing.is_empty() {
        let message = format!("Unable to find partition: {}", missing.join(", "));
        let code = ErrorCode::UnknownTopicOrPartition.code();
        return Err(ClientError::broker("partitions", code, Some(message)).into());
    }
    println!(
        "Current partition replica assignment\n\n{}\n\nSave this to use as the --reassignment-json-file option \
         during rollback",
        to_json(&current, &current_log_dirs(admin, &current).await?)
    );
    if args.throttle >= 0 || args.replica_alter_log_dirs_throttle >= 0 {
        println!(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the \
             throttle is removed."
        );
    }
    if args.throttle >= 0 {
        admin
            .limit_replication(&ongoing, &current, proposed, args.throttle)
            .await?;
        println!(
            "The inter-broker throttle limit was set to {} B/s",
            args.throttle
        );
    }
    if args.replica_alter_log_dirs_throttle >= 0 {
        let brokers = assignment
            .log_dirs
            .keys()
            .map(|(broker, _)| *broker)
            .collect();
        let limit = args.replica_alter_log_dirs_throttle;
        throttles::limit_log_dir_moves(admin, &brokers, limit).await?;
    }
    let wanted = proposed
        .iter()
        .map(|(it, replicas)| (it.clone(), Some(replicas.clone())));
    let may_change_factor = !args.disallow_replication_factor_change;
    let results = admin
        .alter_partition_reassignments(&wanted.collect(), may_change_factor)
        .await?;
    fail_if_any(results, |_| "Error reassigning partition(s)".to_owned())?;
    println!(
        "Successfully started partition reassignment{} for {}",
        plural(proposed.len()),
        joined(proposed.keys())
    );
    log_dir_moves::start(
        admin,
        &assignment.log_dirs,
        Duration::from_millis(args.timeout),
    )
    .await
}

/// Combines the errors of single partitions under a heading that depends on their number.
pub(super) fn fail_if_any(
    results: BTreeMap<Partition, Result<(), ClientError>>,
    title: impl Fn(usize) -> String,
) -> Result<(), Terse> {
    let errors: Vec<String> = results
        .into_iter()
        .filter_map(|(partition, result)| {
            let error = result.err()?;
            Some(format!("{}: {}", shown(&partition), error.broker_message()))
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Terse(format!(
            "{}:\n{}",
            title(errors.len()),
            errors.join("\n")
        )))
    }
}

async fn verify(
    admin: &Admin,
    args: &ReassignPartitionsArgs,
    assignment: &Assignment,
) -> anyhow::Result<()> {
    let ongoing = admin.list_partition_reassignments().await?;
    println!("Status of partition reassignment:");
    // A partition listed twice in the file is reported once, with its last entry.
    let targets: BTreeMap<Partition, Vec<i32>> = assignment.partitions.iter().cloned().collect();
    for (partition, target) in &targets {
        let name = shown(partition);
        if ongoing.contains_key(partition) {
            println!("Reassignment of partition {name} is still in progress.");
            continue;
        }
        let topic = std::slice::from_ref(&partition.0);
        let current = match admin.describe_topics(topic).await {
            Ok(topics) => replicas_of(&topics).remove(partition).unwrap_or_default(),
            Err(error) if is_unknown(&error) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        if current == *target {
            println!("Reassignment of partition {name} is completed.")
        } else {
            println!(
                "There is no active reassignment of partition {name}, but replica set is {} rather than {}.",
                ids(&current),
                ids(target)
            )
        }
    }
    let moves = log_dir_moves::states(admin, &assignment.log_dirs).await?;
    let sentences = moves
        .iter()
        .map(|(replica, state)| state.shown(replica, &assignment.log_dirs[replica]));
    println!("{}", sentences.collect::<Vec<String>>().join("\n"));
    let are_done = moves.values().all(log_dir_moves::MoveState::is_done);
    if ongoing.is_empty() && are_done && !args.preserve_throttles {
        let tell = |line: String| println!("{line}");
        throttles::clear(admin, EndpointType::Broker, &assignment.partitions, tell).await?;
    }
    Ok(())
}

/// The reassignments of these partitions that are under way.
pub(super) async fn active(
    admin: &Admin,
    assignment: &Assignment,
) -> Result<BTreeMap<Partition, OngoingPartitionReassignment>, ClientError> {
    let named: BTreeSet<&Partition> = assignment.partitions.iter().map(|(it, _)| it).collect();
    let mut active = admin.list_partition_reassignments().await?;
    active.retain(|partition, it| {
        let is_complete = it.adding_replicas.is_empty() && it.removing_replicas.is_empty();
        named.contains(partition) && !is_complete
    });
    Ok(active)
}

pub(super) async fn cancel_active(
    admin: &Admin,
    active: &BTreeMap<Partition, OngoingPartitionReassignment>,
) -> anyhow::Result<()> {
    let none = active.keys().map(|partition| (partition.clone(), None));
    let results = admin
        .alter_partition_reassignments(&none.collect(), true)
        .await?;
    fail_if_any(results, |number| {
        format!(
            "Error cancelling partition reassignment{} for",
            plural(number)
        )
    })?;
    Ok(())
}

async fn cancel(
    admin: &Admin,
    args: &ReassignPartitionsArgs,
    assignment: &Assignment,
) -> anyhow::Result<()> {
    let active = active(admin, assignment).await?;
    if active.is_empty() {
        println!("None of the specified partition reassignments are active.");
    } else {
        cancel_active(admin, &active).await?;
        println!(
            "Successfully cancelled partition reassignment{} for: {}",
            plural(active.len()),
            joined(active.keys())
        );
    }
    let states = log_dir_moves::states(admin, &assignment.log_dirs).await?;
    let mut back = BTreeMap::new();
    for (replica, state) in states {
        if let log_dir_moves::MoveState::Active { current, .. } = state {
            back.insert(replica, current);
        }
    }
    if back.is_empty() {
        // Without a newline, as in Kafka's tool.
        print!("None of the specified partition moves are active.");
    } else {
        log_dir_moves::start(admin, &back, Duration::from_millis(args.timeout)).await?;
    }
    if !args.preserve_throttles {
        let nodes = args.bootstrap.endpoint_type();
        let tell = |line: String| println!("{line}");
        throttles::clear(admin, nodes, &assignment.partitions, tell).await?;
    }
    Ok(())
}

async fn list(admin: &Admin) -> anyhow::Result<()> {
    let ongoing = admin.list_partition_reassignments().await?;
    if ongoing.is_empty() {
        println!("No partition reassignments found.");
        return Ok(());
    }
    println!("Current partition reassignments:");
    for (partition, it) in &ongoing {
        let part = |word: &str, brokers: &[i32]| {
            if brokers.is_empty() {
                String::new()
            } else {
                format!(" {word}: {}.", ids(brokers))
            }
        };
        println!(
            "{}: replicas: {}.{}{}",
            shown(partition),
            ids(&it.replicas),
            part("adding", &it.adding_replicas),
            part("removing", &it.removing_replicas)
        );
    }
    Ok(())
}

fn joined<'a>(partitions: impl Iterator<Item = &'a Partition>) -> String {
    partitions.map(shown).collect::<Vec<String>>().join(",")
}

fn plural(number: usize) -> &'static str {
    if number == 1 { "" } else { "s" }
}
