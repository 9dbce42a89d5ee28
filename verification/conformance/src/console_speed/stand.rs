//! The environment of the measurements: a broker and its console, tools that produce records, and
//! the kernel's figures of a process.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ottla_peers::{Node, NodeOptions, Peer};
use ottla_testkit::lease_ports;
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::workspace;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use crate::console_api::http::Http;
use crate::console_api::stage::start_console;

/// Settings that reduce the delays of a small broker.
const SETTINGS: [(&str, &str); 4] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
];

/// A broker. The fields are dropped in this order.
pub struct Broker {
    pub node: Node,
    pub binary: PathBuf,
    pub dir: tempfile::TempDir,
}

/// A broker with a console in a separate process.
pub struct Stand {
    pub http: Http,
    pub console: OwnedChild,
    pub broker: Broker,
}

impl Broker {
    /// `console` is the setting `ottla.console.listener`.
    pub fn start(console: &str) -> Result<Broker> {
        let binary = workspace::release_binary("ottla", "ottla")?;
        let dir = tempfile::Builder::new().prefix("ottla-speed-").tempdir()?;
        let listener = ("ottla.console.listener", console);
        let settings = SETTINGS.iter().chain(std::iter::once(&listener));
        let overrides = settings.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let node = Peer::other_build(&binary)?.install()?.start(NodeOptions {
            dir: dir.path().join("node"),
            overrides: overrides.collect(),
            ..NodeOptions::default()
        })?;
        Ok(Broker { node, binary, dir })
    }

    /// A tool of Ottla's with the address of the broker.
    pub fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg(name)
            .args(["--bootstrap-server", &self.node.bootstrap()])
            .stdin(Stdio::null());
        command
    }

    pub fn create_topic(&self, name: &str, partitions: usize) -> Result<()> {
        let mut command = self.tool("topics");
        command
            .args(["--create", "--replication-factor", "1", "--topic", name])
            .args(["--partitions", &partitions.to_string()]);
        process::output_of(&mut command)?;
        Ok(())
    }

    /// `ottla producer-perf-test`, for a topic.
    pub fn producer(&self, topic: &str, records: u64, rate: i64) -> Command {
        let mut command = self.tool("producer-perf-test");
        command
            .args(["--topic", topic, "--num-records", &records.to_string()])
            .args(["--throughput", &rate.to_string()]);
        command
    }
}

impl Stand {
    pub fn start() -> Result<Stand> {
        let broker = Broker::start("none")?;
        let mut command = Command::new(&broker.binary);
        command
            .args(["console", "--bootstrap-server", &broker.node.bootstrap()])
            .args(["--listen", "127.0.0.1:0"]);
        let (console, address) = start_console(&mut command)?;
        let http = Http::new(address);
        Ok(Stand {
            http,
            console,
            broker,
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.http.address)
    }

    /// Creates `partitions` partitions, in topics `speed-000`, `speed-001` and so on.
    pub fn create_partitions(&self, partitions: usize) -> Result<()> {
        const OF_TOPIC: usize = 100;
        for topic in 0..partitions.div_ceil(OF_TOPIC) {
            let count = OF_TOPIC.min(partitions - topic * OF_TOPIC);
            let body = json!({
                "name": format!("speed-{topic:03}"),
                "partitions": count,
                "replication_factor": 1,
            });
            self.http.json("POST", "/api/topics", Some(&body))?;
        }
        Ok(())
    }
}

/// An address of a console.
pub fn free_address() -> Result<String> {
    let [port] = lease_ports()?;
    Ok(format!("127.0.0.1:{port}"))
}

/// The first processors that this process may use become all that it and its children use.
pub fn use_processors(count: usize) -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut chosen = CpuSet::new();
    let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    for processor in processors.take(count) {
        chosen.set(processor);
    }
    sched_setaffinity(None, &chosen)?;
    Ok(())
}

/// The processor time of a process so far. The kernel counts it in steps of 10 ms.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which can have blanks.
    let (_, fields) = stat.rsplit_once(')').context("an unknown /proc/PID/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| -> Result<u64> {
        let field = fields.get(index).context("a short /proc/PID/stat")?;
        Ok(field.parse()?)
    };
    let per_second = rustix::param::clock_ticks_per_second();
    ensure!(per_second > 0, "the kernel counts no time");
    let ticks = ticks(11)? + ticks(12)?;
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// A figure of `/proc/PID/status` in KiB, such as `VmRSS`.
pub fn status_kib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let line = line.with_context(|| format!("/proc/{pid}/status has no {name}"))?;
    let number = line.split_whitespace().next().unwrap_or_default();
    Ok(number.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_time_of_a_process_are_read() {
        let own = std::process::id();
        assert!(status_kib(own, "VmRSS").unwrap() > 100.0);
        assert!(status_kib(own, "VmNothing").is_err());
        let before = cpu_time(own).unwrap();
        while cpu_time(own).unwrap() == before {
            std::hint::spin_loop();
        }
    }
}
