//! `cargo xtask changing-quorum`: changes and disturbs the voters of a metadata quorum with Kafka
//! and Ottla controllers, while brokers of both serve Kafka's `VerifiableProducer` and
//! `VerifiableConsumer`. Each node is a process.
//!
//! 1. The first controller starts as the only voter (`storage format --standalone`). Each of the
//!    others is added with `metadata-quorum add-controller`, alternately with Kafka's tool and
//!    Ottla's.
//! 2. Voters, most often the leader, are killed (SIGKILL) or paused (SIGSTOP). While one is down,
//!    creating a topic must succeed; after it is back, it must catch up.
//! 3. Voters, including the leader, are removed until one is left that is not the first. Creating a
//!    topic must succeed after each removal.
//!
//! At the end every broker must know every created topic, every acknowledged record must be there
//! once and in order, and the controllers' metadata logs must be byte-identical over their common
//! range.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::conformance::tools::{QUORUM, TOPICS};
use crate::mixed_cluster::clients::{Access, Clients};
use crate::run_dir::SeededRun;
use crate::seeded::{self, Seeded};
use ottla_peers::{Cluster, InstalledPeer, Peer, Quorum, connect, replicas};
use ottla_workspace::process;

const TOPIC: &str = "orders";
const PARTITIONS: &str = "3";
/// More than an election, or a node restart on two busy cores, takes.
const PATIENCE: Duration = Duration::from_secs(120);
const METADATA: &str = "__cluster_metadata-0";

#[derive(clap::Args)]
pub struct Options {
    /// The controllers, by the names of files in peers/; the first one starts alone.
    #[arg(long, value_delimiter = ',', default_value = "ottla,kafka,ottla")]
    controllers: Vec<String>,
    /// The brokers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "ottla,kafka")]
    brokers: Vec<String>,
    /// Number of faults of voters.
    #[arg(long, default_value_t = 4)]
    troubles: usize,
    #[command(flatten)]
    run: SeededRun,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.controllers.len() > 2 && !options.brokers.is_empty(),
        "--controllers needs three names or more, and --brokers one"
    );
    let seed = options.run.seed();
    let dir = options.run.make("changing-quorum", seed)?;
    println!(
        "controllers {}, brokers {}, {} troubles, seed {seed}",
        options.controllers.join(", "),
        options.brokers.join(", "),
        options.troubles
    );
    let told = Story::begin(options, &dir)
        .and_then(|mut story| story.tell(options, &mut Seeded::new(seed), &dir));
    seeded::conclude(told, seed, &dir, options.run.run_dir.keep)
}

/// The leader and voters that the quorum reports.
#[derive(Debug, PartialEq, Eq)]
pub struct Described {
    pub leader: i32,
    pub voters: Vec<i32>,
}

struct Story {
    cluster: Cluster,
    /// Kafka's tools, and Ottla's.
    tools: [InstalledPeer; 2],
    /// Topics that were created, in order.
    topics: Vec<String>,
}

impl Story {
    fn begin(options: &Options, dir: &Path) -> Result<Story> {
        let brokers = options.brokers.len();
        let settings = [
            ("offsets.topic.replication.factor", brokers.to_string()),
            ("offsets.topic.num.partitions", "5".to_owned()),
            ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ];
        let (brokers, controllers) = (&options.brokers, &options.controllers);
        let mut cluster =
            Cluster::plan_with(Quorum::Dynamic, brokers, controllers, dir, &settings)?;
        cluster.start()?;
        let tools = [
            Peer::load("kafka")?.install()?,
            Peer::load("ottla")?.install()?,
        ];
        let mut story = Story {
            cluster,
            tools,
            topics: Vec::new(),
        };
        story.create_topic(TOPIC)?;
        let replicas = story.cluster.brokers.len();
        story.cluster.wait_until_in_sync(TOPIC, replicas)?;
        Ok(story)
    }

    fn tell(&mut self, options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
        let kafka = self.tools[0].clone();
        let access = Access::plain(self.cluster.bootstrap());
        let mut clients = Clients::start(&kafka, &access, TOPIC, dir)?;
        for at in 1..self.cluster.controllers.len() {
            self.add(at, at % 2)?;
        }
        for number in 0..options.troubles {
            self.trouble(number, random)?;
        }
        let last = self.cluster.controllers.len() - 1;
        for (number, at) in (0..last).enumerate() {
            self.remove(at, number % 2)?;
        }
        clients.wait_for_more()?;
        let (_, mut wrong) = clients.finish(&kafka, &access, TOPIC)?;
        println!("{} topics created", self.topics.len());
        wrong.extend(self.missing_topics()?);
        wrong.extend(self.cluster.stop()?);
        let (bytes, parted) = replicas::compare_common(&self.cluster.controllers, METADATA)?;
        println!(
            "{bytes} bytes of metadata log compared in {} controllers",
            self.cluster.controllers.len()
        );
        wrong.extend(parted);
        Ok(wrong)
    }

    // ---- operations on the quorum -----------------------------------------------------------------------------------

    /// Adds a controller as a voter.
    fn add(&mut self, at: usize, hand: usize) -> Result<()> {
        let controller = &self.cluster.controllers[at];
        let (name, id) = (controller.name(), controller.node_id);
        let properties = controller.properties();
        let began = Instant::now();
        // Refused until the controller has caught up with the log, so an administrator may have to
        // retry.
        self.retried(&format!("{name} is added"), |story| {
            if story.describe()?.voters.contains(&id) {
                return Ok(());
            }
            let mut add = QUORUM.of(&story.tools[hand]);
            add.args(["--bootstrap-server", &story.cluster.bootstrap()]);
            add.arg("--command-config").arg(&properties);
            process::output_of(add.arg("add-controller")).map(drop)
        })?;
        let voters: Vec<i32> = self.cluster.controllers[..=at]
            .iter()
            .map(|it| it.node_id)
            .collect();
        self.wait_for_voters(&voters)?;
        println!(
            "{name} is added with {} in {:.1?}",
            self.tools[hand].name(),
            began.elapsed()
        );
        self.create_topic(&format!("with-{id}"))
    }

    /// Removes a voter, which may be the leader.
    fn remove(&mut self, at: usize, hand: usize) -> Result<()> {
        let controller = &self.cluster.controllers[at];
        let (name, id) = (controller.name(), controller.node_id);
        let directory = directory_id(&controller.log_dirs()[0])?;
        let led = self.described()?.leader == id;
        let began = Instant::now();
        self.retried(&format!("{name} is removed"), |story| {
            if !story.describe()?.voters.contains(&id) {
                return Ok(());
            }
            let mut remove = QUORUM.of(&story.tools[hand]);
            remove.args(["--bootstrap-server", &story.cluster.bootstrap()]);
            remove.args(["remove-controller", "--controller-id", &id.to_string()]);
            remove.args(["--controller-directory-id", &directory]);
            process::output_of(&mut remove).map(drop)
        })?;
        let left: Vec<i32> = self.cluster.controllers[at + 1..]
            .iter()
            .map(|it| it.node_id)
            .collect();
        self.wait_for_voters(&left)?;
        println!(
            "{name}, which {}, is removed with {} in {:.1?}",
            if led { "leads" } else { "follows" },
            self.tools[hand].name(),
            began.elapsed()
        );
        self.create_topic(&format!("without-{id}"))
    }

    /// Kills or pauses a voter and creates a topic while it is down.
    fn trouble(&mut self, number: usize, random: &mut Seeded) -> Result<()> {
        let leader = self.described()?.leader;
        let others = self.cluster.controllers.len() as u64;
        let at = match random.below(4) {
            0 => random.below(others) as usize,
            _ => self.position(leader)?,
        };
        let is_killed = !random.one_in(3);
        let controller = &mut self.cluster.controllers[at];
        let (name, id) = (controller.name(), controller.node_id);
        let began = Instant::now();
        if is_killed {
            controller.take()?.kill()?
        } else {
            controller.node.as_mut().context("it runs")?.pause()?
        }
        self.create_topic(&format!("trouble-{number}"))?;
        let created = began.elapsed();
        let led = if id == leader { "led" } else { "followed" };
        if id == leader {
            let now = self.described()?.leader;
            ensure!(now != id, "{name} leads although it is away");
        }
        let controller = &mut self.cluster.controllers[at];
        if is_killed {
            controller.start()?
        } else {
            controller.node.as_mut().context("it runs")?.resume()?
        }
        let began = Instant::now();
        self.retried(&format!("{name} catches up"), |story| {
            story.check_caught_up(id)
        })?;
        println!(
            "{name}, which {led}, {}: a topic created after {created:.1?}, and it has caught up after {:.1?}",
            if is_killed { "killed" } else { "paused" },
            began.elapsed()
        );
        Ok(())
    }

    // ---- queries ----------------------------------------------------------------------------------------------------

    fn position(&self, id: i32) -> Result<usize> {
        let controllers = &mut self.cluster.controllers.iter();
        let at = controllers.position(|it| it.node_id == id);
        at.with_context(|| format!("there is no controller {id}"))
    }

    fn quorum(&self, described: &str) -> Result<String> {
        let mut describe = QUORUM.of(&self.tools[1]);
        describe.args(["--bootstrap-server", &self.cluster.bootstrap()]);
        process::output_of(describe.args(["describe", described]))
    }

    fn describe(&self) -> Result<Described> {
        described(&self.quorum("--status")?)
    }

    /// Waits until the quorum has a leader.
    fn described(&self) -> Result<Described> {
        self.retried("somebody leads", Story::describe)
    }

    fn wait_for_voters(&self, voters: &[i32]) -> Result<()> {
        self.retried("the voters are known", |story| {
            let now = story.describe()?;
            ensure!(now.voters == voters, "{now:?}, and not {voters:?}");
            Ok(())
        })
    }

    fn check_caught_up(&self, id: i32) -> Result<()> {
        let lag = lag_of(&self.quorum("--replication")?, id)?;
        ensure!(lag == 0, "it lacks {lag} records");
        Ok(())
    }

    /// Creates a topic with replicas on all brokers.
    fn create_topic(&mut self, topic: &str) -> Result<()> {
        let replicas = self.cluster.brokers.len().to_string();
        self.retried(&format!("{topic} is created"), |story| {
            let mut create = TOPICS.of(&story.tools[1]);
            create.args(["--bootstrap-server", &story.cluster.bootstrap()]);
            create.args(["--create", "--if-not-exists", "--topic", topic]);
            create.args([
                "--partitions",
                PARTITIONS,
                "--replication-factor",
                &replicas,
            ]);
            process::output_of(&mut create).map(drop)
        })?;
        self.topics.push(topic.to_owned());
        Ok(())
    }

    /// Created topics that a broker does not learn of. It may follow a change of leaders late.
    fn missing_topics(&self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for broker in self.cluster.running() {
            for topic in &self.topics {
                let known = process::retried(PATIENCE, topic, || {
                    let found = connect(broker.port)?.partitions(topic)?.len();
                    ensure!(found.to_string() == PARTITIONS, "{found} partitions");
                    Ok(())
                });
                if let Err(error) = known {
                    wrong.push(format!("{} knows of {error:#}", broker.name()));
                    break;
                }
            }
        }
        Ok(wrong)
    }

    /// Retries a failing attempt for a while.
    fn retried<T>(&self, what: &str, attempt: impl Fn(&Story) -> Result<T>) -> Result<T> {
        process::retried(PATIENCE, what, || attempt(self))
    }
}

/// Parses the leader and the voters from the output of `metadata-quorum describe --status`.
pub fn described(printed: &str) -> Result<Described> {
    let value = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
            .with_context(|| format!("no {name} in:\n{printed}"))
    };
    let voters: serde_json::Value = serde_json::from_str(value("CurrentVoters:")?)?;
    let voters = voters.as_array().context("voters are a list")?;
    let mut voters = voters
        .iter()
        .map(|voter| Ok(voter["id"].as_i64().context("a voter has an id")? as i32))
        .collect::<Result<Vec<i32>>>()?;
    voters.sort_unstable();
    Ok(Described {
        leader: value("LeaderId:")?.parse()?,
        voters,
    })
}

/// Parses a voter's lag, in records, from the output of `metadata-quorum describe --replication`,
/// whose columns are NodeId, DirectoryId, LogEndOffset, Lag and others.
fn lag_of(printed: &str, id: i32) -> Result<i64> {
    for line in printed.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if columns.first().is_some_and(|first| first.parse() == Ok(id)) {
            return Ok(columns.get(3).context("a column with the lag")?.parse()?);
        }
    }
    bail!("node {id} is not in:\n{printed}")
}

/// The ID of a log directory, from its `meta.properties`.
pub fn directory_id(log_dir: &Path) -> Result<String> {
    let file = log_dir.join("meta.properties");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("directory.id="));
    Ok(id.context("no directory.id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_voters_and_lag_are_parsed() {
        let printed = "ClusterId:              abc\nLeaderId:               102\nLeaderEpoch:            3\n\
            CurrentVoters:          [{\"id\": 103, \"endpoints\": []}, {\"id\": 101, \"endpoints\": []}]\n\
            CurrentObservers:       [{\"id\": 1}]\n";
        let expected = Described {
            leader: 102,
            voters: vec![101, 103],
        };
        assert_eq!(described(printed).unwrap(), expected);
        assert!(described("nothing").is_err());

        let printed = "NodeId\tDirectoryId\tLogEndOffset\tLag\n101\tAA\t20\t0\n102\tAB\t17\t3\n";
        assert_eq!(lag_of(printed, 102).unwrap(), 3);
        assert!(lag_of(printed, 10).is_err());
    }
}
