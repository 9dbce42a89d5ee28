//! Runs of `ottla bench`: their results, two compared, and one run at a time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::console::{Console, Visitor};
use crate::extract::{Body, Path, Query};
use crate::list::Items;
use crate::measure::{Measure, Moment, ResultRow, Run, RunState, Scenario, Summary, Wanted};
use crate::problem::Problem;
use crate::records::events::events;

/// A result in memory, as text and decoded.
const RESULT_BYTES: usize = 128 << 20;

#[derive(Serialize)]
pub(super) struct Overview {
    /// Where the results are; null if this console has no benchmarks.
    dir: Option<String>,
    /// Why no run can be started; null if one can.
    refusal: Option<&'static str>,
    scenarios: Vec<Scenario>,
    run: Option<RunRow>,
}

#[derive(Serialize)]
pub(super) struct RunRow {
    scenario: String,
    started: i64,
    #[serde(flatten)]
    moment: Moment,
}

fn run_row(run: &Run) -> RunRow {
    RunRow {
        scenario: run.scenario.clone(),
        started: run.started,
        moment: run.moments().borrow().without_lines(),
    }
}

pub(super) async fn get(
    _visitor: Visitor,
    State(console): State<Arc<Console>>,
) -> Result<Json<Overview>, Problem> {
    let Some(measure) = &console.measure else {
        return Ok(Json(Overview {
            dir: None,
            refusal: refusal(&console),
            scenarios: Vec::new(),
            run: None,
        }));
    };
    Ok(Json(Overview {
        dir: Some(measure.dir().display().to_string()),
        refusal: refusal(&console),
        scenarios: measure.scenarios().await?.to_vec(),
        run: measure.run().map(|it| run_row(&it)),
    }))
}

/// Why this console cannot start runs. A run connects with the console's settings, which in a
/// console with logins contain no user's credentials, and it uses the processor of the console's
/// machine.
fn refusal(console: &Console) -> Option<&'static str> {
    if console.measure.is_none() {
        return Some(NOT_SET_UP);
    }
    if console.has_logins() {
        return Some(
            "a console with logins runs no benchmarks: a run would not have the rights of the person who starts it; \
             use ottla bench, or a console on a loopback address without logins",
        );
    }
    if console.config().read_only {
        return Some(
            "this console is in read-only mode; start it without --read-only to run benchmarks",
        );
    }
    None
}

const NOT_SET_UP: &str = "this console has no directory for benchmarks; start it with: ottla console --bench-dir \
                          ottla-bench --bootstrap-server HOST:PORT";

fn measure_of(console: &Console) -> Result<&Measure, Problem> {
    let measure = console.measure.as_ref();
    measure.ok_or_else(|| Problem::not_found(NOT_SET_UP))
}

/// Reads files, on a thread that may wait for them.
async fn reading<T: Send + 'static>(
    visitor: &Visitor,
    console: Arc<Console>,
    read: impl FnOnce(&Measure) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let reserved = visitor.budget.reserve(RESULT_BYTES)?;
    let reading = tokio::task::spawn_blocking(move || {
        let _reserved = reserved;
        read(measure_of(&console)?)
    });
    let read = reading.await;
    read.map_err(|_| Problem::internal("reading the results broke off; try again"))?
}

pub(super) async fn results(
    visitor: Visitor,
    State(console): State<Arc<Console>>,
) -> Result<Json<Items<ResultRow>>, Problem> {
    let items = reading(&visitor, console, |measure| measure.results().list()).await?;
    Ok(Json(Items { items }))
}

pub(super) async fn result(
    visitor: Visitor,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Json<Summary>, Problem> {
    let summary = reading(&visitor, console, move |measure| {
        measure.results().summary(&name)
    });
    Ok(Json(summary.await?))
}

/// The report as a file: its scripts and styles are in it, which a page of the console may not have.
pub(super) async fn report(
    visitor: Visitor,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let is_safe = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    let safe: String = name.chars().filter(is_safe).collect();
    let report = reading(&visitor, console, move |measure| {
        measure.results().report(&name)
    })
    .await?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{safe}.html\""),
        ),
    ];
    Ok((headers, report).into_response())
}

#[derive(Deserialize)]
pub(super) struct ComparisonQuery {
    first: String,
    second: String,
}

#[derive(Serialize)]
pub(super) struct Comparison {
    /// What `ottla bench compare` prints.
    text: String,
}

pub(super) async fn compare(
    _visitor: Visitor,
    State(console): State<Arc<Console>>,
    Query(query): Query<ComparisonQuery>,
) -> Result<Json<Comparison>, Problem> {
    let measure = measure_of(&console)?;
    let text = measure.compare(&query.first, &query.second).await?;
    Ok(Json(Comparison { text }))
}

pub(super) async fn start(
    visitor: Visitor,
    State(console): State<Arc<Console>>,
    Body(wanted): Body<Wanted>,
) -> Result<Json<RunRow>, Problem> {
    if let Some(refusal) = refusal(&console) {
        return Err(Problem::forbidden(refusal));
    }
    visitor.note.names(format!("scenario {}", wanted.scenario));
    let bootstrap_servers = console.config().client.bootstrap_servers.join(",");
    let measure = measure_of(&console)?;
    let run = measure.start(&wanted, &bootstrap_servers).await?;
    Ok(Json(run_row(&run)))
}

/// Asks the run to stop; once more, and it ends at once.
pub(super) async fn stop(
    visitor: Visitor,
    State(console): State<Arc<Console>>,
) -> Result<StatusCode, Problem> {
    if let Some(refusal) = refusal(&console) {
        return Err(Problem::forbidden(refusal));
    }
    let run = newest(&console)?;
    if run.state() == RunState::Ended {
        return Err(Problem::conflict("the run has ended already"));
    }
    visitor.note.names(format!("scenario {}", run.scenario));
    run.stop();
    Ok(StatusCode::NO_CONTENT)
}

/// The output of the newest run, from its first line that is kept to its end.
pub(super) async fn output(
    visitor: Visitor,
    State(console): State<Arc<Console>>,
) -> Result<Response, Problem> {
    let run = newest(&console)?;
    events(visitor.visit.clone(), |sender| async move {
        let mut moments = run.moments();
        let mut seen = 0;
        // The sender is in the run, which is here.
        while moments.changed().await.is_ok() {
            let (lines, moment) = {
                let moment = moments.borrow_and_update();
                let lines = moment.lines_after(seen).into_iter();
                let lines: Vec<String> = lines.map(str::to_owned).collect();
                seen = moment.line_count();
                (lines, moment.without_lines())
            };
            if !lines.is_empty() {
                sender.send("lines", &lines).await?;
            }
            if moment.state == RunState::Ended {
                sender.send("done", &moment).await?;
                break;
            }
            sender.send("progress", &moment).await?;
        }
        Ok(())
    })
}

fn newest(console: &Console) -> Result<Arc<Run>, Problem> {
    let run = measure_of(console)?.run();
    run.ok_or_else(|| Problem::not_found("no run was started since this console was"))
}
