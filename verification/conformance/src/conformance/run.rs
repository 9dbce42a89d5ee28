//! Runs every script against both brokers, several in parallel, and compares their output.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Side;
use super::clients::Prepared;
use super::comparison::{self, KnownDifferences, Line};
use super::repeated::Found;
use ottla_workspace::process::{self, OwnedChild};

/// A script that hangs counts as a difference. This is several times the duration of the slowest
/// script.
const PATIENCE: Duration = Duration::from_secs(600);

/// The lines of each script, or its error, with its duration, by client and side.
type Results = BTreeMap<(usize, usize), (Result<Vec<Line>>, Duration)>;

pub fn scripts(
    clients: &[Prepared],
    sides: &[Side; 2],
    jobs: usize,
    out: &Path,
    known: &KnownDifferences,
) -> Vec<Found> {
    let mut waiting: Vec<(usize, usize)> = (0..clients.len())
        .flat_map(|client| [(client, 0), (client, 1)])
        .collect();
    waiting.reverse();
    let waiting = Mutex::new(waiting);
    let results: Mutex<Results> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no holder panics").pop();
                    let Some((client, side)) = next else { return };
                    let began = Instant::now();
                    let lines = run_one(&clients[client], &sides[side], out);
                    let result = (lines, began.elapsed());
                    results
                        .lock()
                        .expect("no holder panics")
                        .insert((client, side), result);
                }
            });
        }
    });

    let mut results = results.into_inner().expect("no holder panics");
    let mut found = Vec::new();
    for (index, prepared) in clients.iter().enumerate() {
        let name = prepared.client.name();
        let mut times = Vec::new();
        let [left, right] = [0, 1].map(|side| {
            let (lines, time) = results
                .remove(&(index, side))
                .expect("every script was run");
            let label = &sides[side].label;
            times.push(format!("{label} {:.0} s", time.as_secs_f64()));
            lines.with_context(|| format!("{name} against {label}"))
        });
        let times = times.join(", ");
        let outcome = match (left, right) {
            (Ok(left), Ok(right)) => Ok(comparison::compare(name, &left, &right, known)),
            (Err(left), Err(right)) => Err(left.context(format!("{right:#}"))),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        let compared = Found {
            name: name.to_owned(),
            client: Some(prepared.client),
            outcome,
        };
        let verdict = compared.verdict();
        match &compared.outcome {
            Ok(outcome) => {
                println!(
                    "{verdict} {name}: {} steps alike, {} known differences, {} unknown ({times})",
                    outcome.alike,
                    outcome.known,
                    outcome.unknown.len()
                );
                if compared.has_differed() {
                    let heading = format!("  - {}, + {}", sides[0].label, sides[1].label);
                    print!("{}", super::shown(&heading, &outcome.unknown));
                }
            }
            Err(error) => {
                println!("{verdict} {name}: the script did not run to its end ({times})");
                println!("    {error:#}");
            }
        }
        found.push(compared);
    }
    found
}

/// Runs one script and parses its lines. The output files stay in the output folder for debugging.
fn run_one(client: &Prepared, side: &Side, out: &Path) -> Result<Vec<Line>> {
    let name = client.client.name();
    let base = out.join(format!("{name}.{}", side.label));
    let (stdout, stderr) = (base.with_extension(format!("{}.jsonl", side.label)), {
        base.with_extension(format!("{}.err", side.label))
    });
    let bootstrap = side.node.bootstrap();
    let mut command = client.command(&bootstrap, &side.arguments);
    command
        .stdout(Stdio::from(File::create(&stdout)?))
        .stderr(Stdio::from(File::create(&stderr)?));
    let mut child = OwnedChild::start(&mut command)?;
    let status = child.wait(PATIENCE)?;
    let printed = std::fs::read_to_string(&stdout)?;
    match status {
        Some(status) if status.success() => comparison::parse(&printed, &side.ports),
        other => {
            let steps = printed.lines().count();
            let last = printed.lines().last().unwrap_or_default();
            let ending = match other {
                Some(status) => status.to_string(),
                None => format!("it hung for {PATIENCE:?}"),
            };
            bail!(
                "{ending} after {steps} steps, the last being {}; {}",
                comparison::shortened(last),
                process::last_lines(&stderr)
            )
        }
    }
}
