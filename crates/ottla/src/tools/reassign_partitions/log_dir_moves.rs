//! Moves of replicas between the log directories of their brokers: their progress, and starting
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::bail;
use ottla_client::admin::ReplicaLogDirs;
use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use super::assignment_file::{Partition, Replica, shown, shown_replica};

/// Time between two attempts to start a move. A replica on a new broker cannot be assigned a
/// directory before it exists there.
const PAUSE: Duration = Duration::from_millis(100);

/// The progress of a replica's move to a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MoveState {
    /// No online log directory has the replica.
    MissingLogDir,
    /// The replica is moving from `current` to `future`, which may not be the requested directory.
    Active {
        current: String,
        future: String,
    },
    /// The replica is not moving and is in another directory.
    Cancelled {
        current: String,
    },
    Completed,
}

impl MoveState {
    fn of(replica: ReplicaLogDirs, target: &str) -> MoveState {
        match (replica.current, replica.future) {
            (None, _) => MoveState::MissingLogDir,
            (Some(current), Some(future)) => MoveState::Active { current, future },
            (Some(current), None) if current == target => MoveState::Completed,
            (Some(current), None) => MoveState::Cancelled { current },
        }
    }

    /// Whether the move is over, even if the replica is not in the requested directory.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, MoveState::Cancelled { .. } | MoveState::Completed)
    }

    /// The message of Kafka's tool.
    pub(super) fn shown(&self, replica: &Replica, target: &str) -> String {
        let (broker, partition) = replica;
        let name = shown(partition);
        match self {
            MoveState::MissingLogDir => format!(
                "Partition {name} is not found in any live log dir on broker {broker}. There is likely an \
                 offline log directory on the broker."
            ),
            MoveState::Active { future, .. } if future == target => format!(
                "Reassignment of replica {} is still in progress.",
                shown_replica(replica)
            ),
            MoveState::Active { future, .. } => format!(
                "Partition {name} on broker {broker} is being moved to log dir {future} instead of {target}."
            ),
            MoveState::Cancelled { current } => format!(
                "Partition {name} on broker {broker} is not being moved from log dir {current} to {target}."
            ),
            MoveState::Completed => format!(
                "Reassignment of replica {} completed successfully.",
                shown_replica(replica)
            ),
        }
    }
}

/// The progress of these replicas' moves.
pub(super) async fn states(
    admin: &Admin,
    targets: &BTreeMap<Replica, String>,
) -> Result<BTreeMap<Replica, MoveState>, ClientError> {
    let found = log_dirs_of(admin, targets.keys()).await?;
    let state = |(replica, log_dirs): (Replica, ReplicaLogDirs)| {
        let state = MoveState::of(log_dirs, &targets[&replica]);
        (replica, state)
    };
    Ok(found.into_iter().map(state).collect())
}

/// The current log directories of these replicas.
pub(super) async fn log_dirs_of(
    admin: &Admin,
    replicas: impl Iterator<Item = &Replica>,
) -> Result<BTreeMap<Replica, ReplicaLogDirs>, ClientError> {
    let mut by_broker: BTreeMap<i32, BTreeSet<Partition>> = BTreeMap::new();
    for (broker, partition) in replicas {
        by_broker
            .entry(*broker)
            .or_default()
            .insert(partition.clone());
    }
    let mut found = BTreeMap::new();
    for (broker, partitions) in by_broker {
        let described = admin.describe_replica_log_dirs(broker, &partitions).await?;
        found.extend(
            described
                .into_iter()
                .map(|(partition, it)| ((broker, partition), it)),
        );
    }
    Ok(found)
}

/// Starts moves; retries for a while if a replica does not exist yet.
pub(super) async fn start(
    admin: &Admin,
    targets: &BTreeMap<Replica, String>,
    patience: Duration,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut pending: BTreeMap<&Replica, &String> = targets.iter().collect();
    loop {
        let mut left = BTreeMap::new();
        for (replica, path) in pending {
            let (broker, partition) = replica;
            match admin.alter_replica_log_dir(*broker, partition, path).await {
                Ok(()) => println!(
                    "Successfully started moving log directory to {path} for replica {} with broker {broker} ",
                    shown(partition)
                ),
                Err(error) if error.code() == Some(ErrorCode::ReplicaNotAvailable) => {
                    left.insert(replica, path);
                }
                Err(error) => {
                    eprintln!("{error}");
                    bail!("Failed to alter dir for {}", shown_replica(replica));
                }
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        if started.elapsed() >= patience {
            let names: Vec<String> = left.keys().map(|replica| shown_replica(replica)).collect();
            let plural = if names.len() == 1 { "" } else { "s" };
            return Err(Terse(format!(
                "Timed out before log directory move{plural} could be started for: {}",
                names.join(",")
            ))
            .into());
        }
        pending = left;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Printed without the prefix `Error: `.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::tools) struct Terse(pub(super) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_description() {
        let replica = (1, ("t".to_owned(), 0));
        let say = |current: Option<&str>, future: Option<&str>| {
            let log_dirs = ReplicaLogDirs {
                current: current.map(str::to_owned),
                future: future.map(str::to_owned),
            };
            MoveState::of(log_dirs, "/b").shown(&replica, "/b")
        };
        for (current, future, sentence) in [
            (
                None,
                None,
                "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline \
                 log directory on the broker.",
            ),
            (
                Some("/a"),
                Some("/b"),
                "Reassignment of replica t-0-1 is still in progress.",
            ),
            (
                Some("/a"),
                Some("/c"),
                "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.",
            ),
            (
                Some("/a"),
                None,
                "Partition t-0 on broker 1 is not being moved from log dir /a to /b.",
            ),
            (
                Some("/b"),
                None,
                "Reassignment of replica t-0-1 completed successfully.",
            ),
        ] {
            assert_eq!(say(current, future), sentence);
        }
    }
}
