//! Groups whose members all join at once: measures the time until every member has its final
//! partitions.
//!
//! A member is a thread with its own connection, like a client, and at most one request in flight.
//! In the classic protocol, the group's leader assigns the partitions.
//!
//! The measurement should reflect the coordinator's work, not the clients' intervals. A member
//! whose state changed heartbeats at once, then after pauses that start at [`FIRST_PAUSE`] and
//! double up to [`LONGEST_PAUSE`], so it learns of a change after at most twice the time that the
//! change took. Without pauses, finished members would take CPU time from other members, and from a
//! broker on the same machine. The number of requests, and the CPU time of generator and broker
//! until the last group was stable, are reported too.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest,
};
use ottla_types::ErrorCode;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::access::Access;
use super::consumer_member::ConsumerMember;
use super::process_usage::ProcessUsage;
use super::topic::Topic;
use super::wire::{Connection, check};

/// Pause between the first two heartbeats of a member after a change.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Maximum pause between heartbeats.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Pause before a coordinator that is not available yet is queried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A group that is not stable by then counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);
const SESSION_TIMEOUT_MS: i32 = 45_000;
const STACK_BYTES: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The group's leader assigns.
    Classic,
    /// The coordinator assigns (KIP-848).
    Consumer,
}

#[derive(Clone, Debug)]
pub struct GroupsOptions {
    /// Prefix of the group names.
    pub prefix: String,
    pub groups: usize,
    pub members_of_each: usize,
    pub protocol: Protocol,
    /// The process ID of the broker, if it is on this machine.
    pub broker_pid: Option<u32>,
}

/// Time and CPU until the last group was stable.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GroupsReport {
    /// Over all groups.
    pub members: usize,
    /// From the first join.
    pub seconds: f64,
    /// JoinGroup requests; 0 with the consumer protocol.
    pub joins: u64,
    /// Heartbeats, with either protocol.
    pub heartbeats: u64,
    /// The highest generation, or epoch, in which a group became stable.
    pub last_epoch: i32,
    /// User and system time of this process in that time, in seconds.
    pub generator_cpu_seconds: f64,
    /// User and system time of the broker in that time, in seconds, with the resolution of a clock
    /// tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_seconds: Option<f64>,
}

impl fmt::Display for GroupsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} members settled: {:.3} s  in epoch {} at most, after {} joins and {} heartbeats\n  generator: {:.2} CPU s",
            self.members,
            self.seconds,
            self.last_epoch,
            self.joins,
            self.heartbeats,
            self.generator_cpu_seconds
        )?;
        match self.broker_cpu_seconds {
            Some(seconds) => writeln!(f, "  broker: {seconds:.2} CPU s"),
            None => Ok(()),
        }
    }
}

/// Requests of all members.
#[derive(Debug, Default)]
struct Requests {
    joins: AtomicU64,
    heartbeats: AtomicU64,
}

/// The pauses between a member's heartbeats.
#[derive(Debug, Default)]
struct HeartbeatPause {
    last: Option<Duration>,
}

impl HeartbeatPause {
    /// Restarts from the shortest pause after a change.
    fn renew(&mut self) {
        self.last = None;
    }

    fn next_pause(&mut self) -> Duration {
        let next = match self.last {
            None => FIRST_PAUSE,
            Some(last) => (last * 2).min(LONGEST_PAUSE),
        };
        self.last = Some(next);
        next
    }
}

/// The progress of one group's members.
#[derive(Debug, Default)]
struct Progress {
    /// For each member its epoch, or generation, and its partitions.
    held: Vec<(i32, BTreeSet<i32>)>,
}

impl Progress {
    fn of_members(count: usize) -> Progress {
        Progress {
            held: vec![(0, BTreeSet::new()); count],
        }
    }

    /// Whether all members have partitions and the same epoch, and every partition has one owner. A
    /// member has none until there is an assignment with it, which the coordinator may delay.
    fn is_settled(&self, partitions: usize) -> bool {
        let epoch = self.held[0].0;
        let all: BTreeSet<i32> = self
            .held
            .iter()
            .flat_map(|(_, held)| held.iter().copied())
            .collect();
        let held: usize = self.held.iter().map(|(_, held)| held.len()).sum();
        epoch > 0
            && self
                .held
                .iter()
                .all(|(other, held)| *other == epoch && !held.is_empty())
            && held == partitions
            && all.len() == partitions
    }
}

/// Lets all members join at once, and waits until every member has an assignment of its group's
/// final epoch and every partition has exactly one owner.
pub fn run(topic: &Topic, options: &GroupsOptions) -> Result<GroupsReport> {
    ensure!(
        options.members_of_each <= topic.partitions.len(),
        "a member without a partition never settles; give more --partitions"
    );
    let names: Vec<ByteString> = (0..options.groups)
        .map(|number| format!("{}-{number}", options.prefix).into())
        .collect();
    let addresses = coordinators(&topic.access, &names)?;
    let progress: Vec<Mutex<Progress>> = names
        .iter()
        .map(|_| Mutex::new(Progress::of_members(options.members_of_each)))
        .collect();
    let requests = Requests::default();
    let mut connections = Vec::new();
    for address in &addresses {
        for _ in 0..options.members_of_each {
            connections.push(topic.access.open(address)?);
        }
    }
    let members: Vec<Member<'_>> = connections
        .iter_mut()
        .enumerate()
        .map(|(place, connection)| {
            let group = place / options.members_of_each;
            Member {
                connection,
                group_id: names[group].clone(),
                number: place % options.members_of_each,
                count: options.members_of_each,
                topic,
                progress: &progress[group],
                requests: &requests,
            }
        })
        .collect();
    let broker = || options.broker_pid.map(ProcessUsage::of).transpose();
    // Read here, so that an error occurs before threads wait for the start.
    let broker_before = broker()?;
    let start = Barrier::new(members.len() + 1);
    let (elapsed, generator_cpu) = std::thread::scope(|scope| {
        let threads = members
            .into_iter()
            .map(|mut member| {
                let start = &start;
                let protocol = options.protocol;
                std::thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || {
                        start.wait();
                        let began = Instant::now();
                        member.settle(protocol)?;
                        anyhow::Ok((began, Instant::now()))
                    })
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        let cpu_before = processor_time();
        start.wait();
        let mut times = Vec::new();
        for thread in threads {
            times.push(thread.join().expect("a member does not panic")?);
        }
        anyhow::Ok((settled_after(&times), processor_time() - cpu_before))
    })?;
    let broker_cpu_seconds = broker()?
        .zip(broker_before)
        .map(|(after, before)| (after.cpu - before.cpu).as_secs_f64());
    let mut last_epoch = 0;
    for (name, progress) in names.iter().zip(progress) {
        let progress = progress.into_inner().expect("no holder panics");
        ensure!(
            progress.is_settled(topic.partitions.len()),
            "the members of {name} do not hold one assignment together: {:?}",
            progress.held
        );
        last_epoch = last_epoch.max(progress.held[0].0);
    }
    Ok(GroupsReport {
        members: options.groups * options.members_of_each,
        seconds: elapsed.as_secs_f64(),
        joins: requests.joins.into_inner(),
        heartbeats: requests.heartbeats.into_inner(),
        last_epoch,
        generator_cpu_seconds: generator_cpu.as_secs_f64(),
        broker_cpu_seconds,
    })
}

/// Lets the members of one group join at once, each over one of the connections, and waits as [`run`]
/// does. Returns the ID and the epoch, or generation, of each.
pub fn join_group(
    topic: &Topic,
    group_id: &ByteString,
    connections: &mut [Connection],
    protocol: Protocol,
) -> Result<Vec<(ByteString, i32)>> {
    let count = connections.len();
    let progress = Mutex::new(Progress::of_members(count));
    let requests = Requests::default();
    let member_ids = std::thread::scope(|scope| {
        let threads = connections
            .iter_mut()
            .enumerate()
            .map(|(number, connection)| {
                let mut member = Member {
                    connection,
                    group_id: group_id.clone(),
                    number,
                    count,
                    topic,
                    progress: &progress,
                    requests: &requests,
                };
                std::thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || member.settle(protocol))
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("a member does not panic"));
        joined.collect::<Result<Vec<ByteString>>>()
    })?;
    let progress = progress.into_inner().expect("no holder panics");
    ensure!(
        progress.is_settled(topic.partitions.len()),
        "the members of {group_id} do not hold one assignment together: {:?}",
        progress.held
    );
    let epochs = progress.held.into_iter().map(|(epoch, _)| epoch);
    Ok(member_ids.into_iter().zip(epochs).collect())
}

/// The time from the first join to the last stable member. Members record both themselves: when a
/// thousand threads are woken, the waking thread may continue only after many of them are done.
fn settled_after(times: &[(Instant, Instant)]) -> Duration {
    let first = times.iter().map(|(joined, _)| *joined).min();
    let last = times.iter().map(|(_, settled)| *settled).max();
    let both = first.zip(last);
    both.map_or(Duration::ZERO, |(first, last)| last - first)
}

/// User and system time of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The coordinator of each group, once available.
pub fn coordinators(access: &Access, groups: &[ByteString]) -> Result<Vec<String>> {
    let bootstrap = access.bootstrap();
    let mut connection = access.open_bootstrap()?;
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
                std::thread::sleep(RETRY_PAUSE);
            }
            error => bail!("{bootstrap}: {error:?} while looking for coordinators"),
        }
    }
}

/// Whether this is an error returned between the election of a coordinator and the end of its
/// loading.
pub fn is_not_served_yet(error_code: i16) -> bool {
    matches!(
        ErrorCode::from_code(error_code),
        ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

struct Member<'a> {
    connection: &'a mut Connection,
    group_id: ByteString,
    number: usize,
    count: usize,
    topic: &'a Topic,
    progress: &'a Mutex<Progress>,
    requests: &'a Requests,
}

impl Member<'_> {
    fn deadline(&self) -> Instant {
        Instant::now() + PATIENCE
    }

    fn check(&self, error_code: i16) -> Result<()> {
        let doing = format_args!("a member of {} joins", self.group_id);
        check(error_code, doing, self.connection.address())
    }

    /// Joins, and returns the member's ID when the group is stable.
    fn settle(&mut self, protocol: Protocol) -> Result<ByteString> {
        match protocol {
            Protocol::Classic => self.settle_classic(),
            Protocol::Consumer => self.settle_consumer(),
        }
    }

    // ---- the consumer protocol -------------------------------------------------------------------------------------

    fn settle_consumer(&mut self) -> Result<ByteString> {
        let member_id = ByteString::from(format!("{}-{}", self.group_id, self.number));
        let mut member = ConsumerMember::new(self.group_id.clone(), member_id);
        let deadline = self.deadline();
        let mut patience = HeartbeatPause::default();
        loop {
            self.requests.heartbeats.fetch_add(1, Ordering::Relaxed);
            let answer = self.connection.request(&member.heartbeat(self.topic))?;
            if !is_not_served_yet(answer.error_code) {
                self.check(answer.error_code)?;
            }
            let has_news = member.on_response(&answer);
            let mut progress = self.progress.lock().expect("no holder panics");
            progress.held[self.number] = (member.epoch, member.held.clone());
            if !has_news && progress.is_settled(self.topic.partitions.len()) {
                return Ok(member.member_id);
            }
            drop(progress);
            ensure!(
                Instant::now() < deadline,
                "{} does not settle",
                self.group_id
            );
            if has_news {
                patience.renew()
            } else {
                std::thread::sleep(patience.next_pause())
            }
        }
    }

    // ---- the classic protocol --------------------------------------------------------------------------------------

    fn settle_classic(&mut self) -> Result<ByteString> {
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
                    std::thread::sleep(RETRY_PAUSE);
                    continue;
                }
                _ => self.check(joined.error_code)?,
            }
            member_id = joined.member_id.clone();
            let Some(assigned) = self.sync(&joined)? else {
                continue;
            };
            let mut progress = self.progress.lock().expect("no holder panics");
            progress.held[self.number] = (joined.generation_id, assigned.partitions);
            drop(progress);
            if assigned.members == self.count {
                // No other member joins, so there is no later generation.
                return Ok(member_id);
            }
            self.await_rebalance(&member_id, joined.generation_id)?;
        }
    }

    fn join(&mut self, member_id: &ByteString) -> Result<JoinGroupResponse> {
        self.requests.joins.fetch_add(1, Ordering::Relaxed);
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

    /// Distributes or fetches the leader's assignment; `None` if another rebalance has started.
    fn sync(&mut self, joined: &JoinGroupResponse) -> Result<Option<MemberAssignment>> {
        let members = joined.members.len();
        let assignments = joined.members.iter().enumerate().map(|(number, member)| {
            let assigned = MemberAssignment {
                members,
                partitions: (0..self.topic.partitions.len())
                    .filter(|partition| partition % members == number)
                    .map(|partition| partition as i32)
                    .collect(),
            };
            SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: assigned.encode(),
                ..Default::default()
            }
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
        Ok(Some(MemberAssignment::decode(&answer.assignment)?))
    }

    fn await_rebalance(&mut self, member_id: &ByteString, generation_id: i32) -> Result<()> {
        let deadline = self.deadline();
        let mut patience = HeartbeatPause::default();
        loop {
            self.requests.heartbeats.fetch_add(1, Ordering::Relaxed);
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
            std::thread::sleep(patience.next_pause());
        }
    }
}

/// The assignment of a member in the classic protocol. Coordinators treat it as opaque, so it need
/// not use the consumer protocol's format.
#[derive(Debug, PartialEq, Eq)]
struct MemberAssignment {
    /// The number of members in the generation.
    members: usize,
    partitions: BTreeSet<i32>,
}

impl MemberAssignment {
    fn encode(&self) -> Bytes {
        let numbers = std::iter::once(self.members as i32).chain(self.partitions.iter().copied());
        numbers.flat_map(i32::to_be_bytes).collect()
    }

    fn decode(bytes: &[u8]) -> Result<MemberAssignment> {
        let (numbers, rest) = bytes.as_chunks();
        let mut numbers = numbers.iter().map(|bytes| i32::from_be_bytes(*bytes));
        let members = numbers.next().context("an empty assignment")?;
        ensure!(rest.is_empty(), "an assignment that is cut off");
        Ok(MemberAssignment {
            members: usize::try_from(members)?,
            partitions: numbers.collect(),
        })
    }
}

/// The subscription of a consumer in the classic protocol: version 0 of `ConsumerProtocolSubscription`.
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
        assert!(!held(&[(2, &[0, 1]), (2, &[])]).is_settled(2));
    }

    #[test]
    fn the_time_starts_at_the_first_join() {
        let at = |start: Instant, ms| start + Duration::from_millis(ms);
        let start = Instant::now();
        let times = [(5, 9), (2, 7), (4, 30), (20, 28)];
        let times = times.map(|(joined, settled)| (at(start, joined), at(start, settled)));
        assert_eq!(settled_after(&times), Duration::from_millis(28));
    }

    #[test]
    fn a_member_sends_a_heartbeat_at_once_after_a_change() {
        let mut patience = HeartbeatPause::default();
        let mut pauses = || patience.next_pause().as_millis();
        let all: Vec<u128> = std::iter::repeat_with(&mut pauses).take(7).collect();
        assert_eq!(all, [1, 2, 4, 8, 16, 20, 20]);
        patience.renew();
        assert_eq!(patience.next_pause(), FIRST_PAUSE);
    }

    #[test]
    fn an_assignment_round_trips() {
        let assigned = MemberAssignment {
            members: 3,
            partitions: BTreeSet::from([1, 4, 7]),
        };
        let bytes = assigned.encode();
        assert_eq!(MemberAssignment::decode(&bytes).expect("whole"), assigned);
        assert!(MemberAssignment::decode(&bytes[..7]).is_err());
        assert!(MemberAssignment::decode(&[]).is_err());
    }
}
