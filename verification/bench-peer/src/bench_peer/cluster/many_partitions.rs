//! Thousands of partitions on three brokers: the time to create them, their cost when idle, the
//! time until replicas are in sync after a controlled restart of a broker, and the time without a
//! leader after a kill.
//!
//! A new leader counts from when it has accepted a write with `acks=all`. Time counts from when the
//! controller fenced the broker, according to its metadata log; the time before that is the session
//! timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::bench::{self, Bench};
use crate::bench_peer::failover::{fenced_at, now_ms, one_record};
use crate::bench_peer::setting::{BROKERS, Options};
use ottla_peers::{Asker, Known, Member, connect};
use ottla_workspace::process;

/// Prefix of the topic names.
const PREFIX: &str = "many-";
/// Partitions per topic; a controller limits the partitions of one request.
const TOPIC_PARTITIONS: usize = 1000;
/// Kafka needs minutes for thirty thousand replicas.
const PATIENCE: Duration = Duration::from_secs(900);
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Polling interval. Each poll makes a broker list all partitions.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for work that was deferred while partitions were created.
const REST: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(20);

/// The broker that is restarted.
const RESTARTED: usize = 0;

pub fn settings_in_words(options: &Options) -> String {
    format!(
        "{} partitions with {} replicas, idle for {} s",
        options.cluster_partitions(),
        options.replicas,
        IDLE.as_secs()
    )
}

pub fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let options = bench.setting.options;
    let (partitions, replicas) = (options.cluster_partitions(), options.replicas);
    let name = |what: &str| format!("many partitions: {what}");
    let all = Known {
        partitions,
        led: partitions,
        in_sync: partitions * replicas,
    };

    let began = Instant::now();
    let topics = create(bench, partitions, replicas)?;
    let answered = began.elapsed();
    wait_until_known(bench, all).context("creation")?;
    let created = began.elapsed();
    bench.add(name("creation, answered, ms"), ms(answered));
    bench.add(
        name("creation, led and in sync everywhere, ms"),
        ms(created),
    );

    std::thread::sleep(REST);
    let before = bench.readings()?;
    std::thread::sleep(IDLE);
    let used = bench.cpu_seconds_since(&before)?;
    let percent = used / IDLE.as_secs_f64() * 100.0;
    bench.add(name("idle, all brokers, % of a core"), percent);
    let sizes = bench.readings()?;
    let largest = sizes.iter().map(|it| it.resident_mb()).fold(0.0, f64::max);
    bench.add(name("memory, the largest broker, MB"), largest);

    let began = Instant::now();
    bench.cluster.brokers[RESTARTED].take()?.stop()?;
    let stopped = began.elapsed();
    bench.cluster.brokers[RESTARTED].start()?;
    wait_until_known(bench, all).context("restart")?;
    let restarted = began.elapsed();
    bench.add(name("restart, clean stop, ms"), ms(stopped));
    bench.add(name("restart, stop to all in sync, ms"), ms(restarted));

    fail_over(bench, &topics, &name)
}

/// Creates the topics one after the other and returns their names.
fn create(bench: &Bench<'_>, partitions: usize, replicas: usize) -> Result<Vec<String>> {
    let (mut topics, mut left) = (Vec::new(), partitions);
    while left > 0 {
        let count = left.min(TOPIC_PARTITIONS);
        let topic = format!("{PREFIX}{}", topics.len());
        let mut create = bench.tool("topics");
        create
            .args(["--bootstrap-server", &bench.cluster.bootstrap(), "--create"])
            .args(["--topic", &topic, "--partitions", &count.to_string()])
            .args(["--replication-factor", &replicas.to_string()]);
        // A creation that timed out may still have taken effect.
        create.arg("--if-not-exists");
        process::retried(bench::PATIENCE, "creating a topic", || {
            process::output_of(&mut create)
        })?;
        topics.push(topic);
        left -= count;
    }
    Ok(topics)
}

/// A connection, with a long timeout, to a broker that is busy with thousands of partitions.
fn busy(port: u16) -> Result<Asker> {
    connect(port)?.patient(ANSWER_PATIENCE)
}

/// Waits until every running broker reports exactly this state of the topics.
fn wait_until_known(bench: &Bench<'_>, wanted: Known) -> Result<()> {
    let began = Instant::now();
    for broker in bench.cluster.running() {
        loop {
            // A busy broker may not answer in time.
            let known = busy(broker.port).and_then(|mut asker| asker.known(PREFIX));
            if known.as_ref().is_ok_and(|known| *known == wanted) {
                break;
            }
            if began.elapsed() > PATIENCE {
                bail!(
                    "{} knows {known:?} after {PATIENCE:?}, and not {wanted:?}",
                    broker.name()
                );
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Kills the broker that leads the most partitions, and sends a record for each of them to the
/// other brokers until one accepts it.
fn fail_over(
    bench: &mut Bench<'_>,
    topics: &[String],
    name: &dyn Fn(&str) -> String,
) -> Result<()> {
    ensure!(
        bench.cluster.running().count() == BROKERS,
        "not all brokers run"
    );
    let mut asker = busy(bench.cluster.brokers[0].port)?;
    let mut leaders: BTreeMap<i32, BTreeSet<(usize, i32)>> = BTreeMap::new();
    for (number, topic) in topics.iter().enumerate() {
        for partition in asker.partitions(topic)? {
            let leader = partition.leader.context("a partition has no leader")?;
            let led = leaders.entry(leader).or_default();
            led.insert((number, partition.index));
        }
    }
    // A broker that was restarted, or fenced under load, leads nothing.
    let most = leaders.into_iter().max_by_key(|(_, led)| led.len());
    let (victim, pending) = most.context("no broker leads a partition")?;
    let led = pending.len();
    let is_victim = |broker: &Member| broker.node_id == victim;
    let survivors: Vec<u16> = bench
        .cluster
        .running()
        .filter(|broker| !is_victim(broker))
        .map(|broker| broker.port)
        .collect();
    let at = bench.cluster.brokers.iter().position(is_victim);
    let at = at.context("the leader is one of the brokers")?;

    let mut node = bench.cluster.brokers[at].take()?;
    let (killed, killed_ms) = (Instant::now(), now_ms()?);
    node.kill()?;
    let accepted = offer(&survivors, topics, pending, killed)?;
    let fenced_ms = fenced_at(&bench.cluster.controllers[0], victim, killed_ms)?;
    let detection = fenced_ms - killed_ms;
    let since_fenced = |at: Option<&Instant>| {
        let at = at.context("no partition was led")?;
        anyhow::Ok(ms(*at - killed) - detection)
    };
    let (first, last) = (
        since_fenced(accepted.first())?,
        since_fenced(accepted.last())?,
    );
    bench.add(name("failover, leaders of the killed broker"), led as f64);
    bench.add(name("failover, kill -9 to fenced, ms"), detection);
    bench.add(name("failover, fenced to the first write, ms"), first);
    bench.add(name("failover, fenced to writes by all, ms"), last);
    Ok(())
}

/// The times at which the partitions accepted a record, in ascending order.
fn offer(
    survivors: &[u16],
    topics: &[String],
    pending: BTreeSet<(usize, i32)>,
    began: Instant,
) -> Result<Vec<Instant>> {
    let count = pending.len();
    let state = Mutex::new((pending, Vec::with_capacity(count)));
    std::thread::scope(|scope| {
        for &port in survivors {
            let state = &state;
            scope.spawn(move || offer_to(port, topics, state, began));
        }
    });
    let (pending, accepted) = state.into_inner().expect("no holder panics");
    if !pending.is_empty() {
        bail!(
            "of {count} partitions {} take no writes after {PATIENCE:?}",
            pending.len()
        );
    }
    Ok(accepted)
}

type Offered = Mutex<(BTreeSet<(usize, i32)>, Vec<Instant>)>;

/// Pause between two records sent to a broker that refuses, as in the group `failover`.
const OFFER_PAUSE: Duration = Duration::from_millis(10);

fn offer_to(port: u16, topics: &[String], state: &Offered, began: Instant) {
    let batch = one_record();
    let mut connection: Option<Asker> = None;
    while began.elapsed() < PATIENCE {
        for (number, topic) in topics.iter().enumerate() {
            let pending: Vec<i32> = {
                let state = state.lock().expect("no holder panics");
                if state.0.is_empty() {
                    return;
                }
                let of_topic = state.0.range((number, i32::MIN)..=(number, i32::MAX));
                of_topic.map(|(_, partition)| *partition).collect()
            };
            if pending.is_empty() {
                continue;
            }
            let Ok(mut broker) = connection.take().map_or_else(|| busy(port), Ok) else {
                break;
            };
            // After a timeout, the next response on this connection would belong to the wrong
            // request.
            let Ok(codes) = broker.produce_to_each(topic, &pending, &batch) else {
                break;
            };
            connection = Some(broker);
            let now = Instant::now();
            let mut state = state.lock().expect("no holder panics");
            for (partition, code) in codes {
                if code == 0 && state.0.remove(&(number, partition)) {
                    state.1.push(now);
                }
            }
        }
        std::thread::sleep(OFFER_PAUSE);
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
