//! The administrator's side: the cluster, both sets of tools, and the output of each command.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::conformance::comparison::Line;
use crate::conformance::printed::{Compared, SUBJECTS, without_stack_traces};
use crate::conformance::tools::Tool;
use ottla_peers::{Cluster, InstalledPeer, Partition, connect};
use ottla_workspace::process;

/// More than moving a few megabytes, or a session timeout, takes on two busy cores.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// Lists all registered brokers.
pub(super) const ENDPOINTS: &str = "cluster list-endpoints --include-fenced-brokers";

/// Which set of tools to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    Theirs,
    Ours,
}

pub const HANDS: [Hand; 2] = [Hand::Theirs, Hand::Ours];

impl Hand {
    /// The replacement for `SUBJECT`.
    pub fn subject(self) -> &'static str {
        SUBJECTS[self as usize]
    }

    /// The name of this tool set's own topic.
    pub fn topic(self, name: &str) -> String {
        format!("{name}-{}", self.subject())
    }
}

pub struct Desk {
    pub cluster: Cluster,
    /// Kafka's tools, and Ottla's.
    tools: [InstalledPeer; 2],
    printed: [Vec<Line>; 2],
    /// Every command with its complete output, for debugging.
    transcript: File,
    dir: PathBuf,
}

impl Desk {
    pub fn new(cluster: Cluster, tools: [InstalledPeer; 2], dir: &Path) -> Result<Desk> {
        Ok(Desk {
            cluster,
            tools,
            printed: [Vec::new(), Vec::new()],
            transcript: File::create(dir.join("transcript.txt"))?,
            dir: dir.to_owned(),
        })
    }

    pub fn printed(&self) -> &[Vec<Line>; 2] {
        &self.printed
    }

    /// Writes a file for each tool set, with `SUBJECT` replaced. A command refers to it as `@NAME`.
    pub fn file(&self, name: &str, contents: &str) -> Result<()> {
        for hand in HANDS {
            let contents = contents.replace("SUBJECT", hand.subject());
            std::fs::write(self.file_of(hand, name), contents)?;
        }
        Ok(())
    }

    fn file_of(&self, hand: Hand, name: &str) -> PathBuf {
        self.dir.join(format!("{name}-{}.json", hand.subject()))
    }

    /// Runs a command and records its output for comparison with the other tool set. `BROKERS` and
    /// `CONTROLLERS` are replaced with the bootstrap flag and the addresses.
    pub fn run(&mut self, hand: Hand, tool: Tool, arguments: &str) -> Result<String> {
        self.run_compared(hand, tool, arguments, Compared::Lines)
    }

    /// Like [`Desk::run`], for output whose numbers differ between runs.
    pub fn run_varying(&mut self, hand: Hand, tool: Tool, arguments: &str) -> Result<String> {
        self.run_compared(hand, tool, arguments, Compared::Shapes)
    }

    fn run_compared(
        &mut self,
        hand: Hand,
        tool: Tool,
        arguments: &str,
        compared: Compared,
    ) -> Result<String> {
        let mut command = tool.of(&self.tools[hand as usize]);
        for word in arguments.split_whitespace() {
            match (word, word.strip_prefix('@')) {
                ("BROKERS", _) => {
                    command.args(["--bootstrap-server", &self.cluster.bootstrap()]);
                }
                ("CONTROLLERS", _) => {
                    let controllers = self.cluster.controllers_bootstrap();
                    command.args(["--bootstrap-controller", &controllers]);
                }
                (_, Some(name)) => {
                    command.arg(self.file_of(hand, name));
                }
                (word, None) => {
                    command.arg(word.replace("SUBJECT", hand.subject()));
                }
            }
        }
        let output = process::run_captured(&mut command)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        // A broker chooses a log directory by the number of logs in each.
        let comparable = without_stack_traces(&printed).replace("/second\"", "/data\"");
        let mut printed_lines = compared.lines(&comparable, hand.subject());
        printed_lines.iter_mut().for_each(sort_partitions);
        let lines = &mut self.printed[hand as usize];
        lines.push(Line {
            step: format!("{}: {} {arguments}", lines.len(), tool.command),
            outcome: json!({
                "status": output.status.code(),
                "out": printed_lines,
            }),
        });
        let complained = String::from_utf8_lossy(&output.stderr);
        let all = format!("{printed}{complained}");
        writeln!(self.transcript, "{}\n{all}", process::shown(&command))?;
        Ok(all)
    }

    /// Runs one of Ottla's tools at this address without recording its output.
    fn do_quietly(&self, bootstrap: &str, arguments: &str) -> Result<String> {
        let mut words = arguments.split_whitespace();
        let mut command = self.tools[1].tool(words.next().unwrap_or_default());
        command.args(words);
        command.args(["--bootstrap-server", bootstrap]);
        process::output_of(&mut command)
    }

    /// Waits until one of Ottla's tools prints of every running broker what it should. Brokers apply
    /// metadata at different times, and a command may ask any of them.
    pub fn wait_for_each(&self, arguments: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
        for broker in self.cluster.running() {
            let address = format!("127.0.0.1:{}", broker.port);
            let what = format!("{}: {arguments}", broker.name());
            process::retried(PATIENCE, &what, || {
                let printed = self.do_quietly(&address, arguments)?;
                ensure!(is_so(&printed), "{printed}");
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Waits until a broker describes its own settings as they should be. It applies a change after
    /// the controller has answered.
    pub fn wait_for_settings(&self, broker: i32, is_so: impl Fn(&str) -> bool) -> Result<()> {
        let describe = format!("configs --describe --broker {broker}");
        process::retried(PATIENCE, &format!("broker {broker}: {describe}"), || {
            let printed = self.do_quietly(&self.cluster.bootstrap(), &describe)?;
            ensure!(is_so(&printed), "{printed}");
            Ok(())
        })
    }

    /// Waits until every running broker knows another as in this state; `None` for a broker that is
    /// not registered.
    pub fn wait_for_state(&self, broker: &str, state: Option<&str>) -> Result<()> {
        self.wait_for_each(ENDPOINTS, |it| state_of(it, broker) == state)
    }

    /// Waits until every running broker reports that in each partition of these topics that has a
    /// leader, the replicas on running brokers are in sync, and no others. A topic that does not
    /// exist has no partitions.
    pub fn wait_until_settled(&self, topics: &[String]) -> Result<()> {
        let running: Vec<i32> = self.cluster.running().map(|it| it.node_id).collect();
        for broker in self.cluster.running() {
            for topic in topics {
                let what = format!("{}: {topic} is not settled", broker.name());
                process::retried(PATIENCE, &what, || {
                    let partitions = connect(broker.port)?.partitions(topic)?;
                    let mut led = partitions.iter().filter(|it| it.leader.is_some());
                    let are_settled = led.all(|it| is_settled(&it.replicas, &it.in_sync, &running));
                    ensure!(are_settled, "{partitions:?}");
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Appends `records` records of 1,000 bytes to a topic, equally many to each partition
    /// regardless of the load on its leader.
    pub fn fill(&self, topic: &str, records: usize) -> Result<()> {
        let arguments = format!(
            "producer-perf-test --topic {topic} --num-records {records} --record-size 1000 --throughput -1 \
             --producer-props acks=all partitioner.adaptive.partitioning.enable=false"
        );
        self.do_quietly(&self.cluster.bootstrap(), &arguments)?;
        Ok(())
    }

    /// Waits until every running broker reports the expected state of a topic's partitions.
    pub fn wait_for(
        &self,
        topic: &str,
        what: &str,
        is_so: impl Fn(&[Partition]) -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let mut last = None;
            let mut says_so = |port| {
                let partitions = connect(port)?.partitions(topic)?;
                let is_so = !partitions.is_empty() && is_so(&partitions);
                if !is_so {
                    last = Some(partitions);
                }
                anyhow::Ok(is_so)
            };
            let mut ports = self.cluster.running().map(|broker| broker.port);
            if ports.all(|port| says_so(port).unwrap_or(false)) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("{topic}: not {what} after {PATIENCE:?}: {last:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the partitions have these replicas, in any order, and all are in sync.
    pub fn wait_for_replicas(&self, topic: &str, wanted: &[&[i32]]) -> Result<()> {
        self.wait_for(topic, &format!("at {wanted:?}"), |partitions| {
            let mut pairs = partitions.iter().zip(wanted);
            partitions.len() == wanted.len()
                && pairs.all(|(partition, wanted)| {
                    let has = |replica| partition.replicas.contains(replica);
                    partition.replicas.len() == wanted.len()
                        && partition.in_sync.len() == wanted.len()
                        && wanted.iter().all(has)
                })
        })
    }

    /// Checks that exactly these brokers have a directory for the replica. Waits, because the other
    /// brokers may not have deleted theirs yet.
    pub fn check_directories(&self, partition: &str, wanted: &[i32]) -> Result<()> {
        let began = Instant::now();
        loop {
            let holders: Vec<i32> = self
                .cluster
                .brokers
                .iter()
                .filter(|broker| broker.partition_dir(partition).is_some())
                .map(|broker| broker.node_id)
                .collect();
            let mut wanted = wanted.to_vec();
            wanted.sort_unstable();
            if holders == wanted {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{partition}: replicas lie at {holders:?}, and not at {wanted:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The row of a broker in the output of `list-endpoints`; `None` if it is not listed.
pub fn row_of<'a>(printed: &'a str, broker: &str) -> Option<Vec<&'a str>> {
    let mut rows = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<&str>>());
    rows.find(|row| row.first() == Some(&broker))
}

/// The state of a broker in the output of `list-endpoints`; `None` if it is not listed.
pub fn state_of<'a>(printed: &'a str, broker: &str) -> Option<&'a str> {
    let row = row_of(printed, broker)?;
    row.into_iter()
        .find(|word| ["fenced", "unfenced"].contains(word))
}

/// Whether the replicas on running brokers are in sync, and no others.
fn is_settled(replicas: &[i32], in_sync: &[i32], running: &[i32]) -> bool {
    let mut replicas = replicas.iter();
    replicas.all(|replica| in_sync.contains(replica) == running.contains(replica))
}

/// Kafka's tool lists partitions in the iteration order of a hash set.
fn sort_partitions(line: &mut String) {
    if let Some((head, partitions)) = line.split_once(" for partitions ") {
        let mut partitions: Vec<&str> = partitions.split(", ").collect();
        partitions.sort_unstable();
        *line = format!("{head} for partitions {}", partitions.join(", "));
    }
}

/// Maximum fetch size of one partition, in bytes.
pub(super) const LARGEST_FETCH: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_in_one_order() {
        let mut line = "elected for partitions b-1, a-0".to_owned();
        sort_partitions(&mut line);
        assert_eq!(line, "elected for partitions a-0, b-1");
    }

    #[test]
    fn a_partition_is_settled_with_all_running_replicas() {
        assert!(is_settled(&[1, 2, 3], &[3, 1], &[1, 3]));
        assert!(!is_settled(&[1, 2, 3], &[3], &[1, 3]), "1 catches up");
        assert!(!is_settled(&[1, 2, 3], &[2, 3], &[1, 3]), "2 is not fenced");
        assert!(is_settled(&[2], &[2], &[2, 3]));
    }

    #[test]
    fn a_fenced_broker_is_told_from_others() {
        let printed = "ID  HOST       PORT   RACK  STATE     ENDPOINT_TYPE\n\
                       1   127.0.0.1  9092   a     unfenced  broker\n\
                       3   127.0.0.1  9094   b     fenced    broker\n";
        assert_eq!(state_of(printed, "1"), Some("unfenced"));
        assert_eq!(state_of(printed, "3"), Some("fenced"));
        assert_eq!(state_of(printed, "2"), None);
        assert!(row_of(printed, "3").is_some_and(|row| row.contains(&"b")));
        assert_eq!(row_of(printed, "2"), None);
    }
}
