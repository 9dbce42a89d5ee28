//! `rebalance apply`: starts the moves of a plan, few at a time, and elects leaders.
//!
//! A loop compares the plan with the cluster until nothing is left. Killed at any point, it finds
//! its moves again at the next start: those in progress are listed by the cluster, and finished ones
//! have the planned replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ottla_client::Admin;
use ottla_client::admin::EndpointType;
use ottla_rebalance::Cost;

use super::arguments::{ApplyArgs, throttle_of};
use super::elections::Elections;
use super::progress::{Count, Progress};
use super::quantities::{bytes, duration};
use super::room::Room;
use super::sampling;
use super::targets::{
    Phase, Seen, Targets, check_alone, check_brokers, check_numbers, existing, look, read,
};
use crate::counted::counted;
use crate::stop_signals::StopSignals;
use crate::tools::reassign_partitions::assignment_file::{Assignment, Partition, shown};
use crate::tools::reassign_partitions::{fail_if_any, is_unknown, throttles};

/// Between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(500);
/// A move that is no longer in progress, and whose replicas are not there, has been cancelled,
/// unless the broker that describes it is behind.
const BEHIND_FOR: Duration = Duration::from_secs(15);
/// Partitions of which only the order of replicas changes, per request.
const ORDERED_AT_ONCE: usize = 500;

pub(super) async fn apply(args: &ApplyArgs) -> anyhow::Result<()> {
    let throttle = throttle_of(args.throttle)?;
    let assignment = read(&args.plan)?;
    let admin = args.brokers.connect("ottla-rebalance", None).await?;
    let targets = existing(&admin, &assignment).await?;
    let missing = assignment.partitions.len() - targets.len();
    if missing > 0 {
        println!(
            "Skipped, because they no longer exist: {}.",
            counted(missing, "partition")
        );
    }
    check_brokers(&admin, &targets)?;
    let seen = look(&admin, &targets).await?;
    check_alone(&seen, &targets, &args.plan)?;
    check_numbers(&seen, &targets, &args.plan)?;
    let sizes = sizes(&admin, &targets).await?;
    let mut run = Run {
        admin: &admin,
        most_moves: args.max_moves_per_broker as usize,
        sizes,
        open: targets.clone(),
        moving: BTreeMap::new(),
        ordered: BTreeSet::new(),
        room: Room::default(),
        elections: Elections::default(),
        moved: (0, 0),
    };
    let mut progress = run.announce(&seen, throttle);
    let is_moving = |phase: &Phase| match phase {
        Phase::Waiting { added } | Phase::Moving { added } => !added.is_empty(),
        _ => false,
    };
    // From here on, what goes on in the cluster outlives the command.
    let mut stop = StopSignals::listen().context("cannot wait for Ctrl-C")?;
    let worked = async {
        if seen.phases.values().any(is_moving) {
            set_throttle(&admin, &seen, &targets, &is_moving, throttle).await?;
        }
        run.work(&mut progress).await
    };
    let worked = tokio::select! {
        worked = worked => worked,
        () = stop.next() => Err(anyhow!("interrupted")),
    };
    worked.with_context(|| {
        format!(
            "stopped before the plan was carried out; moves in progress continue, and throttles stay: run the same \
             command to continue, or ottla rebalance cancel --bootstrap-server {} --plan {}",
            args.brokers.bootstrap_server,
            args.plan
        )
    })?;
    let finished = tokio::select! {
        finished = finish(&admin, &assignment) => finished,
        () = stop.next() => Err(anyhow!("interrupted")),
    };
    finished.context(
        "the plan is carried out, but throttles may remain; run the same command to remove them",
    )?;
    run.conclude();
    Ok(())
}

/// Removes the throttles, unless another program has begun to move partitions: it may need them.
async fn finish(admin: &Admin, assignment: &Assignment) -> anyhow::Result<()> {
    let ongoing = admin.list_partition_reassignments().await?;
    if let Some(partition) = ongoing.keys().next() {
        bail!("{} is being moved by another program", shown(partition));
    }
    // Topics may have been deleted since the start.
    let targets = existing(admin, assignment).await?;
    clear_throttles(admin, &targets).await
}

/// Removes the throttles from all brokers that run, and from the topics of these partitions. The
/// rate that a broker that is down keeps has no effect without throttled replicas.
pub(super) async fn clear_throttles(admin: &Admin, targets: &Targets) -> anyhow::Result<()> {
    let partitions = targets
        .keys()
        .map(|partition| (partition.clone(), Vec::new()));
    let partitions: Vec<_> = partitions.collect();
    throttles::clear(admin, EndpointType::Broker, &partitions, |_| ()).await?;
    Ok(())
}

/// Throttles all moves of the plan that are in progress or yet to be started.
async fn set_throttle(
    admin: &Admin,
    seen: &Seen,
    targets: &Targets,
    is_moving: &impl Fn(&Phase) -> bool,
    throttle: Option<u64>,
) -> anyhow::Result<()> {
    let Some(throttle) = throttle else {
        return clear_throttles(admin, targets).await;
    };
    let moving = seen.phases.iter().filter(|(_, phase)| is_moving(phase));
    let moving: BTreeSet<&Partition> = moving.map(|(partition, _)| partition).collect();
    let mut proposed = targets.clone();
    proposed.retain(|partition, _| moving.contains(partition));
    // A broker that is emptied may be down, and cannot be configured.
    let running = admin.client().metadata();
    let current = proposed.keys().filter_map(|partition| {
        let mut sources = seen.descriptions.get(partition)?.replicas.clone();
        let ongoing = seen.ongoing.get(partition);
        sources.retain(|id| {
            let is_added = ongoing.is_some_and(|it| it.adding_replicas.contains(id));
            running.brokers.contains_key(id) && !is_added
        });
        Some((partition.clone(), sources))
    });
    let current = current.collect();
    let rate = i64::try_from(throttle).unwrap_or(i64::MAX);
    admin
        .limit_replication(&BTreeMap::new(), &current, &proposed, rate)
        .await?;
    Ok(())
}

/// The sizes of the plan's partitions: of their largest replicas.
async fn sizes(admin: &Admin, targets: &Targets) -> anyhow::Result<BTreeMap<Partition, u64>> {
    let brokers: Vec<i32> = admin.client().metadata().brokers.keys().copied().collect();
    let mut sizes: BTreeMap<Partition, u64> = targets.keys().map(|it| (it.clone(), 0)).collect();
    for directories in sampling::directories(admin, brokers).await?.values() {
        for ((topic, partition), (size, _)) in directories.replicas() {
            if let Some(most) = sizes.get_mut(&(topic.to_owned(), partition)) {
                *most = size.max(*most);
            }
        }
    }
    Ok(sizes)
}

/// A move in progress.
#[derive(Debug)]
struct Moving {
    added: Vec<i32>,
    /// The brokers that copy: those that receive, and the leader.
    brokers: BTreeSet<i32>,
    /// Since when the cluster has not listed it.
    unlisted: Option<Instant>,
}

struct Run<'a> {
    admin: &'a Admin,
    most_moves: usize,
    sizes: BTreeMap<Partition, u64>,
    /// What is not done yet.
    open: Targets,
    moving: BTreeMap<Partition, Moving>,
    /// Partitions for which a new order of replicas was requested.
    ordered: BTreeSet<Partition>,
    room: Room,
    elections: Elections,
    /// Replicas and bytes.
    moved: (usize, u64),
}

impl Run<'_> {
    /// Says what will be moved, and how long it takes at least.
    fn announce(&self, seen: &Seen, throttle: Option<u64>) -> Progress {
        let mut cost = Cost::default();
        let (mut moves, mut started) = (0, 0);
        for (partition, phase) in &seen.phases {
            let (Phase::Waiting { added } | Phase::Moving { added }) = phase else {
                continue;
            };
            moves += added.len();
            started += usize::from(matches!(phase, Phase::Moving { .. }));
            let leader = seen.descriptions.get(partition).and_then(|it| it.leader);
            cost.add(leader, added, self.sizes[partition], 0);
        }
        let done = seen
            .phases
            .values()
            .filter(|it| **it == Phase::Done)
            .count();
        println!(
            "{} in the plan; {done} done, {started} moving.",
            counted(seen.phases.len(), "partition")
        );
        if moves > 0 {
            let time = match throttle {
                Some(throttle) => format!(
                    "at least {} at {}/s",
                    duration(cost.seconds_at(throttle)),
                    bytes(throttle)
                ),
                None => "without a throttle".to_owned(),
            };
            println!(
                "To move: {}, {}, {time}.",
                counted(moves, "replica"),
                bytes(cost.bytes())
            );
        }
        Progress::new(moves, cost.bytes())
    }

    async fn work(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        while !self.open.is_empty() {
            let started = Instant::now();
            let seen = look(self.admin, &self.open).await?;
            let (waiting, electing) = self.sort_out(&seen)?;
            self.start(&seen, waiting).await?;
            for partition in self.elections.hold(self.admin, &electing).await? {
                self.open.remove(&partition);
            }
            progress.tell(Count {
                moves: self.moved.0,
                bytes: self.moved.1 + self.room.copied.values().sum::<u64>(),
                moving: self.moving.len(),
            });
            if !self.open.is_empty() {
                // A large cluster is not asked all the time.
                tokio::time::sleep(PAUSE.max(started.elapsed())).await;
            }
        }
        Ok(())
    }

    /// Updates what is open and moving. Returns the partitions to start, with the brokers that they
    /// are added to, and those to elect.
    fn sort_out(
        &mut self,
        seen: &Seen,
    ) -> anyhow::Result<(Vec<(Partition, Vec<i32>)>, BTreeSet<Partition>)> {
        let (mut waiting, mut electing) = (Vec::new(), BTreeSet::new());
        // Others have been deleted.
        let exists = |partition: &Partition| seen.phases.contains_key(partition);
        self.open.retain(|partition, _| exists(partition));
        self.moving.retain(|partition, _| exists(partition));
        self.room.copied.retain(|partition, _| exists(partition));
        for (partition, phase) in &seen.phases {
            match phase {
                Phase::Elsewhere => bail!(
                    "{} is being moved to other brokers by another program",
                    shown(partition)
                ),
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
                            bail!(
                                "the move of {} was cancelled by another program",
                                shown(partition)
                            );
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
    ) -> anyhow::Result<()> {
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
            .refresh(self.admin, receiving.into_iter(), &in_progress)
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
                // The description may be behind, so it is not requested in every round.
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
            bail!(
                "broker {broker} has {} free, too little for {} with {}; free space there, or make a new plan",
                bytes(free),
                shown(&partition),
                bytes(size)
            );
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
        fail_if_any(results, |_| "these partitions cannot be moved".to_owned())?;
        Ok(())
    }

    fn conclude(&self) {
        println!(
            "Done: {} moved, {} elected. The throttles are removed.",
            counted(self.moved.0, "replica"),
            counted(self.elections.elected, "leader")
        );
        if let Some((partition, reason)) = self.elections.failed.first_key_value() {
            println!(
                "{} could not be elected, {} first: {reason}; ottla leader-election tries again",
                counted(self.elections.failed.len(), "leader"),
                shown(partition)
            );
        }
    }
}
