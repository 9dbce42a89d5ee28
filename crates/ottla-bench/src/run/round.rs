//! One round: producers and consumers on one topic, from the warm-up to the last record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::runtime::Handle;

use super::clients::{BenchConsumer, BenchProducer};
use super::consuming::{Until, consume, partitions_of};
use super::death::Death;
use super::producing::{RoundLoad, produce};
use super::sampling::{Sampler, Used};
use super::watch::{ProducerWatch, Watch, Window};
use super::{Interruption, Progress, one_at_a_time};
use crate::load::process_usage::ProcessUsage;
use crate::results::curve::add_figures;
use crate::results::{Figures, MarkKind, Round};
use crate::scenario::{Load, PointSpec};
use crate::target::{Metrics, RunningTarget};
use crate::workload::latencies::Latencies;
use crate::workload::pacing::RunClock;

/// How long replicas may take to have what their leader has, once nothing is written any more.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// The topic of a round.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    /// Made by the run, which deletes it.
    pub is_ours: bool,
}

/// What a round needs.
pub struct Context<'a> {
    pub spec: &'a PointSpec,
    pub target: &'a RunningTarget,
    pub topic: &'a Topic,
    pub interruption: &'a Interruption,
    pub progress: &'a Progress,
    /// What the progress line calls it.
    pub title: String,
}

/// What came of a round.
#[derive(Default)]
pub struct RoundOutcome {
    pub round: Round,
    pub distributions: Distributions,
    pub notes: Vec<String>,
}

/// The latencies of a round, or of all rounds of a point.
#[derive(Clone, Default)]
pub struct Distributions {
    pub ack: Latencies,
    pub ack_from_send: Latencies,
    pub e2e: Latencies,
    pub e2e_from_send: Latencies,
    /// From when records were due to when they were sent.
    pub send_delay: Latencies,
}

impl Distributions {
    pub fn named(&self) -> [(&'static str, &Latencies); 5] {
        [
            ("ack", &self.ack),
            ("ack_from_send", &self.ack_from_send),
            ("e2e", &self.e2e),
            ("e2e_from_send", &self.e2e_from_send),
            ("send_delay", &self.send_delay),
        ]
    }

    pub fn add(&mut self, other: &Distributions) {
        self.ack.add(&other.ack);
        self.ack_from_send.add(&other.ack_from_send);
        self.e2e.add(&other.e2e);
        self.e2e_from_send.add(&other.e2e_from_send);
        self.send_delay.add(&other.send_delay);
    }

    pub fn figures(&self, figures: &mut Figures) {
        for (name, latencies) in self.named() {
            // The delay is in the latencies from due; by itself only its curve is kept.
            if name != "send_delay" {
                add_figures(latencies, name, figures);
            }
        }
    }
}

/// Writes the records that consumers are to read, unmeasured.
pub async fn fill(context: &Context<'_>) -> Result<Vec<String>> {
    let mut spec = context.spec.clone();
    spec.producers.count = 1;
    spec.consumers.count = 0;
    spec.measure.time = None;
    spec.measure.warm_up = Duration::ZERO;
    spec.measure.end_to_end = false;
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

/// Runs a round as its point says.
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

/// The clients of a round, connected, each with what watches it.
struct Clients {
    producers: Vec<(BenchProducer, Arc<ProducerWatch>)>,
    consumers: Vec<(BenchConsumer, Arc<Watch>)>,
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
        if per_group > spec.topic.partitions {
            bail!(
                "{per_group} consumers cannot share {} partitions; give fewer consumers or more partitions",
                spec.topic.partitions
            );
        }
        for number in 0..consumers.count {
            let partitions = partitions_of(number % per_group, per_group, spec.topic.partitions);
            let consumer =
                BenchConsumer::start(cluster, &consumers.settings, topic, &partitions).await?;
            let watch = Arc::new(Watch::new(window, has_schedule));
            clients.consumers.push((consumer, watch));
        }
        Ok(clients)
    }

    /// Everything that is reported from now on is by this clock.
    fn begin(&self, clock: RunClock) {
        for (_, watch) in &self.producers {
            watch.watch.begin(clock);
        }
        for (_, watch) in &self.consumers {
            watch.begin(clock);
        }
    }
}

/// Lets the clients go, looks at them while they work, and counts when they are done.
async fn drive(
    context: &Context<'_>,
    clients: Clients,
    load: Arc<RoundLoad>,
    clock: RunClock,
) -> Result<RoundOutcome> {
    let spec = context.spec;
    let produce_watches: Vec<_> = clients.producers.iter().map(|it| it.1.clone()).collect();
    let consume_watches: Vec<_> = clients.consumers.iter().map(|it| it.1.clone()).collect();
    let until = Arc::new(Until {
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
    for (number, (consumer, watch)) in clients.consumers.into_iter().enumerate() {
        let (until, interruption) = (until.clone(), context.interruption.clone());
        let first = number / per_group * per_group;
        let group = consume_watches[first..first + per_group].to_vec();
        let runtime = runtime.clone();
        consuming.push(tokio::task::spawn_blocking(move || {
            let read = move || group.iter().map(|it| it.records()).sum();
            consume(consumer, &watch, &read, &until, &runtime, &interruption)
        }));
    }
    let mut outcome = Ok(());
    let mut death = Death::planned(context, load.window);
    while producing.iter().any(|it| !it.is_finished()) {
        sampler.wait_and_look().await;
        match death.happen(context, clock).await {
            Ok(Some(words)) => sampler.mark_now(MarkKind::LeaderDeath, words),
            Ok(None) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
        if consuming.iter().any(|it| it.is_finished()) && !context.interruption.is_set() {
            // A consumer ends before the producers only if it has failed.
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
    while consuming.iter().any(|it| !it.is_finished()) {
        sampler.wait_and_look().await;
    }
    for consumer in consuming {
        outcome = outcome.and(consumer.await?.context("consuming"));
    }
    sampler.finish();
    death.undo(context).await?;
    outcome?;
    let mut counted = Counted {
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

/// What is made of the watches when all is done.
struct Counted<'a> {
    context: &'a Context<'a>,
    load: &'a RoundLoad,
    producers: &'a [Arc<ProducerWatch>],
    consumers: &'a [Arc<Watch>],
    /// When the last producer was done.
    ended: u64,
    outcome: RoundOutcome,
}

impl Counted<'_> {
    fn put(&mut self, name: &str, value: f64) {
        self.outcome.round.figures.insert(name.to_owned(), value);
    }

    fn count_produced(&mut self) {
        if self.producers.is_empty() {
            return;
        }
        let sum = |count: &dyn Fn(&Watch) -> u64| -> u64 {
            self.producers.iter().map(|it| count(&it.watch)).sum()
        };
        let last = self
            .producers
            .iter()
            .map(|it| it.watch.last())
            .max()
            .unwrap_or(0);
        let window = self.load.window;
        let is_open = !matches!(self.load.load, Load::Closed);
        // Whoever sends as fast as possible always has records under way, so that what arrives between two instants is
        // the rate. A load with an end of its own is over when its last record has arrived.
        let ran_out_of_time = window.end != u64::MAX && self.ended >= window.end;
        let (records, nanoseconds) = match ran_out_of_time && !is_open {
            true => {
                let (records, _) = sum_in_window(self.producers.iter().map(|it| &it.watch));
                (records, window.end - window.start)
            }
            false => {
                let last_due = self.load.last_due.load(Ordering::Relaxed);
                let end = if is_open { last.max(last_due) } else { last };
                (sum(&Watch::measured), end.saturating_sub(window.start))
            }
        };
        let seconds = nanoseconds as f64 / 1e9;
        let failed = sum(&Watch::failed);
        let given_up = self.load.given_up.load(Ordering::Relaxed);
        if seconds > 0.0 {
            let rate = records as f64 / seconds;
            let mean = self.context.spec.records.size.mean();
            self.put("produce.records_per_second", rate);
            self.put("produce.mb_per_second", rate * mean / 1_048_576.0);
        }
        self.put("produce.failed", failed as f64);
        self.put("produce.seconds", seconds);
        if is_open {
            let last_due = self.load.last_due.load(Ordering::Relaxed);
            let behind = last.saturating_sub(last_due);
            self.put("delay_ms", behind as f64 / 1e6);
        }
        if failed > 0 {
            let first = self.producers.iter().find_map(|it| it.watch.first_error());
            let note = format!(
                "{failed} records were not written: {}",
                first.unwrap_or("?")
            );
            self.outcome.notes.push(note);
        }
        if given_up > 0 {
            self.outcome.notes.push(
                "the producers fell so far behind the rate that the round was ended; what was due by then and never \
                 sent is missing in the latencies, which were higher"
                    .to_owned(),
            );
        }
        for watch in self.producers {
            let distributions = &mut self.outcome.distributions;
            watch
                .watch
                .add_to(&mut distributions.ack, &mut distributions.ack_from_send);
            watch.watch.add_send_delay_to(&mut distributions.send_delay);
        }
    }

    fn count_consumed(&mut self) {
        if self.consumers.is_empty() {
            return;
        }
        let window = self.load.window;
        let in_window = window.end != u64::MAX && !self.producers.is_empty();
        let (records, bytes, nanoseconds) = match in_window && self.load.load == Load::Closed {
            true => {
                let (records, bytes) = sum_in_window(self.consumers.iter().map(AsRef::as_ref));
                (records, bytes, window.end - window.start)
            }
            false => {
                let records = self.consumers.iter().map(|it| it.records()).sum();
                let bytes = self.consumers.iter().map(|it| it.bytes()).sum();
                let last = self.consumers.iter().map(|it| it.last()).max();
                (records, bytes, last.unwrap_or(0))
            }
        };
        let seconds = nanoseconds as f64 / 1e9;
        if seconds > 0.0 {
            self.put("consume.records_per_second", records as f64 / seconds);
            let megabytes = bytes as f64 / 1_048_576.0;
            self.put("consume.mb_per_second", megabytes / seconds);
        }
        for watch in self.consumers {
            let distributions = &mut self.outcome.distributions;
            watch.add_to(&mut distributions.e2e, &mut distributions.e2e_from_send);
        }
    }

    /// Records that were acknowledged and are not there: at least as many as a partition has acknowledged more than it
    /// holds. A producer that is not idempotent may have written others twice, which hides as many.
    async fn count_lost(&mut self) -> Result<()> {
        let topic = self.context.topic;
        if !topic.is_ours {
            return Ok(());
        }
        let mut acknowledged = BTreeMap::new();
        for watch in self.producers {
            watch.add_acknowledged_to(&mut acknowledged);
        }
        let cluster = &self.context.target.cluster;
        let partitions = self.context.spec.topic.partitions;
        let began = Instant::now();
        let lost = loop {
            let held = cluster.record_counts(&topic.name, partitions).await?;
            let lost = acknowledged.iter().map(|(partition, records)| {
                let held = held.get(partition).copied().unwrap_or(0);
                records.saturating_sub(held)
            });
            let lost: u64 = lost.sum();
            // A new leader shows records when the other replicas have them too.
            if lost == 0 || began.elapsed() > CATCHING_UP {
                break lost;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        self.put("produce.lost", lost as f64);
        Ok(())
    }

    /// What the topic takes on the disks, against the values in it.
    async fn count_stored(&mut self) {
        let spec = self.context.spec;
        let values = match self.producers.is_empty() {
            false => self.producers.iter().map(|it| it.watch.bytes()).sum(),
            // What the topic was filled with.
            true => (spec.records.count.unwrap_or(0) as f64 * spec.records.size.mean()) as u64,
        };
        let cluster = &self.context.target.cluster;
        if values == 0 || !self.context.topic.is_ours {
            return;
        }
        // Not every cluster says; then the two figures are missing.
        if let Ok(stored) = cluster.stored_bytes(&self.context.topic.name).await
            && stored > 0
        {
            let ratio = values as f64 / stored as f64;
            let rate = |name: &str| self.outcome.round.figures.get(name).copied();
            let (produced, consumed) =
                (rate("produce.mb_per_second"), rate("consume.mb_per_second"));
            self.put("produce.compression_ratio", ratio);
            if let Some(produced) = produced {
                self.put("produce.stored_mb_per_second", produced / ratio);
            }
            if let Some(consumed) = consumed {
                self.put("consume.stored_mb_per_second", consumed / ratio);
            }
        }
    }

    /// Of values that were written and read in the whole round, warm-up included.
    fn moved_bytes(&self) -> u64 {
        let produced: u64 = self.producers.iter().map(|it| it.watch.bytes()).sum();
        let consumed: u64 = self.consumers.iter().map(|it| it.bytes()).sum();
        produced + consumed
    }

    /// A remote cluster's brokers by their own metrics, over the whole round.
    fn count_metrics(&mut self, before: &Metrics, after: &Metrics) {
        let since = after.since(before);
        let gigabytes = self.moved_bytes() as f64 / 1_073_741_824.0;
        if let Some(seconds) = since
            .get("process_cpu_seconds_total")
            .filter(|_| gigabytes > 0.0)
        {
            self.put("broker.cpu_seconds_per_gb", seconds / gigabytes);
        }
        if let Some(bytes) = after.get("process_resident_memory_bytes") {
            self.put("broker.peak_memory_mb", bytes / 1_048_576.0);
        }
        self.outcome.round.metrics = since;
    }

    fn count_resources(&mut self, sampler: &Sampler, own_before: &ProcessUsage) -> Result<()> {
        let moved = self.moved_bytes();
        let gigabytes = moved as f64 / 1_073_741_824.0;
        if moved == 0 {
            return Ok(());
        }
        let own = ProcessUsage::of_this_process()?;
        let own_seconds = own.cpu.saturating_sub(own_before.cpu).as_secs_f64();
        self.put("generator.cpu_seconds_per_gb", own_seconds / gigabytes);
        let Some(Used {
            before,
            after,
            bytes_before,
        }) = sampler.usage()
        else {
            return Ok(());
        };
        // Brokers are looked at from the end of the warm-up on, and what they moved before does not count either.
        let gigabytes = moved.saturating_sub(bytes_before) as f64 / 1_073_741_824.0;
        if gigabytes <= 0.0 {
            return Ok(());
        }
        let seconds = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let since = |of: fn(&ProcessUsage) -> u64| of(&after).saturating_sub(of(&before)) as f64;
        let megabytes = |bytes: f64| bytes / 1_048_576.0;
        let figures = [
            ("broker.cpu_seconds_per_gb", seconds / gigabytes),
            (
                "broker.peak_memory_mb",
                megabytes(after.peak_resident_bytes as f64),
            ),
            (
                "broker.disk_written_mb",
                megabytes(since(|it| it.disk_written_bytes)),
            ),
            (
                "broker.disk_read_mb",
                megabytes(since(|it| it.disk_read_bytes)),
            ),
            ("broker.major_page_faults", since(|it| it.major_page_faults)),
            ("broker.minor_page_faults", since(|it| it.minor_page_faults)),
            (
                "broker.voluntary_switches",
                since(|it| it.voluntary_switches),
            ),
            (
                "broker.involuntary_switches",
                since(|it| it.involuntary_switches),
            ),
        ];
        for (name, value) in figures {
            self.put(name, value);
        }
        Ok(())
    }
}

fn sum_in_window<'a>(watches: impl Iterator<Item = &'a Watch>) -> (u64, u64) {
    watches
        .map(Watch::in_window)
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}
