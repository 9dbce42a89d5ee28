//! Runs of `ottla bench`: their results in a directory, and one run at a time as a child process.
//!
//! The console measures nothing and compares nothing by itself: `ottla bench` of the same binary
//! does. Input from a browser reaches it only as numbers and as names from lists, each in a
//! separate argument; no shell is used.

mod config;

mod command;
mod results;
mod run;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};

pub(crate) use command::{Scenario, Wanted};
pub use config::MeasureConfig;
pub(crate) use results::{ResultRow, Results, Summary};
pub(crate) use run::{Moment, Run, RunState};

use crate::problem::Problem;

/// Comparisons at a time; further ones wait.
const COMPARISONS: usize = 2;

pub(crate) struct Measure {
    config: MeasureConfig,
    results: Results,
    scenarios: OnceCell<Vec<Scenario>>,
    comparisons: Semaphore,
    /// The newest run of this console.
    run: Mutex<Option<Arc<Run>>>,
}

impl Measure {
    pub(crate) fn new(config: MeasureConfig) -> Measure {
        Measure {
            results: Results::new(config.dir.clone()),
            config,
            scenarios: OnceCell::new(),
            comparisons: Semaphore::new(COMPARISONS),
            run: Mutex::new(None),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.config.dir
    }

    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// The shipped scenarios.
    pub(crate) async fn scenarios(&self) -> Result<&[Scenario], Problem> {
        let program = &self.config.program;
        let listed = self.scenarios.get_or_try_init(|| async move {
            let text = command::output(program, vec!["list".into()]).await?;
            Ok::<_, Problem>(command::scenarios_in(&text))
        });
        Ok(listed.await?.as_slice())
    }

    /// What `ottla bench compare` says of two results.
    pub(crate) async fn compare(&self, first: &str, second: &str) -> Result<String, Problem> {
        let arguments: Vec<OsString> = vec![
            "compare".into(),
            self.results.file("first", first, "json")?.into(),
            self.results.file("second", second, "json")?.into(),
        ];
        let _place = self.comparisons.acquire().await;
        command::output(&self.config.program, arguments).await
    }

    pub(crate) fn run(&self) -> Option<Arc<Run>> {
        self.run.lock().clone()
    }

    /// Starts a run, unless there is one.
    pub(crate) async fn start(
        &self,
        wanted: &Wanted,
        bootstrap_servers: &str,
    ) -> Result<Arc<Run>, Problem> {
        let arguments = command::of_run(
            wanted,
            self.scenarios().await?,
            bootstrap_servers,
            &self.config,
        )?;
        let mut newest = self.run.lock();
        if newest
            .as_ref()
            .is_some_and(|it| it.state() != RunState::Ended)
        {
            return Err(Problem::conflict(
                "a run of ottla bench is in progress; wait for its end, or stop it",
            ));
        }
        let run = Run::start(&self.config.program, arguments, &wanted.scenario)?;
        *newest = Some(run.clone());
        Ok(run)
    }
}
