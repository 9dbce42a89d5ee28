//! A round that searches for the highest sustainable rate: a series of attempts, each a round at its own rate.

use anyhow::Result;

use super::Interruption;
use super::context::RoundOutcome;
use crate::results::AttemptResult;
use crate::scenario::{Load, Point};
use crate::search::{Attempt, Search};

/// `run_round` runs one round at the load of a point, with a title for the progress line.
pub async fn search(
    point: &Point,
    label: &str,
    interruption: &Interruption,
    run_round: impl AsyncFn(&Point, &str) -> Result<RoundOutcome>,
) -> Result<RoundOutcome> {
    let Load::Search {
        from,
        step,
        p99_limit_ms,
    } = point.spec.load
    else {
        return run_round(point, label).await;
    };
    let mut search = Search::new(from, step, p99_limit_ms);
    let mut best = RoundOutcome::default();
    let mut attempts = Vec::new();
    let mut notes = Vec::new();
    while let Some(offered) = search.next() {
        if interruption.is_set() {
            break;
        }
        let mut attempted = point.clone();
        attempted.spec.load = Load::Rate {
            records_per_second: offered,
        };
        let label = format!("{label}, offered {offered:.0}");
        let outcome = run_round(&attempted, &label).await?;
        if interruption.is_set() {
            break;
        }
        let figure = |name: &str| outcome.round.figures.get(name).copied();
        let reached = figure("produce.records_per_second").unwrap_or(0.0);
        let is_held = search.report(Attempt {
            offered,
            reached,
            p99_ms: figure("e2e.p99_ms"),
        });
        attempts.push(AttemptResult {
            offered,
            reached,
            is_held,
            e2e_p50_ms: figure("e2e.p50_ms"),
            e2e_p99_ms: figure("e2e.p99_ms"),
            e2e_p99_9_ms: figure("e2e.p99_9_ms"),
            e2e_max_ms: figure("e2e.max_ms"),
        });
        if is_held {
            best = outcome;
        }
    }
    if let Some(held) = search.best() {
        let figures = &mut best.round.figures;
        figures.insert("search.records_per_second".into(), held.offered);
    } else if search.next().is_none() {
        notes.push("no rate was held, not even the lowest that was tried".to_owned());
    }
    best.round.attempts = attempts;
    best.notes.append(&mut notes);
    Ok(best)
}
