//! Runs scenarios: starts targets, runs the points round by round, and produces a result.
//!
//! 1. Errors that can be detected in advance are reported first: unknown client settings, too
//!    little disk space.
//! 2. The machine is measured, and the memory that the run will use is touched.
//! 3. For each point, each round runs on every target in turn, so that changes of the machine
//!    affect all of them.
//! 4. Each round creates a topic and deletes it; started brokers are removed with their directory.
//!
//! An interruption ends the current round; earlier measurements are kept and the result is marked
//! as partial.

mod clients;
mod consuming;
mod context;
mod counting;
mod death;
mod interruption;
mod one_at_a_time;
mod periods;
mod producing;
mod progress;
mod rebalance;
mod round;
mod sampling;
mod searching;
mod watch;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use indexmap::IndexMap;
use ottla_client::properties;

use crate::machine::{self, Machine};
use crate::results::{
    Curve, PointResult, PublishedFigures, ResultFile, SCHEMA, ScenarioResult, Shape, TargetRuns,
    VERSION, table, utc,
};
use crate::scenario::published::shown_at;
use crate::scenario::quantities::shown_bytes;
use crate::scenario::{Changes, Point, Scenario};
use crate::target::local_cluster::BrokerRequirements;
use crate::target::{RunningTarget, TargetSpec};

use context::{Context, Distributions, RoundOutcome, Topic};
pub use interruption::Interruption;
pub use progress::Progress;

/// The plan of a run: scenarios, targets and options.
#[derive(Clone, Debug)]
pub struct RunPlan {
    pub scenarios: Vec<Scenario>,
    pub targets: Vec<TargetSpec>,
    pub changes: Changes,
    /// The directory of local brokers' files.
    pub dir: Option<PathBuf>,
    /// An existing topic, or a topic that is created and deleted; by default a new topic per round.
    pub topic: Option<String>,
    /// The command line, recorded in the result.
    pub command: String,
}

/// Assumed maximum write rate of a closed load, in bytes per second, to estimate disk usage.
const FASTEST_BYTES_PER_SECOND: f64 = 400e6;
/// Minimum free disk space that a run leaves.
const SPARE_BYTES: u64 = 512 << 20;
const MEMORY_TO_TOUCH: u64 = 1 << 30;

/// Runs the plan. The result may be partial, and is then marked.
///
/// Returns a trait object, because a runtime has several functions that poll, and each would get a copy of the whole run.
pub fn run<'a>(
    plan: &'a RunPlan,
    interruption: &'a Interruption,
    progress: &'a Progress,
) -> Pin<Box<dyn Future<Output = Result<ResultFile>> + 'a>> {
    Box::pin(run_all(plan, interruption, progress))
}

async fn run_all(
    plan: &RunPlan,
    interruption: &Interruption,
    progress: &Progress,
) -> Result<ResultFile> {
    let mut planned = Vec::new();
    for scenario in &plan.scenarios {
        let points = scenario.points(&plan.changes)?;
        check(plan, scenario, &points)?;
        planned.push((scenario, points));
    }
    let began = Instant::now();
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    progress.say("measuring the machine");
    let dir = plan.dir.clone().unwrap_or_else(std::env::temp_dir);
    let machine = tokio::task::spawn_blocking(move || {
        machine::touch_memory(MEMORY_TO_TOUCH);
        Machine::measure(&dir)
    })
    .await??;
    progress.print(&machine.to_string());
    let mut result = ResultFile {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        ottla: env!("CARGO_PKG_VERSION").to_owned(),
        command: plan.command.clone(),
        started: utc(started.as_secs()),
        seconds: 0.0,
        partial: None,
        scale: plan
            .changes
            .scale
            .clone()
            .unwrap_or_else(|| "published".to_owned()),
        machine,
        targets: Vec::new(),
        scenarios: Vec::new(),
    };
    let all: u32 = planned
        .iter()
        .flat_map(|(_, points)| points)
        .map(|point| point.spec.measure.repetitions * plan.targets.len() as u32)
        .sum();
    progress.expect_rounds(all);
    let replicas = planned
        .iter()
        .flat_map(|(_, points)| points)
        .map(|point| point.spec.topic.replicas);
    let mut running = Running {
        plan,
        interruption,
        progress,
        most_replicas: replicas.max().unwrap_or(1),
        targets: Vec::new(),
    };
    for (scenario, points) in &planned {
        if interruption.is_set() {
            break;
        }
        let mut of_scenario = empty_result(scenario, plan);
        let outcome = running
            .run_scenario(scenario, points, &mut of_scenario, &mut result)
            .await;
        let text = table::of_scenario(&of_scenario);
        result.scenarios.push(of_scenario);
        // A failure does not discard the other scenarios' results; a run without any result is an
        // error.
        match outcome {
            Err(error) if result.is_empty() => return Err(error),
            Err(error) => result.partial = Some(format!("{}: {error:#}", scenario.name)),
            Ok(()) => {}
        }
        if !result.is_empty() {
            progress.print(&text);
        }
        if result.partial.is_some() {
            break;
        }
    }
    if interruption.is_set() {
        result.partial = Some("interrupted".to_owned());
    }
    let targets = std::mem::take(&mut running.targets);
    tokio::task::spawn_blocking(move || drop(targets)).await?;
    result.seconds = began.elapsed().as_secs_f64();
    progress.finish();
    Ok(result)
}

/// Reports reasons against a run before anything is started.
fn check(plan: &RunPlan, scenario: &Scenario, points: &[Point]) -> Result<()> {
    for point in points {
        let what = |whose: &str| format!("{}: the settings of the {whose}", scenario.name);
        properties::producer(&point.spec.producers.settings).with_context(|| what("producers"))?;
        properties::consumer(&point.spec.consumers.settings).with_context(|| what("consumers"))?;
    }
    let of_brokers = |point: &Point| point.spec.broker_settings.clone();
    let are_swept = points
        .windows(2)
        .any(|it| of_brokers(&it[0]) != of_brokers(&it[1]));
    if let Some(running) = plan.targets.iter().find(|it| !it.is_local() && are_swept) {
        bail!(
            "{}: settings of brokers are swept, and the brokers at {} keep theirs; give --target ottla or --target kafka",
            scenario.name,
            running.name()
        );
    }
    let kills = points
        .iter()
        .any(|it| it.spec.measure.leader_dies.is_some());
    if let Some(running) = plan.targets.iter().find(|it| !it.is_local() && kills) {
        bail!(
            "{}: measure.leader_dies kills a broker, and those at {} are not the run's; give --target ottla or --target \
             kafka",
            scenario.name,
            running.name()
        );
    }
    let local = plan.targets.iter().filter(|it| it.is_local()).count() as u64;
    let dir = plan.dir.clone().unwrap_or_else(std::env::temp_dir);
    if let Some(free) = free_bytes(&dir)?.checked_div(local) {
        let dir = dir.canonicalize().unwrap_or(dir);
        check_room(scenario, points, free, &dir.display().to_string())?;
    }
    Ok(())
}

/// Free bytes available to unprivileged users.
fn free_bytes(dir: &std::path::Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(dir)
        .map_err(|error| anyhow::anyhow!("{}: {error}; give another --dir", dir.display()))?;
    Ok(disk.f_bavail * disk.f_frsize)
}

fn check_room(scenario: &Scenario, points: &[Point], free: u64, place: &str) -> Result<()> {
    let needs = points
        .iter()
        .map(|point| point.spec.expected_bytes(FASTEST_BYTES_PER_SECOND))
        .max()
        .unwrap_or(0);
    ensure!(
        needs + SPARE_BYTES <= free,
        "{}: up to {} may be written at once, and {place} has {} free; give --scale small, fewer records \
         (--set records.count=…), or another place{}",
        scenario.name,
        shown_bytes(needs as f64),
        shown_bytes(free as f64),
        if place.starts_with('/') {
            " (--dir)"
        } else {
            ""
        }
    );
    Ok(())
}

fn empty_result(scenario: &Scenario, plan: &RunPlan) -> ScenarioResult {
    ScenarioResult {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        question: scenario.question.clone(),
        published_on: scenario.published_on.clone(),
        differences: scenario.differences(&plan.changes),
        notes: Vec::new(),
        plots: scenario.plots.clone(),
        points: Vec::new(),
        text: scenario.text.clone(),
    }
}

/// A run in progress.
struct Running<'a> {
    plan: &'a RunPlan,
    interruption: &'a Interruption,
    progress: &'a Progress,
    /// The largest replica count of all scenarios.
    most_replicas: u16,
    /// The started targets, in the order of the plan. Local ones are restarted if a scenario needs
    /// other settings.
    targets: Vec<RunningTarget>,
}

impl Running<'_> {
    async fn run_scenario(
        &mut self,
        scenario: &Scenario,
        points: &[Point],
        of_scenario: &mut ScenarioResult,
        result: &mut ResultFile,
    ) -> Result<()> {
        let noise = result.machine.noise;
        for (number, point) in points.iter().enumerate() {
            if self.interruption.is_set() {
                break;
            }
            self.start_targets(self.needs(points, point), result)
                .await?;
            if number == 0 {
                self.look_at_clusters(scenario, points, of_scenario).await?;
            }
            let mut of_point = point_result(scenario, point);
            let outcome = self
                .run_point(scenario, point, &mut of_point, of_scenario)
                .await;
            of_point.compare_targets(noise);
            if of_point.runs.iter().any(|run| !run.rounds.is_empty()) {
                of_scenario.points.push(of_point);
            }
            outcome?;
        }
        Ok(())
    }

    /// Checks whether running clusters have enough disk space, and how their brokers differ from the
    /// scenario's.
    async fn look_at_clusters(
        &self,
        scenario: &Scenario,
        points: &[Point],
        of_scenario: &mut ScenarioResult,
    ) -> Result<()> {
        for target in self.targets.iter().filter(|it| it.local.is_none()) {
            if let Some(free) = target.cluster.usable_bytes().await {
                check_room(scenario, points, free, target.cluster.bootstrap())?;
            }
            if let Some(point) = points.first() {
                let others = target.cluster.other_settings(&point.spec.broker_settings);
                of_scenario.differences.extend(others.await);
            }
        }
        Ok(())
    }

    /// As many brokers as the scenario's largest point has replicas, with the settings of this
    /// point.
    fn needs(&self, points: &[Point], point: &Point) -> BrokerRequirements {
        let replicas = points.iter().map(|it| it.spec.topic.replicas).max();
        BrokerRequirements {
            brokers: replicas.map_or(1, usize::from),
            settings: point.spec.broker_settings.clone(),
            dir: self.plan.dir.clone(),
        }
    }

    /// Starts the targets that are not running with the settings of a point.
    async fn start_targets(
        &mut self,
        needs: BrokerRequirements,
        result: &mut ResultFile,
    ) -> Result<()> {
        let is_fit = |target: &RunningTarget| {
            target
                .local
                .as_ref()
                .is_none_or(|local| *local.needs() == needs)
        };
        if !self.targets.is_empty() && self.targets.iter().all(is_fit) {
            return Ok(());
        }
        let old = std::mem::take(&mut self.targets);
        tokio::task::spawn_blocking(move || drop(old)).await?;
        for spec in &self.plan.targets {
            self.progress.say(&format!("starting {}", spec.name()));
            let target = RunningTarget::start(spec, &needs).await?;
            if target.local.is_none() {
                // Checked before the first scenario, not at the start of a later scenario that
                // needs more replicas.
                target.cluster.check_replicas(self.most_replicas)?;
            }
            let name = spec.name();
            if !result.targets.iter().any(|it| it.name == name) {
                let description = match &target.local {
                    Some(local) => local.description(),
                    None => format!("the cluster at {}", target.cluster.bootstrap()),
                };
                result
                    .targets
                    .push(target.cluster.info(&name, &description));
            }
            self.targets.push(target);
        }
        Ok(())
    }

    async fn run_point(
        &self,
        scenario: &Scenario,
        point: &Point,
        of_point: &mut PointResult,
        of_scenario: &mut ScenarioResult,
    ) -> Result<()> {
        let mut curves: Vec<Distributions> = Vec::new();
        for target in &self.targets {
            curves.push(Distributions::default());
            of_point.runs.push(TargetRuns {
                target: target.spec.name(),
                ..TargetRuns::default()
            });
        }
        // With consumers only, the topic is filled once and read repeatedly.
        let is_read_only = point.spec.producers.count == 0;
        let mut filled: Vec<Option<Topic>> = Vec::new();
        for target in &self.targets {
            let topic = if is_read_only && !self.interruption.is_set() {
                let topic = self.make_topic(target, point).await?;
                filled.push(Some(topic.clone()));
                let filling = self.context(scenario, point, target, &topic, "filling");
                match round::fill(&filling).await {
                    Ok(notes) => note(of_scenario, notes),
                    Err(error) => {
                        self.delete(target, &topic).await;
                        return Err(error);
                    }
                }
                continue;
            } else {
                None
            };
            filled.push(topic);
        }
        let mut outcome = Ok(());
        'rounds: for number in 1..=point.spec.measure.repetitions {
            for (index, target) in self.targets.iter().enumerate() {
                if self.interruption.is_set() {
                    break 'rounds;
                }
                let label = format!("round {number} of {}", point.spec.measure.repetitions);
                let run = self
                    .run_round(scenario, point, target, filled[index].as_ref(), &label)
                    .await;
                match run {
                    Ok(done) => {
                        note(of_scenario, done.notes);
                        curves[index].add(&done.distributions);
                        of_point.runs[index].rounds.push(done.round);
                    }
                    Err(error) => {
                        outcome = Err(error);
                        break 'rounds;
                    }
                }
                self.progress.round_done();
            }
        }
        for (target, topic) in self.targets.iter().zip(&filled) {
            if let Some(topic) = topic {
                self.delete(target, topic).await;
            }
        }
        for (run, distributions) in of_point.runs.iter_mut().zip(&curves) {
            run.summarise();
            for (name, latencies) in distributions.named() {
                if let Some(curve) = Curve::of(latencies) {
                    run.curves.insert(name.to_owned(), curve);
                }
            }
        }
        outcome
    }

    async fn run_round(
        &self,
        scenario: &Scenario,
        point: &Point,
        target: &RunningTarget,
        filled: Option<&Topic>,
        label: &str,
    ) -> Result<RoundOutcome> {
        if let crate::scenario::Load::Search { .. } = point.spec.load {
            let run_round = async |point: &Point, label: &str| {
                self.run_on_new_topic(scenario, point, target, label).await
            };
            return searching::search(point, label, self.interruption, run_round).await;
        }
        match filled {
            Some(topic) => round::run(&self.context(scenario, point, target, topic, label)).await,
            None => self.run_on_new_topic(scenario, point, target, label).await,
        }
    }

    /// Runs a round on a new topic, which is deleted afterwards in any case.
    async fn run_on_new_topic(
        &self,
        scenario: &Scenario,
        point: &Point,
        target: &RunningTarget,
        label: &str,
    ) -> Result<RoundOutcome> {
        let topic = self.make_topic(target, point).await?;
        let outcome = round::run(&self.context(scenario, point, target, &topic, label)).await;
        self.delete(target, &topic).await;
        outcome
    }

    fn context<'a>(
        &'a self,
        scenario: &'a Scenario,
        point: &'a Point,
        target: &'a RunningTarget,
        topic: &'a Topic,
        label: &str,
    ) -> Context<'a> {
        let mut title = scenario.name.clone();
        if !point.at.is_empty() {
            title.push_str(&format!(" [{}]", shown_at(&point.at)));
        }
        if self.targets.len() > 1 {
            let name = TargetSpec::short_name(&target.spec.name());
            title.push_str(&format!(", {name}"));
        }
        Context {
            spec: &point.spec,
            target,
            topic,
            interruption: self.interruption,
            progress: self.progress,
            title: format!("{title}, {label}"),
        }
    }

    async fn make_topic(&self, target: &RunningTarget, point: &Point) -> Result<Topic> {
        let spec = &point.spec.topic;
        if let Some(name) = &self.plan.topic
            && target.cluster.check_topic(name, spec).await?
        {
            return Ok(Topic {
                name: name.clone(),
                is_ours: false,
            });
        }
        let name = self.plan.topic.clone().unwrap_or_else(new_topic_name);
        target.cluster.create_topic(&name, spec).await?;
        Ok(Topic {
            name,
            is_ours: true,
        })
    }

    async fn delete(&self, target: &RunningTarget, topic: &Topic) {
        if !topic.is_ours {
            return;
        }
        if let Err(error) = target.cluster.delete_topic(&topic.name).await {
            let sentence = format!("topic {} could not be deleted: {error}", topic.name);
            self.progress.print(&sentence);
        }
        // Deletion continues in the background for a while, and would affect the next round.
        match &target.local {
            Some(local) => local.wait_until_deleted(&topic.name).await,
            None => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

fn new_topic_name() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("ottla-bench-{}-{number}", std::process::id())
}

fn note(scenario: &mut ScenarioResult, notes: Vec<String>) {
    for note in notes {
        if !scenario.notes.contains(&note) {
            scenario.notes.push(note);
        }
    }
}

fn point_result(scenario: &Scenario, point: &Point) -> PointResult {
    let spec = &point.spec;
    let json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
    PointResult {
        at: point
            .at
            .iter()
            .map(|(path, value)| (path.clone(), json(value)))
            .collect::<IndexMap<_, _>>(),
        label: shown_at(&point.at),
        shape: Shape {
            partitions: spec.topic.partitions,
            replicas: spec.topic.replicas,
            value_bytes: spec.records.size.mean().round() as u64,
            producers: spec.producers.count,
            consumers: spec.consumers.count,
        },
        published: scenario
            .published_about(point)
            .map(|it| PublishedFigures {
                figures: it.figures.clone(),
                note: it.note.clone(),
            })
            .collect(),
        runs: Vec::new(),
        comparisons: Vec::new(),
    }
}
