//! One round: producers and consumers on one topic, from the warm-up to the last record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::runtime::Handle;

use super::clients::{BenchConsumer, BenchProducer, Subscription};
use super::consuming::{StopCondition, consume, partitions_of};
use super::context::{Context, RoundOutcome};
use super::counting::FinishedRound;
use super::death::Death;
use super::one_at_a_time;
use super::producing::{RoundLoad, produce};
use super::rebalance::{ExtraConsumer, Rebalance};
use super::sampling::Sampler;
use super::watch::{ProducerWatch, Watch, Window};
use crate::load::process_usage::ProcessUsage;
use crate::results::MarkKind;
use crate::scenario::Load;
use crate::workload::pacing::RunClock;

/// Writes the records that consumers will read; not measured.
pub async fn fill(context: &Context<'_>) -> Result<Vec<String>> {
    let mut spec = context.spec.clone();
    spec.producers.count = 1;
    spec.consumers.count = 0;
    spec.measure.time = None;
    spec.measure.warm_up = Duration::ZERO;
    spec.measure.end_to_end = false;
    // Readers expect exactly as many records as were written. With acks=1, a change of leaders
    // could lose some.
    let settings = &mut spec.producers.settings;
    settings.insert("acks".to_owned(), "all".to_owned());
    let filling = Context {
        spec: &spec,
        title: context.title.clone(),
        ..*context
    };
    let outcome = run(&filling).await?;
    let failed = outcome.round.figures.get("produce.failed").copied();
    if failed.is_some_and(|failed| failed > 0.0) {
        bail!(
            "the records that are to be read could not be written: {:?}",
            outcome.notes
        );
    }
    Ok(outcome.notes)
}

/// Runs a round as specified by its point.
pub async fn run(context: &Context<'_>) -> Result<RoundOutcome> {
    if context.spec.load == Load::OneAtATime {
        return one_at_a_time::run(context).await;
    }
    let spec = context.spec;
    let has_producers = spec.producers.count > 0;
    let warm_up = if has_producers {
        spec.measure.warm_up
    } else {
        Duration::ZERO
    };
    let start = warm_up.as_nanos() as u64;
    let window = Window {
        start,
        end: match spec.measure.time {
            Some(time) => start + time.as_nanos() as u64,
            None => u64::MAX,
        },
    };
    let load = Arc::new(RoundLoad::new(spec, spec.load.clone(), window));
    let clients = Clients::connect(context, window).await?;
    let clock = RunClock::start();
    clients.begin(clock);
    drive(context, clients, load, clock).await
}

/// The connected clients of a round, with their watches.
struct Clients {
    producers: Vec<(BenchProducer, Arc<ProducerWatch>)>,
    consumers: Vec<(BenchConsumer, Arc<Watch>)>,
    /// Group IDs, if the consumers are group members.
    groups: Vec<String>,
    /// Watches of the consumers that join the groups later.
    joining: Vec<Arc<Watch>>,
    notes: Vec<String>,
}

impl Clients {
    async fn connect(context: &Context<'_>, window: Window) -> Result<Clients> {
        let spec = context.spec;
        let cluster = &context.target.cluster;
        let topic = &context.topic.name;
        let has_schedule = matches!(spec.load, Load::Rate { .. } | Load::Ramp { .. });
        let mut clients = Clients {
            producers: Vec::new(),
            consumers: Vec::new(),
            groups: Vec::new(),
            joining: Vec::new(),
            notes: Vec::new(),
        };
        for number in 0..spec.producers.count {
            let watch = Arc::new(ProducerWatch::new(
                Watch::new(window, has_schedule),
                spec.records.size.mean(),
            ));
            let settings = &spec.producers.settings;
            let producer =
                BenchProducer::start(cluster, settings, topic, number, watch.clone()).await?;
            clients.producers.push((producer, watch));
        }
        let consumers = &spec.consumers;
        let per_group = consumers.per_group();
        let joins = spec.measure.rebalance.is_some();
        if per_group + u32::from(joins) > spec.topic.partitions {
            bail!(
                "{per_group} consumers{} cannot share {} partitions; give fewer consumers or more partitions",
                if joins {
                    " and one that joins later"
                } else {
                    ""
                },
                spec.topic.partitions
            );
        }
        if consumers.subscribe {
            clients.groups = new_group_ids(consumers.groups);
        }
        let new_watch = || Arc::new(Watch::new(window, has_schedule));
        for number in 0..consumers.count {
            let partitions = partitions_of(number % per_group, per_group, spec.topic.partitions);
            let subscription = match clients.groups.get((number / per_group) as usize) {
                Some(group) => Subscription::Group(group),
                None => Subscription::Partitions(&partitions),
            };
            let consumer =
                BenchConsumer::start(cluster, &consumers.settings, topic, subscription).await?;
            clients.consumers.push((consumer, new_watch()));
        }
        if joins {
            clients.joining = clients.groups.iter().map(|_| new_watch()).collect();
        }
        Ok(clients)
    }

    /// From now on watches use this clock.
    fn begin(&self, clock: RunClock) {
        for (_, watch) in &self.producers {
            watch.watch.begin(clock);
        }
        for watch in self.consumer_watches() {
            watch.begin(clock);
        }
    }

    /// Includes the consumers that join later, at the end.
    fn consumer_watches(&self) -> impl Iterator<Item = &Arc<Watch>> {
        let from_the_start = self.consumers.iter().map(|it| &it.1);
        from_the_start.chain(&self.joining)
    }
}

/// New group IDs, without committed offsets.
fn new_group_ids(count: u32) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = |group| format!("ottla-bench-{}-{number}-{group}", std::process::id());
    (1..=count).map(id).collect()
}

/// Starts the clients, samples them while they work, and computes figures when they are done.
async fn drive(
    context: &Context<'_>,
    clients: Clients,
    load: Arc<RoundLoad>,
    clock: RunClock,
) -> Result<RoundOutcome> {
    let spec = context.spec;
    let produce_watches: Vec<_> = clients.producers.iter().map(|it| it.1.clone()).collect();
    let consume_watches: Vec<_> = clients.consumer_watches().cloned().collect();
    let until = Arc::new(StopCondition {
        records: match spec.producers.count {
            0 => spec.records.count.unwrap_or(u64::MAX),
            _ => u64::MAX,
        },
        written: std::sync::OnceLock::new(),
        is_stamped: spec.measure.end_to_end,
        is_over: std::sync::atomic::AtomicBool::new(false),
    });
    let metrics_before = context.target.metrics().await?;
    let own_before = ProcessUsage::of_this_process()?;
    let mut sampler = Sampler::new(
        context,
        clock,
        load.window,
        produce_watches.clone(),
        consume_watches.clone(),
    );
    let mut producing = Vec::new();
    for (number, (producer, watch)) in clients.producers.into_iter().enumerate() {
        let (load, interruption) = (load.clone(), context.interruption.clone());
        producing.push(tokio::task::spawn_blocking(move || {
            produce(
                &producer,
                &load,
                &watch,
                number as u64,
                clock,
                &interruption,
            )
        }));
    }
    let mut consuming = Vec::new();
    let runtime = Handle::current();
    let per_group = spec.consumers.per_group() as usize;
    let joining = clients.joining;
    let read_by_group = |group: usize| {
        let first = group * per_group;
        let mut watches = consume_watches[first..first + per_group].to_vec();
        watches.extend(joining.get(group).cloned());
        move || watches.iter().map(|it| it.records()).sum()
    };
    for (number, (consumer, watch)) in clients.consumers.into_iter().enumerate() {
        let (until, interruption) = (until.clone(), context.interruption.clone());
        let read = read_by_group(number / per_group);
        let runtime = runtime.clone();
        consuming.push(tokio::task::spawn_blocking(move || {
            consume(
                consumer,
                &watch,
                &read,
                &until,
                None,
                &runtime,
                &interruption,
            )
        }));
    }
    let rebalance = Rebalance::planned(spec.measure.rebalance, load.window);
    let mut joined = Vec::new();
    for (group, watch) in joining.iter().cloned().enumerate() {
        let Some(rebalance) = rebalance else { break };
        let (until, interruption) = (until.clone(), context.interruption.clone());
        let read = read_by_group(group);
        let runtime = runtime.clone();
        let member = ExtraConsumer {
            rebalance,
            cluster: context.target.cluster.clone(),
            settings: spec.consumers.settings.clone(),
            topic: context.topic.name.clone(),
            group: clients.groups[group].clone(),
        };
        joined.push(tokio::task::spawn_blocking(move || {
            member.run(&watch, &read, &until, &runtime, &interruption)
        }));
    }
    let mut outcome = Ok(());
    let mut looked = clock.now();
    let mut death = Death::planned(context, load.window);
    while producing.iter().any(|it| !it.is_finished()) {
        sampler.wait_and_look().await;
        match death.happen(context, clock).await {
            Ok(Some(words)) => sampler.mark_now(MarkKind::LeaderDeath, words),
            Ok(None) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
        let now = clock.now();
        if let Some(words) = rebalance.and_then(|it| it.between(looked, now)) {
            sampler.mark_now(MarkKind::Rebalance, words.to_owned());
        }
        looked = now;
        if consuming.iter().any(|it| it.is_finished()) && !context.interruption.is_set() {
            // A consumer ends before the producers only if it failed.
            break;
        }
    }
    let producers_done = clock.now();
    for producer in producing {
        outcome = outcome.and(producer.await?.context("producing"));
    }
    let acknowledged: u64 = produce_watches.iter().map(|it| it.watch.records()).sum();
    if spec.producers.count > 0 {
        let _ = until.written.set(acknowledged);
    }
    if outcome.is_err() {
        until.is_over.store(true, Ordering::Release);
    }
    consuming.extend(joined);
    while consuming.iter().any(|it| !it.is_finished()) {
        sampler.wait_and_look().await;
    }
    for consumer in consuming {
        outcome = outcome.and(consumer.await?.context("consuming"));
    }
    let deleted = context.target.cluster.delete_groups(&clients.groups).await;
    outcome = outcome.and(deleted.context("deleting the groups of the consumers"));
    sampler.finish();
    death.undo(context).await?;
    outcome?;
    let mut counted = FinishedRound {
        context,
        load: &load,
        producers: &produce_watches,
        consumers: &consume_watches,
        ended: producers_done,
        outcome: RoundOutcome {
            notes: clients.notes,
            ..RoundOutcome::default()
        },
    };
    counted.count_produced();
    counted.count_consumed();
    counted.count_stored().await;
    if death.has_happened() {
        counted.count_lost().await?;
    }
    counted.count_resources(&sampler, &own_before)?;
    if let (Some(before), Some(after)) = (metrics_before, context.target.metrics().await?) {
        counted.count_metrics(&before, &after);
    }
    let mut outcome = counted.outcome;
    outcome.distributions.figures(&mut outcome.round.figures);
    sampler.into_round(&mut outcome.round);
    Ok(outcome)
}
