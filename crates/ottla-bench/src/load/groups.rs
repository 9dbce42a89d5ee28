//! Groups whose members all join at one time: how long it takes until each has its partitions for good.
//!
//! A member is a thread with a connection of its own, as a client's is. It heartbeats far more often than a client does, so
//! that what is measured is the coordinator's work and not the clients' patience.

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, SyncGroupRequest,
};
use ottla_types::{ErrorCode, Uuid};

use super::cluster::Topic;
use super::wire::{Connection, check};

/// Between a member's heartbeats.
const PAUSE: Duration = Duration::from_millis(20);
/// A group that has not settled by then never will.
const PATIENCE: Duration = Duration::from_secs(120);
const SESSION_TIMEOUT_MS: i32 = 45_000;
const STACK_BYTES: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The members' leader assigns.
    Classic,
    /// The coordinator assigns (KIP-848).
    Consumer,
}

#[derive(Clone, Debug)]
pub struct GroupsOptions {
    /// What the groups' names begin with.
    pub prefix: String,
    pub groups: usize,
    pub members_of_each: usize,
    pub protocol: Protocol,
}

/// How far the members of one group are.
#[derive(Debug, Default)]
struct Progress {
    /// Of each member its epoch and the partitions that it holds.
    held: Vec<(i32, BTreeSet<i32>)>,
}

impl Progress {
    /// All members are of one epoch, and every partition has one owner.
    fn is_settled(&self, partitions: usize) -> bool {
        let epoch = self.held[0].0;
        let all: BTreeSet<i32> = self
            .held
            .iter()
            .flat_map(|(_, held)| held.iter().copied())
            .collect();
        let held: usize = self.held.iter().map(|(_, held)| held.len()).sum();
        epoch > 0
            && self.held.iter().all(|(other, _)| *other == epoch)
            && held == partitions
            && all.len() == partitions
    }
}

/// The time from the first join to the moment at which the last group has settled.
pub fn run(topic: &Topic, bootstrap: &str, options: &GroupsOptions) -> Result<Duration> {
    ensure!(
        options.members_of_each <= topic.partitions.len(),
        "a member without a partition never settles; give more --partitions"
    );
    let names: Vec<ByteString> = (0..options.groups)
        .map(|number| format!("{}-{number}", options.prefix).into())
        .collect();
    let addresses = coordinators(bootstrap, &names)?;
    let progress: Vec<Mutex<Progress>> = names
        .iter()
        .map(|_| {
            Mutex::new(Progress {
                held: vec![(0, BTreeSet::new()); options.members_of_each],
            })
        })
        .collect();
    let mut members = Vec::new();
    for (group, (name, address)) in names.iter().zip(&addresses).enumerate() {
        for number in 0..options.members_of_each {
            members.push(Member {
                connection: Connection::open(address)?,
                group_id: name.clone(),
                number,
                count: options.members_of_each,
                topic,
                progress: &progress[group],
            });
        }
    }
    let start = Barrier::new(members.len() + 1);
    std::thread::scope(|scope| {
        let threads = members
            .into_iter()
            .map(|mut member| {
                let start = &start;
                let protocol = options.protocol;
                std::thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || {
                        start.wait();
                        let settled = match protocol {
                            Protocol::Classic => member.settle_classic(),
                            Protocol::Consumer => member.settle_consumer(),
                        };
                        // The connection stays until everybody is done.
                        settled.map(|()| (Instant::now(), member.connection))
                    })
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        start.wait();
        let began = Instant::now();
        let mut last = began;
        let mut connections = Vec::new();
        for thread in threads {
            let (at, connection) = thread.join().expect("a member does not panic")?;
            last = last.max(at);
            connections.push(connection);
        }
        Ok(last - began)
    })
}

/// Where each group is coordinated, once somebody is.
pub fn coordinators(bootstrap: &str, groups: &[ByteString]) -> Result<Vec<String>> {
    let mut connection = Connection::open(bootstrap)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = connection.request(&FindCoordinatorRequest {
            coordinator_keys: groups.to_vec(),
            ..Default::default()
        })?;
        let error = answer.coordinators.iter().map(|found| found.error_code);
        match error
            .max_by_key(|code| *code != 0)
            .map(ErrorCode::from_code)
        {
            Some(ErrorCode::None) => {
                let found = answer.coordinators.iter();
                return Ok(found
                    .map(|found| format!("{}:{}", found.host, found.port))
                    .collect());
            }
            Some(ErrorCode::CoordinatorNotAvailable) if Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            error => bail!("{bootstrap}: {error:?} while looking for coordinators"),
        }
    }
}

/// What is answered between the election of a coordinator and the end of its loading.
pub fn is_not_served_yet(error_code: i16) -> bool {
    matches!(
        ErrorCode::from_code(error_code),
        ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

struct Member<'a> {
    connection: Connection,
    group_id: ByteString,
    number: usize,
    count: usize,
    topic: &'a Topic,
    progress: &'a Mutex<Progress>,
}

impl Member<'_> {
    fn deadline(&self) -> Instant {
        Instant::now() + PATIENCE
    }

    fn check(&self, error_code: i16) -> Result<()> {
        let doing = format_args!("a member of {} joins", self.group_id);
        check(error_code, doing, self.connection.address())
    }

    // ---- the consumer protocol -------------------------------------------------------------------------------------

    fn settle_consumer(&mut self) -> Result<()> {
        let member_id = ByteString::from(format!("{}-{}", self.group_id, self.number));
        let deadline = self.deadline();
        let (mut epoch, mut held) = (0, BTreeSet::new());
        let mut has_news = true;
        loop {
            let mut request = ConsumerGroupHeartbeatRequest {
                group_id: self.group_id.clone(),
                member_id: member_id.clone(),
                member_epoch: epoch,
                ..Default::default()
            };
            if epoch == 0 {
                request.rebalance_timeout_ms = SESSION_TIMEOUT_MS;
                request.subscribed_topic_names = Some(vec![self.topic.name.clone().into()]);
                request.topic_partitions = Some(Vec::new());
            } else if has_news {
                request.topic_partitions = Some(owned(self.topic.id, &held));
            }
            let answer = self.connection.request(&request)?;
            if !is_not_served_yet(answer.error_code) {
                self.check(answer.error_code)?;
            }
            has_news = false;
            if answer.error_code == 0 {
                epoch = answer.member_epoch;
                if let Some(assignment) = answer.assignment {
                    let topics = assignment.topic_partitions.iter();
                    held = topics.flat_map(|topic| topic.partitions.clone()).collect();
                    has_news = true;
                }
            }
            let mut progress = self.progress.lock().expect("no holder panics");
            progress.held[self.number] = (epoch, held.clone());
            if !has_news && progress.is_settled(self.topic.partitions.len()) {
                return Ok(());
            }
            drop(progress);
            ensure!(
                Instant::now() < deadline,
                "{} does not settle",
                self.group_id
            );
            if !has_news {
                std::thread::sleep(PAUSE);
            }
        }
    }

    // ---- the classic protocol --------------------------------------------------------------------------------------

    fn settle_classic(&mut self) -> Result<()> {
        let deadline = self.deadline();
        let mut member_id = ByteString::default();
        loop {
            ensure!(
                Instant::now() < deadline,
                "{} does not settle",
                self.group_id
            );
            let joined = self.join(&member_id)?;
            match ErrorCode::from_code(joined.error_code) {
                ErrorCode::None => {}
                ErrorCode::MemberIdRequired => {
                    member_id = joined.member_id;
                    continue;
                }
                _ if is_not_served_yet(joined.error_code) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                _ => self.check(joined.error_code)?,
            }
            member_id = joined.member_id.clone();
            let Some(members) = self.sync(&joined)? else {
                continue;
            };
            if members == self.count {
                return Ok(());
            }
            self.await_rebalance(&member_id, joined.generation_id)?;
        }
    }

    fn join(&mut self, member_id: &ByteString) -> Result<JoinGroupResponse> {
        self.connection.request(&JoinGroupRequest {
            group_id: self.group_id.clone(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            rebalance_timeout_ms: SESSION_TIMEOUT_MS,
            member_id: member_id.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".into(),
                metadata: subscription(&self.topic.name),
                ..Default::default()
            }],
            ..Default::default()
        })
    }

    /// How many members the generation has, which the leader writes into everybody's assignment; nothing where another
    /// rebalance has begun.
    fn sync(&mut self, joined: &JoinGroupResponse) -> Result<Option<usize>> {
        let count = joined.members.len() as u32;
        let assignments = joined
            .members
            .iter()
            .map(|member| SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: Bytes::copy_from_slice(&count.to_be_bytes()),
                ..Default::default()
            });
        let answer = self.connection.request(&SyncGroupRequest {
            group_id: self.group_id.clone(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            protocol_type: joined.protocol_type.clone(),
            protocol_name: joined.protocol_name.clone(),
            assignments: assignments.collect(),
            ..Default::default()
        })?;
        match ErrorCode::from_code(answer.error_code) {
            ErrorCode::RebalanceInProgress => return Ok(None),
            _ => self.check(answer.error_code)?,
        }
        let count = answer.assignment.get(..4).context("an empty assignment")?;
        let count = u32::from_be_bytes(count.try_into().expect("four bytes"));
        Ok(Some(count as usize))
    }

    fn await_rebalance(&mut self, member_id: &ByteString, generation_id: i32) -> Result<()> {
        let deadline = self.deadline();
        loop {
            let answer = self.connection.request(&HeartbeatRequest {
                group_id: self.group_id.clone(),
                generation_id,
                member_id: member_id.clone(),
                ..Default::default()
            })?;
            match ErrorCode::from_code(answer.error_code) {
                ErrorCode::RebalanceInProgress => return Ok(()),
                _ => self.check(answer.error_code)?,
            }
            ensure!(
                Instant::now() < deadline,
                "{} does not settle",
                self.group_id
            );
            std::thread::sleep(PAUSE);
        }
    }
}

fn owned(topic_id: Uuid, held: &BTreeSet<i32>) -> Vec<TopicPartitions> {
    if held.is_empty() {
        return Vec::new();
    }
    vec![TopicPartitions {
        topic_id,
        partitions: held.iter().copied().collect(),
        ..Default::default()
    }]
}

/// What a consumer of the classic protocol says that it reads: version 0 of `ConsumerProtocolSubscription`.
fn subscription(topic: &str) -> Bytes {
    let mut bytes = Vec::with_capacity(topic.len() + 12);
    bytes.extend_from_slice(&0i16.to_be_bytes());
    bytes.extend_from_slice(&1i32.to_be_bytes());
    bytes.extend_from_slice(&(topic.len() as i16).to_be_bytes());
    bytes.extend_from_slice(topic.as_bytes());
    // No user data.
    bytes.extend_from_slice(&(-1i32).to_be_bytes());
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_settled_when_every_partition_has_one_owner_of_the_same_epoch() {
        let held = |members: &[(i32, &[i32])]| Progress {
            held: members
                .iter()
                .map(|(epoch, held)| (*epoch, held.iter().copied().collect()))
                .collect(),
        };
        assert!(held(&[(2, &[0]), (2, &[1])]).is_settled(2));
        assert!(!held(&[(2, &[0]), (1, &[1])]).is_settled(2));
        assert!(!held(&[(2, &[0]), (2, &[0])]).is_settled(2));
        assert!(!held(&[(2, &[0]), (2, &[])]).is_settled(2));
        assert!(!held(&[(0, &[0]), (0, &[1])]).is_settled(2));
    }
}
