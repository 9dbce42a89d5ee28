//! Many groups that have nothing to do but to send heartbeats: CPU time of the broker, and latency.
//!
//! The groups join first, a few at a time. From then on each member sends a heartbeat per interval,
//! at instants that are spread evenly over the interval. The members share connections; a
//! connection has one request in flight. The generator is an open loop: a heartbeat has a due time
//! that does not depend on earlier responses, and its latency counts from there. A refused member
//! is counted and continues to send.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytestring::ByteString;
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest,
    HeartbeatResponse,
};
use serde::Serialize;

use super::groups::{Protocol, coordinators, join_group};
use super::process_usage::ProcessUsage;
use super::report::show_latency;
use super::topic::Topic;
use super::wire::{Connection, frame};
use crate::workload::latencies::{Latencies, LatencyReport};

/// Groups that join at the same time.
const JOINING_GROUPS: usize = 4;
/// A thread without a heartbeat that is due looks for new members and for the end this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct HeartbeatsOptions {
    /// Prefix of the group names.
    pub prefix: String,
    pub groups: usize,
    pub members_of_each: usize,
    pub protocol: Protocol,
    /// Connections that the members share.
    pub connections: usize,
    /// Between two heartbeats of a member.
    pub interval: Duration,
    /// Between the last join and the start of the measurement.
    pub warmup: Duration,
    pub measured: Duration,
    /// The process ID of the broker, if it is on this machine.
    pub broker_pid: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct HeartbeatsReport {
    pub members: usize,
    pub connections: usize,
    /// From the first join to the last.
    pub joined_after_seconds: f64,
    /// Duration of the measurement.
    pub seconds: f64,
    pub heartbeats: u64,
    /// Heartbeats that were answered with an error or with another epoch.
    pub refused: u64,
    /// From the due time to the response.
    pub latency: Option<LatencyReport>,
    pub generator_cpu_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<BrokerReport>,
}

/// The broker's usage during the measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BrokerReport {
    pub cpu_seconds: f64,
    pub percent_of_a_core: f64,
    pub cpu_us_per_heartbeat: f64,
    pub resident_bytes: u64,
}

impl fmt::Display for HeartbeatsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} members over {} connections, joined after {:.1} s",
            self.members, self.connections, self.joined_after_seconds
        )?;
        writeln!(
            f,
            "  {} heartbeats in {:.1} s, {} refused",
            self.heartbeats, self.seconds, self.refused
        )?;
        if let Some(latency) = &self.latency {
            show_latency(f, "due instant to response", latency)?;
        }
        if let Some(broker) = &self.broker {
            writeln!(
                f,
                "  broker: {:.1} % of a core, {:.1} µs per heartbeat, {:.1} MB",
                broker.percent_of_a_core,
                broker.cpu_us_per_heartbeat,
                broker.resident_bytes as f64 / 1e6
            )?;
        }
        writeln!(f, "  generator: {:.2} CPU s", self.generator_cpu_seconds)
    }
}

/// The measured heartbeats: due at or after `begin` and before `end`.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: Instant,
    end: Instant,
}

/// A joined member.
struct Beat {
    /// Over all groups.
    number: usize,
    epoch: i32,
    /// The request, which is the same each time.
    frame: Vec<u8>,
}

#[derive(Default)]
struct Measured {
    latencies: Latencies,
    refused: u64,
}

/// State shared by all threads.
struct Shared<'a> {
    options: &'a HeartbeatsOptions,
    /// The version of the heartbeat requests.
    version: i16,
    origin: Instant,
    /// Set when all groups have joined.
    window: OnceLock<Window>,
    has_failed: AtomicBool,
}

/// Lets the groups join, and measures their heartbeats.
pub fn run(topic: &Topic, options: &HeartbeatsOptions) -> Result<HeartbeatsReport> {
    let names: Vec<ByteString> = (0..options.groups)
        .map(|number| format!("{}-{number}", options.prefix).into())
        .collect();
    let addresses = coordinators(&topic.access, &names)?;
    let address = &addresses[0];
    ensure!(
        addresses.iter().all(|other| other == address),
        "the groups have several coordinators; give a cluster of one broker"
    );
    let open = |count: usize| -> Result<Vec<Connection>> {
        (0..count).map(|_| topic.access.open(address)).collect()
    };
    let lines = open(options.connections)?;
    let pools = (0..JOINING_GROUPS)
        .map(|_| open(options.members_of_each))
        .collect::<Result<Vec<_>>>()?;
    let version = match options.protocol {
        Protocol::Classic => lines[0].version::<HeartbeatRequest>()?,
        Protocol::Consumer => lines[0].version::<ConsumerGroupHeartbeatRequest>()?,
    };
    let shared = Shared {
        options,
        version,
        origin: Instant::now(),
        window: OnceLock::new(),
        has_failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let shared = &shared;
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for line in lines {
            let (sender, incoming) = channel();
            senders.push(sender);
            threads.push(scope.spawn(move || shared.send_heartbeats(line, &incoming)));
        }
        let joined = shared.join(topic, &names, pools, &senders);
        if joined.is_err() {
            shared.has_failed.store(true, Ordering::Relaxed);
        }
        joined?;
        let joined_after = shared.origin.elapsed();
        let begin = Instant::now() + options.warmup;
        let end = begin + options.measured;
        shared.window.get_or_init(|| Window { begin, end });

        std::thread::sleep(begin.saturating_duration_since(Instant::now()));
        let broker = || options.broker_pid.map(ProcessUsage::of).transpose();
        let (broker_before, generator_before) = (broker()?, ProcessUsage::of_this_process()?);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let (broker_after, generator_after) = (broker()?, ProcessUsage::of_this_process()?);

        let mut measured = Measured::default();
        for thread in threads {
            let of_thread = thread.join().expect("a sender does not panic")?;
            measured.latencies.add(&of_thread.latencies);
            measured.refused += of_thread.refused;
        }
        let heartbeats = measured.latencies.count();
        let seconds = options.measured.as_secs_f64();
        let broker = broker_before.zip(broker_after).map(|(before, after)| {
            let cpu_seconds = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            BrokerReport {
                cpu_seconds,
                percent_of_a_core: cpu_seconds / seconds * 100.0,
                cpu_us_per_heartbeat: cpu_seconds * 1e6 / heartbeats as f64,
                resident_bytes: after.resident_bytes,
            }
        });
        let generator_cpu = generator_after.cpu.saturating_sub(generator_before.cpu);
        Ok(HeartbeatsReport {
            members: options.groups * options.members_of_each,
            connections: options.connections,
            joined_after_seconds: joined_after.as_secs_f64(),
            seconds,
            heartbeats,
            refused: measured.refused,
            latency: measured.latencies.report(),
            generator_cpu_seconds: generator_cpu.as_secs_f64(),
            broker,
        })
    })
}

impl Shared<'_> {
    /// Lets all groups join, and gives their members to the senders of heartbeats at once, before
    /// their sessions expire.
    fn join(
        &self,
        topic: &Topic,
        names: &[ByteString],
        pools: Vec<Vec<Connection>>,
        senders: &[Sender<Beat>],
    ) -> Result<()> {
        let next_group = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for mut connections in pools {
                let next_group = &next_group;
                threads.push(scope.spawn(move || -> Result<()> {
                    loop {
                        let group = next_group.fetch_add(1, Ordering::Relaxed);
                        let Some(name) = names.get(group) else {
                            return Ok(());
                        };
                        let protocol = self.options.protocol;
                        let joined = join_group(topic, name, &mut connections, protocol)?;
                        for (place, (member_id, epoch)) in joined.into_iter().enumerate() {
                            let number = group * self.options.members_of_each + place;
                            let frame = self.heartbeat(name, &member_id, epoch)?;
                            // A thread that is gone has failed, and reports it.
                            let _ = senders[number % senders.len()].send(Beat {
                                number,
                                epoch,
                                frame,
                            });
                        }
                    }
                }));
            }
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a group does not panic"))
        })
    }

    fn heartbeat(
        &self,
        group_id: &ByteString,
        member_id: &ByteString,
        epoch: i32,
    ) -> Result<Vec<u8>> {
        let (group_id, member_id) = (group_id.clone(), member_id.clone());
        match self.options.protocol {
            Protocol::Classic => {
                let request = HeartbeatRequest {
                    group_id,
                    member_id,
                    generation_id: epoch,
                    ..Default::default()
                };
                frame(&request, self.version)
            }
            Protocol::Consumer => {
                let request = ConsumerGroupHeartbeatRequest {
                    group_id,
                    member_id,
                    member_epoch: epoch,
                    ..Default::default()
                };
                frame(&request, self.version)
            }
        }
    }

    /// Sends the heartbeats of the members of one connection until the window ends.
    fn send_heartbeats(
        &self,
        mut connection: Connection,
        incoming: &Receiver<Beat>,
    ) -> Result<Measured> {
        let interval = self.options.interval;
        let mut measured = Measured::default();
        let mut beats: BTreeMap<(Instant, usize), Beat> = BTreeMap::new();
        while !self.has_failed.load(Ordering::Relaxed) {
            // When there is a window, all members have been given to the threads.
            let window = self.window.get();
            for beat in incoming.try_iter() {
                beats.insert((self.first_due(beat.number), beat.number), beat);
            }
            let Some(first) = beats.first_entry() else {
                if window.is_some() {
                    break;
                }
                std::thread::sleep(LONGEST_SLEEP);
                continue;
            };
            let due = first.key().0;
            if window.is_some_and(|window| due >= window.end) {
                break;
            }
            let wait = due.saturating_duration_since(Instant::now());
            std::thread::sleep(wait.min(LONGEST_SLEEP));
            if wait > LONGEST_SLEEP {
                continue;
            }
            let mut beat = first.remove();
            connection.send(&mut beat.frame)?;
            let is_accepted = self.receive(&mut connection, beat.epoch)?;
            if window.is_some_and(|window| due >= window.begin) {
                measured.latencies.record(due.elapsed());
                measured.refused += u64::from(!is_accepted);
            }
            beats.insert((due + interval, beat.number), beat);
        }
        Ok(measured)
    }

    /// The first of the member's instants that has not passed.
    fn first_due(&self, number: usize) -> Instant {
        let options = self.options;
        let members = options.groups * options.members_of_each;
        let phase = options.interval.mul_f64(number as f64 / members as f64);
        next_instant(self.origin + phase, options.interval, Instant::now())
    }

    /// Whether the heartbeat was accepted and the member's epoch is unchanged.
    fn receive(&self, connection: &mut Connection, epoch: i32) -> Result<bool> {
        Ok(match self.options.protocol {
            Protocol::Classic => {
                let answer: HeartbeatResponse = connection.receive(self.version)?;
                answer.error_code == 0
            }
            Protocol::Consumer => {
                let answer: ConsumerGroupHeartbeatResponse = connection.receive(self.version)?;
                answer.error_code == 0 && answer.member_epoch == epoch
            }
        })
    }
}

/// The first of `first`, `first + interval`, … that is not before `now`.
fn next_instant(first: Instant, interval: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(first);
    let passed = late.as_nanos().div_ceil(interval.as_nanos().max(1));
    first + interval * u32::try_from(passed).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_member_keeps_its_phase_in_the_interval() {
        let first = Instant::now();
        let ms = Duration::from_millis;
        for (now, expected) in [(0, 0), (1, 300), (300, 300), (301, 600), (2_950, 3_000)] {
            let next = next_instant(first, ms(300), first + ms(now));
            assert_eq!(next, first + ms(expected), "{now}");
        }
    }
}
