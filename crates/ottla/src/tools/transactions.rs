//! `transactions`: Kafka's `kafka-transactions.sh` (KIP-664, KIP-994, KIP-1152).

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use ottla_client::ClientError;
use ottla_client::admin::{Admin, OpenTransaction, TransactionFilter};
use ottla_protocol::messages::describe_producers_response::ProducerState;
use ottla_protocol::messages::describe_transactions_response::TransactionState;
use ottla_types::ErrorCode;

use super::admin_client::Brokers;
use super::local_time::now_ms;
use super::{block_on, message_of, report_plainly, tabbed_table};

/// Analyze transactions and their producers; find hanging transactions and abort them.
#[derive(Args, Debug)]
pub struct TransactionsArgs {
    #[command(flatten)]
    brokers: Brokers,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List transactions.
    List {
        /// Only transactions that have run longer than this many milliseconds; all if it is
        /// negative.
        #[arg(long)]
        duration_filter: Option<i64>,
        /// Only transactional ids that this regular expression matches.
        #[arg(long)]
        transactional_id_pattern: Option<String>,
    },
    /// Describe the state of an active transactional id.
    Describe {
        #[arg(long)]
        transactional_id: String,
    },
    /// Describe the states of the active producers of a partition.
    DescribeProducers {
        /// The replica on this broker instead of the leader.
        #[arg(long)]
        broker_id: Option<i32>,
        #[arg(long)]
        topic: String,
        #[arg(long)]
        partition: i32,
    },
    /// Abort a hanging transaction.
    Abort(AbortArgs),
    /// Find hanging transactions.
    FindHanging(FindHangingArgs),
    /// Abort the open transaction of a transactional id, and fence its producer.
    #[command(name = "forceTerminateTransaction")]
    ForceTerminate {
        #[arg(long = "transactionalId")]
        transactional_id: String,
    },
}

#[derive(Args, Debug)]
struct AbortArgs {
    #[arg(long)]
    topic: String,
    #[arg(long)]
    partition: i32,
    /// The start offset of the transaction; brokers since 3.0 need nothing else.
    #[arg(long)]
    start_offset: Option<i64>,
    /// For brokers before 3.0, together with --producer-epoch and --coordinator-epoch.
    #[arg(long)]
    producer_id: Option<i64>,
    #[arg(long)]
    producer_epoch: Option<i16>,
    #[arg(long)]
    coordinator_epoch: Option<i32>,
}

#[derive(Args, Debug)]
struct FindHangingArgs {
    /// Only partitions with a replica on this broker, according to the broker itself.
    #[arg(long)]
    broker_id: Option<i32>,
    /// Maximum duration of a transaction, in minutes.
    #[arg(long, default_value_t = 15)]
    max_transaction_timeout: i64,
    #[arg(long)]
    topic: Option<String>,
    #[arg(long)]
    partition: Option<i32>,
}

pub fn run(args: TransactionsArgs) -> ExitCode {
    block_on(async { report_plainly(execute(&args).await) })
}

/// Formats an error of the cluster as Kafka's tool does.
fn failed<T>(what: &str, result: Result<T, ClientError>) -> anyhow::Result<T> {
    result.map_err(|error| {
        anyhow!(
            "{what}: {}. Enable debug logging for additional detail.",
            error.broker_message()
        )
    })
}

async fn execute(args: &TransactionsArgs) -> anyhow::Result<()> {
    let connected = args.brokers.connect("ottla-transactions", None).await;
    let admin = connected.map_err(|error| anyhow!(message_of(&error)))?;
    match &args.command {
        Command::List {
            duration_filter,
            transactional_id_pattern,
        } => {
            let filter = TransactionFilter {
                duration_ms: *duration_filter,
                id_pattern: transactional_id_pattern.clone(),
                ..Default::default()
            };
            list(&admin, &filter).await
        }
        Command::Describe { transactional_id } => describe(&admin, transactional_id).await,
        Command::DescribeProducers {
            broker_id,
            topic,
            partition,
        } => describe_producers(&admin, topic, *partition, *broker_id).await,
        Command::Abort(args) => abort(&admin, args).await,
        Command::FindHanging(args) => find_hanging(&admin, args).await,
        Command::ForceTerminate { transactional_id } => failed(
            &format!("Failed to force terminate transactionalId `{transactional_id}`"),
            admin.fence_producer(transactional_id).await,
        ),
    }
}

async fn list(admin: &Admin, filter: &TransactionFilter) -> anyhow::Result<()> {
    let listings = failed(
        "Failed to list transactions",
        admin.list_transactions(filter).await,
    )?;
    let titles = [
        "TransactionalId",
        "Coordinator",
        "ProducerId",
        "TransactionState",
    ];
    let rows = listings.into_iter().map(|listing| {
        [
            listing.transactional_id,
            listing.coordinator.to_string(),
            listing.producer_id.to_string(),
            listing.state,
        ]
    });
    tabbed_table::print(titles, rows);
    Ok(())
}

async fn describe(admin: &Admin, transactional_id: &str) -> anyhow::Result<()> {
    let (coordinator, state) = failed(
        &format!("Failed to describe transaction state of transactional-id `{transactional_id}`"),
        admin.describe_transaction(transactional_id).await,
    )?;
    let (started, duration) = match state.transaction_start_time_ms {
        ..0 => ("None".to_owned(), "None".to_owned()),
        started => (started.to_string(), (now_ms() - started).to_string()),
    };
    let titles = [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ];
    let partitions = partitions_of(&state).into_iter();
    let partitions: Vec<String> = partitions
        .map(|(topic, partition)| format!("{topic}-{partition}"))
        .collect();
    let row = [
        coordinator.to_string(),
        transactional_id.to_owned(),
        state.producer_id.to_string(),
        state.producer_epoch.to_string(),
        state.transaction_state.to_string(),
        state.transaction_timeout_ms.to_string(),
        started,
        duration,
        partitions.join(","),
    ];
    tabbed_table::print(titles, [row]);
    Ok(())
}

fn partitions_of(state: &TransactionState) -> BTreeSet<(String, i32)> {
    let topics = state.topics.iter();
    topics
        .flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|partition| (topic.topic.to_string(), *partition))
        })
        .collect()
}

async fn describe_producers(
    admin: &Admin,
    topic: &str,
    partition: i32,
    broker: Option<i32>,
) -> anyhow::Result<()> {
    let whose = broker.map_or("leader".to_owned(), |id| format!("broker {id}"));
    let mut producers = failed(
        &format!("Failed to describe producers for partition {topic}-{partition} on {whose}"),
        admin.describe_producers(topic, partition, broker).await,
    )?;
    let titles = [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ];
    producers.sort_by_key(|producer| producer.producer_id);
    let rows = producers.into_iter().map(|producer| {
        [
            producer.producer_id.to_string(),
            producer.producer_epoch.to_string(),
            producer.coordinator_epoch.to_string(),
            producer.last_sequence.to_string(),
            producer.last_timestamp.to_string(),
            match producer.current_txn_start_offset {
                ..0 => "None".to_owned(),
                offset => offset.to_string(),
            },
        ]
    });
    tabbed_table::print(titles, rows);
    Ok(())
}

async fn abort(admin: &Admin, args: &AbortArgs) -> anyhow::Result<()> {
    let AbortArgs {
        topic, partition, ..
    } = args;
    let open = match (args.start_offset, args.producer_id) {
        (None, None) => bail!(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or \
             with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        ),
        (None, Some(producer_id)) => {
            let missing = |name: &str| format!("Missing required argument {name}");
            let epoch = args.producer_epoch;
            let producer_epoch = epoch.with_context(|| missing("--producer-epoch"))?;
            let epoch = args.coordinator_epoch;
            let coordinator_epoch = epoch.with_context(|| missing("--coordinator-epoch"))?;
            OpenTransaction {
                topic: topic.clone(),
                partition: *partition,
                producer_id,
                producer_epoch,
                // Before the first marker there is no coordinator epoch; 0 is never newer than a
                // later coordinator's.
                coordinator_epoch: coordinator_epoch.max(0),
            }
        }
        (Some(start_offset), _) => {
            let producers = failed(
                &format!("Failed to validate producer state for partition {topic}-{partition}"),
                admin.describe_producers(topic, *partition, None).await,
            )?;
            let mut producers = producers.into_iter();
            let found = producers.find(|it| it.current_txn_start_offset == start_offset);
            let found = found.filter(|_| start_offset >= 0).with_context(|| {
                format!(
                    "Could not find any open transactions starting at offset {start_offset} on partition \
                     {topic}-{partition}"
                )
            })?;
            open_transaction(topic, *partition, &found)
        }
    };
    let what = format!(
        "Failed to abort transaction AbortTransactionSpec(topicPartition={topic}-{partition}, producerId={}, \
         producerEpoch={}, coordinatorEpoch={})",
        open.producer_id, open.producer_epoch, open.coordinator_epoch
    );
    failed(&what, admin.abort_transaction(&open).await)
}

fn open_transaction(topic: &str, partition: i32, producer: &ProducerState) -> OpenTransaction {
    OpenTransaction {
        topic: topic.to_owned(),
        partition,
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch as i16,
        coordinator_epoch: producer.coordinator_epoch.max(0),
    }
}

/// An open transaction that exceeds the maximum duration, and that its coordinator does not know.
struct Candidate {
    topic: String,
    partition: i32,
    producer: ProducerState,
}

async fn find_hanging(admin: &Admin, args: &FindHangingArgs) -> anyhow::Result<()> {
    if args.topic.is_none() && args.broker_id.is_none() {
        bail!(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        );
    }
    if args.partition.is_some() && args.topic.is_none() {
        bail!("The --partition argument requires --topic to be provided");
    }
    let mut candidates = Vec::new();
    for (topic, partition) in partitions_to_search(admin, args).await? {
        let producers = failed(
            &format!("Failed to describe producers for partition {topic}-{partition}"),
            admin
                .describe_producers(&topic, partition, args.broker_id)
                .await,
        )?;
        let longest_ms = args.max_transaction_timeout.saturating_mul(60_000);
        let candidate = producers.into_iter().filter(|producer| {
            producer.current_txn_start_offset >= 0
                && now_ms().saturating_sub(producer.last_timestamp) > longest_ms
        });
        candidates.extend(candidate.map(|producer| Candidate {
            topic: topic.clone(),
            partition,
            producer,
        }));
    }
    let hanging = if candidates.is_empty() {
        candidates
    } else {
        without_known(admin, candidates).await?
    };
    print_hanging(&hanging);
    Ok(())
}

async fn partitions_to_search(
    admin: &Admin,
    args: &FindHangingArgs,
) -> anyhow::Result<Vec<(String, i32)>> {
    let topics = match (&args.topic, args.partition) {
        (Some(topic), Some(partition)) => return Ok(vec![(topic.clone(), partition)]),
        (Some(topic), None) => vec![topic.clone()],
        (None, _) => failed("Failed to list topics", admin.list_topics(true).await)?,
    };
    let what = format!("Failed to describe {} topics", topics.len());
    let described = failed(&what, admin.describe_topics(&topics).await)?;
    let mut partitions = Vec::new();
    for topic in described {
        for partition in topic.partitions {
            let has_replica = |id: &i32| partition.replicas.contains(id);
            if args.broker_id.as_ref().is_none_or(has_replica) {
                partitions.push((topic.name.clone(), partition.partition));
            }
        }
    }
    Ok(partitions)
}

/// Transactions for which no coordinator will write a marker.
async fn without_known(
    admin: &Admin,
    candidates: Vec<Candidate>,
) -> anyhow::Result<Vec<Candidate>> {
    let ids: BTreeSet<i64> = candidates
        .iter()
        .map(|it| it.producer.producer_id)
        .collect();
    let filter = TransactionFilter {
        producer_ids: ids.iter().copied().collect(),
        ..Default::default()
    };
    let what = format!("Failed to list transactions for {} producers", ids.len());
    let listings = failed(&what, admin.list_transactions(&filter).await)?;
    let mut known: BTreeMap<i64, BTreeSet<(String, i32)>> = BTreeMap::new();
    for listing in listings {
        let id = &listing.transactional_id;
        match admin.describe_transaction(id).await {
            Ok((_, state)) => {
                known.insert(listing.producer_id, partitions_of(&state));
            }
            Err(error) if error.code() == Some(ErrorCode::TransactionalIdNotFound) => {}
            error => {
                failed("Failed to describe 1 transactions", error)?;
            }
        }
    }
    let is_known = |it: &Candidate| {
        let partitions = known.get(&it.producer.producer_id);
        partitions.is_some_and(|known| known.contains(&(it.topic.clone(), it.partition)))
    };
    Ok(candidates.into_iter().filter(|it| !is_known(it)).collect())
}

fn print_hanging(hanging: &[Candidate]) {
    let titles = [
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    ];
    let rows = hanging.iter().map(|found| {
        let producer = &found.producer;
        let minutes = now_ms().saturating_sub(producer.last_timestamp) / 60_000;
        [
            found.topic.clone(),
            found.partition.to_string(),
            producer.producer_id.to_string(),
            producer.producer_epoch.to_string(),
            producer.coordinator_epoch.to_string(),
            producer.current_txn_start_offset.to_string(),
            producer.last_timestamp.to_string(),
            minutes.to_string(),
        ]
    });
    tabbed_table::print(titles, rows);
}
