//! One record at a time, from producer to consumer: the next is sent when the previous one has been
//! consumed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::clients::{BenchConsumer, BenchProducer, Subscription};
use super::context::{Context, RoundOutcome};
use super::producing::values_of;
use super::progress;
use super::watch::{ProducerWatch, Watch, Window};
use crate::workload::pacing::{Moment, RunClock};
use crate::workload::stamp::{stamp, stamp_of};
use crate::workload::tag::tag;

/// Timeout of a record.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn run(context: &Context<'_>) -> Result<RoundOutcome> {
    let spec = context.spec;
    let cluster = &context.target.cluster;
    let window = Window {
        start: spec.measure.warm_up.as_nanos() as u64,
        end: u64::MAX,
    };
    let watch = Arc::new(ProducerWatch::new(
        Watch::new(window, false),
        spec.records.size.mean(),
    ));
    let topic = &context.topic.name;
    let settings = &spec.producers.settings;
    let producer = BenchProducer::start(cluster, settings, topic, 0, watch.clone()).await?;
    let partitions: Vec<i32> = (0..spec.topic.partitions as i32).collect();
    let settings = &spec.consumers.settings;
    let mut consumer = BenchConsumer::start(
        cluster,
        settings,
        topic,
        Subscription::Partitions(&partitions),
    )
    .await?;
    // The consumer resolves its positions before the clock starts.
    consumer.poll(Duration::from_millis(200), |_| {}).await?;
    settle(context, &mut consumer).await?;

    let mut outcome = RoundOutcome::default();
    let mut values = values_of(spec).values(1, 0);
    let clock = RunClock::start();
    watch.watch.begin(clock);
    let (mut value, mut shown) = (Vec::new(), Instant::now());
    let mut record = 0;
    loop {
        let now = clock.now();
        let is_measured = now >= window.start;
        let is_done = spec.records.count.is_some_and(|count| record >= count)
            || spec
                .measure
                .time
                .is_some_and(|time| now >= window.start + time.as_nanos() as u64);
        if is_done || context.interruption.is_set() {
            break;
        }
        let moment = Moment {
            due: now,
            sent: now,
        };
        value.clear();
        value.extend_from_slice(values.next(record));
        stamp(&mut value, moment, is_measured);
        tokio::task::block_in_place(|| producer.send(&value, tag(moment, is_measured)))?;
        let began = Instant::now();
        let mut has_come = false;
        while !has_come {
            let poll = consumer.poll(Duration::from_millis(100), |value| {
                has_come |= stamp_of(value).is_some_and(|(found, _)| found.sent == moment.sent);
            });
            poll.await?;
            if !has_come {
                check(&watch, began)?;
            }
        }
        if is_measured {
            outcome
                .distributions
                .e2e
                .record_ns(clock.now() - moment.sent);
            record += 1;
        }
        if shown.elapsed() > Duration::from_millis(250) {
            shown = Instant::now();
            let e2e = &outcome.distributions.e2e;
            let elapsed = clock.now() as f64 / 1e9;
            let left = spec.records.count.map(|count| {
                Duration::from_secs_f64(elapsed / (record.max(1)) as f64 * (count - record) as f64)
            });
            let moment = progress::Moment {
                records_per_second: e2e.count() as f64 / elapsed,
                p99_ms: Some(crate::results::curve::quantile_ms(e2e, 0.99)),
                left,
            };
            context.progress.show(&context.title, moment);
        }
    }
    tokio::task::block_in_place(|| producer.close(Duration::from_secs(5)));
    let distributions = &mut outcome.distributions;
    watch
        .watch
        .add_to(&mut distributions.ack, &mut distributions.ack_from_send);
    let seconds = (clock.now().saturating_sub(window.start)) as f64 / 1e9;
    let figures = &mut outcome.round.figures;
    figures.insert("consume.records_per_second".into(), record as f64 / seconds);
    outcome.distributions.figures(figures);
    Ok(outcome)
}

/// Sends a record to each partition and waits until all have been consumed. Consumers see records
/// only below the high watermark, and the followers of a new topic may take a second to start
/// fetching, which must not count as latency.
async fn settle(context: &Context<'_>, consumer: &mut BenchConsumer) -> Result<()> {
    let spec = context.spec;
    let cluster = &context.target.cluster;
    let unmeasured = Window {
        start: u64::MAX,
        end: u64::MAX,
    };
    let watch = Arc::new(ProducerWatch::new(Watch::new(unmeasured, false), 0.0));
    watch.watch.begin(RunClock::start());
    let (settings, topic) = (&spec.producers.settings, &context.topic.name);
    let producer = BenchProducer::start(cluster, settings, topic, 1, watch.clone()).await?;
    let mut values = values_of(spec).values(2, 0);
    for partition in 0..spec.topic.partitions {
        let value = values.next(0);
        tokio::task::block_in_place(|| producer.send_to(Some(partition as i32), value, 0))?;
    }
    let began = Instant::now();
    let mut come = 0;
    while come < u64::from(spec.topic.partitions) && !context.interruption.is_set() {
        come += consumer.poll(Duration::from_millis(100), |_| {}).await?;
        check(&watch, began)?;
    }
    tokio::task::block_in_place(|| producer.close(Duration::from_secs(5)));
    Ok(())
}

/// Fails if the record was refused or has timed out.
fn check(watch: &ProducerWatch, began: Instant) -> Result<()> {
    let error = watch.watch.first_error();
    ensure!(
        error.is_none(),
        "a record was not written: {}",
        error.unwrap_or_default()
    );
    ensure!(
        began.elapsed() < PATIENCE,
        "a record was not consumed within {} s",
        PATIENCE.as_secs()
    );
    Ok(())
}
