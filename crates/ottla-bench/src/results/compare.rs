//! Compares two results: for each figure the ratio, its confidence interval and a verdict.

use super::{PointResult, ResultFile, ScenarioResult, TargetRuns};
use crate::figures::{self, Better};
use crate::statistics::{Ratio, Verdict};

/// One figure of one point in both results.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub scenario: String,
    pub point: String,
    pub figure: &'static str,
    pub target: String,
    pub first: f64,
    pub second: f64,
    pub ratio: Ratio,
    pub verdict: Verdict,
}

/// The figures of two results, and the figures that only one of them has.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ResultComparison {
    pub lines: Vec<Line>,
    /// Sentences about figures that cannot be compared, or only with caution.
    pub notes: Vec<String>,
}

/// Compares the figures that both have. If both measured a single target, the targets are compared
/// even if their names differ.
pub fn compare(first: &ResultFile, second: &ResultFile) -> ResultComparison {
    let noise = first.machine.noise.max(second.machine.noise);
    let mut compared = ResultComparison::default();
    if first.machine.processor != second.machine.processor
        || first.machine.cores != second.machine.cores
    {
        compared.notes.push(format!(
            "measured on different machines: {} with {} cores, {} with {}",
            first.machine.processor,
            first.machine.cores,
            second.machine.processor,
            second.machine.cores
        ));
    }
    if first.scale != second.scale {
        compared.notes.push(format!(
            "measured at different scales: {} and {}",
            first.scale, second.scale
        ));
    }
    for partial in [first, second]
        .into_iter()
        .filter_map(|it| it.partial.as_ref())
    {
        compared
            .notes
            .push(format!("one result is partial: {partial}"));
    }
    for scenario in &first.scenarios {
        let Some(other) = second.scenarios.iter().find(|it| it.name == scenario.name) else {
            let note = format!("{} is only in the first", scenario.name);
            compared.notes.push(note);
            continue;
        };
        if scenario.differences != other.differences {
            compared
                .notes
                .push(format!("{} was set differently", scenario.name));
        }
        compare_points(scenario, other, noise, &mut compared);
    }
    for scenario in &second.scenarios {
        if !first.scenarios.iter().any(|it| it.name == scenario.name) {
            let note = format!("{} is only in the second", scenario.name);
            compared.notes.push(note);
        }
    }
    compared
}

fn compare_points(
    first: &ScenarioResult,
    second: &ScenarioResult,
    noise: f64,
    compared: &mut ResultComparison,
) {
    for (these, others, which) in [(first, second, "first"), (second, first, "second")] {
        let is_alone = |point: &&PointResult| !others.points.iter().any(|it| it.at == point.at);
        for point in these.points.iter().filter(is_alone) {
            let note = format!("{}: {} is only in the {which}", first.name, point.label);
            compared.notes.push(note);
        }
    }
    for point in &first.points {
        let Some(other) = second.points.iter().find(|it| it.at == point.at) else {
            continue;
        };
        for (a, b) in pairs(point, other) {
            for figure in figures::FIGURES {
                let finite = |runs: &TargetRuns| -> Vec<f64> {
                    let values = runs.values(figure.name).into_iter();
                    values.filter(|value| value.is_finite()).collect()
                };
                let Some(ratio) = Ratio::unpaired(&finite(a), &finite(b)) else {
                    continue;
                };
                let median = |runs: &TargetRuns| {
                    runs.summaries
                        .get(figure.name)
                        .map_or(f64::NAN, |it| it.median)
                };
                compared.lines.push(Line {
                    scenario: first.name.clone(),
                    point: point.label.clone(),
                    figure: figure.name,
                    target: b.target.clone(),
                    first: median(a),
                    second: median(b),
                    verdict: ratio.verdict(figure.better, noise),
                    ratio,
                });
            }
        }
    }
}

fn pairs<'a>(
    first: &'a PointResult,
    second: &'a PointResult,
) -> Vec<(&'a TargetRuns, &'a TargetRuns)> {
    if let ([first], [second]) = (&first.runs[..], &second.runs[..]) {
        return vec![(first, second)];
    }
    let found = |run: &'a TargetRuns| {
        let other = second.runs.iter().find(|it| it.target == run.target)?;
        Some((run, other))
    };
    first.runs.iter().filter_map(found).collect()
}

impl ResultComparison {
    /// Whether a figure with a better direction became worse by more than the noise.
    pub fn has_regressed(&self) -> bool {
        self.lines.iter().any(|line| {
            let better = figures::known(line.figure).map(|it| it.better);
            line.verdict == Verdict::Worse && better != Some(Better::Neither)
        })
    }
}

/// Formats an end of an interval. With few rounds, intervals are so wide that decimals are
/// meaningless.
fn end(ratio: f64) -> String {
    match ratio {
        _ if ratio < 0.01 => "<0.01".to_owned(),
        _ if ratio > 100.0 => ">100".to_owned(),
        _ => format!("{ratio:.2}"),
    }
}

impl std::fmt::Display for ResultComparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        if !self.lines.is_empty() {
            writeln!(
                f,
                "  {:<42} {:>12} {:>12}  {:<7} {:<14} verdict",
                "medians of the rounds", "first", "second", "ratio", "95 % interval"
            )?;
        }
        let mut last = (String::new(), String::new());
        for line in &self.lines {
            let here = (line.scenario.clone(), line.point.clone());
            if here != last {
                if line.point.is_empty() {
                    writeln!(f, "{}", line.scenario)?
                } else {
                    writeln!(f, "{}: {}", line.scenario, line.point)?
                }
                last = here;
            }
            let figure = figures::known(line.figure);
            let label = figure.map_or_else(String::new, |it| match it.unit {
                "" => it.label.to_owned(),
                unit => format!("{}, {unit}", it.label),
            });
            let interval = match (line.ratio.low, line.ratio.high) {
                (Some(low), Some(high)) => format!("{} to {}", end(low), end(high)),
                _ => "–".to_owned(),
            };
            writeln!(
                f,
                "  {label:<42} {:>12} {:>12}  x{:<6.2} {interval:<14} {}",
                figures::shown(line.first),
                figures::shown(line.second),
                line.ratio.ratio,
                line.verdict.in_words()
            )?;
        }
        if self.lines.is_empty() {
            writeln!(f, "The two have no figure in common.")?;
        }
        Ok(())
    }
}
