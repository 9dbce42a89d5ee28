//! One group of many members (KIP-848) that members leave: the time until the remaining members
//! have settled, and the latency of producers in this time.
//!
//! Each member sends a heartbeat per interval, and another at once when its partitions have changed,
//! as clients do. Members share connections. The group is settled when all members have one epoch,
//! each partition has one owner, and each change is confirmed. While a member leaves, producers write
//! to another topic at a fixed rate. The latencies of requests that were due before the member left
//! are compared with those of requests that were due until the group had settled.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytestring::ByteString;
use serde::Serialize;

use super::consumer_member::ConsumerMember;
use super::groups::{coordinators, is_not_served_yet};
use super::produce::{self, ProduceOptions, RunLength};
use super::report::show_latency;
use super::topic::Topic;
use super::wire::{Connection, check};
use crate::workload::latencies::{Latencies, LatencyReport};

/// How long a group may take to settle.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often the members' progress is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Requests of the producers that are not counted: connections and caches are new.
const UNCOUNTED: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct LargeGroupOptions {
    pub group_id: String,
    pub members: usize,
    /// Connections that the members share.
    pub connections: usize,
    /// Between two heartbeats of a member.
    pub interval: Duration,
    /// Members that leave, one after the other.
    pub leaves: usize,
    /// How long the producers run before and after a member leaves.
    pub quiet: Duration,
    /// The producers; `until` is not used.
    pub produce: ProduceOptions,
}

#[derive(Clone, Debug, Serialize)]
pub struct LargeGroupReport {
    pub members: usize,
    pub connections: usize,
    /// From the first join until the group was settled.
    pub joined_after_seconds: f64,
    /// For each member that left: the milliseconds until the remaining members had settled.
    pub settled_after_ms: Vec<f64>,
    /// Of requests that were due before a member left.
    pub quiet: Option<LatencyReport>,
    /// Of requests that were due between that and the group's being settled.
    pub meanwhile: Option<LatencyReport>,
}

impl fmt::Display for LargeGroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} members over {} connections, joined after {:.1} s",
            self.members, self.connections, self.joined_after_seconds
        )?;
        for settled in &self.settled_after_ms {
            writeln!(f, "  one leaves, the others are settled: {settled:.0} ms")?;
        }
        if let Some(latency) = &self.quiet {
            show_latency(f, "produce before", latency)?;
        }
        match &self.meanwhile {
            Some(latency) => show_latency(f, "produce meanwhile", latency),
            None => Ok(()),
        }
    }
}

/// The members of one connection. `None` has left.
type Members = Mutex<Vec<Option<ConsumerMember>>>;

/// Lets the members join, and then some of them leave.
pub fn run(
    topic: &Topic,
    produced: &Topic,
    options: &LargeGroupOptions,
) -> Result<LargeGroupReport> {
    ensure!(
        options.leaves < options.members,
        "--leaves must be less than --members"
    );
    ensure!(
        options.connections <= options.members,
        "--connections must not be more than --members"
    );
    let group_id = ByteString::from(options.group_id.clone());
    let addresses = coordinators(&topic.access, std::slice::from_ref(&group_id))?;
    let address = &addresses[0];
    let mut shares: Vec<Vec<Option<ConsumerMember>>> = vec![Vec::new(); options.connections];
    for number in 0..options.members {
        let member_id = ByteString::from(format!("member-{number:08}"));
        let member = ConsumerMember::new(group_id.clone(), member_id);
        shares[number % options.connections].push(Some(member));
    }
    let shares: Vec<Members> = shares.into_iter().map(Mutex::new).collect();
    let connections = shares
        .iter()
        .map(|_| topic.access.open(address))
        .collect::<Result<Vec<_>>>()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let (mut leavers, mut threads) = (Vec::new(), Vec::new());
        for (connection, members) in connections.into_iter().zip(&shares) {
            let (leaver, leaving) = channel();
            leavers.push(leaver);
            let driver = Driver {
                connection,
                topic,
                members,
                leaving,
                interval: options.interval,
                is_over,
            };
            threads.push(scope.spawn(move || {
                let outcome = driver.run();
                // End the other threads, also after a failure.
                is_over.store(true, Ordering::Relaxed);
                outcome
            }));
        }
        let progress = Progress {
            shares: &shares,
            partitions: topic.partitions.len(),
            is_over,
        };
        let measured = measure(&progress, produced, &leavers, options);
        is_over.store(true, Ordering::Relaxed);
        // Report a refused member first, because it causes the later failures.
        for thread in threads {
            thread.join().expect("a driver does not panic")?;
        }
        measured
    })
}

fn measure(
    progress: &Progress<'_>,
    produced: &Topic,
    leavers: &[Sender<Sender<Instant>>],
    options: &LargeGroupOptions,
) -> Result<LargeGroupReport> {
    let began = Instant::now();
    let (mut epoch, settled) = progress.await_settled(0)?;
    let joined_after = settled - began;
    let load = ProduceOptions {
        until: RunLength::Time(options.quiet * 2),
        ..options.produce
    };
    let mut settled_after_ms = Vec::new();
    let (mut quiet, mut meanwhile) = (Latencies::default(), Latencies::default());
    for turn in 0..options.leaves {
        std::thread::scope(|scope| {
            let (begin, begun) = channel();
            let producers = scope.spawn(move || {
                produce::run_and_tell(produced, load, |start| {
                    begin.send(start).expect("the receiver waits for it");
                })
            });
            // Preparing the requests takes a while. Producers that fail before they start report it below.
            let start = begun.recv().unwrap_or_else(|_| Instant::now());
            std::thread::sleep(options.quiet);
            let (tell, told) = channel();
            let gone = "the connection of the leaving member is lost";
            let leaver = &leavers[turn % leavers.len()];
            leaver.send(tell).ok().context(gone)?;
            let left = told.recv().context(gone)?;
            let settled = progress.await_settled(epoch);
            let requests = producers.join().expect("a producer does not panic")?.each;
            let (later_epoch, settled_at) = settled?;
            epoch = later_epoch;
            settled_after_ms.push((settled_at - left).as_secs_f64() * 1e3);
            for request in requests {
                if request.due >= start + UNCOUNTED && request.due < left {
                    quiet.record(request.latency);
                } else if request.due >= left && request.due <= settled_at {
                    meanwhile.record(request.latency);
                }
            }
            anyhow::Ok(())
        })?;
    }
    Ok(LargeGroupReport {
        members: options.members,
        connections: options.connections,
        joined_after_seconds: joined_after.as_secs_f64(),
        settled_after_ms,
        quiet: quiet.report(),
        meanwhile: meanwhile.report(),
    })
}

/// The progress of the members.
struct Progress<'a> {
    shares: &'a [Members],
    partitions: usize,
    is_over: &'a AtomicBool,
}

impl Progress<'_> {
    /// Waits until the group is settled in a later epoch than `before`. Returns the epoch and the
    /// time.
    fn await_settled(&self, before: i32) -> Result<(i32, Instant)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Instant::now();
            let epoch = settled_epoch(self.shares.iter().map(look), self.partitions);
            if let Some(epoch) = epoch.filter(|epoch| *epoch > before) {
                return Ok((epoch, now));
            }
            if self.is_over.load(Ordering::Relaxed) {
                bail!("a member has failed");
            }
            ensure!(
                now < deadline,
                "the group is not settled after {} s",
                PATIENCE.as_secs()
            );
            std::thread::sleep(LOOK);
        }
    }
}

fn look(members: &Members) -> MutexGuard<'_, Vec<Option<ConsumerMember>>> {
    members.lock().expect("no holder panics")
}

/// The epoch of all members, if they have one epoch, each partition has one owner, and no change is
/// to be confirmed.
fn settled_epoch<M>(shares: impl Iterator<Item = M>, partitions: usize) -> Option<i32>
where
    M: std::ops::Deref<Target = Vec<Option<ConsumerMember>>>,
{
    let mut epoch = None;
    let mut held: Vec<i32> = Vec::new();
    for share in shares {
        for member in share.iter().flatten() {
            let of_all = *epoch.get_or_insert(member.epoch);
            if member.has_news || member.epoch != of_all {
                return None;
            }
            held.extend(&member.held);
        }
    }
    let count = held.len();
    held.sort_unstable();
    held.dedup();
    epoch.filter(|_| count == partitions && held.len() == partitions)
}

/// Sends the heartbeats of the members of one connection.
struct Driver<'a> {
    connection: Connection,
    topic: &'a Topic,
    members: &'a Members,
    /// A member is to leave; the time at which it does is the answer.
    leaving: Receiver<Sender<Instant>>,
    interval: Duration,
    is_over: &'a AtomicBool,
}

impl Driver<'_> {
    fn run(mut self) -> Result<()> {
        let count = look(self.members).len();
        let pause = self.interval / u32::try_from(count)?.max(1);
        let mut due = Instant::now();
        for place in (0..count).cycle() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += pause;
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            if let Ok(tell) = self.leaving.try_recv() {
                self.leave(&tell)?;
            }
            self.send_heartbeats(place)?;
        }
        Ok(())
    }

    /// Sends a heartbeat of a member, and another while its partitions change.
    fn send_heartbeats(&mut self, place: usize) -> Result<()> {
        loop {
            let heartbeat = match &look(self.members)[place] {
                None => return Ok(()),
                Some(member) => member.heartbeat(self.topic),
            };
            let answer = self.connection.request(&heartbeat)?;
            if !is_not_served_yet(answer.error_code) {
                let message = answer.error_message.as_deref().unwrap_or_default();
                let doing = format_args!("a heartbeat of {}: {message}", heartbeat.member_id);
                check(answer.error_code, doing, self.connection.address())?;
            }
            let mut members = look(self.members);
            let has_changed = members[place]
                .as_mut()
                .is_some_and(|member| member.on_response(&answer));
            if !has_changed {
                return Ok(());
            }
        }
    }

    /// Lets the first member leave that has not left.
    fn leave(&mut self, tell: &Sender<Instant>) -> Result<()> {
        let leaving = look(self.members).iter_mut().find_map(Option::take);
        let member = leaving.context("all members of a connection have left")?;
        let left = Instant::now();
        let answer = self.connection.request(&member.leave())?;
        check(
            answer.error_code,
            "a member leaves",
            self.connection.address(),
        )?;
        // The receiver is gone only if the requester failed.
        let _ = tell.send(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_settled_when_all_changes_are_confirmed_in_one_epoch() {
        let member = |epoch, held: &[i32], has_news| {
            Some(ConsumerMember {
                epoch,
                held: held.iter().copied().collect(),
                has_news,
                ..ConsumerMember::new("g".into(), "m".into())
            })
        };
        let epoch_of = |members: Vec<Option<ConsumerMember>>| {
            settled_epoch(std::iter::once(Box::new(members)), 2)
        };
        let settled = vec![member(3, &[0], false), None, member(3, &[1], false)];
        assert_eq!(epoch_of(settled), Some(3));
        let others: [(i32, &[i32], bool); 4] = [
            (2, &[1], false),
            (3, &[0], false),
            (3, &[], false),
            (3, &[1], true),
        ];
        for (epoch, held, has_news) in others {
            let members = vec![member(3, &[0], false), member(epoch, held, has_news)];
            assert_eq!(epoch_of(members), None);
        }
        assert_eq!(epoch_of(Vec::new()), None);
    }
}
