//! Stops the moves of a plan, and removes the throttles.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{Admin, ClientError};

use crate::apply::check_results;
use crate::error::ApplyError;
use crate::targets::{Partition, Phase, Targets, existing, look, shown};
use crate::throttles;

/// A move may end while it is cancelled, which is an error for this one only.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(200);

/// The cancelled moves, and the state that remains.
#[derive(Clone, Copy, Debug)]
pub struct Cancelled {
    pub moves: usize,
    /// Partitions that are where the plan puts them.
    pub there: usize,
    /// Of the plan, that exist.
    pub partitions: usize,
}

pub async fn cancel(admin: &Admin, targets: &Targets) -> Result<Cancelled, ApplyError> {
    let mut cancelled = 0;
    let mut refused = None;
    let mut left = active(admin, targets).await?;
    for _ in 0..ATTEMPTS {
        if left.is_empty() {
            break;
        }
        let before = left.len();
        refused = cancel_all(admin, &left).await.err();
        left = active(admin, targets).await?;
        cancelled += before.saturating_sub(left.len());
        if !left.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    if let Some(partition) = left.first() {
        return Err(refused.unwrap_or_else(|| {
            ApplyError::refused(format!("{} still moves; cancel again", shown(partition)))
        }));
    }
    let targets = existing(admin, targets).await?;
    throttles::clear(admin, &targets).await?;
    let seen = look(admin, &targets).await?;
    let is_there = |phase: &&Phase| matches!(phase, Phase::Done | Phase::Electing);
    Ok(Cancelled {
        moves: cancelled,
        there: seen.phases.values().filter(is_there).count(),
        partitions: targets.len(),
    })
}

/// The partitions of a plan that are being reassigned.
async fn active(admin: &Admin, targets: &Targets) -> Result<Vec<Partition>, ClientError> {
    let ongoing = admin.list_partition_reassignments().await?;
    let active = ongoing.into_iter().filter(|(partition, it)| {
        let is_complete = it.adding_replicas.is_empty() && it.removing_replicas.is_empty();
        targets.contains_key(partition) && !is_complete
    });
    Ok(active.map(|(partition, _)| partition).collect())
}

async fn cancel_all(admin: &Admin, active: &[Partition]) -> Result<(), ApplyError> {
    let none: BTreeMap<Partition, Option<Vec<i32>>> =
        active.iter().map(|it| (it.clone(), None)).collect();
    let results = admin.alter_partition_reassignments(&none, true).await?;
    check_results(results, "these moves cannot be cancelled")
}
