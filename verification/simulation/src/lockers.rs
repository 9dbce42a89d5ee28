//! A share group (KIP-932) whose members send the protocol requests themselves, so that the test
//! knows which member holds the lock of a record, and since when. The members run after the faults
//! and after the producers, so that locks end only as the protocol defines. Halfway, a broker is
//! shut down, and other brokers load the persisted state of its share partitions.
//!
//! At that time, each record has a persisted state in this group. A second group begins only a
//! moment before, so that its records with a persisted state alternate with records without one.
//!
//! Checks that a record is acquired by one member at a time, not more often than
//! `group.share.delivery.count.limit`, and not after it was settled; in the end each record is
//! settled or has been delivered up to the limit.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ottla_client::{Client, CoordinatorKind};
use ottla_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use ottla_protocol::messages::share_fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::{
    ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest,
};
use ottla_sync::simulation::{Host, Random, now, stream};
use ottla_sync::time::sleep;
use ottla_testkit::client_histories::workload::{PARTITIONS, Scene};
use ottla_types::{ErrorCode, PartitionIndex, Uuid};

use crate::clients::on;
use crate::cluster::Cluster;
use crate::sharers::{self, DELIVERIES, RecordPosition};

const GROUP: &str = "lockers";
const LATE_GROUP: &str = "late-lockers";
const MEMBERS: usize = 3;
/// A little less than `group.share.record.lock.duration.ms`, because clocks differ.
const LOCK: Duration = Duration::from_millis(1_980);
const HEARTBEAT: Duration = Duration::from_millis(500);
const FINAL_EPOCH: i32 = -1;
/// How long the locks are checked.
const LOOKING: Duration = Duration::from_secs(6);
/// The time for which records of the second group are checked: about the time to acquire each
/// record.
const LATE_LOOKING: Range<u64> = 400..2_400;
/// How long the members may take to settle the remaining records.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There are no faults, and locks are checked.
    Looking,
    /// Leaders change.
    Moving,
    /// All records are accepted.
    Finishing,
    Over,
}

/// The acknowledgement types (`AcknowledgeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Accept = 1,
    Release = 2,
    Reject = 3,
}

struct Lock {
    member: String,
    /// The record was acquired at this time or later.
    asked_at: Duration,
}

#[derive(Default)]
struct Known {
    locks: BTreeMap<RecordPosition, Lock>,
    deliveries: BTreeMap<RecordPosition, i16>,
    /// Settled records whose acknowledgement was answered.
    settled: BTreeSet<RecordPosition>,
    /// Settled records whose acknowledgement was not answered.
    unanswered: BTreeSet<RecordPosition>,
    finding: Option<String>,
}

/// Runs the members of both groups, and returns the number of records that they have settled.
pub(crate) fn run(
    scene: &Arc<Scene>,
    cluster: &mut Cluster,
    expected: &BTreeSet<RecordPosition>,
) -> Result<u64, String> {
    let phase = Rc::new(Cell::new(Phase::Looking));
    let mut random = stream("lockers");
    let late = LATE_LOOKING.start + random.below(LATE_LOOKING.end - LATE_LOOKING.start);
    let late = Duration::from_millis(late);
    sharers::configure_group(scene, LATE_GROUP);
    sharers::configure_group(scene, GROUP);
    let known = start(scene, GROUP, &phase);
    ottla_sync::thread::sleep(LOOKING - late);
    let late_known = start(scene, LATE_GROUP, &phase);
    ottla_sync::thread::sleep(late);
    phase.set(Phase::Moving);
    let stopped = broker_to_stop(cluster, &mut random);
    tracing::info!(node = cluster.nodes[stopped].name, "is stopped in order");
    cluster.nodes[stopped].stop();
    cluster.nodes[stopped].start();
    phase.set(Phase::Finishing);
    let deadline = now() + PATIENCE;
    let mut settled = 0;
    for known in [known, late_known] {
        settled += finish(&known, expected, deadline)?;
    }
    phase.set(Phase::Over);
    Ok(settled)
}

/// Starts the members of a group.
fn start(scene: &Arc<Scene>, group: &'static str, phase: &Rc<Cell<Phase>>) -> Rc<RefCell<Known>> {
    let known = Rc::new(RefCell::new(Known::default()));
    for number in 0..MEMBERS {
        let (scene, known, phase) = (scene.clone(), known.clone(), phase.clone());
        let name = format!("{group}-{number}");
        let mut random = stream(&name);
        on(&Host::new(&name), move || async move {
            while phase.get() != Phase::Over {
                let mut member = Member {
                    group,
                    id: new_id(&mut random),
                    known: known.clone(),
                    phase: phase.clone(),
                    random: Random::new(random.u64()),
                    epoch: 0,
                    next_heartbeat: Duration::ZERO,
                    sessions: BTreeMap::new(),
                    later: Vec::new(),
                };
                if let Err(error) = member.take_part(&scene).await {
                    tracing::info!(member = member.id, "{error:#}");
                }
                known.borrow_mut().on_gone(&member.id);
                sleep(Duration::from_millis(100)).await;
            }
        });
    }
    known
}

/// Mostly a leader of records that are shared, otherwise any broker.
fn broker_to_stop(cluster: &Cluster, random: &mut Random) -> usize {
    let brokers: Vec<usize> = (0..cluster.nodes.len())
        .filter(|index| cluster.nodes[*index].is_broker)
        .collect();
    let any = brokers[random.index(brokers.len())];
    let partition = PartitionIndex(random.below(PARTITIONS as u64 + 1) as i32);
    let leader = cluster.newest_metadata().and_then(|image| {
        let registration = image.topics.partition(sharers::SOURCE, partition)?;
        Some(format!("broker-{}", registration.leader))
    });
    let is_leader = |index: &usize| Some(&cluster.nodes[*index].name) == leader.as_ref();
    brokers.into_iter().find(is_leader).unwrap_or(any)
}

/// Waits until a group has settled every record, and returns their number.
fn finish(
    known: &RefCell<Known>,
    expected: &BTreeSet<RecordPosition>,
    deadline: Duration,
) -> Result<u64, String> {
    loop {
        ottla_sync::thread::sleep(Duration::from_millis(500));
        let known = known.borrow();
        if let Some(finding) = &known.finding {
            return Err(finding.clone());
        }
        let open: Vec<&RecordPosition> = expected
            .iter()
            .filter(|place| known.is_open(place))
            .collect();
        if open.is_empty() {
            return Ok(known.settled.len() as u64);
        }
        if now() > deadline {
            return Err(format!(
                "share locks: after {PATIENCE:?}, {} of {} records are not settled, the first in partition and offset {:?}",
                open.len(),
                expected.len(),
                open[0]
            ));
        }
    }
}

impl Known {
    fn find(&mut self, sentence: String) {
        tracing::info!("{sentence}");
        self.finding.get_or_insert(sentence);
    }

    /// Whether a record must still be delivered. The response of a fetch can be lost, and with it
    /// the last delivery.
    fn is_open(&self, place: &RecordPosition) -> bool {
        let deliveries = self.deliveries.get(place).copied().unwrap_or_default();
        let is_done = self.settled.contains(place) || self.unanswered.contains(place);
        !is_done && deliveries < DELIVERIES - 1
    }

    fn on_acquired(
        &mut self,
        phase: Phase,
        member: &str,
        (place, count): (RecordPosition, i16),
        asked_at: Duration,
        was_settled: bool,
    ) {
        if was_settled {
            self.find(format!(
                "share locks: {place:?} is given to {member} after it was settled"
            ));
        }
        if count > DELIVERIES {
            self.find(format!("share locks: {place:?} is given {count} times"));
        }
        let known = self.deliveries.entry(place).or_default();
        let before = std::mem::replace(known, count.max(*known));
        if phase != Phase::Looking {
            self.locks.clear();
            return;
        }
        if count <= before {
            self.find(format!(
                "share locks: {place:?} was given {before} times, and {count} after that"
            ));
        }
        let lock = Lock {
            member: member.to_owned(),
            asked_at,
        };
        let is_held = |lock: &Lock| lock.member != member && now() < lock.asked_at + LOCK;
        if let Some(before) = self.locks.insert(place, lock).filter(is_held) {
            self.find(format!(
                "share locks: {place:?} is given to {member}, and {} has held it since {:?}",
                before.member, before.asked_at
            ));
        }
    }

    /// A member acknowledges a record.
    fn on_acknowledging(&mut self, member: &str, place: RecordPosition, kind: Kind) {
        if self
            .locks
            .get(&place)
            .is_some_and(|lock| lock.member == member)
        {
            self.locks.remove(&place);
        }
        if kind != Kind::Release {
            self.unanswered.insert(place);
        }
    }

    fn on_acknowledged(&mut self, place: RecordPosition, kind: Kind, error: ErrorCode) {
        match error {
            ErrorCode::None if kind != Kind::Release => drop(self.settled.insert(place)),
            // The member did not hold the record any more.
            ErrorCode::InvalidRecordState => drop(self.unanswered.remove(&place)),
            _ => {}
        }
    }

    fn on_gone(&mut self, member: &str) {
        self.locks.retain(|_, lock| lock.member != member);
    }
}

struct Member {
    group: &'static str,
    id: String,
    known: Rc<RefCell<Known>>,
    phase: Rc<Cell<Phase>>,
    random: Random,
    epoch: i32,
    next_heartbeat: Duration,
    /// The session epoch of the next request to each leader.
    sessions: BTreeMap<i32, i32>,
    /// Acknowledgements that are sent later, with their time.
    later: Vec<(Duration, RecordPosition, Kind)>,
}

impl Member {
    /// Runs until the member leaves or a request fails.
    async fn take_part(&mut self, scene: &Scene) -> Result<()> {
        let client = scene.client().await?;
        let topic = [sharers::SOURCE.to_owned()];
        while self.phase.get() != Phase::Over {
            let metadata = client.topics(&topic).await?;
            let topic_id = metadata.topics[sharers::SOURCE].topic_id;
            if now() >= self.next_heartbeat {
                self.heartbeat(&client, false).await?;
                self.next_heartbeat = now() + HEARTBEAT;
            }
            let partition = self.random.below(PARTITIONS as u64) as i32;
            let Some(leader) = metadata.leader(sharers::SOURCE, partition).map(|it| it.id) else {
                bail!("partition {partition} has no leader");
            };
            let led: Vec<i32> = (0..PARTITIONS)
                .filter(|at| {
                    let leads = metadata.leader(sharers::SOURCE, *at);
                    leads.is_some_and(|node| node.id == leader)
                })
                .collect();
            let acquired = self.fetch(&client, topic_id, leader, &led).await?;
            let mut said = self.choose(acquired);
            let later = std::mem::take(&mut self.later);
            for (at, place, kind) in later {
                match at <= now() && led.contains(&place.0) {
                    true => said.push((place, kind)),
                    false => self.later.push((at, place, kind)),
                }
            }
            self.acknowledge(&client, topic_id, leader, &said).await?;
            if self.phase.get() == Phase::Looking && self.random.one_in(12) {
                return self.leave(&client, topic_id).await;
            }
            sleep(Duration::from_millis(20 + self.random.below(300))).await;
        }
        Ok(())
    }

    async fn heartbeat(&mut self, client: &Client, is_leaving: bool) -> Result<()> {
        let request = ShareGroupHeartbeatRequest {
            group_id: self.group.into(),
            member_id: self.id.clone().into(),
            member_epoch: if is_leaving { FINAL_EPOCH } else { self.epoch },
            subscribed_topic_names: (self.epoch == 0).then(|| vec![sharers::SOURCE.into()]),
            ..Default::default()
        };
        let coordinator = client
            .coordinator(CoordinatorKind::Group, self.group)
            .await?;
        let connection = client.connection(&coordinator.address()).await?;
        let response = connection.send(&request).await?;
        check("heartbeat", response.error_code)?;
        self.epoch = response.member_epoch;
        Ok(())
    }

    /// Fetches some records from a leader. Returns the acquired records.
    async fn fetch(
        &mut self,
        client: &Client,
        topic_id: Uuid,
        leader: i32,
        led: &[i32],
    ) -> Result<Vec<RecordPosition>> {
        let epoch = self.sessions.get(&leader).copied().unwrap_or_default();
        let partitions = led.iter().map(|partition| FetchPartition {
            partition_index: *partition,
            ..Default::default()
        });
        let topics = match epoch {
            0 => vec![FetchTopic {
                topic_id,
                partitions: partitions.collect(),
                ..Default::default()
            }],
            _ => Vec::new(),
        };
        let request = ShareFetchRequest {
            group_id: Some(self.group.into()),
            member_id: Some(self.id.clone().into()),
            share_session_epoch: epoch,
            max_wait_ms: 100,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 4,
            batch_size: 4,
            topics,
            ..Default::default()
        };
        let asked_at = now();
        let settled = self.known.borrow().settled.clone();
        let connection = client.node(leader).await?;
        let response = connection.send(&request).await?;
        check("fetch", response.error_code)?;
        self.sessions.insert(leader, epoch + 1);
        let mut acquired = Vec::new();
        for partition in response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
        {
            check("fetch", partition.error_code)?;
            for range in &partition.acquired_records {
                for offset in range.first_offset..=range.last_offset {
                    let place = (partition.partition_index, offset);
                    let given = (place, range.delivery_count);
                    tracing::info!(member = self.id, ?given, "is given");
                    let was_settled = settled.contains(&place);
                    let phase = self.phase.get();
                    let mut known = self.known.borrow_mut();
                    known.on_acquired(phase, &self.id, given, asked_at, was_settled);
                    acquired.push(place);
                }
            }
        }
        Ok(acquired)
    }

    /// Chooses the acknowledgements to send now. Some records are acknowledged later, and some
    /// never, so that their locks time out.
    fn choose(&mut self, acquired: Vec<RecordPosition>) -> Vec<(RecordPosition, Kind)> {
        let mut now_said = Vec::new();
        for place in acquired {
            let is_finishing = self.phase.get() == Phase::Finishing;
            match self.random.below(20) {
                _ if is_finishing => now_said.push((place, Kind::Accept)),
                // A record that no member can process.
                _ if place.1 % 5 == 0 => now_said.push((place, Kind::Release)),
                0..7 => now_said.push((place, Kind::Accept)),
                7 => now_said.push((place, Kind::Reject)),
                8..10 => now_said.push((place, Kind::Release)),
                10..15 => {
                    let at = now() + Duration::from_millis(self.random.below(1_500));
                    self.later.push((at, place, Kind::Accept));
                }
                _ => {}
            }
        }
        now_said
    }

    async fn acknowledge(
        &mut self,
        client: &Client,
        topic_id: Uuid,
        leader: i32,
        said: &[(RecordPosition, Kind)],
    ) -> Result<()> {
        let Some(epoch) = self
            .sessions
            .get(&leader)
            .copied()
            .filter(|_| !said.is_empty())
        else {
            return Ok(());
        };
        let mut partitions: BTreeMap<i32, BTreeMap<i64, Kind>> = BTreeMap::new();
        for (place, kind) in said {
            partitions
                .entry(place.0)
                .or_default()
                .insert(place.1, *kind);
            let mut known = self.known.borrow_mut();
            known.on_acknowledging(&self.id, *place, *kind);
        }
        let response = self
            .send_acknowledgement(client, topic_id, leader, epoch, &partitions)
            .await?;
        self.sessions.insert(leader, epoch + 1);
        for (partition, error) in response {
            for (offset, kind) in partitions.get(&partition).into_iter().flatten() {
                let place = (partition, *offset);
                self.known.borrow_mut().on_acknowledged(place, *kind, error);
            }
        }
        Ok(())
    }

    async fn send_acknowledgement(
        &self,
        client: &Client,
        topic_id: Uuid,
        leader: i32,
        epoch: i32,
        partitions: &BTreeMap<i32, BTreeMap<i64, Kind>>,
    ) -> Result<Vec<(i32, ErrorCode)>> {
        let batch = |(offset, kind): (&i64, &Kind)| AcknowledgementBatch {
            first_offset: *offset,
            last_offset: *offset,
            acknowledge_types: vec![*kind as i8],
            ..Default::default()
        };
        let said = partitions.iter().map(|(index, said)| AcknowledgePartition {
            partition_index: *index,
            acknowledgement_batches: said.iter().map(batch).collect(),
            ..Default::default()
        });
        let topics = vec![AcknowledgeTopic {
            topic_id,
            partitions: said.collect(),
            ..Default::default()
        }];
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.group.into()),
            member_id: Some(self.id.clone().into()),
            share_session_epoch: epoch,
            topics: match partitions.is_empty() {
                true => Vec::new(),
                false => topics,
            },
            ..Default::default()
        };
        let connection = client.node(leader).await?;
        let response = connection.send(&request).await?;
        check("acknowledging", response.error_code)?;
        let partitions = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions);
        Ok(partitions
            .map(|it| (it.partition_index, ErrorCode::from_code(it.error_code)))
            .collect())
    }

    /// Closes the member's sessions, which releases its locks, and leaves the group.
    async fn leave(&mut self, client: &Client, topic_id: Uuid) -> Result<()> {
        tracing::info!(member = self.id, "leaves");
        self.known.borrow_mut().on_gone(&self.id);
        for leader in std::mem::take(&mut self.sessions).into_keys() {
            self.send_acknowledgement(client, topic_id, leader, FINAL_EPOCH, &BTreeMap::new())
                .await?;
        }
        self.heartbeat(client, true).await
    }
}

fn check(what: &str, code: i16) -> Result<()> {
    match ErrorCode::from_code(code) {
        ErrorCode::None => Ok(()),
        error => bail!("{what}: {error:?}"),
    }
}

fn new_id(random: &mut Random) -> String {
    let (high, low) = (random.u64(), random.u64());
    Uuid::from_u128((u128::from(high) << 64) | u128::from(low)).to_string()
}
