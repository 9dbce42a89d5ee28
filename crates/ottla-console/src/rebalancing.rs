//! A rebalance that a visit carries out: one at a time, with its progress.
//!
//! The work is that of `ottla rebalance apply`. It ends early when it is cancelled, when it fails, and when the visit
//! ends. Only a cancellation stops the moves in progress, after all requests of the work have ended.

use std::future::Future;
use std::sync::Arc;

use ottla_client::Admin;
use ottla_rebalance_apply::{Apply, ApplyError, Outlook, Targets, cancel};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;

use crate::budget::Reservation;
use crate::problem::Problem;
use crate::view::now_ms;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RebalanceState {
    Running,
    Cancelling,
    Done,
    Cancelled,
    Failed,
}

/// The state of a rebalance at a moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RebalanceMoment {
    pub(crate) state: RebalanceState,
    /// Milliseconds since 1970.
    started: i64,
    /// Partitions of the plan that existed at the start, and the ones that did not.
    partitions: usize,
    missing: usize,
    /// Replicas and bytes that were to be copied at the start, and that are copied.
    moves: usize,
    bytes: u64,
    moved: usize,
    copied_bytes: u64,
    /// Partitions that are moving.
    moving: usize,
    elected: usize,
    not_elected: usize,
    /// Bytes per second of each broker.
    throttle: Option<u64>,
    /// Why it has failed, or the remaining work.
    problem: Option<String>,
}

/// A plan that is ready to be carried out.
pub(crate) struct Work {
    pub(crate) apply: Apply,
    pub(crate) admin: Admin,
    pub(crate) targets: Targets,
    pub(crate) throttle: Option<u64>,
    /// Until it ends.
    pub(crate) _reservation: Reservation,
    /// Of the only one of the console.
    pub(crate) _place: OwnedSemaphorePermit,
}

pub(crate) struct Rebalance {
    moment: Mutex<RebalanceMoment>,
    cancel: Notify,
}

/// The rebalances of one visit.
#[derive(Default)]
pub(crate) struct Rebalancing {
    newest: Mutex<Option<Arc<Rebalance>>>,
}

impl Rebalancing {
    pub(crate) fn newest(&self) -> Option<Arc<Rebalance>> {
        self.newest.lock().clone()
    }

    pub(crate) fn is_running(&self) -> bool {
        let newest = self.newest.lock();
        newest.as_ref().is_some_and(|it| it.is_running())
    }

    /// As if one went on.
    #[cfg(test)]
    pub(crate) fn seem_running(&self) {
        let rebalance = Rebalance::new(&Outlook::default(), None);
        *self.newest.lock() = Some(Arc::new(rebalance));
    }

    pub(crate) fn check_free(&self) -> Result<(), Problem> {
        match self.is_running() {
            true => Err(Problem::conflict(
                "a rebalance is in progress; wait for its end, or cancel it",
            )),
            false => Ok(()),
        }
    }

    /// Carries a plan out, until `gone` completes. `on_end` learns how it has ended.
    pub(crate) fn start(
        &self,
        work: Work,
        gone: impl Future<Output = ()> + Send + 'static,
        on_end: impl FnOnce(&RebalanceMoment) + Send + 'static,
    ) -> Result<Arc<Rebalance>, Problem> {
        let rebalance = Arc::new(Rebalance::new(work.apply.outlook(), work.throttle));
        let mut newest = self.newest.lock();
        if newest.as_ref().is_some_and(|it| it.is_running()) {
            return Err(Problem::conflict(
                "another rebalance has started; wait for its end, or cancel it",
            ));
        }
        *newest = Some(rebalance.clone());
        let (running, seen) = (rebalance.clone(), rebalance.clone());
        let carried_out = tokio::spawn(async move { running.carry_out(work, gone).await });
        tokio::spawn(async move {
            seen.settle(carried_out).await;
            on_end(&seen.moment());
        });
        Ok(rebalance)
    }
}

impl Rebalance {
    fn new(outlook: &Outlook, throttle: Option<u64>) -> Rebalance {
        Rebalance {
            moment: Mutex::new(RebalanceMoment {
                state: RebalanceState::Running,
                started: now_ms(),
                partitions: outlook.partitions,
                missing: outlook.missing,
                moves: outlook.moves,
                bytes: outlook.cost.bytes(),
                moved: 0,
                copied_bytes: 0,
                moving: 0,
                elected: 0,
                not_elected: 0,
                throttle,
                problem: None,
            }),
            cancel: Notify::new(),
        }
    }

    pub(crate) fn moment(&self) -> RebalanceMoment {
        self.moment.lock().clone()
    }

    /// The largest is the one that a user looks for: one that is running, or the newest one.
    pub(crate) fn rank(&self) -> (bool, i64) {
        (self.is_running(), self.moment.lock().started)
    }

    fn is_running(&self) -> bool {
        let state = self.moment.lock().state;
        matches!(state, RebalanceState::Running | RebalanceState::Cancelling)
    }

    /// Stops it with the moves that are in progress. An error if it has ended.
    pub(crate) fn cancel(&self) -> Result<(), Problem> {
        let mut moment = self.moment.lock();
        match moment.state {
            RebalanceState::Running => {
                moment.state = RebalanceState::Cancelling;
                self.cancel.notify_one();
                Ok(())
            }
            RebalanceState::Cancelling => Ok(()),
            _ => Err(Problem::conflict("the rebalance has ended already")),
        }
    }

    async fn carry_out(&self, mut work: Work, gone: impl Future<Output = ()>) {
        let ended = self.unless(gone, self.work(&mut work)).await;
        let (state, problem) = match ended {
            Some(Ended::Stopped) => stopped(&work).await,
            Some(Ended::As(end)) => end,
            None => (
                RebalanceState::Failed,
                Some(
                    "the session has ended; moves in progress continue, and throttles stay"
                        .to_owned(),
                ),
            ),
        };
        let outcome = work.apply.outcome();
        // Released before the end is visible, so that the next one can start then.
        drop(work);
        let mut moment = self.moment.lock();
        moment.state = state;
        moment.problem = problem;
        moment.moving = 0;
        moment.elected = outcome.elected;
        moment.not_elected = outcome.not_elected.len();
    }

    /// Waits for its end, also if it panics. Otherwise it would seem to continue, and prevent the start of another one
    /// and the end of its session.
    async fn settle(&self, carried_out: JoinHandle<()>) {
        if carried_out.await.is_ok() {
            return;
        }
        let mut moment = self.moment.lock();
        moment.state = RebalanceState::Failed;
        moment.moving = 0;
        moment.problem = Some(
            "the rebalance broke off; moves in progress continue, and throttles stay".to_owned(),
        );
    }

    /// The end of the work, unless the visit ends before. Work that is cancelled is waited for in any case: if a request of
    /// it were on its way, the cluster could start moves and set throttles after the cancellation has looked for them.
    async fn unless<T>(
        &self,
        gone: impl Future<Output = ()>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let gone = async {
            gone.await;
            if self.is_cancelling() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = work => Some(ended),
            () = gone => None,
        }
    }

    fn is_cancelling(&self) -> bool {
        self.moment.lock().state == RebalanceState::Cancelling
    }

    async fn work(&self, work: &mut Work) -> Ended {
        let tell = |count: ottla_rebalance_apply::Count| {
            let mut moment = self.moment.lock();
            moment.moved = count.moves;
            moment.copied_bytes = count.bytes;
            moment.moving = count.moving;
        };
        let cancelled = self.cancel.notified();
        match work.apply.work(work.throttle, tell, cancelled).await {
            Ok(true) => {}
            Ok(false) => return Ended::Stopped,
            // A cancellation ends the moves, even if a new rebalance cannot start.
            Err(_) if self.is_cancelling() => return Ended::Stopped,
            Err(error) => {
                let left = "moves in progress continue, and throttles stay: make a plan again for the rest";
                return Ended::As(failed(left, &error));
            }
        }
        match work.apply.finish().await {
            Ok(()) => Ended::As((RebalanceState::Done, None)),
            Err(error) => Ended::As(failed(
                "the plan is carried out, but throttles may remain: remove them on the page of reassignments",
                &error,
            )),
        }
    }
}

/// How the work has ended.
enum Ended {
    /// By a cancellation, which handles the moves in progress.
    Stopped,
    As((RebalanceState, Option<String>)),
}

/// Cancels the moves in progress, and removes the throttles.
async fn stopped(work: &Work) -> (RebalanceState, Option<String>) {
    match cancel(&work.admin, &work.targets).await {
        Ok(_) => (RebalanceState::Cancelled, None),
        Err(error) => failed("moves in progress continue, and throttles stay", &error),
    }
}

fn failed(what: &str, error: &ApplyError) -> (RebalanceState, Option<String>) {
    (RebalanceState::Failed, Some(format!("{error}; {what}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_cancellation_waits_for_requests_in_flight() {
        let rebalance = Arc::new(Rebalance::new(&Outlook::default(), None));
        let (answer, is_answered) = oneshot::channel();
        let (leave, has_left) = oneshot::channel::<()>();
        let running = rebalance.clone();
        let task = tokio::spawn(async move {
            // It looks at the cancellation between two requests.
            let work = async {
                running.cancel.notified().await;
                is_answered.await
            };
            let gone = async {
                let _ = has_left.await;
            };
            running.unless(gone, work).await
        });
        rebalance.cancel().unwrap();
        // Nor does a logout break it off.
        leave.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!task.is_finished());
        answer.send("stopped").unwrap();
        assert_eq!(task.await.unwrap(), Some(Ok("stopped")));
    }

    #[tokio::test]
    async fn a_rebalance_that_breaks_off_has_ended() {
        let rebalance = Rebalance::new(&Outlook::default(), None);
        let carried_out = tokio::spawn(async { panic!("a defect") });
        rebalance.settle(carried_out).await;
        assert!(!rebalance.is_running());
        let problem = rebalance.moment().problem.unwrap();
        assert!(problem.contains("throttles stay"), "{problem}");
    }

    #[tokio::test]
    async fn a_rebalance_ends_with_its_visit() {
        let rebalance = Rebalance::new(&Outlook::default(), None);
        let work = std::future::pending::<()>();
        assert_eq!(rebalance.unless(std::future::ready(()), work).await, None);
    }
}
