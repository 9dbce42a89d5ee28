//! `cargo xtask take-over`: Apache Kafka and Ottla alternately run on one directory with the same
//! `server.properties`, while clients stay connected throughout. After every change all contents of
//! the directory are compared with a model.
//!
//! A turn: start, let the writers complete requests that the previous stop interrupted, compare
//! everything, make administrative changes (some with Kafka's own tools), take a snapshot of the
//! state, and end: stopped or killed, idle or under load, at a random moment or at a specific one.
//! The seed determines everything except timing. A run that finds a difference prints the seed and
//! the step, and keeps the directory.

mod churn;
mod endings;
mod model;
mod picture;
mod preflight;
mod secured;
mod story;
mod table;
mod two_places;
mod workload;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::run_dir::SeededRun;
use crate::seeded::Seeded;
use endings::{Deck, Ending};
use model::Findings;
use ottla_peers::{InstalledPeer, Node, NodeOptions, Peer, Place, QUICK_HEARTBEATS, is_orderly};
use ottla_testkit::lease_range;
use ottla_workspace::report::Tally;
use ottla_workspace::toolchain::FIRST_COMPILER;
use picture::Picture;
use story::Story;
use table::Turn;
use workload::Workload;

#[derive(clap::Args)]
pub struct Options {
    /// Number of times that the directory changes hands.
    #[arg(long, default_value_t = 10)]
    changes: usize,
    /// The broker that writes the directory first: the name of a file in peers/.
    #[arg(long, default_value = "kafka")]
    from: String,
    /// The broker that takes it over. `kafka` shows whether the model holds for Kafka itself.
    #[arg(long, default_value = "ottla")]
    to: String,
    /// Static voters (`controller.quorum.voters`) instead of a dynamic quorum of one.
    #[arg(long)]
    static_voters: bool,
    /// The broker and its clients log in over TLS, and ACLs apply.
    #[arg(long)]
    secured: bool,
    /// Number of additional partitions, a hundred per topic.
    #[arg(long, default_value_t = 0)]
    partitions: usize,
    /// The port of the client listener; the controller listens on the next one.
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    run: SeededRun,
}

pub fn run(options: &Options) -> Result<()> {
    let seed = options.run.seed();
    let dir = options.run.make("take-over", seed)?;
    let mut run = Run::begin(options, seed, &dir)?;
    println!(
        "{} and {} take over {} from each other, {} changes of hands, seed {seed}",
        run.sides[0].name(),
        run.sides[1].name(),
        dir.display(),
        options.changes
    );
    let outcome = run.turns(options.changes);
    let tally = run.tally;
    match outcome {
        Ok(()) if tally.failed == 0 => {
            drop(run);
            if !options.run.run_dir.keep {
                std::fs::remove_dir_all(&dir)?;
            }
            println!("{tally}");
            Ok(())
        }
        outcome => {
            println!("{tally}");
            let dir = dir.display();
            outcome.with_context(|| {
                format!("with --seed {seed}; the directory is kept, with all outputs: {dir}")
            })
        }
    }
}

struct Run {
    /// The peers that run on the directory in turn.
    sides: [InstalledPeer; 2],
    node: NodeOptions,
    log_dirs: Vec<PathBuf>,
    partitions: usize,
    is_secured: bool,
    random: Seeded,
    decks: [Deck; 2],
    workload: Workload,
    story: Story,
    tally: Tally,
    /// The state at the end of the previous turn, and how that turn ended.
    last: Option<(Picture, Ending)>,
}

impl Run {
    fn begin(options: &Options, seed: u64, dir: &Path) -> Result<Run> {
        let sides = [
            Peer::load(&options.from)?.install()?,
            Peer::load(&options.to)?.install()?,
        ];
        let clients = Peer::load("kafka")?.install()?;
        let port = match options.port {
            Some(port) => port,
            None => lease_range(2)?,
        };
        let log_dirs: Vec<PathBuf> = ["data-a", "data-b"].map(|name| dir.join(name)).to_vec();
        let shown: Vec<String> = log_dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        let secured = match options.secured {
            true => Some(secured::prepare(port, dir)?),
            false => None,
        };
        let mut overrides = settings(&shown.join(","));
        overrides.extend(secured.iter().flat_map(|it| it.settings.iter().cloned()));
        let node = NodeOptions {
            dir: dir.to_path_buf(),
            port: Some(port),
            overrides,
            place: if options.static_voters {
                Place::AloneWithStaticVoters
            } else {
                Place::Alone
            },
            // Kafka's start-up dominates the duration of a run.
            environment: vec![("JAVA_TOOL_OPTIONS".to_owned(), FIRST_COMPILER.to_owned())],
            ..NodeOptions::default()
        };
        let bootstrap = format!("127.0.0.1:{port}");
        let login = secured.as_ref().map(|it| it.login.as_path());
        let workload = Workload::start(&clients, &bootstrap, login, dir)?;
        let story = Story::new(log_dirs.clone(), sides[0].id());
        Ok(Run {
            sides,
            node,
            story,
            log_dirs,
            partitions: options.partitions,
            is_secured: options.secured,
            random: Seeded::new(seed),
            decks: [Deck::new(), Deck::new()],
            workload,
            tally: Tally::default(),
            last: None,
        })
    }

    fn turns(&mut self, changes: usize) -> Result<()> {
        table::heading();
        let began = Instant::now();
        let (mut records, mut facts) = (0, 0);
        // The last turn only checks the state after the previous stop.
        for number in 0..=changes + 1 {
            let began = Instant::now();
            let side = number % 2;
            let ending = if number >= changes {
                Ending::StopIdle
            } else {
                self.decks[side].draw(&mut self.random)
            };
            let mut turn = Turn::new(number, self.sides[side].name(), ending);
            let outcome = self.turn(side, number, number > changes, ending, &mut turn);
            turn.took = began.elapsed();
            turn.print();
            records += turn.findings.records;
            facts += turn.findings.facts;
            self.tally.passed += 1;
            if outcome.is_err() || !turn.findings.wrong.is_empty() {
                self.tally.passed -= 1;
                self.tally.failed += 1;
                outcome.with_context(|| format!("turn {number}, {}", turn.side))?;
                bail!(
                    "turn {number}, {}: the state differs from the expected one",
                    turn.side
                );
            }
        }
        println!(
            "{changes} changes of hands in {:.0?}; {records} records and {facts} facts compared, nothing wrong",
            began.elapsed()
        );
        Ok(())
    }

    fn turn(
        &mut self,
        side: usize,
        number: usize,
        only_looks: bool,
        ending: Ending,
        turn: &mut Turn,
    ) -> Result<()> {
        let peer = self.sides[side].clone();
        // Ottla never leaves a directory on which Kafka does not start.
        let is_kafka_s = self.sides.iter().all(|side| side.id() != "ottla");
        let mut node = match peer.start(self.node.clone()) {
            Err(error) if is_kafka_s && format!("{error:#}").contains(two_places::REFUSAL) => {
                for removed in two_places::remove_older(&self.log_dirs)? {
                    println!(
                        "       killed between the two names of a move; removed as Kafka asks: {}",
                        removed.display()
                    );
                }
                peer.start(self.node.clone())?
            }
            outcome => outcome?,
        };
        turn.start = node.time_to_first_answer();
        let outcome = self.served(&mut node, number, only_looks, ending, turn);
        let log = format!("output-{number:03}-{}.log", peer.id());
        if outcome.is_err()
            && let Some(status) = node.ended()?
        {
            let tail = node.output_tail();
            return outcome
                .with_context(|| format!("the broker ended by itself ({status}):\n{tail}"));
        }
        drop(node);
        std::fs::rename(self.node.dir.join("output.log"), self.node.dir.join(log))?;
        outcome?;
        let next = &self.sides[(side + 1) % self.sides.len()];
        if next.id() == "ottla"
            && self.sides[side].id() != "ottla"
            && !only_looks
            && turn.findings.wrong.is_empty()
            && let Some((_, ending)) = &self.last
        {
            let properties = self.node.dir.join("server.properties");
            let wrong = preflight::look(next, &properties, *ending, self.sides[0].name())?;
            turn.findings.facts += 1;
            turn.findings.wrong.extend(wrong);
        }
        Ok(())
    }

    /// The part of a turn while its broker runs, including the broker's stop.
    fn served(
        &mut self,
        node: &mut Node,
        number: usize,
        only_looks: bool,
        ending: Ending,
        turn: &mut Turn,
    ) -> Result<()> {
        let findings = &mut turn.findings;
        if number == 0 {
            if self.is_secured {
                self.workload.perform("secure", json!({}))?;
            }
            self.story.begin(&mut self.workload, &mut self.random)?;
            self.story
                .create_many(&mut self.workload, self.partitions)?;
        }
        let began = Instant::now();
        let was_loaded = self
            .last
            .as_ref()
            .is_some_and(|(_, ending)| !ending.is_idle());
        self.story.drain(&mut self.workload, was_loaded, findings)?;
        self.story.settle_churn(&mut self.workload, findings)?;
        turn.settled = began.elapsed();
        let began = Instant::now();
        let picture = self.story.compare(&mut self.workload, findings)?;
        if let Some((before, ending)) = &self.last {
            compare_pictures(before, &picture, *ending, findings);
        }
        turn.compared = began.elapsed();
        if !findings.wrong.is_empty() {
            return Ok(());
        }
        if only_looks {
            turn.at_the_moment = self.end(node, ending)?;
            return Ok(());
        }
        turn.operations = self.story.operate(&mut self.workload, &mut self.random)?;
        self.workload.perform("resume", json!({}))?;
        std::thread::sleep(Duration::from_millis(300 + self.random.below(700)));
        // If the controller knows a replica's new directory and the copy has not yet replaced its
        // log, Kafka loses records acknowledged in between if Kafka is also the next to start.
        let is_kafka_s = self.sides.iter().all(|side| side.id() != "ottla");
        let loses = ending == Ending::KillAtMove && is_kafka_s;
        if ending.is_idle() || loses {
            self.story.drain(&mut self.workload, false, findings)?;
        }
        let picture = picture::picture(&mut self.workload)?;
        turn.at_the_moment = self.end(node, ending)?;
        self.last = Some((picture, ending));
        Ok(())
    }

    /// Stops the broker as the ending demands. Returns whether the moment that the ending waits for
    /// occurred.
    fn end(&mut self, node: &mut Node, ending: Ending) -> Result<bool> {
        let patience = Duration::from_secs(10);
        let came = match ending {
            Ending::StopIdle | Ending::StopLoaded | Ending::KillIdle => true,
            Ending::KillLoaded => {
                std::thread::sleep(Duration::from_millis(self.random.below(1500)));
                true
            }
            Ending::KillAtRoll => {
                endings::wait_for_file(&self.log_dirs, endings::is_segment, patience)
            }
            Ending::KillAtCompaction => {
                endings::wait_for_file(&self.log_dirs, endings::is_of_compaction, patience)
            }
            Ending::KillAtMetadata => {
                self.story.churn(&mut self.workload, &mut self.random)?;
                std::thread::sleep(Duration::from_millis(self.random.below(80)));
                true
            }
            Ending::KillAtMove => {
                for _ in 0..3 {
                    self.story
                        .move_replica(&mut self.workload, &mut self.random, 0)?;
                }
                std::thread::sleep(Duration::from_millis(self.random.below(100)));
                true
            }
        };
        if ending.is_kill() {
            node.kill()?;
        } else {
            self.story.model.stopped_cleanly();
            let status = node.stop()?;
            anyhow::ensure!(
                is_orderly(status),
                "asked to stop, it ended with {status}:\n{}",
                node.output_tail()
            );
        }
        Ok(came)
    }
}

/// The settings of both sides on top of `peers/server.properties`.
fn settings(log_dirs: &str) -> Vec<(String, String)> {
    [
        ("log.dirs", log_dirs),
        ("auto.create.topics.enable", "false"),
        ("offsets.topic.num.partitions", "4"),
        ("transaction.state.log.num.partitions", "3"),
        ("share.coordinator.state.topic.num.partitions", "2"),
        ("group.initial.rebalance.delay.ms", "0"),
        // After a kill, Kafka waits at its start until the session of the previous broker has
        // expired.
        ("broker.session.timeout.ms", "4000"),
        ("broker.heartbeat.interval.ms", "500"),
        // Several metadata snapshots per turn.
        ("metadata.log.max.record.bytes.between.snapshots", "6000"),
        ("log.cleaner.backoff.ms", "300"),
        ("log.cleaner.dedupe.buffer.size", "8388608"),
        ("log.cleaner.io.buffer.size", "65536"),
        ("log.initial.task.delay.ms", "500"),
        ("log.retention.check.interval.ms", "2000"),
        ("log.segment.delete.delay.ms", "1000"),
        // Unserved settings must be kept, and preflight would refuse them. Kafka ignores this
        // setting.
        ("ottla.accept.unserved", "settings"),
        // The clients write few records, and the state of idempotent producers must survive a slow
        // turn.
        ("producer.id.expiration.ms", "86400000"),
    ]
    .into_iter()
    .chain(QUICK_HEARTBEATS)
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// Compares the current state with the state at the end of the previous turn.
fn compare_pictures(before: &Picture, now: &Picture, ending: Ending, findings: &mut Findings) {
    let is_fixed = |name: &str| {
        // Values that the writers change; the records themselves are compared with the model.
        let moves = ["latest", "producer ", "GetOffsetShell"];
        let churns =
            name.contains("churn-") || ending == Ending::KillAtMetadata && name.contains("made-");
        // The deletion of records is compared with the model too.
        let undoes = ending.is_kill() && name.starts_with("earliest");
        let is_moved = ending == Ending::KillAtMove && name.starts_with("directory ");
        let is_internal = name.starts_with("latest") && name.contains(" __");
        let is_of_member = name.starts_with("group live") || name.starts_with("offset live ");
        !churns
            && !undoes
            && !is_moved
            && !is_internal
            && !is_of_member
            && (ending.is_idle() || !moves.iter().any(|prefix| name.starts_with(prefix)))
    };
    let mut wrong = Vec::new();
    for (name, value) in before.iter().filter(|(name, _)| is_fixed(name)) {
        findings.facts += 1;
        match now.get(name) {
            Some(found) if found == value => {}
            Some(found) => wrong.push(format!("{name}: was `{value}` and is `{found}`")),
            None => wrong.push(format!("{name}: was `{value}` and is gone")),
        }
    }
    for (name, value) in now.iter().filter(|(name, _)| is_fixed(name)) {
        if !before.contains_key(name) {
            wrong.push(format!("{name}: is `{value}` and was not there"));
        }
    }
    findings.wrong.append(&mut wrong);
}
