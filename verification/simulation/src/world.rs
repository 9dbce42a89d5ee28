//! One run: a cluster, its clients, faults for a limited time, and the final checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ottla_sync::simulation::{self, Config, Host, host_name, now, stream};
use ottla_sync::thread::sleep;
use ottla_testkit::client_histories::workload::{self, PARTITIONS, Scene};
use ottla_testkit::client_histories::{self, Operation, Seen, Step, Value};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;

use crate::administrator::Administrators;
use crate::checks::LogChecks;
use crate::clients::{create_topic, on};
use crate::cluster::{Cluster, REPLICAS};
use crate::faults::FaultInjector;
use crate::former_leaders::FormerLeaders;
use crate::lockers;
use crate::movers::{self, Movers};
use crate::node::Node;
use crate::outcome::Outcome;
use crate::owners::Owners;
use crate::quorum_leaders::QuorumLeaders;
use crate::reassigner::Reassigner;
use crate::sharers::{self, Sharers};
use crate::stories::Story;
use crate::unclean::UncleanTopic;
use crate::uncommitted::Uncommitted;

const WORKERS: u32 = 3;
/// The events of the product's log.
const LEVEL: Level = Level::DEBUG;
/// How long there are faults.
const FAULTS: Duration = Duration::from_secs(20);

/// Runs a seed.
pub fn run(seed: u64) -> Outcome {
    hashed(seed).0
}

/// Runs a seed, and returns the hash of all scheduling decisions as well.
pub fn hashed(seed: u64) -> (Outcome, u64) {
    run_with(seed, Unwritten)
}

/// Runs a seed, and counts its switch points by operation and source line, most frequent first.
pub fn count_switch_points(seed: u64) -> Vec<(u64, String)> {
    let config = Config::new(seed).recorded();
    let report = with_default(Unwritten, || simulation::run(config, world));
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in report.trace.lines() {
        // The text after the time and the thread.
        let mut words = line.trim_start().splitn(3, ' ');
        *counts.entry(words.nth(2).unwrap_or_default()).or_default() += 1;
    }
    let counts = counts.into_iter();
    let mut counts: Vec<_> = counts.map(|(at, count)| (count, at.to_owned())).collect();
    counts.sort_by(|one, other| other.cmp(one));
    counts
}

/// Runs a seed. The product's log and the faults are written with the simulated time. Returns the
/// hash of all scheduling decisions as well.
pub fn tell<W>(seed: u64, writer: W) -> (Outcome, u64)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt()
        .with_timer(SimulatedTime)
        .with_max_level(LEVEL)
        .with_ansi(false)
        .with_writer(writer)
        .finish();
    run_with(seed, log)
}

/// The log of a run that nobody reads. It asks for the same events as [`tell`]: what an event shows
/// may be read under a lock, which is a switch point, so that a run with fewer events is another
/// run.
struct Unwritten;

impl Subscriber for Unwritten {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= LEVEL
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LEVEL.into())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct SimulatedTime;

impl tracing_subscriber::fmt::time::FormatTime for SimulatedTime {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{:>12.6} {:<10}", now().as_secs_f64(), host_name())
    }
}

fn run_with(seed: u64, log: impl Subscriber + Send + Sync + 'static) -> (Outcome, u64) {
    let report = with_default(log, || simulation::run(Config::new(seed), world));
    let mut outcome = match report.result {
        Ok(outcome) => outcome,
        Err(failure) => Outcome {
            finding: Some(failure.to_string()),
            ..Outcome::default()
        },
    };
    outcome.simulated = report.simulated;
    outcome.switch_points = report.steps;
    (outcome, report.hash)
}

fn world() -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(finding) = play(&mut outcome) {
        outcome.finding = Some(finding);
    }
    outcome
}

fn play(outcome: &mut Outcome) -> Result<(), String> {
    let mut cluster = Cluster::drawn();
    cluster.start();
    let scene = Arc::new(Scene {
        bootstrap: cluster.bootstrap(),
        clock: Box::new(|| now().as_micros() as u64),
        is_over: AtomicBool::new(false),
        pause: Duration::from_millis(400),
    });
    on(&Host::new("admin"), {
        let scene = scene.clone();
        move || async move {
            // Not all brokers are registered yet.
            while scene.create_topics(REPLICAS).await.is_err() {
                ottla_sync::time::sleep(Duration::from_millis(100)).await;
            }
            let created = create_topic(&scene, movers::TARGET, PARTITIONS, &[]).await;
            created.expect("a topic is created");
        }
    })
    .join()
    .expect("it ends");
    let workers: Vec<_> = (0..WORKERS)
        .map(|process| {
            let scene = scene.clone();
            let seed = stream(&format!("client-{process}")).u64();
            on(&Host::new(&format!("client-{process}")), move || {
                workload::work(scene, process, seed)
            })
        })
        .collect();

    let mut groups = stream("groups");
    let mut movers = groups.one_in(2).then(|| Movers::start(&scene));
    let mut sharers = groups.one_in(3).then(|| Sharers::start(&scene));
    let owners = groups.one_in(2).then(|| Owners::start(&scene));
    let looks_at_locks = groups.one_in(3);
    let reassigner = groups.one_in(3).then(|| Reassigner::start(&scene));
    let unclean = groups.one_in(3).then(|| UncleanTopic::start(&scene));
    let story = Story::drawn();
    let has_plain_topic = groups.one_in(3) || story.needs_plain_topic();
    let uncommitted = has_plain_topic.then(|| Uncommitted::start(&scene));
    let administrators = Administrators::start(&cluster);
    let mut former = FormerLeaders::start(&cluster);

    let (mut checks, mut leaders) = (LogChecks::default(), QuorumLeaders::default());
    let mut faults = FaultInjector::new();
    let rounds = 4;
    for _ in 0..rounds {
        let mut look = |cluster: &Cluster| {
            former.observe(cluster);
            leaders.observe(cluster);
        };
        faults.run(&mut cluster, FAULTS / rounds, outcome, &mut look);
        checks.observe(&cluster);
        // Nothing that follows makes up for it.
        if let Some(finding) = checks.finding().or_else(|| leaders.finding()) {
            return Err(finding);
        }
        movers.iter_mut().for_each(Movers::disturb);
        sharers.iter_mut().for_each(Sharers::disturb);
    }
    faults.heal(&mut cluster);
    outcome.moves += reassigner.map_or(0, Reassigner::settle);
    outcome.stories += u64::from(story.play(&mut cluster, &mut leaders)?);
    outcome.late_requests += former.settle()?;
    outcome.changes += administrators.settle(&cluster)?;
    sleep(Duration::from_secs(2));
    scene.is_over.store(true, Ordering::Relaxed);

    let mut history: Vec<Operation> = Vec::new();
    for (process, worker) in workers.into_iter().enumerate() {
        let (operations, fault) = worker.join().expect("it ends");
        history.extend(operations);
        if let Some(fault) = fault {
            return Err(format!("process {process}: {fault}"));
        }
    }
    let reading = scene.clone();
    let read = on(&Host::new("reader"), move || async move {
        workload::read_all(&reading, WORKERS).await
    });
    let (operations, faults) = read
        .join()
        .expect("it ends")
        .map_err(|error| format!("the reader: {error:#}"))?;
    history.extend(operations.iter().cloned());
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    if let Some(uncommitted) = uncommitted {
        outcome.read_uncommitted += uncommitted.settle()?;
    }
    if let Some(unclean) = unclean {
        (outcome.acknowledged_uncleanly, outcome.lost_uncleanly) = unclean.settle()?;
    }
    if let Some(movers) = movers {
        outcome.client_kills += movers.kills;
        outcome.moved = movers.settle(&values_in(movers::SOURCE, &operations))?;
    }
    if let Some(sharers) = sharers {
        outcome.client_kills += sharers.kills;
        outcome.shared = sharers.settle(&places_in(sharers::SOURCE, &operations))?;
    }
    if let Some(owners) = owners {
        let ownership = owners.settle()?;
        outcome.given += ownership.given;
        outcome.commits += ownership.commits;
        outcome.refused_commits += ownership.refused_commits;
    }
    if looks_at_locks {
        let expected = places_in(sharers::SOURCE, &operations);
        outcome.locked = lockers::run(&scene, &mut cluster, &expected)?;
    }
    checks.converge(&cluster)?;
    leaders.observe(&cluster);
    if let Some(finding) = checks.finding().or_else(|| leaders.finding()) {
        return Err(finding);
    }
    check_history(&history, outcome)?;
    for node in &mut cluster.nodes {
        if node.is_broker {
            node.stop();
        }
    }
    for node in &mut cluster.nodes {
        node.stop();
    }
    outcome.leaks = cluster.nodes.iter().map(Node::brokers_in_memory).sum();
    checks.observe(&cluster);
    checks.count(&cluster, outcome);
    checks.finding().map_or(Ok(()), Err)
}

/// The records that the reader has received from a topic.
fn read_of<'a>(topic: &'a str, read: &'a [Operation]) -> impl Iterator<Item = (i32, Seen)> + 'a {
    let steps = read.iter().flat_map(|operation| &operation.steps);
    let records = steps.flat_map(|step| match step {
        Step::Polled { records, .. } => records.as_slice(),
        _ => &[],
    });
    let partition =
        move |seen: &Seen| (0..PARTITIONS).find(|at| Scene::log(topic, *at) == seen.log);
    records.filter_map(move |seen| Some((partition(seen)?, *seen)))
}

fn values_in(topic: &str, read: &[Operation]) -> BTreeSet<Value> {
    read_of(topic, read).map(|(_, seen)| seen.value).collect()
}

fn places_in(topic: &str, read: &[Operation]) -> BTreeSet<(i32, i64)> {
    let places = read_of(topic, read);
    places
        .map(|(partition, seen)| (partition, seen.offset))
        .collect()
}

fn check_history(history: &[Operation], outcome: &mut Outcome) -> Result<(), String> {
    for operation in history {
        for step in &operation.steps {
            match step {
                Step::Sent { .. } => outcome.sent += 1,
                Step::Polled { records, .. } => outcome.polled += records.len() as u64,
                Step::Sought { .. } => {}
            }
        }
        let is_committed = operation.outcome == client_histories::Outcome::Committed;
        if is_committed && operation.commit_asked_at.is_some() {
            outcome.committed_transactions += 1;
        }
    }
    for operation in history {
        tracing::debug!("{operation:?}");
    }
    let findings = client_histories::check(history);
    let mut wrong = findings
        .iter()
        .filter(|(kind, _)| kind.is_promised_absent());
    match wrong.next() {
        Some((kind, sentences)) => Err(format!("{kind}: {}", sentences[0])),
        None => Ok(()),
    }
}
