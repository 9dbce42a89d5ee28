//! Sampled series.

use axum::Json;
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::extract::Query;
use crate::problem::Problem;
use crate::view::{Range, Series, now_ms};

#[derive(Deserialize)]
pub(super) struct SeriesQuery {
    of: String,
    #[serde(default)]
    since: i64,
    until: Option<i64>,
    last_ms: Option<i64>,
    #[serde(default)]
    step_ms: i64,
}

#[derive(Serialize)]
pub(super) struct SampledSeries {
    interval_ms: u64,
    /// Whether there is no room for some series.
    is_full: bool,
    has_latencies: bool,
    times: Vec<i64>,
    series: Vec<Series>,
}

pub(super) async fn get(
    visitor: Visitor,
    Query(query): Query<SeriesQuery>,
) -> Result<Json<SampledSeries>, Problem> {
    let is_known =
        query.of == "cluster" || query.of.starts_with("topic/") || query.of.starts_with("group/");
    if !is_known {
        return Err(Problem::invalid(
            "of",
            format!("of={}: give cluster, topic/NAME or group/NAME", query.of),
        ));
    }
    if query.step_ms < 0 {
        return Err(Problem::invalid(
            "step_ms",
            format!(
                "step_ms={}: give milliseconds, or 0 for all samples",
                query.step_ms
            ),
        ));
    }
    let last = query.last_ms.map(|it| now_ms().saturating_sub(it));
    let range = Range {
        since: last.map_or(query.since, |last| last.max(query.since)),
        until: query.until.unwrap_or(i64::MAX),
        step_ms: query.step_ms,
    };
    let (times, series) = visitor.view.series(&query.of, range);
    Ok(Json(SampledSeries {
        interval_ms: visitor.view.interval_ms(),
        is_full: visitor.view.lacks_room(),
        has_latencies: visitor.view.has_latencies(),
        times,
        series,
    }))
}
