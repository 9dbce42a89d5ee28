//! `ottla-load`: the command line of the load generator. One mode per subcommand; output as a table
//! or as JSON.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use ottla_bench::load::access::{Access, AccessArgs};
use ottla_bench::load::bare_loop::{self, BareLoopOptions};
use ottla_bench::load::cluster;
use ottla_bench::load::connect::{self, ConnectOptions};
use ottla_bench::load::connections::{self, ConnectionsArgs};
use ottla_bench::load::fetch::{self, FetchOptions};
use ottla_bench::load::groups::{self, GroupsOptions, Protocol};
use ottla_bench::load::heartbeats::{self, HeartbeatsOptions};
use ottla_bench::load::large_group::{self, LargeGroupOptions};
use ottla_bench::load::latency::{self, EndToEndOptions};
use ottla_bench::load::offsets;
use ottla_bench::load::partitions::{self, PartitionsArgs};
use ottla_bench::load::prepared::BatchShape;
use ottla_bench::load::process_usage::ProcessUsage;
use ottla_bench::load::produce::{self, ProduceOptions, Produced, RunLength, parse_acks};
use ottla_bench::load::report::Report;
use ottla_bench::load::rest_of_machine::RestOfMachine;
use ottla_bench::load::topic::Topic;
use ottla_records::{Compression, CompressionType};
use serde::Serialize;

/// Generates load on a broker that speaks Kafka's protocol, and measures the result.
#[derive(Parser)]
#[command(name = "ottla-load", version)]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Produce prepared batches as fast as they are acknowledged, or at a fixed rate.
    Produce(ProduceArgs),
    /// Read a topic from its start to its end with large fetches.
    Fetch(FetchArgs),
    /// Produce one record at a time and fetch it, like Kafka's EndToEndLatency.
    EndToEnd(EndToEndArgs),
    /// Produce small batches at a fixed rate and measure from the instant at which each was due.
    ProduceLatency(ProduceLatencyArgs),
    /// Make new connections, log in if the settings say so, and close them.
    Connect(ConnectArgs),
    /// Let the members of many groups join at once, and measure the time until all groups are
    /// stable.
    Groups(GroupsArgs),
    /// Let many groups join, then measure their heartbeats.
    Heartbeats(HeartbeatsArgs),
    /// Let one group of many members join, then let members leave while producers write to another
    /// topic.
    LargeGroup(LargeGroupArgs),
    /// Commit an offset in each partition of the topic for each of many groups.
    CommitOffsets(OffsetsArgs),
    /// Read these offsets, and wait for offsets that are still being loaded.
    FetchOffsets(OffsetsArgs),
    /// Create very many partitions, write a record to each, or read each.
    Partitions(PartitionsArgs),
    /// Open very many connections and use them in turn.
    Connections(ConnectionsArgs),
    /// Receive, checksum and append without a broker: the floor of this machine for produce.
    BareLoop(BareLoopArgs),
    /// The process that `bare-loop` measures.
    #[command(hide = true)]
    BareLoopServer { dir: PathBuf, frame_bytes: usize },
}

#[derive(Args)]
struct BareLoopArgs {
    #[command(flatten)]
    options: BareLoopOptions,
    /// Directory of the files; they are unlinked at once, so nothing remains.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Print the report as one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Common {
    #[command(flatten)]
    access: AccessArgs,
    /// The topic; it is created if missing.
    #[arg(long, default_value = "ottla-load")]
    topic: String,
    /// A setting of the topic when it is created; repeatable.
    #[arg(long = "topic-config", value_name = "KEY=VALUE", value_parser = parse_setting)]
    topic_configs: Vec<(String, String)>,
    /// Process ID of the broker on this machine, to report its CPU time and memory.
    #[arg(long)]
    broker_pid: Option<u32>,
    /// Print the report as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Delete the topic at the end.
    #[arg(long)]
    delete_topic: bool,
}

#[derive(Args)]
struct ProduceArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Requests in flight per connection.
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    /// 0, 1 or all.
    #[arg(long, default_value = "1", value_parser = parse_acks)]
    acks: i16,
    /// Size of a batch before compression, with its header.
    #[arg(long, default_value_t = 64 * 1024)]
    batch_bytes: usize,
    /// Size of a record's value.
    #[arg(long, default_value_t = 100)]
    record_bytes: usize,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(long, default_value = "none", value_parser = parse_codec)]
    compression: CompressionType,
    /// Bytes of batches to send.
    #[arg(long, default_value_t = 1_000_000_000, conflicts_with = "seconds")]
    bytes: u64,
    /// Send for this long instead.
    #[arg(long)]
    seconds: Option<f64>,
    /// Send this many bytes first, without measuring them.
    #[arg(long, default_value_t = 0)]
    warmup_bytes: u64,
    /// An open loop at this many 10^6 bytes of batches per second, instead of as fast as possible.
    #[arg(long)]
    megabytes_per_second: Option<f64>,
    /// Write each request of the open loop to this file: when it was due, in µs since 1970, and its latency in µs.
    #[arg(long, value_name = "FILE", requires = "megabytes_per_second")]
    latencies: Option<PathBuf>,
    /// Also report the CPU time of the machine without this tool, until all files are on the disk.
    #[arg(long)]
    machine_cpu: bool,
}

#[derive(Args)]
struct FetchArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    options: FetchOptions,
    /// Read the topic again and again until the standard input ends.
    #[arg(long, conflicts_with = "passes")]
    until_input_ends: bool,
}

#[derive(Args)]
struct EndToEndArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    options: EndToEndOptions,
    /// Records that are sent first, without being measured.
    #[arg(long, default_value_t = 2_000)]
    warmup_records: u64,
}

#[derive(Args)]
struct ProduceLatencyArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Records per second over all connections.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
    /// Records in each batch; every batch is a request.
    #[arg(long, default_value_t = 10)]
    batch_records: usize,
    #[arg(long, default_value_t = 100)]
    record_bytes: usize,
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Duration of a warm-up at the same rate, which is not measured.
    #[arg(long, default_value_t = 3.0)]
    warmup_seconds: f64,
    /// 1 or all.
    #[arg(long, default_value = "1", value_parser = parse_acks)]
    acks: i16,
}

#[derive(Args)]
struct ConnectArgs {
    #[command(flatten)]
    common: Common,
    /// Threads. Each has one connection at a time.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Duration of a warm-up, which is not measured.
    #[arg(long, default_value_t = 3.0)]
    warmup_seconds: f64,
    /// Perform a full TLS handshake for each connection.
    #[arg(long)]
    no_resumption: bool,
}

#[derive(Args)]
struct GroupsArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 100)]
    groups: usize,
    /// Number of members, over all groups.
    #[arg(long, default_value_t = 1000)]
    members: usize,
    #[arg(long, default_value_t = 10)]
    partitions: i32,
    /// consumer or classic: Kafka's `group.protocol`.
    #[arg(long, default_value = "consumer", value_parser = parse_protocol)]
    protocol: Protocol,
}

#[derive(Args)]
struct HeartbeatsArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 10_000)]
    groups: usize,
    /// Members of each group.
    #[arg(long, default_value_t = 10)]
    members: usize,
    #[arg(long, default_value_t = 10)]
    partitions: i32,
    /// consumer or classic: Kafka's `group.protocol`.
    #[arg(long, default_value = "consumer", value_parser = parse_protocol)]
    protocol: Protocol,
    /// Connections that all members share.
    #[arg(long, default_value_t = 300)]
    connections: usize,
    /// Between two heartbeats of a member.
    #[arg(long, default_value_t = 3000)]
    interval_ms: u64,
    /// Duration of the measurement.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Between the last join and the measurement.
    #[arg(long, default_value_t = 6.0)]
    warmup_seconds: f64,
}

#[derive(Args)]
struct LargeGroupArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 10_000)]
    members: usize,
    #[arg(long, default_value_t = 10_000)]
    partitions: i32,
    /// Connections that the members share.
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// Between two heartbeats of a member.
    #[arg(long, default_value_t = 1000)]
    interval_ms: u64,
    /// Members that leave, one after the other.
    #[arg(long, default_value_t = 5)]
    leaves: usize,
    /// How long the producers run before and after a member leaves.
    #[arg(long, default_value_t = 5.0)]
    quiet_seconds: f64,
    /// The topic that the producers write to; it is created if missing.
    #[arg(long, default_value = "ottla-load-produced")]
    produced_topic: String,
    /// Records per second of the producers, in batches of 10 records of 100 bytes.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
}

#[derive(Args)]
struct OffsetsArgs {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 1000)]
    groups: usize,
    #[arg(long, default_value_t = 100)]
    partitions: i32,
}

fn main() {
    if let Err(error) = run(&Cli::parse().mode) {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}

fn run(mode: &Mode) -> Result<()> {
    let (common, report) = match mode {
        Mode::Produce(args) => (&args.common, produce(args)?),
        Mode::Fetch(args) => (&args.common, fetch(args)?),
        Mode::EndToEnd(args) => (&args.common, end_to_end(args)?),
        Mode::ProduceLatency(args) => (&args.common, produce_latency(args)?),
        Mode::Connect(args) => return connect(args),
        Mode::Groups(args) => return join_groups(args),
        Mode::Heartbeats(args) => return send_heartbeats(args),
        Mode::LargeGroup(args) => return leave_large_group(args),
        Mode::CommitOffsets(args) => return commit_offsets(args),
        Mode::FetchOffsets(args) => return fetch_offsets(args),
        Mode::Partitions(args) => return partitions::run(args),
        Mode::Connections(args) => return connections::run(args),
        Mode::BareLoop(args) => return bare_loop(args),
        Mode::BareLoopServer { dir, frame_bytes } => return bare_loop::serve(dir, *frame_bytes),
    };
    show(common.json, &report)?;
    if common.delete_topic {
        cluster::delete_topic(&common.access.access()?, &common.topic)?;
    }
    Ok(())
}

fn join_groups(args: &GroupsArgs) -> Result<()> {
    let common = &args.common;
    ensure!(
        args.groups > 0 && args.members.is_multiple_of(args.groups),
        "--members must be a multiple of --groups"
    );
    let topic = create_topic(common, args.partitions)?;
    let options = GroupsOptions {
        prefix: format!("{}-{}", common.topic, name_of(args.protocol)),
        groups: args.groups,
        members_of_each: args.members / args.groups,
        protocol: args.protocol,
        broker_pid: common.broker_pid,
    };
    let report = groups::run(&topic, &options)?;
    show(common.json, &report)
}

fn send_heartbeats(args: &HeartbeatsArgs) -> Result<()> {
    let common = &args.common;
    ensure!(
        args.groups > 0 && args.members > 0 && args.connections > 0 && args.interval_ms > 0,
        "--groups, --members, --connections and --interval-ms must be 1 or more"
    );
    let topic = create_topic(common, args.partitions)?;
    let options = HeartbeatsOptions {
        prefix: format!("{}-{}", common.topic, name_of(args.protocol)),
        groups: args.groups,
        members_of_each: args.members,
        protocol: args.protocol,
        connections: args.connections,
        interval: Duration::from_millis(args.interval_ms),
        warmup: Duration::from_secs_f64(args.warmup_seconds.max(0.0)),
        measured: positive_seconds(args.seconds)?,
        broker_pid: common.broker_pid,
    };
    show(common.json, &heartbeats::run(&topic, &options)?)
}

fn leave_large_group(args: &LargeGroupArgs) -> Result<()> {
    let common = &args.common;
    ensure!(
        args.connections > 0 && args.interval_ms > 0 && args.rate > 0.0,
        "--connections, --interval-ms and --rate must be more than 0"
    );
    let topic = create_topic(common, args.partitions)?;
    let produced = cluster::create_topic(&topic.access, &args.produced_topic, 6, &[])?;
    let options = LargeGroupOptions {
        group_id: format!("{}-group", common.topic),
        members: args.members,
        connections: args.connections,
        interval: Duration::from_millis(args.interval_ms),
        leaves: args.leaves,
        quiet: positive_seconds(args.quiet_seconds)?,
        produce: ProduceOptions::paced(10, 100, args.rate, 4, 1),
    };
    show(common.json, &large_group::run(&topic, &produced, &options)?)
}

fn show(json: bool, report: &(impl Serialize + Display)) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}

/// Kafka's name.
fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Classic => "classic",
        Protocol::Consumer => "consumer",
    }
}

fn commit_offsets(args: &OffsetsArgs) -> Result<()> {
    let common = &args.common;
    let topic = create_topic(common, args.partitions)?;
    let names = offsets::names(&common.topic, args.groups);
    let began = Instant::now();
    offsets::commit(&topic, &names)?;
    tell(common, "committed", began.elapsed());
    Ok(())
}

fn fetch_offsets(args: &OffsetsArgs) -> Result<()> {
    let common = &args.common;
    let names = offsets::names(&common.topic, args.groups);
    let access = common.access.access()?;
    let began = Instant::now();
    let count = offsets::fetch(&access, &names)?;
    let expected = args.groups as u64 * args.partitions as u64;
    ensure!(
        count == expected,
        "{count} offsets were found and not {expected}"
    );
    tell(common, &format!("{count} offsets"), began.elapsed());
    Ok(())
}

fn create_topic(common: &Common, partitions: i32) -> Result<Topic> {
    cluster::create_topic(
        &common.access.access()?,
        &common.topic,
        partitions,
        &common.topic_configs,
    )
}

fn connect(args: &ConnectArgs) -> Result<()> {
    let common = &args.common;
    let mut security = common.access.security()?;
    if args.no_resumption {
        security = security.without_resumption();
    }
    let access = Access::secured(&common.access.bootstrap, security);
    let options = ConnectOptions {
        threads: args.threads,
        time: positive_seconds(args.seconds)?,
    };
    let warmup = Duration::from_secs_f64(args.warmup_seconds.max(0.0));
    let report = connect::measure(&access, warmup, options, common.broker_pid)?;
    show(common.json, &report)
}

fn tell(common: &Common, what: &str, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    if common.json {
        println!("{{\"seconds\":{seconds}}}")
    } else {
        println!("{what}: {seconds:.3} s")
    }
}

fn bare_loop(args: &BareLoopArgs) -> Result<()> {
    show(args.json, &bare_loop::run(&args.dir, args.options)?)
}

fn produce(args: &ProduceArgs) -> Result<Report> {
    let shape = BatchShape {
        batch_bytes: args.batch_bytes,
        record_bytes: args.record_bytes,
        compression: Compression::from(args.compression),
    };
    let requests_per_second = args
        .megabytes_per_second
        .map(|rate| rate * 1e6 / args.batch_bytes as f64);
    let options = ProduceOptions {
        shape,
        connections: args.connections,
        in_flight: args.in_flight,
        acks: args.acks,
        until: match args.seconds {
            Some(seconds) => RunLength::Time(positive_seconds(seconds)?),
            None => RunLength::Bytes(args.bytes),
        },
        requests_per_second,
    };
    ensure!(options.in_flight > 0, "--in-flight must be 1 or more");
    let warmup = (args.warmup_bytes > 0).then_some(RunLength::Bytes(args.warmup_bytes));
    let latencies = args.latencies.as_deref();
    measured_produce(
        "produce",
        &args.common,
        args.partitions,
        options,
        warmup,
        latencies,
        args.machine_cpu,
    )
}

fn produce_latency(args: &ProduceLatencyArgs) -> Result<Report> {
    ensure!(args.batch_records > 0, "--batch-records must be 1 or more");
    ensure!(args.rate > 0.0, "--rate must be more than 0");
    let options = ProduceOptions {
        until: RunLength::Time(positive_seconds(args.seconds)?),
        ..ProduceOptions::paced(
            args.batch_records,
            args.record_bytes,
            args.rate,
            args.connections,
            args.acks,
        )
    };
    let warmup = Some(RunLength::Time(Duration::from_secs_f64(
        args.warmup_seconds.max(0.0),
    )));
    measured_produce(
        "produce-latency",
        &args.common,
        args.partitions,
        options,
        warmup,
        None,
        false,
    )
}

fn measured_produce(
    mode: &'static str,
    common: &Common,
    partitions: i32,
    options: ProduceOptions,
    warmup: Option<RunLength>,
    latencies: Option<&Path>,
    machine_cpu: bool,
) -> Result<Report> {
    ensure!(options.connections > 0, "--connections must be 1 or more");
    let topic = create_topic(common, partitions)?;
    if let Some(until) = warmup {
        produce::run(&topic, ProduceOptions { until, ..options })?;
    }
    let machine = machine_cpu.then(RestOfMachine::now).transpose()?;
    let readings = Readings::take(common)?;
    let produced = produce::run(&topic, options)?;
    if let Some(file) = latencies {
        produce::write_each(&produced.each, file)?;
    }
    let latency_of = match options.requests_per_second {
        Some(_) => "due instant to acknowledgement",
        None => "send to acknowledgement",
    };
    let Produced {
        requests,
        records,
        bytes,
        payload_bytes,
        ..
    } = produced;
    let mut report = readings.report(
        common,
        mode,
        &topic,
        bytes,
        Some(payload_bytes),
        produced.elapsed,
    )?;
    (report.connections, report.requests) = (options.connections, requests);
    report.set_records(records);
    if let Some(before) = machine {
        let per_gb = before.cpu_seconds_since()? / (bytes as f64 / 1e9);
        report.rest_of_machine_cpu_seconds_per_gb = Some(per_gb);
    }
    (report.latency_of, report.latency) = (latency_of, produced.latencies.report());
    Ok(report)
}

fn fetch(args: &FetchArgs) -> Result<Report> {
    let common = &args.common;
    ensure!(
        args.options.connections > 0,
        "--connections must be 1 or more"
    );
    let topic = cluster::find_topic(&common.access.access()?, &common.topic)
        .context("fetch reads a topic that `ottla-load produce` has filled")?;
    let mut options = args.options;
    if args.until_input_ends {
        options.passes = usize::MAX;
        options.stop = Some(end_of_input());
    }
    let readings = Readings::take(common)?;
    let fetched = fetch::run(&topic, options)?;
    let mut report = readings.report(
        common,
        "fetch",
        &topic,
        fetched.bytes,
        None,
        fetched.elapsed,
    )?;
    (report.connections, report.requests) = (args.options.connections, fetched.requests);
    report.set_records(fetched.records);
    (report.latency_of, report.latency) = ("send to answer received", fetched.latencies.report());
    Ok(report)
}

/// Is set when the standard input ends.
fn end_of_input() -> &'static AtomicBool {
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        // Input that cannot be read has ended too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        HAS_ENDED.store(true, Ordering::Relaxed);
    });
    &HAS_ENDED
}

fn end_to_end(args: &EndToEndArgs) -> Result<Report> {
    let common = &args.common;
    let topic = create_topic(common, 1)?;
    let warmup = EndToEndOptions {
        records: args.warmup_records,
        ..args.options
    };
    latency::run(&topic, warmup)?;
    let readings = Readings::take(common)?;
    let outcome = latency::run(&topic, args.options)?;
    let payload = Some(outcome.payload_bytes);
    let mut report = readings.report(
        common,
        "end-to-end",
        &topic,
        outcome.bytes,
        payload,
        outcome.elapsed,
    )?;
    (report.connections, report.requests) = (2, outcome.records);
    report.set_records(outcome.records);
    report.latency_of = match args.options.rate {
        Some(_) => "due instant to fetched",
        None => "send to fetched",
    };
    report.latency = outcome.end_to_end.report();
    report.acknowledgement_latency = outcome.acknowledgement.report();
    Ok(report)
}

/// The processes' resource usage before the run.
struct Readings {
    broker: Option<ProcessUsage>,
    generator: ProcessUsage,
}

impl Readings {
    fn take(common: &Common) -> Result<Readings> {
        Ok(Readings {
            broker: common.broker_pid.map(ProcessUsage::of).transpose()?,
            generator: ProcessUsage::of_this_process()?,
        })
    }

    fn report(
        &self,
        common: &Common,
        mode: &'static str,
        topic: &Topic,
        bytes: u64,
        payload_bytes: Option<u64>,
        elapsed: Duration,
    ) -> Result<Report> {
        let payload = payload_bytes.unwrap_or(bytes);
        let broker = match (&self.broker, common.broker_pid) {
            (Some(before), Some(pid)) => Some(ProcessUsage::of(pid)?.since(before, bytes, payload)),
            _ => None,
        };
        let seconds = elapsed.as_secs_f64();
        Ok(Report {
            mode,
            bootstrap: common.access.bootstrap.clone(),
            topic: topic.name.clone(),
            partitions: topic.partitions.len(),
            connections: 0,
            seconds,
            requests: 0,
            records: 0,
            bytes,
            payload_bytes,
            records_per_second: 0.0,
            megabytes_per_second: bytes as f64 / 1e6 / seconds,
            latency_of: "",
            latency: None,
            acknowledgement_latency: None,
            broker,
            rest_of_machine_cpu_seconds_per_gb: None,
            generator: ProcessUsage::of_this_process()?.since(&self.generator, bytes, payload),
        })
    }
}

fn positive_seconds(seconds: f64) -> Result<Duration> {
    ensure!(seconds > 0.0, "--seconds must be more than 0");
    Duration::try_from_secs_f64(seconds).context("--seconds")
}

fn parse_setting(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').context("give KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn parse_protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "classic" => Ok(Protocol::Classic),
        "consumer" => Ok(Protocol::Consumer),
        other => Err(format!(
            "{other} is not a group protocol; give consumer or classic"
        )),
    }
}

fn parse_codec(text: &str) -> Result<CompressionType> {
    CompressionType::from_name(text).context("give none, gzip, snappy, lz4 or zstd")
}
