//! Very many connections of one client: the broker's memory per connection, and its CPU time per
//! request when all connections are used in turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ottla_protocol::messages::{MetadataRequest, MetadataResponse};
use serde::Serialize;

use super::access::AccessArgs;
use super::process_usage::ProcessUsage;
use super::wire::frame;

/// For work that the broker does after a step.
const REST: Duration = Duration::from_secs(3);

#[derive(Args, Debug)]
pub struct ConnectionsArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    /// Process ID of the broker, which runs on this machine.
    #[arg(long)]
    pub broker_pid: u32,
    /// Connections to open; fewer are measured if the broker does not accept more.
    #[arg(long, default_value_t = 10_000)]
    pub connections: usize,
    /// Metadata requests without a topic to measure, over all connections.
    #[arg(long, default_value_t = 200_000)]
    pub requests: usize,
    /// Requests in flight, each on another connection.
    #[arg(long, default_value_t = 32)]
    pub in_flight: usize,
    /// Print the report as one line of JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct ConnectionsReport {
    pub wanted: usize,
    pub open: usize,
    /// Why not all are open.
    pub stopped_by: Option<String>,
    /// Growth of the broker's resident memory for each connection, after its first request.
    pub bytes_each: f64,
    /// The same after all requests.
    pub bytes_each_used: f64,
    pub requests: usize,
    pub requests_per_second: f64,
    pub broker_cpu_us_per_request: f64,
}

/// Measures and prints the report.
pub fn run(args: &ConnectionsArgs) -> Result<()> {
    let report = measure(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    println!(
        "{} of {} connections: {:.0} bytes each, {:.0} when used; {:.1} µs of CPU a request, {:.0} requests/s",
        report.open,
        report.wanted,
        report.bytes_each,
        report.bytes_each_used,
        report.broker_cpu_us_per_request,
        report.requests_per_second
    );
    if let Some(error) = &report.stopped_by {
        println!("  stopped by: {error}");
    }
    Ok(())
}

fn measure(args: &ConnectionsArgs) -> Result<ConnectionsReport> {
    ensure!(
        args.connections > 0 && args.in_flight > 0 && args.requests > 0,
        "--connections, --in-flight and --requests must be 1 or more"
    );
    let access = args.access.access()?;
    // One connection is opened before, so that one-time costs of the first connection are not
    // counted.
    let mut connections = vec![access.open_bootstrap()?];
    std::thread::sleep(REST);
    let before = ProcessUsage::of(args.broker_pid)?;
    let mut stopped_by = None;
    while connections.len() <= args.connections {
        match access.open_bootstrap() {
            Ok(connection) => connections.push(connection),
            Err(error) => {
                stopped_by = Some(format!("{error:#}"));
                break;
            }
        }
    }
    let open = connections.len() - 1;
    if open == 0 {
        bail!("no connection: {}", stopped_by.unwrap_or_default());
    }
    std::thread::sleep(REST);
    let opened = ProcessUsage::of(args.broker_pid)?;

    let version = connections[0].version::<MetadataRequest>()?;
    let no_topic = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let mut request = frame(&no_topic, version)?;
    let mut round = |requests: usize| -> Result<()> {
        let mut left = requests;
        while left > 0 {
            let now = left.min(connections.len());
            for turn in connections[..now].chunks_mut(args.in_flight) {
                for connection in &mut *turn {
                    connection.send(&mut request)?;
                }
                for connection in turn {
                    connection.receive::<MetadataResponse>(version)?;
                }
            }
            left -= now;
        }
        Ok(())
    };
    // Each connection is used once before.
    round(open)?;
    let warm = ProcessUsage::of(args.broker_pid)?;
    let began = Instant::now();
    round(args.requests).context("while all connections are used")?;
    let seconds = began.elapsed().as_secs_f64();
    let used = ProcessUsage::of(args.broker_pid)?;

    let growth = |after: &ProcessUsage| {
        (after.resident_bytes as f64 - before.resident_bytes as f64) / open as f64
    };
    let cpu = used.cpu.saturating_sub(warm.cpu).as_secs_f64();
    Ok(ConnectionsReport {
        wanted: args.connections,
        open,
        stopped_by,
        bytes_each: growth(&opened),
        bytes_each_used: growth(&used),
        requests: args.requests,
        requests_per_second: args.requests as f64 / seconds,
        broker_cpu_us_per_request: cpu * 1e6 / args.requests as f64,
    })
}
