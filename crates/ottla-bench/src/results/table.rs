//! The table printed at the end of a run: measured figures beside published ones.

use super::{PointResult, PublishedFigures, ResultFile, ScenarioResult, TargetRuns};
use crate::figures::{self, Figure};
use crate::target::TargetSpec;

/// For each scenario without a sweep, a line with its most significant figure; empty if a single
/// table shows everything.
pub fn overview(result: &ResultFile) -> String {
    let rows: Vec<Vec<String>> = result.scenarios.iter().filter_map(headline).collect();
    if result.scenarios.len() < 2 || rows.is_empty() {
        return String::new();
    }
    let mut header = vec![String::new()];
    let names = result.targets.iter();
    header.extend(names.map(|it| TargetSpec::short_name(&it.name)));
    header.extend(["published".to_owned(), "of published".to_owned()]);
    format!("All together\n{}", aligned(&header, &rows))
}

fn headline(scenario: &ScenarioResult) -> Option<Vec<String>> {
    let [point] = &scenario.points[..] else {
        return None;
    };
    let published = point.published.iter().find(|it| !it.figures.is_empty());
    let says_most = |figure: &&Figure| match published {
        Some(published) => published.figures.contains_key(figure.name),
        None => point
            .runs
            .iter()
            .any(|run| run.summaries.contains_key(figure.name)),
    };
    let figure = figures::FIGURES.iter().find(says_most)?;
    let value = published.map(|it| it.figures[figure.name]);
    let mut row = vec![format!(
        "{}: {}, {}",
        scenario.name, figure.label, figure.unit
    )];
    row.extend(point.runs.iter().map(|run| measured(run, figure)));
    row.push(value.map_or("–".to_owned(), figures::shown));
    let first = point
        .runs
        .first()
        .and_then(|run| run.summaries.get(figure.name));
    row.push(match (first, value) {
        (Some(first), Some(value)) if value > 0.0 => format!("x{:.2}", first.median / value),
        _ => "–".to_owned(),
    });
    Some(row)
}

/// A title, the differences from the published run, and one line per figure.
pub fn of_scenario(scenario: &ScenarioResult) -> String {
    let mut text = format!("{}: {}\n", scenario.name, scenario.title);
    if !scenario.differences.is_empty() {
        let differences = scenario.differences.join("; ");
        text.push_str(&format!("  not as published: {differences}\n"));
    }
    for note in &scenario.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for point in &scenario.points {
        rows.extend(rows_of(point, scenario.points.len() > 1));
    }
    let Some(first) = scenario.points.first() else {
        text.push_str("  nothing was measured\n");
        return text;
    };
    let mut header = vec![String::new()];
    let runs = first.runs.iter();
    header.extend(runs.map(|run| TargetSpec::short_name(&run.target)));
    header.push("published".to_owned());
    if first.runs.len() > 1 {
        header.push("compared".to_owned());
    }
    text.push_str(&aligned(&header, &rows));
    let all = || {
        let points = scenario.points.iter();
        points.flat_map(|point| point.published.iter().map(move |it| (point, it)))
    };
    // A note that is printed beside the figures of one point is not repeated for another point.
    let is_told = |note: &str| all().any(|(point, it)| it.note == note && is_told_apart(point, it));
    let mut notes: Vec<&str> = Vec::new();
    for (_, PublishedFigures { note, .. }) in all() {
        if !note.is_empty() && !is_told(note) && !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    for note in notes {
        text.push_str(&format!("  published: {note}\n"));
    }
    text
}

/// Whether a note is printed beside each figure, to distinguish several publications; other notes
/// are printed below.
fn is_told_apart(point: &PointResult, published: &PublishedFigures) -> bool {
    let has_others = |name: &String| {
        let of_figure = point
            .published
            .iter()
            .filter(|it| it.figures.contains_key(name));
        of_figure.count() > 1
    };
    !published.note.is_empty() && published.figures.keys().any(has_others)
}

/// Figures that a point of a sweep shows; a point alone shows all.
const OF_A_SWEEP: &[&str] = &[
    "produce.records_per_second",
    "produce.mb_per_second",
    "produce.stored_mb_per_second",
    "produce.failed",
    "produce.lost",
    "consume.records_per_second",
    "consume.mb_per_second",
    "consume.stored_mb_per_second",
    "search.records_per_second",
    "delay_ms",
    "ack.p99_ms",
    "e2e.p99_ms",
];

/// Figures that are shown even if they are 0; others are omitted then.
const SHOWN_AT_ZERO: &[&str] = &[
    "produce.records_per_second",
    "produce.lost",
    "consume.records_per_second",
];

fn rows_of(point: &PointResult, is_of_a_sweep: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for figure in figures::FIGURES {
        let is_published = point
            .published
            .iter()
            .any(|it| it.figures.contains_key(figure.name));
        if is_of_a_sweep && !is_published && !OF_A_SWEEP.contains(&figure.name) {
            continue;
        }
        let is_nothing = |run: &TargetRuns| {
            run.summaries
                .get(figure.name)
                .is_none_or(|it| it.max == 0.0 && !SHOWN_AT_ZERO.contains(&figure.name))
        };
        if point.runs.iter().all(is_nothing) && (!is_published || figure.name == "produce.failed") {
            continue;
        }
        let mut row = vec![label_of(point, figure)];
        for run in &point.runs {
            row.push(measured(run, figure));
        }
        let published: Vec<String> = point
            .published
            .iter()
            .filter_map(|it| {
                let value = figures::shown(*it.figures.get(figure.name)?);
                Some(if is_told_apart(point, it) {
                    format!("{value} ({})", it.note)
                } else {
                    value
                })
            })
            .collect();
        row.push(published.join("; "));
        if point.runs.len() > 1 {
            let of_figure = point
                .comparisons
                .iter()
                .filter(|it| it.figure == figure.name);
            let shown = of_figure.map(|it| {
                format!(
                    "{} x{:.2} {}",
                    TargetSpec::short_name(&it.second),
                    it.ratio.ratio,
                    it.verdict.in_words()
                )
            });
            row.push(shown.collect::<Vec<_>>().join("; "));
        }
        rows.push(row);
    }
    rows
}

fn label_of(point: &PointResult, figure: &Figure) -> String {
    let name = match figure.unit {
        "" => figure.label.to_owned(),
        unit => format!("{}, {unit}", figure.label),
    };
    if point.label.is_empty() {
        name
    } else {
        format!("{}: {name}", point.label)
    }
}

fn measured(run: &TargetRuns, figure: &Figure) -> String {
    let Some(summary) = run.summaries.get(figure.name) else {
        return "–".to_owned();
    };
    let value = figures::shown(summary.median);
    if summary.rounds > 1 && summary.median != 0.0 {
        format!("{value} ±{:.0} %", summary.spread() * 50.0)
    } else {
        value
    }
}

fn aligned(header: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let all = std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
        all.filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..header.len()).map(|it| width(it).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in std::iter::once(header).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width = widths.get(column).copied().unwrap_or(0);
            match column {
                0 => line.push_str(&format!(" {cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Summary;

    fn scenario(name: &str, median: f64, published: f64) -> ScenarioResult {
        let figure = "produce.records_per_second";
        let json = serde_json::json!({
            "name": name, "title": "t", "question": "", "published_on": "", "differences": [], "notes": [],
            "plots": [], "text": "",
            "points": [{
                "at": {}, "label": "", "comparisons": [],
                "published": [
                    { "figures": { "produce.mb_per_second": 1.0, figure: published }, "note": "first day" },
                    { "figures": { figure: 2.0 * published }, "note": "second day" },
                    { "figures": {}, "note": "a plot" },
                ],
                "runs": [{ "target": "ottla", "curves": {}, "rounds": [], "summaries": {
                    figure: Summary { median, min: median * 0.9, max: median * 1.1, rounds: 3 },
                } }],
            }],
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_column_of_several_addresses_has_a_short_head() {
        let mut result = scenario("a/b", 3000.0, 1500.0);
        result.points[0].runs[0].target = "one:9092,two:9092,three:9092".to_owned();
        let text = of_scenario(&result);
        assert!(
            text.contains("one:9092 +2") && !text.contains("two"),
            "{text}"
        );
    }

    #[test]
    fn the_headline_is_the_first_published_figure() {
        let row = headline(&scenario("a/b", 3000.0, 1500.0)).unwrap();
        let expected = ["a/b: produced, rec/s", "3,000 ±10 %", "1,500", "x2.00"];
        assert_eq!(row, expected);
    }

    #[test]
    fn a_rate_of_nothing_and_no_loss_are_shown() {
        let mut scenario = scenario("a/b", 0.0, 1500.0);
        scenario.points[0].published.clear();
        let summaries = &mut scenario.points[0].runs[0].summaries;
        for name in ["produce.lost", "produce.failed"] {
            let of_rate = summaries["produce.records_per_second"];
            summaries.insert(name.to_owned(), of_rate);
        }
        let text = of_scenario(&scenario);
        assert!(text.contains("produced, rec/s"), "{text}");
        assert!(text.contains("acknowledged and lost"), "{text}");
        assert!(!text.contains("failed sends"), "{text}");
    }

    #[test]
    fn notes_are_shown_only_to_distinguish_figures() {
        let mut scenario = scenario("a/b", 3000.0, 1500.0);
        // Only one of the two has published figures for another point.
        let mut other = scenario.points[0].clone();
        other.published.truncate(1);
        scenario.points.push(other);
        let text = of_scenario(&scenario);
        assert!(
            text.contains("1,500 (first day); 3,000 (second day)"),
            "{text}"
        );
        assert!(text.ends_with("  published: a plot\n"), "{text}");
        assert!(!text.contains("published: first day"), "{text}");
    }
}
