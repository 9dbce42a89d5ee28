//! Sampled series.

use axum::Json;
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::extract::Query;
use crate::problem::Problem;
use crate::view::Series;

#[derive(Deserialize)]
pub(super) struct SeriesQuery {
    of: String,
    #[serde(default)]
    since: i64,
}

#[derive(Serialize)]
pub(super) struct SampledSeries {
    interval_ms: u64,
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
    let (times, series) = visitor.view.series(&query.of, query.since);
    Ok(Json(SampledSeries {
        interval_ms: visitor.view.interval_ms(),
        times,
        series,
    }))
}
