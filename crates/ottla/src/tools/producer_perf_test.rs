//! `producer-perf-test`: Kafka's `kafka-producer-perf-test.sh`, including the command lines of that
//! tool since 0.8.
//!
//! With a rate it is an open loop: latencies count from the time at which a record was due, even if
//! earlier records were delayed. Without one they count from the send call, as in Kafka's tool.

mod arguments;
mod stats;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Command};
use ottla_bench::drive::produce::{self, ProduceLoad, SendProgress};
use ottla_bench::workload::pacing::RunClock;
use ottla_bench::workload::values::{Content, ValueSizes, ValueSource};
use ottla_client::{Client, ClientConfig, ClientError, Producer, ProducerConfig};

use super::performance::{
    self, CONFIG_EXCEPTION, ILLEGAL_ARGUMENT, Trouble, beside, show_latency, write_histogram,
};
use super::{connection_watch, warn_of_unknown};
pub use arguments::ProducerPerfTestArgs;
use arguments::{Payload, Plan, Refusal};
use stats::Stats;

const SCRIPT: &str = "kafka-producer-perf-test";

pub fn run(args: ProducerPerfTestArgs, has_arguments: bool) -> ExitCode {
    if !has_arguments {
        let mut command = ProducerPerfTestArgs::augment_args(Command::new(SCRIPT));
        let _ = command.print_long_help();
        return ExitCode::SUCCESS;
    }
    match arguments::plan(&args) {
        Ok(plan) => performance::end(measure(&args, &plan)),
        Err(Refusal::Usage(text)) => {
            eprintln!("{SCRIPT}: error: {text}");
            ExitCode::FAILURE
        }
        Err(Refusal::Trouble(trouble)) => performance::end(Err(trouble)),
    }
}

fn measure(args: &ProducerPerfTestArgs, plan: &Plan) -> Result<(), Trouble> {
    performance::require_servers(&plan.settings)?;
    let refused = |error: ClientError| Trouble::Uncaught(CONFIG_EXCEPTION, error.to_string());
    let mut client_config = ClientConfig::default();
    let mut config = ProducerConfig::default();
    let unknown = [
        client_config.apply(&plan.settings).map_err(refused)?,
        config.apply(&plan.settings).map_err(refused)?,
    ];
    warn_of_unknown(&plan.settings, &unknown);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let values = prepare(plan)?;
    if plan.warmup_records > 0 {
        println!(
            "Warmup first {} records. Steady state results will print after the complete test summary.",
            plan.warmup_records
        );
    }
    let handed = Arc::new(SendProgress::new(plan.threads));
    let load = ProduceLoad {
        topic: plan.topic.clone(),
        records: plan.records,
        warmup_records: plan.warmup_records,
        threads: plan.threads,
        transaction_duration: plan.transaction_duration,
        records_per_second: plan.records_per_second,
        values,
        keys: plan.keys,
        seed: plan.seed,
    };
    let _inside = runtime.enter();
    let client = Client::unconnected(client_config);
    let who = format!("Producer clientId={}", client.config().client_id);
    let watch = connection_watch::watch(&client, &who);
    let clock = RunClock::start();
    let stats = Arc::new(Stats::new(
        clock,
        plan.reporting_interval,
        plan.warmup_records > 0,
        handed.clone(),
    ));
    let producer = Producer::builder(client, config)
        .listener(stats.clone())
        .start()
        .map_err(refused)?;
    if plan.transaction_duration.is_some() {
        runtime.block_on(producer.init_transactions())?;
    }
    let on_refused = |error: &ClientError| stats.on_failed(1, error);
    produce::run(
        &producer,
        runtime.handle(),
        &load,
        clock,
        &handed,
        &on_refused,
    )?;
    runtime.block_on(producer.close());
    drop(watch);
    stats.print_totals();
    if args.print_metrics {
        performance::print_metrics(producer.metrics());
    }
    say_more(args, plan, &stats)
}

/// Prepares the values of the records, before the clock starts.
fn prepare(plan: &Plan) -> Result<ValueSource, Trouble> {
    Ok(match &plan.payload {
        Payload::Random { content, sizes } => {
            ValueSource::random(*content, *sizes, plan.seed, plan.records)
        }
        Payload::Listed(values) if values.is_empty() => {
            return Err(Trouble::Uncaught(
                ILLEGAL_ARGUMENT,
                "No payload file, record size or payload-monotonic option provided.".into(),
            ));
        }
        Payload::Listed(values) => ValueSource::listed(values.clone()),
        Payload::Counted => ValueSource::Counted,
    })
}

/// Prints the results that Kafka's tool does not have.
fn say_more(args: &ProducerPerfTestArgs, plan: &Plan, stats: &Stats) -> Result<(), Trouble> {
    stats.show_failures();
    stats.with_latencies(|from_due, from_sent| -> Result<(), Trouble> {
        match plan.records_per_second {
            Some(rate) => {
                eprintln!("open loop at {rate} records/sec");
                show_latency("latency from when a record was due", from_due);
                show_latency("latency from when a record was sent", from_sent);
            }
            None => show_latency("latency from when a record was sent", from_sent),
        }
        if let Payload::Random { content, sizes } = plan.payload {
            eprintln!("values: {}", describe(content, sizes));
        }
        if let Some(path) = &args.histogram_out {
            write_histogram(path, from_due)?;
            if plan.records_per_second.is_some() {
                write_histogram(&beside(path, "sent"), from_sent)?;
            }
        }
        Ok(())
    })
}

fn describe(content: Content, sizes: ValueSizes) -> String {
    let of = match content {
        Content::Letters => "random capital letters".to_owned(),
        Content::Numbers { bound } => format!("random 32-bit numbers below {bound}"),
    };
    let size = match sizes.most - sizes.least {
        0 => format!("{} bytes", sizes.most),
        _ => format!("{} to {} bytes", sizes.least, sizes.most),
    };
    format!(
        "{size} of {of}, which no codec can compress to less than {:.1} %",
        content.floor() * 100.0
    )
}
