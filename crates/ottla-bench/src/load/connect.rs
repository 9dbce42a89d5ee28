//! New connections, one after the other in each of several threads: how many a broker takes in a
//! second.
//!
//! A connection counts once the broker has answered ApiVersions over it, after the TLS handshake, and
//! once the login has succeeded where there is one. It is then reset, so that a run does not use up
//! the ports of this machine.

use std::fmt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::access::Access;
use super::process_usage::ProcessUsage;
use crate::workload::latencies::{Latencies, LatencyReport};

#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// Each has one connection at a time.
    pub threads: usize,
    pub time: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Connected {
    pub connections: u64,
    /// Connections whose TLS handshake resumed an earlier session.
    pub resumed: u64,
    /// From before the connection to the last answer.
    pub latencies: Latencies,
    pub elapsed: Duration,
}

/// The result of a run, as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectReport {
    pub seconds: f64,
    pub connections: u64,
    pub connections_per_second: f64,
    /// The part of the TLS handshakes that resumed an earlier session.
    pub resumed_part: f64,
    pub latency: Option<LatencyReport>,
    /// User and system time of the broker, with the resolution of a clock tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_seconds: Option<f64>,
    pub generator_cpu_seconds: f64,
}

impl fmt::Display for ConnectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} connections in {:.2} s: {:.0} a second, {:.1} % of them resumed\n  generator: {:.2} CPU s",
            self.connections,
            self.seconds,
            self.connections_per_second,
            self.resumed_part * 100.0,
            self.generator_cpu_seconds
        )?;
        match self.broker_cpu_seconds {
            Some(seconds) => writeln!(f, "  broker: {seconds:.2} CPU s"),
            None => Ok(()),
        }
    }
}

/// Connects for a time.
pub fn run(access: &Access, options: ConnectOptions) -> Result<Connected> {
    ensure!(options.threads > 0, "--threads must be 1 or more");
    let start_line = Barrier::new(options.threads);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let connecting = || {
            start_line.wait();
            connect(access, Instant::now() + options.time)
        };
        let threads: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(connecting))
            .collect();
        let mut total = Connected::default();
        for thread in threads {
            let connected = thread.join().expect("a connecting thread does not panic")?;
            total.connections += connected.connections;
            total.resumed += connected.resumed;
            total.latencies.add(&connected.latencies);
        }
        total.elapsed = start.elapsed();
        Ok(total)
    })
}

fn connect(access: &Access, deadline: Instant) -> Result<Connected> {
    let mut connected = Connected::default();
    loop {
        let began = Instant::now();
        if began >= deadline {
            return Ok(connected);
        }
        let connection = access.open_bootstrap()?;
        connected.latencies.record(began.elapsed());
        connected.connections += 1;
        connected.resumed += u64::from(connection.is_resumed());
        connection.reset()?;
    }
}

/// Connects for a time after a warm-up, and measures this process and that of the broker.
pub fn measure(
    access: &Access,
    warmup: Duration,
    options: ConnectOptions,
    broker_pid: Option<u32>,
) -> Result<ConnectReport> {
    run(
        access,
        ConnectOptions {
            time: warmup,
            ..options
        },
    )?;
    let broker = || broker_pid.map(ProcessUsage::of).transpose();
    let (broker_before, before) = (broker()?, ProcessUsage::of_this_process()?);
    let connected = run(access, options)?;
    let (broker_after, after) = (broker()?, ProcessUsage::of_this_process()?);
    let cpu_seconds = |after: ProcessUsage, before: ProcessUsage| {
        after.cpu.saturating_sub(before.cpu).as_secs_f64()
    };
    let (seconds, count) = (connected.elapsed.as_secs_f64(), connected.connections);
    Ok(ConnectReport {
        seconds,
        connections: count,
        connections_per_second: count as f64 / seconds,
        resumed_part: connected.resumed as f64 / count.max(1) as f64,
        latency: connected.latencies.report(),
        broker_cpu_seconds: broker_after
            .zip(broker_before)
            .map(|(after, before)| cpu_seconds(after, before)),
        generator_cpu_seconds: cpu_seconds(after, before),
    })
}
