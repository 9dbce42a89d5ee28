//! `cargo xtask raised-quorum`: raises `kraft.version` from 0 to 1 (KIP-853) in running quorums
//! with configured voters (`controller.quorum.voters`): of Kafka's controllers, of Ottla's, and of
//! both under a leader of either.
//!
//! The same commands run in each quorum, with Kafka's tools or Ottla's, and must print the same as
//! in a Kafka quorum of the same size: the changes refused before, the upgrade with and without
//! `--dry-run`, the downgrades, which are always refused, and the removal and re-adding of a voter.
//! Each controller is restarted during the run and must know its level, and the metadata logs must
//! be byte-identical over their common range.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::changing_quorum::{Described, described, directory_id};
use crate::conformance::comparison::{self, KnownDifferences, Line};
use crate::conformance::printed::Compared;
use crate::conformance::tools::{FEATURES, QUORUM, TOPICS, Tool};
use crate::run_dir::RunDir;
use ottla_peers::{Cluster, InstalledPeer, Peer, reference, replicas};
use ottla_workspace::process;
use ottla_workspace::report::Tally;

/// More than an election, or a node restart on two busy cores, takes.
const PATIENCE: Duration = Duration::from_secs(120);
const METADATA: &str = "__cluster_metadata-0";
/// Maximum number of leader restarts until the wanted peer leads.
const MAX_RESTARTS: usize = 12;
const REMOVE_LAST: &str = "BROKERS remove-controller LAST";
/// Why voters cannot be changed before the level is raised.
const NOT_YET: &str =
    "Cluster doesn't support removing voter because the kraft.version feature is 0";
/// The name of this comparison in messages.
const CLIENT: &str = "raised-quorum";
/// The reference quorums. Other quorums are compared with the reference of the same size.
const REFERENCES: [&str; 2] = ["kafka", "kafka+kafka+kafka"];

#[derive(clap::Args)]
pub struct Options {
    /// The quorums: names of files in peers/, joined by a plus; the first one leads. Each quorum is
    /// compared with as many of `kafka`.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ottla,ottla+ottla+ottla,ottla+kafka+kafka,kafka+ottla+kafka"
    )]
    quorums: Vec<String>,
    #[command(flatten)]
    run_dir: RunDir,
}

pub fn run(options: &Options) -> Result<()> {
    for quorum in &options.quorums {
        ensure!(
            REFERENCES.iter().any(|it| size_of(it) == size_of(quorum)),
            "--quorums {quorum}: a quorum has one controller or three"
        );
    }
    let dir = options.run_dir.make("raised-quorum")?;
    let mut tally = Tally::default();
    for reference in REFERENCES {
        let controllers = size_of(reference);
        let of_size = |quorum: &&String| size_of(quorum) == controllers;
        let mut quorums = options.quorums.iter().filter(of_size).peekable();
        if quorums.peek().is_none() {
            continue;
        }
        let theirs = told(reference, "kafka", &dir, &mut tally)?;
        for (number, quorum) in quorums.enumerate() {
            let hand = if number % 2 == 0 { "ottla" } else { "kafka" };
            let ours = told(quorum, hand, &dir, &mut tally)?;
            let outcome = comparison::compare(CLIENT, &theirs, &ours, &KnownDifferences::default());
            for difference in &outcome.unknown {
                println!("FAIL {reference} (-) and {quorum} (+): {difference}");
            }
            tally.passed += outcome.alike;
            tally.failed += outcome.unknown.len();
        }
    }
    tally.conclude(&dir, options.run_dir.keep)
}

fn size_of(quorum: &str) -> usize {
    quorum.split('+').count()
}

/// Runs the scenario in one quorum and returns the tools' output.
fn told(quorum: &str, hand: &str, dir: &Path, tally: &mut Tally) -> Result<Vec<Line>> {
    let began = Instant::now();
    let folder = dir.join(format!("{quorum}-by-{hand}"));
    std::fs::create_dir_all(&folder)?;
    let outcome = Story::begin(quorum, hand, &folder).and_then(Story::tell);
    tally.add(Tally::of(outcome.is_ok()));
    match outcome {
        Ok(lines) => {
            println!(
                "ok   {quorum}, with the tools of {hand} ({:.0?})",
                began.elapsed()
            );
            Ok(lines)
        }
        Err(error) => {
            let folder = folder.display();
            Err(error.context(format!(
                "{quorum}, with the tools of {hand}; outputs in {folder}"
            )))
        }
    }
}

struct Story {
    cluster: Cluster,
    /// The tools whose output is compared.
    tools: InstalledPeer,
    /// Ottla's tools, which start faster, for queries of the state.
    eyes: InstalledPeer,
    /// The peer that must lead while the level is raised.
    leader: String,
    /// The reference supports the same levels as Ottla.
    has_levels_of_ottla: bool,
    lines: Vec<Line>,
}

impl Story {
    fn begin(quorum: &str, hand: &str, dir: &Path) -> Result<Story> {
        let controllers: Vec<String> = quorum.split('+').map(str::to_owned).collect();
        let settings = [
            // So that a starting node reads a snapshot.
            (
                "metadata.log.max.record.bytes.between.snapshots",
                "2000".to_owned(),
            ),
            // The commit of a voter change may take this long before the response is a timeout.
            ("controller.quorum.request.timeout.ms", "30000".to_owned()),
            // So that no leader loses its leadership because the machine is busy. A stopping leader
            // resigns.
            ("controller.quorum.fetch.timeout.ms", "15000".to_owned()),
        ];
        let leader = controllers[0].clone();
        // Brokers of the leading peer, because a broker's output depends on its controllers.
        let broker = [leader.clone()];
        let mut cluster = Cluster::plan(&broker, &controllers, dir, &settings)?;
        cluster.start()?;
        Ok(Story {
            cluster,
            tools: Peer::load(hand)?.install()?,
            eyes: Peer::load("ottla")?.install()?,
            leader,
            has_levels_of_ottla: Peer::load(reference::KAFKA)?.levels().is_some(),
            lines: Vec::new(),
        })
    }

    fn tell(mut self) -> Result<Vec<Line>> {
        self.give_lead()?;
        self.refuse_before()?;
        let raise = "upgrade --feature kraft.version=1";
        // Once every voter has sent its state to the leader.
        self.retried("the level can be raised", |story| {
            let raised = story.features(&[
                "CONTROLLERS",
                "upgrade",
                "--feature",
                "kraft.version=1",
                "--dry-run",
            ])?;
            ensure!(raised.contains("can be upgraded"), "{raised}");
            Ok(())
        })?;
        self.run(FEATURES, &format!("CONTROLLERS {raise} --dry-run"))?;
        self.run(FEATURES, &format!("BROKERS {raise}"))?;
        let leader = self.described()?.leader;
        self.until_raised_everywhere()?;
        println!("     raised under {}", self.controller(leader)?);
        self.refuse_after()?;
        for at in 0..self.cluster.controllers.len() {
            self.cluster.controllers[at].take()?.stop()?;
            self.cluster.controllers[at].start()?;
            self.described()?;
        }
        self.until_raised_everywhere()?;
        if self.cluster.controllers.len() > 1 {
            self.change_voters()?;
        }
        self.until_forwarded()?;
        let wrong = self.cluster.stop()?;
        ensure!(wrong.is_empty(), "{wrong:?}");
        let (bytes, parted) = replicas::compare_common(&self.cluster.controllers, METADATA)?;
        ensure!(parted.is_empty(), "{parted:?}");
        println!("     {bytes} bytes of metadata log compared");
        Ok(self.lines)
    }

    /// Restarts unwanted leaders until a controller of the wanted peer leads.
    fn give_lead(&mut self) -> Result<()> {
        for _ in 0..MAX_RESTARTS {
            let leader = self.described()?.leader;
            let members = &mut self.cluster.controllers;
            let leading = members.iter_mut().find(|it| it.node_id == leader);
            let leading = leading.with_context(|| format!("there is no controller {leader}"))?;
            if leading.peer.id() == self.leader {
                return Ok(());
            }
            leading.take()?.stop()?;
            leading.start()?;
        }
        bail!(
            "none of {} leads after {MAX_RESTARTS} elections",
            self.leader
        )
    }

    fn refuse_before(&mut self) -> Result<()> {
        for asked in ["CONTROLLERS", "BROKERS"] {
            self.run(FEATURES, &format!("{asked} describe"))?;
            self.run(
                FEATURES,
                &format!("{asked} upgrade --feature kraft.version=2"),
            )?;
        }
        self.run(FEATURES, "BROKERS downgrade --feature kraft.version=1")?;
        self.run_until(QUORUM, REMOVE_LAST, |_, complaint| {
            Ok(complaint.contains(NOT_YET))
        })
    }

    fn refuse_after(&mut self) -> Result<()> {
        for asked in ["CONTROLLERS", "BROKERS"] {
            self.run(FEATURES, &format!("{asked} describe"))?;
            self.run(
                FEATURES,
                &format!("{asked} upgrade --feature kraft.version=1"),
            )?;
            self.run(
                FEATURES,
                &format!("{asked} downgrade --feature kraft.version=0"),
            )?;
        }
        for arguments in [
            "CONTROLLERS upgrade --feature kraft.version=0",
            "CONTROLLERS downgrade --feature kraft.version=0 --unsafe",
            "CONTROLLERS downgrade --feature kraft.version=0 --dry-run",
            "CONTROLLERS disable --feature kraft.version",
        ] {
            self.run(FEATURES, arguments)?;
        }
        Ok(())
    }

    /// Removes the last voter and adds it again.
    fn change_voters(&mut self) -> Result<()> {
        let all: Vec<i32> = self
            .cluster
            .controllers
            .iter()
            .map(|it| it.node_id)
            .collect();
        let (last, others) = all.split_last().context("there are controllers")?;
        self.wait_for_voters(&all)?;
        self.run_until(QUORUM, REMOVE_LAST, |story, _| {
            Ok(!story.described()?.voters.contains(last))
        })?;
        self.wait_for_voters(others)?;
        self.run_until(QUORUM, "BROKERS PROPERTIES add-controller", |story, _| {
            Ok(story.described()?.voters.contains(last))
        })?;
        self.wait_for_voters(&all)
    }

    // ---- queries ----------------------------------------------------------------------------------------------------

    /// Runs a command and records its output for comparison with the reference. `BROKERS` and
    /// `CONTROLLERS` are replaced with the bootstrap flag and addresses, `LAST` with the last
    /// controller's ID, `PROPERTIES` with its configuration file. Returns the error output, which
    /// is worded differently by each peer.
    fn run(&mut self, tool: Tool, arguments: &str) -> Result<String> {
        let words: Vec<&str> = arguments.split(' ').collect();
        let output = self.output(&self.tools, tool, &words)?;
        let printed = self.without_own_words(&String::from_utf8_lossy(&output.stdout))?;
        let printed = match self.has_levels_of_ottla {
            true => printed,
            false => without_levels_of_4_4(&printed),
        };
        self.lines.push(Line {
            step: format!("{}: {} {arguments}", self.lines.len(), tool.command),
            outcome: json!({
                "status": output.status.code(),
                "out": Compared::Lines.lines(&printed, "nobody"),
            }),
        });
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Like [`Story::run`], repeated until the result or the error is as expected: the previous
    /// change may not be committed yet, and the addressed controller may no longer lead.
    fn run_until(
        &mut self,
        tool: Tool,
        arguments: &str,
        is_expected: impl Fn(&Story, &str) -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            self.until_forwarded()?;
            let complaint = self.run(tool, arguments)?;
            if is_expected(self, &complaint)? {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{:?}\n{complaint}",
                self.lines.last()
            );
            self.lines.pop();
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Waits until the broker forwards to the current leader. A Kafka broker keeps using the
    /// controller that led at its last lookup, and looks again only after a `NOT_CONTROLLER`
    /// response (`NodeToControllerRequestThread`), which voter changes never get. Creating a topic
    /// does get it.
    fn until_forwarded(&self) -> Result<()> {
        self.retried("a topic is created", |story| {
            let mut create = TOPICS.of(&story.eyes);
            create.args(["--bootstrap-server", &story.cluster.bootstrap()]);
            create.args(["--create", "--if-not-exists", "--topic", "raised"]);
            process::output_of(&mut create).map(drop)
        })
    }

    fn output(
        &self,
        tools: &InstalledPeer,
        tool: Tool,
        arguments: &[&str],
    ) -> Result<std::process::Output> {
        let last = self
            .cluster
            .controllers
            .last()
            .context("there are controllers")?;
        let mut command = tool.of(tools);
        for word in arguments {
            match *word {
                "BROKERS" => command.args(["--bootstrap-server", &self.cluster.bootstrap()]),
                "CONTROLLERS" => {
                    let controllers = self.cluster.controllers_bootstrap();
                    command.args(["--bootstrap-controller", &controllers])
                }
                "LAST" => {
                    let directory = directory_id(&last.log_dirs()[0])?;
                    command.args(["--controller-id", &last.node_id.to_string()]);
                    command.args(["--controller-directory-id", &directory])
                }
                "PROPERTIES" => command.arg("--command-config").arg(last.properties()),
                word => command.arg(word),
            };
        }
        process::run_captured(&mut command)
    }

    fn features(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(&self.eyes, FEATURES, arguments)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Removes ports, directories and the leader's ID, which differ between quorums, and stack
    /// traces.
    fn without_own_words(&self, printed: &str) -> Result<String> {
        let mut printed = printed.to_owned();
        for controller in &self.cluster.controllers {
            let directory = directory_id(&controller.log_dirs()[0])?;
            printed = printed.replace(&directory, "DIRECTORY");
            printed = printed.replace(&controller.port.to_string(), "PORT");
            let leading = format!("Local controller {} ", controller.node_id);
            printed = printed.replace(&leading, "Local controller LEADER ");
        }
        let lines = printed.lines().filter(|line| !line.starts_with("\tat "));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    fn until_raised_everywhere(&self) -> Result<()> {
        let members = self
            .cluster
            .controllers
            .iter()
            .map(|it| (it, "CONTROLLERS"));
        for (member, asked) in members.chain(self.cluster.brokers.iter().map(|it| (it, "BROKERS")))
        {
            self.retried(&format!("{} is raised", member.name()), |story| {
                let id = member.node_id.to_string();
                let printed = story.features(&[asked, "describe", "--node-id", &id])?;
                let line = printed.lines().find(|line| line.contains("kraft.version"));
                let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
                let is_raised = words
                    .windows(2)
                    .any(|pair| pair == ["FinalizedVersionLevel:", "1"]);
                ensure!(is_raised, "{printed}");
                Ok(())
            })?;
        }
        Ok(())
    }

    fn controller(&self, id: i32) -> Result<String> {
        let mut controllers = self.cluster.controllers.iter();
        let found = controllers.find(|it| it.node_id == id);
        Ok(found
            .with_context(|| format!("there is no controller {id}"))?
            .name())
    }

    /// Waits until the quorum has a leader.
    fn described(&self) -> Result<Described> {
        self.retried("somebody leads", |story| {
            let arguments = ["CONTROLLERS", "describe", "--status"];
            let output = story.output(&story.eyes, QUORUM, &arguments)?;
            described(&String::from_utf8_lossy(&output.stdout))
        })
    }

    fn wait_for_voters(&self, voters: &[i32]) -> Result<()> {
        self.retried("the voters are known", |story| {
            let now = story.described()?;
            ensure!(now.voters == voters, "{now:?}, and not {voters:?}");
            Ok(())
        })
    }

    /// Retries a failing attempt for a while.
    fn retried<T>(&self, what: &str, attempt: impl Fn(&Story) -> Result<T>) -> Result<T> {
        process::retried(PATIENCE, what, || attempt(self))
    }
}

/// Ottla supports the levels of Kafka 4.4 of these two features; an older reference supports the
/// levels of 4.3.1.
fn without_levels_of_4_4(printed: &str) -> String {
    const NEWEST: &str = "SupportedMaxVersion: ";
    let lines = printed.lines().map(|line| {
        let is_newer = line.contains("metadata.version") || line.contains("share.version");
        let level = is_newer.then(|| line.split_once(NEWEST)).flatten();
        let Some((before, rest)) = level else {
            return format!("{line}\n");
        };
        let end = rest.find("FinalizedVersionLevel").unwrap_or(rest.len());
        format!("{before}{NEWEST}NEWEST\t{}\n", &rest[end..])
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_levels_raised_by_kafka_4_4_are_removed() {
        let of = |feature: &str, newest: &str| {
            format!(
                "Feature: {feature}\tSupportedMinVersion: 0\tSupportedMaxVersion: {newest}\t\
                 FinalizedVersionLevel: 1\n"
            )
        };
        let shown = |feature, newest| super::without_levels_of_4_4(&of(feature, newest));
        assert_eq!(shown("share.version", "1"), of("share.version", "NEWEST"));
        let unknown = shown("metadata.version", "UNKNOWN 33");
        assert_eq!(unknown, of("metadata.version", "NEWEST"));
        assert_eq!(shown("kraft.version", "1"), of("kraft.version", "1"));
    }
}
