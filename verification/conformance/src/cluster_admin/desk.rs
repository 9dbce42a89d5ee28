//! From where an administrator works: the cluster, two sets of tools, and what each of their commands has printed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::conformance::comparison::Line;
use crate::conformance::printed::{Compared, SUBJECTS};
use crate::conformance::tools::Tool;
use ottla_peers::{Cluster, InstalledPeer, Partition, connect};
use ottla_workspace::process;

/// Above what a move of some megabytes, or a session that has to end, takes on two busy cores.
const PATIENCE: Duration = Duration::from_secs(90);

/// Whose tools are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    Theirs,
    Ours,
}

pub const HANDS: [Hand; 2] = [Hand::Theirs, Hand::Ours];

impl Hand {
    /// What stands for `SUBJECT`.
    pub fn subject(self) -> &'static str {
        SUBJECTS[self as usize]
    }

    /// A topic of its own.
    pub fn topic(self, name: &str) -> String {
        format!("{name}-{}", self.subject())
    }
}

pub struct Desk {
    pub cluster: Cluster,
    /// Kafka's tools, and ours.
    tools: [InstalledPeer; 2],
    printed: [Vec<Line>; 2],
    /// Every command with all that it printed, for a person to look at.
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

    /// Writes a file for each hand, in which `SUBJECT` stands for its own; a command names it `@NAME`.
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

    /// Runs a command, whose output is compared with that of the other hand. `BROKERS` and `CONTROLLERS` stand for the flag
    /// with their addresses.
    pub fn run(&mut self, hand: Hand, tool: Tool, arguments: &str) -> Result<String> {
        self.run_compared(hand, tool, arguments, Compared::Lines)
    }

    /// As [`Desk::run`], where figures differ.
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
        // Brokers choose between their directories by what lies there already.
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
        let told = String::from_utf8_lossy(&output.stderr);
        let all = format!("{printed}{told}");
        writeln!(self.transcript, "{}\n{all}", process::shown(&command))?;
        Ok(all)
    }

    /// One of our tools, for what is not compared.
    pub fn do_quietly(&self, arguments: &str) -> Result<String> {
        let mut words = arguments.split_whitespace();
        let mut command = self.tools[1].tool(words.next().unwrap_or_default());
        command.args(["--bootstrap-server", &self.cluster.bootstrap()]);
        command.args(words);
        process::output_of(&mut command)
    }

    /// Appends so many records of 1,000 bytes to a topic, as many to each partition, however busy its leader is.
    pub fn fill(&self, topic: &str, records: usize) -> Result<()> {
        self.do_quietly(&format!(
            "producer-perf-test --topic {topic} --num-records {records} --record-size 1000 --throughput -1 \
             --producer-props acks=all partitioner.adaptive.partitioning.enable=false"
        ))?;
        Ok(())
    }

    /// Waits until every broker that runs says this of a topic's partitions.
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

    /// Waits until the partitions have these replicas, in whatever order, and all are in sync.
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

    /// Whether the directories of exactly these brokers hold a replica; the others' have had it until lately.
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

/// What a tool has printed before the first stack trace. Kafka's print one behind their message, and ours never.
fn without_stack_traces(printed: &str) -> &str {
    let mut end = 0;
    for line in printed.split_inclusive('\n') {
        let class = line.split([':', '\n']).next().unwrap_or_default();
        let is_exception = class.ends_with("Exception") || class.ends_with("Error");
        if line.starts_with("\tat ") || (is_exception && class.contains('.')) {
            break;
        }
        end += line.len();
    }
    &printed[..end]
}

/// Kafka's tool names partitions in the order of a hash set.
fn sort_partitions(line: &mut String) {
    if let Some((head, partitions)) = line.split_once(" for partitions ") {
        let mut partitions: Vec<&str> = partitions.split(", ").collect();
        partitions.sort_unstable();
        *line = format!("{head} for partitions {}", partitions.join(", "));
    }
}

/// Of one partition.
pub(super) const LARGEST_FETCH: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_stays_and_the_stack_trace_goes() {
        let printed = "Error: no\norg.apache.kafka.tools.AdminCommandFailedException: no\n\tat a.b(C.java:1)\n";
        assert_eq!(without_stack_traces(printed), "Error: no\n");
        let printed = "Error: org.apache.kafka.common.errors.X: no\n";
        assert_eq!(without_stack_traces(printed), printed);
        assert_eq!(without_stack_traces("a: b\nc"), "a: b\nc");
    }

    #[test]
    fn partitions_are_named_in_one_order() {
        let mut line = "elected for partitions b-1, a-0".to_owned();
        sort_partitions(&mut line);
        assert_eq!(line, "elected for partitions a-0, b-1");
    }
}
