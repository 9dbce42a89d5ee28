//! `ottla bench`: its arguments, output and exit statuses.
//!
//! Exit statuses: 0 for success; 1 for errors, and for a regression with `--fail-on-regression`;
//! 130 when interrupted.

mod arguments;
mod sized;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use ottla_client::properties;
use ottla_config::Properties;
use ottla_types::shell_word;

use crate::openmessaging::{self, Driver, Workload};
use crate::report;
use crate::results::{ResultFile, compare, table};
use crate::run::{self, Interruption, Progress, RunPlan};
use crate::scenario::{Changes, Scenario, shipped};
use crate::target::{MetricsEndpoint, TargetSpec};

pub use arguments::BenchArgs;
use arguments::{BenchCommand, CompareArgs, ReportArgs, RunArgs, TargetName};

const INTERRUPTED: u8 = 130;

/// Runs the command. Prints an error as one sentence.
pub fn run(args: BenchArgs) -> ExitCode {
    let done = match args.command {
        BenchCommand::List => {
            print!("{}", listed());
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Show { name } => show(&name),
        BenchCommand::Run(args) => run_scenarios(&args),
        BenchCommand::Compare(args) => compare_results(&args),
        BenchCommand::Report(args) => write_report(&args),
        BenchCommand::Size(args) => sized::size(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ottla bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Every shipped scenario, by group.
fn listed() -> String {
    let mut text = String::new();
    let mut last_group = "";
    for (name, source) in shipped::SHIPPED {
        let (group, _) = name.split_once('/').unwrap_or((name, ""));
        if group != last_group {
            text.push_str(&format!("{group}\n"));
            last_group = group;
        }
        let title = match shipped::parse(name, source) {
            Ok(scenario) => scenario.title,
            Err(error) => error.to_string(),
        };
        text.push_str(&format!("  {name:<40} {title}\n"));
    }
    text.push_str("Run one, or a whole group, with: ottla bench run NAME [--scale small]\n");
    text
}

fn show(name: &str) -> Result<ExitCode> {
    for (index, (name, text)) in found(name)?.iter().enumerate() {
        if index > 0 {
            println!();
        }
        println!("# {name}.toml");
        print!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The names and texts of a shipped scenario, of a group, or of a file.
fn found(name: &str) -> Result<Vec<(String, String)>> {
    let shipped = shipped::find(name);
    if !shipped.is_empty() {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        return Ok(shipped.iter().map(owned).collect());
    }
    if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name)
            .with_context(|| format!("{name} cannot be read; check the path"))?;
        return Ok(vec![(name.to_owned(), text)]);
    }
    let similar = shipped::similar(name);
    if similar.is_empty() {
        bail!(
            "unknown scenario {name}; `ottla bench list` lists them, and a file name must end in .toml"
        )
    } else {
        bail!(
            "unknown scenario {name}; did you mean {}?",
            similar.join(", ")
        )
    }
}

fn scenarios(names: &[String]) -> Result<Vec<Scenario>> {
    let mut scenarios = Vec::new();
    for name in names {
        for (name, text) in found(name)? {
            let scenario = if name.ends_with(".toml") {
                Scenario::parse(&name, &name, &text)?
            } else {
                shipped::parse(&name, &text)?
            };
            scenarios.push(scenario);
        }
    }
    Ok(scenarios)
}

/// The scenarios translated from workloads of the OpenMessaging Benchmark, and the brokers named by
/// their driver.
fn from_openmessaging(args: &RunArgs) -> Result<(Vec<Scenario>, Option<String>)> {
    let driver = match &args.driver {
        Some(path) => Driver::read(path)?,
        None => Driver::default(),
    };
    let mut scenarios = Vec::new();
    for path in &args.workload {
        let workload = Workload::read(path)?;
        let text = openmessaging::scenario_text(&workload, &driver)
            .with_context(|| path.display().to_string())?;
        let file = path.display().to_string();
        scenarios.push(Scenario::parse(&workload.name, &file, &text)?);
    }
    Ok((scenarios, openmessaging::bootstrap_servers(&driver)?))
}

/// A question, if the name of a scale is mistyped.
fn meant_scale(given: &str, scenario: &Scenario) -> String {
    let names = scenario.scales.keys().map(String::as_str);
    match ottla_config::nearest_name(given, names) {
        Some(name) => format!("; did you mean --scale {name}?"),
        None => String::new(),
    }
}

fn run_scenarios(args: &RunArgs) -> Result<ExitCode> {
    let mut scenarios = scenarios(&args.names)?;
    let (of_workloads, brokers_of_driver) = from_openmessaging(args)?;
    scenarios.extend(of_workloads);
    if let Some(scale) = &args.scale
        && let Some(without) = scenarios.iter().find(|it| !it.scales.contains_key(scale))
    {
        let known: Vec<&str> = without.scales.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        bail!(
            "--scale {scale}: {} has no such scale; it has {known}{}",
            without.name,
            meant_scale(scale, without)
        );
    }
    let changes = Changes {
        scale: args.scale.clone(),
        settings: args.settings()?,
    };
    let plan = RunPlan {
        scenarios,
        targets: targets(args, brokers_of_driver)?,
        changes,
        dir: args.dir.clone(),
        topic: args.topic.clone(),
        command: repeating_command(),
    };
    let _out = OutDir::make(&args.out)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(2048)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let progress = match args.progress_lines {
        true => Progress::in_lines(),
        false => Progress::on_terminal(),
    };
    let result = runtime.block_on(async {
        let interruption = Interruption::by_signals()?;
        run::run(&plan, &interruption, &progress).await
    })?;
    if result.is_empty() && result.partial.is_some() {
        eprintln!("ottla bench: interrupted before anything was measured");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let ran: Vec<&str> = result.scenarios.iter().map(|it| it.name.as_str()).collect();
    let stem = file_stem(&ran, &result.started);
    let json = args.out.join(format!("{stem}.json"));
    result.write(&json)?;
    let html = json.with_extension("html");
    std::fs::write(&html, report::html(std::slice::from_ref(&result))?)
        .with_context(|| format!("{} cannot be written", html.display()))?;
    // After the result is stored, because the reader of the output may have exited.
    print!("{}", table::overview(&result));
    println!("{}\n{}", json.display(), html.display());
    if let Some(dir) = &args.openmessaging_out {
        write_openmessaging(&result, dir)?;
    }
    match &result.partial {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => {
            eprintln!("ottla bench: the result is partial: {why}");
            let is_interrupted = why == "interrupted";
            Ok(ExitCode::from(if is_interrupted { INTERRUPTED } else { 1 }))
        }
    }
}

/// The output directory. It is removed again if the run created it and produced no result.
struct OutDir<'a> {
    path: &'a Path,
    is_new: bool,
}

impl OutDir<'_> {
    fn make(path: &Path) -> Result<OutDir<'_>> {
        let is_new = !path.exists();
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot create {}; give another --out", path.display()))?;
        Ok(OutDir { path, is_new })
    }
}

impl Drop for OutDir<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // This succeeds only for an empty directory.
            let _ = std::fs::remove_dir(self.path);
        }
    }
}

fn write_openmessaging(result: &ResultFile, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for test in openmessaging::test_results(result) {
        let path = dir.join(openmessaging::file_name(&test));
        let text = serde_json::to_vec_pretty(&test)?;
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Client properties in Kafka's format.
fn client_settings(path: &Path) -> Result<BTreeMap<String, String>> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).with_context(|| format!("{shown} cannot be read; check the path"))?;
    let settings = Properties::parse_bytes(&bytes, &shown.to_string())?.into_map();
    // Reports invalid client properties before anything is started.
    properties::admin(&settings).with_context(|| shown.to_string())?;
    Ok(settings)
}

/// The brokers named by a driver are measured if no target is given.
fn targets(args: &RunArgs, brokers_of_driver: Option<String>) -> Result<Vec<TargetSpec>> {
    let mut targets: Vec<TargetSpec> = Vec::new();
    let is_named = !args.bootstrap_server.is_empty() || !args.target.is_empty();
    let of_driver = brokers_of_driver.into_iter().filter(|_| !is_named);
    let metrics: Vec<MetricsEndpoint> = args
        .metrics
        .iter()
        .map(|url| MetricsEndpoint::parse(url))
        .collect::<Result<_>>()?;
    let settings = match &args.command_config {
        Some(path) => client_settings(path)?,
        None => BTreeMap::new(),
    };
    for bootstrap in args.bootstrap_server.iter().cloned().chain(of_driver) {
        targets.push(TargetSpec::Remote {
            bootstrap,
            metrics: metrics.clone(),
            settings: settings.clone(),
        });
    }
    if args.command_config.is_some() && targets.is_empty() {
        bail!("--command-config is for running clusters; also give --bootstrap-server");
    }
    if !metrics.is_empty() && targets.len() != 1 {
        bail!("--metrics belongs to one cluster; also give one --bootstrap-server");
    }
    for target in &args.target {
        targets.push(match target {
            TargetName::Ottla => TargetSpec::Ottla {
                binary: std::env::current_exe().context("cannot find the path of this binary")?,
            },
            TargetName::Kafka => TargetSpec::Kafka,
        });
    }
    if targets.is_empty() {
        targets.push(TargetSpec::Ottla {
            binary: std::env::current_exe().context("cannot find the path of this binary")?,
        });
    }
    if targets
        .iter()
        .enumerate()
        .any(|(index, it)| targets[..index].contains(it))
    {
        bail!("a target is given twice");
    }
    Ok(targets)
}

/// The command line, quoted for a shell.
fn repeating_command() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .and_then(|name| name.to_str());
    let mut words = vec![name.unwrap_or("ottla").to_owned()];
    words.extend(arguments.map(|argument| shell_word(&argument)));
    words.join(" ")
}

/// `linkedin-2014-20261121T204504Z`: the name of the scenarios' group, or of the single scenario,
/// and the start time.
fn file_stem(names: &[&str], started: &str) -> String {
    let named = names.first().copied().unwrap_or("bench");
    let named = match names.len() {
        0 | 1 => named,
        _ => named.rsplit_once('/').map_or(named, |(group, _)| group),
    };
    let path = Path::new(named.trim_end_matches(".toml"));
    let last = path.file_name().and_then(|name| name.to_str());
    let name = if path.is_absolute() {
        last.unwrap_or("bench")
    } else {
        named.trim_end_matches(".toml")
    };
    let plain = |c: char| {
        if c.is_alphanumeric() || "-_".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(plain).collect();
    let started = started.replace([':', '-'], "");
    format!("{}-{started}", name.trim_matches('-'))
}

fn compare_results(args: &CompareArgs) -> Result<ExitCode> {
    let first = ResultFile::read(&args.first)?;
    let second = ResultFile::read(&args.second)?;
    let compared = compare::compare(&first, &second);
    print!("{compared}");
    if args.fail_on_regression && compared.has_regressed() {
        eprintln!("ottla bench: something became worse beyond noise");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn write_report(args: &ReportArgs) -> Result<ExitCode> {
    let mut results = Vec::new();
    for file in &args.files {
        results.push(ResultFile::read(file)?);
    }
    let first: &PathBuf = args.files.first().context("give at least one result")?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| first.with_extension("html"));
    std::fs::write(&out, report::html(&results)?)
        .with_context(|| format!("{} cannot be written", out.display()))?;
    println!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_listed_with_its_title() {
        let text = listed();
        for (name, _) in shipped::SHIPPED {
            assert!(text.contains(&format!("  {name} ")), "{name}");
        }
        assert!(text.contains("Effect of the size of messages"));
    }

    #[test]
    fn an_unknown_name_suggests_others() {
        let error = found("linkedin").unwrap_err().to_string();
        assert!(error.contains("did you mean linkedin-2014/"), "{error}");
        let error = found("linkdin-2014").unwrap_err().to_string();
        assert!(error.ends_with("did you mean linkedin-2014?"), "{error}");
        let error = found("zzz").unwrap_err().to_string();
        assert!(error.contains("ottla bench list"), "{error}");
        let error = found("nowhere.toml").unwrap_err().to_string();
        assert!(error.contains("check the path"), "{error}");
    }

    #[test]
    fn the_name_of_a_mistyped_scale_is_suggested() {
        let scenarios = scenarios(&["linkedin-2014/single-producer".to_owned()]).unwrap();
        let meant = meant_scale("smal", &scenarios[0]);
        assert_eq!(meant, "; did you mean --scale small?");
        assert_eq!(meant_scale("enormous", &scenarios[0]), "");
    }

    #[test]
    fn files_are_named_after_their_scenario() {
        let stem = |names: &[&str]| file_stem(names, "2026-11-21T20:45:04Z");
        assert_eq!(
            stem(&[
                "linkedin-2014/single-producer",
                "linkedin-2014/message-size"
            ]),
            "linkedin-2014-20261121T204504Z"
        );
        assert_eq!(
            stem(&["rate-ladder/write"]),
            "rate-ladder-write-20261121T204504Z"
        );
        assert_eq!(stem(&["/tmp/a b.toml"]), "a-b-20261121T204504Z");
        assert_eq!(stem(&[]), "bench-20261121T204504Z");
    }
}
