//! Starts the moves of a plan, few at a time, and elects leaders.
//!
//! A loop compares the plan with the cluster until nothing is left. Stopped at any point, it finds
//! its moves again at the next start: those in progress are listed by the cluster, and finished ones
//! have the planned replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use ottla_client::{Admin, ClientError};
use ottla_rebalance::Cost;

use crate::directories::directories;
use crate::elections::Elections;
use crate::error::ApplyError;
use crate::room::Room;
use crate::targets::{
    Partition, Phase, Seen, Targets, check_alone, check_brokers, check_numbers, existing,
    is_unknown, look, shown,
};
use crate::throttles;

/// Between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(500);
/// A move that is no longer in progress and lacks its new replicas has been cancelled, unless the
/// metadata of the describing broker is old.
const BEHIND_FOR: Duration = Duration::from_secs(15);
/// The maximum number of partitions in a request that only changes the order of replicas.
const ORDERED_AT_ONCE: usize = 500;

/// A plan while it is carried out.
pub struct Apply {
    admin: Admin,
    most_moves: usize,
    /// The partitions of the plan that existed at the start.
    targets: Targets,
    /// As they were at the start.
    seen: Seen,
    outlook: Outlook,
    sizes: BTreeMap<Partition, u64>,
    /// The targets that are not reached yet.
    open: Targets,
    moving: BTreeMap<Partition, Moving>,
    /// Partitions for which a new order of replicas was requested.
    ordered: BTreeSet<Partition>,
    room: Room,
    elections: Elections,
    /// Replicas and bytes.
    moved: (usize, u64),
}

/// The work of a plan before it starts.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    /// Partitions of the plan that do not exist any more.
    pub missing: usize,
    pub partitions: usize,
    /// Partitions that are where they shall be, and that are on their way there.
    pub done: usize,
    pub started: usize,
    /// Replicas that are to be copied.
    pub moves: usize,
    pub cost: Cost,
}

/// How far all moves of this run are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Replicas that have been moved.
    pub moves: usize,
    pub bytes: u64,
    /// In progress.
    pub moving: usize,
}

/// The results of this run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub moved: usize,
    /// Elected, or led by the first replica already.
    pub elected: usize,
    /// Leaders that could not be elected, with the reason of the last attempt.
    pub not_elected: BTreeMap<Partition, String>,
}

/// A move in progress.
#[derive(Debug)]
struct Moving {
    added: Vec<i32>,
    /// The brokers that copy: the receivers and the leader.
    brokers: BTreeSet<i32>,
    /// Since when the cluster has not listed it.
    unlisted: Option<Instant>,
}

impl Apply {
    /// Compares a plan with the cluster, and changes nothing. `plan` names it in errors. At most
    /// `most_moves` partitions will move from or to one broker at a time.
    pub async fn prepare(
        admin: &Admin,
        planned: &Targets,
        plan: &str,
        most_moves: usize,
    ) -> Result<Apply, ApplyError> {
        let targets = existing(admin, planned).await?;
        check_brokers(admin, &targets)?;
        let seen = look(admin, &targets).await?;
        check_alone(&seen, &targets, plan)?;
        check_numbers(&seen, &targets, plan)?;
        let sizes = sizes(admin, &targets).await?;
        let mut outlook = outlook(&seen, &sizes);
        outlook.missing = planned.len() - targets.len();
        Ok(Apply {
            admin: admin.clone(),
            most_moves,
            open: targets.clone(),
            targets,
            seen,
            outlook,
            sizes,
            moving: BTreeMap::new(),
            ordered: BTreeSet::new(),
            room: Room::default(),
            elections: Elections::default(),
            moved: (0, 0),
        })
    }

    pub fn outlook(&self) -> &Outlook {
        &self.outlook
    }

    /// Carries out the moves, with an optional throttle in bytes per second of each broker. Calls
    /// `tell` with the progress several times a second. Returns false if `stop` completes before
    /// the end.
    ///
    /// The moves in the cluster outlive this call: if it is stopped or dropped, or fails, moves in
    /// progress continue, and the throttles stay. To [`cancel`](crate::cancel()) them, stop it and
    /// wait: if it is dropped, a request in flight can still start moves and set throttles after
    /// the cancellation has looked for them.
    pub async fn work(
        &mut self,
        throttle: Option<u64>,
        mut tell: impl FnMut(Count),
        stop: impl Future<Output = ()>,
    ) -> Result<bool, ApplyError> {
        let mut stop = pin!(stop);
        if self.seen.phases.values().any(throttles::copies) {
            match throttle {
                Some(rate) => throttles::set(&self.admin, &self.seen, &self.targets, rate).await?,
                None => throttles::clear(&self.admin, &self.targets).await?,
            }
        }
        let mut pause = Duration::ZERO;
        while !self.open.is_empty() {
            tokio::select! {
                biased;
                () = &mut stop => return Ok(false),
                () = tokio::time::sleep(pause) => {}
            }
            let started = Instant::now();
            let seen = look(&self.admin, &self.open).await?;
            let (waiting, electing) = self.sort_out(&seen)?;
            self.start(&seen, waiting).await?;
            for partition in self.elections.hold(&self.admin, &electing).await? {
                self.open.remove(&partition);
            }
            tell(Count {
                moves: self.moved.0,
                bytes: self.moved.1 + self.room.copied.values().sum::<u64>(),
                moving: self.moving.len(),
            });
            // A large cluster is not asked all the time.
            pause = PAUSE.max(started.elapsed());
        }
        Ok(true)
    }

    /// Removes the throttles, unless another program has begun to move partitions: it may need them.
    pub async fn finish(&self) -> Result<(), ApplyError> {
        let ongoing = self.admin.list_partition_reassignments().await?;
        if let Some(partition) = ongoing.keys().next() {
            return Err(ApplyError::refused(format!(
                "{} is being moved by another program",
                shown(partition)
            )));
        }
        // Topics may have been deleted since the start.
        let targets = existing(&self.admin, &self.targets).await?;
        Ok(throttles::clear(&self.admin, &targets).await?)
    }

    pub fn outcome(&self) -> Outcome {
        Outcome {
            moved: self.moved.0,
            elected: self.elections.elected,
            not_elected: self.elections.failed.clone(),
        }
    }

    /// Updates the open and moving partitions. Returns the partitions to start, with the brokers
    /// that they are added to, and the partitions that need an election.
    fn sort_out(
        &mut self,
        seen: &Seen,
    ) -> Result<(Vec<(Partition, Vec<i32>)>, BTreeSet<Partition>), ApplyError> {
        let (mut waiting, mut electing) = (Vec::new(), BTreeSet::new());
        // Others have been deleted.
        let exists = |partition: &Partition| seen.phases.contains_key(partition);
        self.open.retain(|partition, _| exists(partition));
        self.moving.retain(|partition, _| exists(partition));
        self.room.copied.retain(|partition, _| exists(partition));
        for (partition, phase) in &seen.phases {
            match phase {
                Phase::Elsewhere => {
                    return Err(ApplyError::refused(format!(
                        "{} is being moved to other brokers by another program",
                        shown(partition)
                    )));
                }
                Phase::Moving { added } => {
                    let leader = seen.descriptions.get(partition).and_then(|it| it.leader);
                    let moving = self
                        .moving
                        .entry(partition.clone())
                        .or_insert_with(|| Moving {
                            added: added.clone(),
                            brokers: added.iter().copied().chain(leader).collect(),
                            unlisted: None,
                        });
                    moving.unlisted = None;
                }
                Phase::Waiting { added } => match self.moving.get_mut(partition) {
                    None => waiting.push((partition.clone(), added.clone())),
                    Some(moving) => {
                        let since = *moving.unlisted.get_or_insert_with(Instant::now);
                        if since.elapsed() > BEHIND_FOR {
                            return Err(ApplyError::refused(format!(
                                "the move of {} was cancelled by another program",
                                shown(partition)
                            )));
                        }
                    }
                },
                Phase::Electing | Phase::Done => {
                    if let Some(moving) = self.moving.remove(partition) {
                        self.room.copied.remove(partition);
                        self.moved.0 += moving.added.len();
                        self.moved.1 += self.sizes[partition] * moving.added.len() as u64;
                    }
                    if *phase == Phase::Electing {
                        electing.insert(partition.clone());
                    } else {
                        self.open.remove(partition);
                    }
                }
            }
        }
        Ok((waiting, electing))
    }

    /// Starts as many moves as brokers and disks allow, and all changes of order.
    async fn start(
        &mut self,
        seen: &Seen,
        waiting: Vec<(Partition, Vec<i32>)>,
    ) -> Result<(), ApplyError> {
        let receiving = waiting.iter().flat_map(|(_, added)| added);
        let receiving = receiving.chain(self.moving.values().flat_map(|it| &it.added));
        let receiving: BTreeSet<i32> = receiving.copied().collect();
        let in_progress = self.moving.iter().map(|(partition, moving)| {
            (
                partition.clone(),
                (moving.added.clone(), self.sizes[partition]),
            )
        });
        let in_progress = in_progress.collect();
        self.room
            .refresh(&self.admin, receiving.into_iter(), &in_progress)
            .await?;
        let mut busy: BTreeMap<i32, usize> = BTreeMap::new();
        for broker in self.moving.values().flat_map(|it| &it.brokers) {
            *busy.entry(*broker).or_default() += 1;
        }
        let mut wanted = BTreeMap::new();
        // If moves have been cancelled, others must not follow: their throttles may be gone.
        let may_be_cancelled = self.moving.values().any(|it| it.unlisted.is_some());
        let mut lacking = None;
        let mut orders = 0;
        for (partition, added) in waiting {
            let target = self.open[&partition].clone();
            if added.is_empty() {
                // The description may be old, so an election is not requested in every round.
                if orders < ORDERED_AT_ONCE && self.ordered.insert(partition.clone()) {
                    orders += 1;
                    wanted.insert(partition, Some(target));
                }
                continue;
            }
            let leader = seen.descriptions.get(&partition).and_then(|it| it.leader);
            let brokers: BTreeSet<i32> = added.iter().copied().chain(leader).collect();
            let is_busy = |it: &i32| busy.get(it).copied().unwrap_or(0) >= self.most_moves;
            if may_be_cancelled || brokers.iter().any(is_busy) {
                continue;
            }
            let size = self.sizes[&partition];
            if let Err((broker, free)) = self.room.take_for(&added, size) {
                lacking.get_or_insert((partition, size, broker, free));
                continue;
            }
            for broker in &brokers {
                *busy.entry(*broker).or_default() += 1;
            }
            self.moving.insert(
                partition.clone(),
                Moving {
                    added,
                    brokers,
                    unlisted: None,
                },
            );
            wanted.insert(partition, Some(target));
        }
        if let Some((partition, size, broker, free)) = lacking
            && self.moving.is_empty()
        {
            return Err(ApplyError::refused(format!(
                "broker {broker} has {free} bytes free, too little for {} with {size} bytes; free space there, or make \
                 a new plan",
                shown(&partition)
            )));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let mut results = self
            .admin
            .alter_partition_reassignments(&wanted, true)
            .await?;
        // Topics that have just been deleted are missing in the next description.
        results.retain(|_, result| !result.as_ref().is_err_and(is_unknown));
        check_results(results, "these partitions cannot be moved")
    }
}

fn outlook(seen: &Seen, sizes: &BTreeMap<Partition, u64>) -> Outlook {
    let mut outlook = Outlook {
        partitions: seen.phases.len(),
        ..Outlook::default()
    };
    for (partition, phase) in &seen.phases {
        outlook.done += usize::from(*phase == Phase::Done);
        let (Phase::Waiting { added } | Phase::Moving { added }) = phase else {
            continue;
        };
        outlook.moves += added.len();
        outlook.started += usize::from(matches!(phase, Phase::Moving { .. }));
        let leader = seen.descriptions.get(partition).and_then(|it| it.leader);
        outlook.cost.add(leader, added, sizes[partition], 0);
    }
    outlook
}

/// The sizes of the plan's partitions: of their largest replicas.
async fn sizes(admin: &Admin, targets: &Targets) -> Result<BTreeMap<Partition, u64>, ClientError> {
    let brokers: Vec<i32> = admin.client().metadata().brokers.keys().copied().collect();
    let mut sizes: BTreeMap<Partition, u64> = targets.keys().map(|it| (it.clone(), 0)).collect();
    for directories in directories(admin, brokers).await?.values() {
        for ((topic, partition), (size, _)) in directories.replicas() {
            if let Some(most) = sizes.get_mut(&(topic.to_owned(), partition)) {
                *most = size.max(*most);
            }
        }
    }
    Ok(sizes)
}

/// An error with all partitions that were refused.
pub(crate) fn check_results(
    results: BTreeMap<Partition, Result<(), ClientError>>,
    title: &str,
) -> Result<(), ApplyError> {
    let refused = results.into_iter().filter_map(|(partition, result)| {
        let error = result.err()?;
        Some(format!("{}: {}", shown(&partition), error.broker_message()))
    });
    let refused: Vec<String> = refused.collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(ApplyError::refused(format!(
            "{title}:\n{}",
            refused.join("\n")
        ))),
    }
}
