//! A consumer group (KIP-848) whose members send the protocol requests themselves, so that the test
//! knows which member owns a partition, and since when.
//!
//! Checks that a partition gets a new owner only after the previous one has revoked it or is no
//! longer a member, that only owners can commit offsets, and that acknowledged commits are not
//! lost.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ottla_client::{BrokerNode, Client, Consumer, ConsumerConfig, CoordinatorKind};
use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, OffsetCommitRequest,
};
use ottla_sync::simulation::{Host, Random, now, stream};
use ottla_sync::time::sleep;
use ottla_testkit::client_histories::workload::Scene;
use ottla_types::{ErrorCode, Uuid};

use crate::clients::{create_topic, on};

const TOPIC: &str = "owned";
const GROUP: &str = "owners";
const PARTITIONS: i32 = 4;
const MEMBERS: usize = 3;
/// From this version on, OffsetCommit identifies topics by their ids.
const FIRST_VERSION_WITH_IDS: i16 = 10;
const LEAVE_EPOCH: i32 = -1;

pub(crate) struct Owners {
    scene: Arc<Scene>,
    known: Rc<RefCell<Known>>,
    members: Vec<ottla_sync::thread::JoinHandle<()>>,
}

/// Counts of the members' actions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ownership {
    /// How often a member was assigned a partition.
    pub given: u64,
    pub commits: u64,
    /// Commits of former members. All were refused.
    pub refused_commits: u64,
}

impl Owners {
    pub fn start(scene: &Arc<Scene>) -> Owners {
        let known: Rc<RefCell<Known>> = Rc::default();
        let creating = scene.clone();
        let created = on(&Host::new("owner-admin"), move || async move {
            while let Err(error) = create_topic(&creating, TOPIC, PARTITIONS, &[]).await {
                tracing::info!("creating {TOPIC}: {error:#}");
                sleep(Duration::from_millis(100)).await;
            }
        });
        created.join().expect("it ends");
        let members = (0..MEMBERS).map(|number| {
            let (scene, known) = (scene.clone(), known.clone());
            let random = stream(&format!("owner-{number}"));
            on(&Host::new(&format!("owner-{number}")), move || async move {
                let mut member = Member::new(scene, known, random);
                while !member.scene.is_over() {
                    // After any error, the member continues with new connections.
                    if let Err(error) = member.take_part().await {
                        tracing::info!(number, "{error:#}");
                    }
                    sleep(Duration::from_millis(200)).await;
                }
            })
        });
        Owners {
            scene: scene.clone(),
            members: members.collect(),
            known,
        }
    }

    /// Waits for the members, and checks the committed offsets.
    pub fn settle(self) -> Result<Ownership, String> {
        for member in self.members {
            member.join().expect("it ends");
        }
        let scene = self.scene.clone();
        let reading = on(&Host::new("owner-reader"), move || async move {
            loop {
                match committed(&scene).await {
                    Ok(committed) => return committed,
                    Err(error) => tracing::info!("committed offsets: {error:#}"),
                }
                sleep(Duration::from_millis(200)).await;
            }
        });
        let committed = reading.join().expect("it ends");
        let mut known = self.known.borrow_mut();
        known.check_committed(&committed);
        match known.finding.take() {
            Some(finding) => Err(finding),
            None => Ok(known.ownership),
        }
    }
}

async fn committed(scene: &Scene) -> Result<BTreeMap<i32, i64>> {
    let config = ConsumerConfig {
        group_id: Some(GROUP.to_owned()),
        ..ConsumerConfig::default()
    };
    let consumer = Consumer::new(scene.client().await?, config);
    let partitions: Vec<_> = (0..PARTITIONS).map(|at| (TOPIC.to_owned(), at)).collect();
    let committed = consumer.committed_of(&partitions).await?;
    let offsets = committed
        .into_iter()
        .map(|((_, at), committed)| (at, committed.offset));
    Ok(offsets.collect())
}

type MemberId = String;

/// A partition that was assigned to another member although its holder has not given it up: the
/// holder must be fenced.
struct Displaced {
    partition: i32,
    by: MemberId,
    /// The coordinator that assigned the partition again. A former coordinator that does not know
    /// of the fail-over may continue to answer the old holder, so only this one must not.
    coordinator: i32,
}

#[derive(Default)]
struct Known {
    /// For each partition, the members that received it and have not reported its revocation, with
    /// their epochs.
    holders: BTreeMap<i32, BTreeMap<MemberId, i32>>,
    displaced: BTreeMap<MemberId, Vec<Displaced>>,
    /// For each partition, the last acknowledged commit, and later commits with an unknown outcome.
    committed: BTreeMap<i32, i64>,
    uncertain: BTreeMap<i32, BTreeSet<i64>>,
    /// Committed offsets only increase.
    last_offset: i64,
    ownership: Ownership,
    finding: Option<String>,
}

impl Known {
    fn find(&mut self, sentence: impl FnOnce() -> String) {
        self.finding.get_or_insert_with(sentence);
    }

    /// A coordinator has assigned the member a partition that it did not have.
    fn on_given(&mut self, partition: i32, member: &str, epoch: i32, coordinator: i32) {
        self.ownership.given += 1;
        let holders = self.holders.entry(partition).or_default();
        for (holder, holder_epoch) in holders.iter() {
            // The other holder got it in a later epoch, so this response is outdated.
            if holder != member && *holder_epoch <= epoch {
                self.displaced
                    .entry(holder.clone())
                    .or_default()
                    .push(Displaced {
                        partition,
                        by: member.to_owned(),
                        coordinator,
                    });
            }
        }
        holders.insert(member.to_owned(), epoch);
    }

    /// A member reports that it has given up the partition.
    fn on_given_up(&mut self, partition: i32, member: &str) {
        if let Some(holders) = self.holders.get_mut(&partition) {
            holders.remove(member);
        }
    }

    /// A member knows that it has been removed.
    fn on_gone(&mut self, member: &str) {
        self.displaced.remove(member);
        self.holders.values_mut().for_each(|holders| {
            holders.remove(member);
        });
    }

    fn displacements(&self, member: &str) -> usize {
        self.displaced.get(member).map_or(0, Vec::len)
    }

    /// A coordinator accepts a member. `before` of its partitions had been reassigned when it sent
    /// the request.
    fn on_taken_for_member(&mut self, member: &str, epoch: i32, before: usize, coordinator: i32) {
        for holders in self.holders.values_mut() {
            if let Some(known) = holders.get_mut(member) {
                *known = epoch;
            }
        }
        let displaced = self.displaced.get(member).into_iter().flatten();
        let mut same = displaced
            .take(before)
            .filter(|it| it.coordinator == coordinator);
        if let Some(Displaced { partition, by, .. }) = same.next() {
            let sentence = format!(
                "partition owners: {member} keeps partition {partition} after it was assigned to {by}"
            );
            self.finding.get_or_insert(sentence);
        }
    }

    fn check_committed(&mut self, found: &BTreeMap<i32, i64>) {
        for (partition, acknowledged) in std::mem::take(&mut self.committed) {
            let there = found.get(&partition).copied().unwrap_or(-1);
            let uncertain = self.uncertain.get(&partition);
            let is_uncertain = uncertain.is_some_and(|offsets| offsets.contains(&there));
            if there != acknowledged && !is_uncertain {
                self.find(|| {
                    format!(
                        "committed offsets: {acknowledged} was acknowledged in partition {partition}, and {there} is committed"
                    )
                });
            }
        }
    }
}

struct Member {
    scene: Arc<Scene>,
    known: Rc<RefCell<Known>>,
    random: Random,
    id: MemberId,
    /// 0 before it has joined.
    epoch: i32,
    owned: BTreeSet<i32>,
    /// The member's target assignment, and the time at which it revokes the partitions that are not
    /// in it.
    target: BTreeSet<i32>,
    gives_up_at: Duration,
}

impl Member {
    fn new(scene: Arc<Scene>, known: Rc<RefCell<Known>>, mut random: Random) -> Member {
        let id = new_id(&mut random);
        Member {
            scene,
            known,
            random,
            id,
            epoch: 0,
            owned: BTreeSet::new(),
            target: BTreeSet::new(),
            gives_up_at: Duration::ZERO,
        }
    }

    async fn take_part(&mut self) -> Result<()> {
        let client = self.scene.client().await?;
        let metadata = client.topics(&[TOPIC.to_owned()]).await?;
        let topic_id = metadata.topics[TOPIC].topic_id;
        while !self.scene.is_over() {
            match self.random.below(60) {
                0..2 if self.epoch > 0 => self.leave(&client, topic_id).await?,
                // Long enough for the coordinator to fence the member.
                2..4 => sleep(Duration::from_millis(2_000 + self.random.below(5_000))).await,
                4..24 if !self.owned.is_empty() => self.commit(&client, topic_id).await?,
                _ => self.heartbeat(&client, topic_id).await?,
            }
            sleep(Duration::from_millis(50 + self.random.below(400))).await;
        }
        Ok(())
    }

    /// Finds the coordinator, and sends it a request.
    async fn ask(
        &self,
        client: &Client,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<(BrokerNode, ConsumerGroupHeartbeatResponse)> {
        let coordinator = client.coordinator(CoordinatorKind::Group, GROUP).await?;
        let connection = client.connection(&coordinator.address()).await?;
        Ok((coordinator, connection.send(request).await?))
    }

    async fn heartbeat(&mut self, client: &Client, topic_id: Uuid) -> Result<()> {
        if now() >= self.gives_up_at {
            let given_up: Vec<i32> = self.owned.difference(&self.target).copied().collect();
            for partition in given_up {
                self.owned.remove(&partition);
                self.known.borrow_mut().on_given_up(partition, &self.id);
            }
        }
        let is_joining = self.epoch == 0;
        let owned = (!self.owned.is_empty()).then(|| TopicPartitions {
            topic_id,
            partitions: self.owned.iter().copied().collect(),
            ..Default::default()
        });
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: self.id.clone().into(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: if is_joining { 5_000 } else { -1 },
            subscribed_topic_names: is_joining.then(|| vec![TOPIC.into()]),
            topic_partitions: Some(owned.into_iter().collect()),
            ..Default::default()
        };
        let displacements = self.known.borrow().displacements(&self.id);
        let (coordinator, response) = self.ask(client, &request).await?;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => {
                tracing::info!(member = self.id, epoch = self.epoch, "is put out");
                self.known.borrow_mut().on_gone(&self.id);
                self.begin_anew();
                return Ok(());
            }
            error => bail!("heartbeat: {error:?}"),
        }
        let mut known = self.known.borrow_mut();
        self.epoch = response.member_epoch;
        if !is_joining {
            known.on_taken_for_member(&self.id, self.epoch, displacements, coordinator.id);
        }
        if let Some(assignment) = response.assignment {
            let topics = assignment.topic_partitions.iter();
            self.target = topics.flat_map(|topic| topic.partitions.clone()).collect();
            tracing::info!(member = self.id, epoch = self.epoch, target = ?self.target, "got a response");
            for partition in self.target.difference(&self.owned) {
                known.on_given(*partition, &self.id, self.epoch, coordinator.id);
            }
            self.owned.extend(&self.target);
            // The member may have to finish something before.
            let takes = self.random.below(1_500);
            self.gives_up_at = now() + Duration::from_millis(takes);
        }
        Ok(())
    }

    fn begin_anew(&mut self) {
        self.epoch = 0;
        self.owned.clear();
        self.target.clear();
    }

    /// Leaves the group, tries to commit as a former member, and continues under a new member id.
    async fn leave(&mut self, client: &Client, topic_id: Uuid) -> Result<()> {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: self.id.clone().into(),
            member_epoch: LEAVE_EPOCH,
            rebalance_timeout_ms: -1,
            ..Default::default()
        };
        let (former, epoch) = (self.id.clone(), self.epoch);
        let partition = self.owned.first().copied().unwrap_or_default();
        self.known.borrow_mut().on_gone(&former);
        self.begin_anew();
        self.id = new_id(&mut self.random);
        let (_, response) = self.ask(client, &request).await?;
        if response.error_code != ErrorCode::None.code() {
            bail!("leaving: {:?}", ErrorCode::from_code(response.error_code));
        }
        tracing::info!(member = former, "has left");
        let offset = self.next_offset();
        let commit = commit_request(&former, epoch, topic_id, partition, offset);
        // Until the refusal is known, the commit may have been accepted.
        self.note_uncertain(partition, offset);
        match send_commit(client, commit).await? {
            ErrorCode::None => self.known.borrow_mut().find(|| {
                format!("committed offsets: {former} has left, and commits {offset} in partition {partition}")
            }),
            _ => self.known.borrow_mut().ownership.refused_commits += 1,
        }
        Ok(())
    }

    fn next_offset(&self) -> i64 {
        let mut known = self.known.borrow_mut();
        known.last_offset += 1;
        known.last_offset
    }

    fn note_uncertain(&self, partition: i32, offset: i64) {
        let mut known = self.known.borrow_mut();
        known.uncertain.entry(partition).or_default().insert(offset);
    }

    async fn commit(&mut self, client: &Client, topic_id: Uuid) -> Result<()> {
        let owned: Vec<i32> = self.owned.iter().copied().collect();
        let partition = owned[self.random.index(owned.len())];
        let offset = self.next_offset();
        self.note_uncertain(partition, offset);
        let request = commit_request(&self.id, self.epoch, topic_id, partition, offset);
        let error = send_commit(client, request).await?;
        tracing::info!(member = self.id, partition, offset, ?error, "commits");
        let mut known = self.known.borrow_mut();
        if error == ErrorCode::None {
            let uncertain = known.uncertain.entry(partition).or_default();
            uncertain.remove(&offset);
            let committed = known.committed.entry(partition).or_default();
            *committed = offset.max(*committed);
            known.ownership.commits += 1;
        }
        Ok(())
    }
}

fn new_id(random: &mut Random) -> MemberId {
    let (high, low) = (random.u64(), random.u64());
    Uuid::from_u128((u128::from(high) << 64) | u128::from(low)).to_string()
}

fn commit_request(
    member: &str,
    epoch: i32,
    topic_id: Uuid,
    partition: i32,
    offset: i64,
) -> impl Fn(i16) -> OffsetCommitRequest + use<> {
    let member = member.to_owned();
    move |version| OffsetCommitRequest {
        group_id: GROUP.into(),
        generation_id_or_member_epoch: epoch,
        member_id: member.clone().into(),
        topics: vec![OffsetCommitRequestTopic {
            name: match version < FIRST_VERSION_WITH_IDS {
                true => TOPIC.into(),
                false => Default::default(),
            },
            topic_id,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn send_commit(
    client: &Client,
    request: impl Fn(i16) -> OffsetCommitRequest,
) -> Result<ErrorCode> {
    let coordinator = client.coordinator(CoordinatorKind::Group, GROUP).await?;
    let connection = client.connection(&coordinator.address()).await?;
    let response = connection.send_with(request).await?;
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let code = partitions.next().map(|partition| partition.error_code);
    Ok(code.map_or(ErrorCode::UnknownServerError, ErrorCode::from_code))
}
