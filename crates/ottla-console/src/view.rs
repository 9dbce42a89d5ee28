//! The cluster as a visit sees it: the latest snapshot, and sampled series.
//!
//! No request is sent before the first visitor. From then on a snapshot is taken regularly, less
//! often after some minutes without a reader. After hours without a reader, sampling stops and the
//! series are dropped. Pages are answered from the latest snapshot, so that their cost does not
//! grow with the number of tabs. A change through the console makes the next reader wait for a new
//! snapshot. Brokers apply a change a moment after the controller has accepted it, so the snapshots
//! taken in the seconds after a change are not kept for long.

mod collect;
mod history;
mod samples;
mod snapshot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::Admin;
use parking_lot::Mutex;

pub(crate) use collect::now_ms;
pub(crate) use history::{Range, Series};
#[cfg(test)]
pub(crate) use snapshot::TopicSettings;
pub(crate) use snapshot::{
    Broker, Feature, Group, Partition, Snapshot, Topic, lag_behind, sum_of_known,
};

use crate::budget::{Budget, Reservation};
use crate::from_broker::{FromBroker, Latency};
use crate::problem::Problem;
use crate::sampling::Sampling;
use history::History;

/// The time between snapshots. Longer if taking one takes long, so that it stays a small part of
/// the cluster's work.
const INTERVAL: Duration = Duration::from_secs(10);
const MOST_BUSY: u32 = 20;
/// After this time without a reader, snapshots are taken for the series alone, at this interval.
const UNUSED: Duration = Duration::from_secs(10 * 60);
const UNUSED_INTERVAL: Duration = Duration::from_secs(60);
/// After this time without a reader, no more snapshots are taken, and the series are dropped.
const ABANDONED: Duration = Duration::from_secs(4 * 60 * 60);
/// A reader does not get a snapshot that is older.
const STALE: Duration = Duration::from_secs(60);
/// Brokers have applied a change after this time.
const SETTLING: Duration = Duration::from_secs(3);
/// A reader does not get an older snapshot if it was begun while a change was settling.
const UNSETTLED: Duration = Duration::from_millis(500);
/// A snapshot up to this size needs no reservation, nor do its series: such snapshots of all
/// sessions together take 32 MiB, and the series have a separate bound. Otherwise the page would
/// not work for other users while one has many searches open.
const SMALL: usize = 128 << 10;

pub(crate) struct View {
    admin: Admin,
    /// For what brokers forward to the active controller. It has its own connections: a broker answers the requests of
    /// a connection one after the other, and without a controller it answers none of these.
    forwarded: Admin,
    budget: Budget,
    sampling: Sampling,
    state: Mutex<State>,
    /// Held while a snapshot is taken.
    taking: tokio::sync::Mutex<()>,
}

struct State {
    latest: Option<Latest>,
    history: History,
    used: Instant,
    is_sampling: bool,
    /// How often something was changed, and how often before the latest snapshot was begun.
    changes: u64,
    seen_changes: u64,
    /// When something was changed the last time.
    changed: Option<Instant>,
    /// When the last attempt failed, and why. `None` if it has succeeded.
    failure: Option<(Instant, Problem)>,
}

struct Latest {
    snapshot: Arc<Snapshot>,
    begun: Instant,
    taken: Instant,
    /// For the snapshot and the series, if they are large.
    _reservation: Option<Reservation>,
}

impl State {
    fn is_outdated(&self) -> bool {
        self.changes != self.seen_changes
    }

    /// Whether a snapshot that was begun then may lack a change.
    fn is_settling(&self, begun: Instant) -> bool {
        self.changed
            .is_some_and(|changed| begun < changed + SETTLING)
    }
}

impl View {
    pub(crate) fn new(
        admin: Admin,
        forwarded: Admin,
        budget: Budget,
        sampling: Sampling,
    ) -> Arc<View> {
        Arc::new(View {
            admin,
            forwarded,
            budget,
            state: Mutex::new(State {
                latest: None,
                history: History::new(sampling.clone()),
                used: Instant::now(),
                is_sampling: false,
                changes: 0,
                seen_changes: 0,
                changed: None,
                failure: None,
            }),
            sampling,
            taking: tokio::sync::Mutex::new(()),
        })
    }

    /// The latest snapshot; waits for one if there is none that is recent. Readers that wait at the
    /// same time share one attempt: one attempt each, one after the other, would make them wait for
    /// minutes while the cluster cannot be reached.
    pub(crate) async fn snapshot(self: &Arc<View>) -> Result<Arc<Snapshot>, Problem> {
        self.keep_sampling();
        if let Some(snapshot) = self.usable() {
            return Ok(snapshot);
        }
        let asked = Instant::now();
        let _turn = self.taking.lock().await;
        match (self.usable(), self.failure_since(asked)) {
            (Some(snapshot), _) => Ok(snapshot),
            (None, Some(problem)) => Err(problem),
            (None, None) => self.take().await,
        }
    }

    /// Makes the next reader wait for a new snapshot.
    pub(crate) fn outdate(&self) {
        let mut state = self.state.lock();
        state.changes += 1;
        state.changed = Some(Instant::now());
    }

    /// As [`View::outdate`], unless the latest snapshot is younger: for a state that changes by
    /// itself, and that every tab requests.
    pub(crate) fn outdate_if_older(&self, age: Duration) {
        let mut state = self.state.lock();
        let latest = state.latest.as_ref();
        if latest.is_some_and(|it| it.taken.elapsed() >= age) {
            state.changes += 1;
        }
    }

    /// The sampled series of a thing in a range of time.
    pub(crate) fn series(self: &Arc<View>, of: &str, range: Range) -> (Vec<i64>, Vec<Series>) {
        self.keep_sampling();
        self.state.lock().history.read(of, range)
    }

    /// Whether some series are missing because there is no room for them.
    pub(crate) fn lacks_room(&self) -> bool {
        self.state.lock().history.is_full()
    }

    /// Whether the latencies of the broker are among the series of the cluster.
    pub(crate) fn has_latencies(&self) -> bool {
        let state = self.state.lock();
        let latest = state.latest.as_ref();
        let may_have = latest.is_none_or(|it| it.snapshot.shows_log_dirs());
        may_have && self.sampling.latencies.is_some()
    }

    pub(crate) fn interval_ms(&self) -> u64 {
        INTERVAL.as_millis() as u64
    }

    fn usable(&self) -> Option<Arc<Snapshot>> {
        let state = self.state.lock();
        let latest = state.latest.as_ref()?;
        let oldest = if state.is_settling(latest.begun) {
            UNSETTLED
        } else {
            STALE
        };
        (!state.is_outdated() && latest.taken.elapsed() < oldest).then(|| latest.snapshot.clone())
    }

    fn failure_since(&self, asked: Instant) -> Option<Problem> {
        let state = self.state.lock();
        let (at, problem) = state.failure.as_ref()?;
        (*at >= asked).then(|| problem.clone())
    }

    async fn take(&self) -> Result<Arc<Snapshot>, Problem> {
        // A reader that goes away during the request changes nothing.
        let begun = Instant::now();
        let (previous, changes, is_outdated) = {
            let state = self.state.lock();
            let latest = state.latest.as_ref();
            let is_outdated =
                state.is_outdated() || latest.is_some_and(|it| state.is_settling(it.begun));
            let previous = latest.map(|it| it.snapshot.clone());
            (previous, state.changes, is_outdated)
        };
        let (admin, forwarded) = (&self.admin, &self.forwarded);
        let taken = collect::take(admin, forwarded, previous.as_deref(), is_outdated).await;
        let latencies = self.sampling.latencies.as_ref();
        let latencies = latencies.map(FromBroker::read).unwrap_or_default();
        let mut state = self.state.lock();
        let kept = taken
            .map_err(Problem::from)
            .and_then(|snapshot| self.keep(&mut state, snapshot, begun, &latencies));
        match &kept {
            Ok(_) => {
                state.seen_changes = changes;
                state.failure = None;
            }
            // A reader must not take the old one for the present state.
            Err(problem) => {
                state.changes += 1;
                state.failure = Some((Instant::now(), problem.clone()));
            }
        }
        kept
    }

    fn keep(
        &self,
        state: &mut State,
        snapshot: Snapshot,
        begun: Instant,
        latencies: &[Latency],
    ) -> Result<Arc<Snapshot>, Problem> {
        // The broker does not decide who may see them: they are for users that may see log directories.
        let latencies = match snapshot.shows_log_dirs() {
            true => latencies,
            false => &[],
        };
        let samples = samples::of_snapshot(&snapshot, latencies);
        state.history.add(snapshot.at, samples);
        // The room of the previous one is free for this one.
        state.latest = None;
        let bytes = snapshot.bytes();
        let all = bytes + state.history.bytes();
        let reservation = (bytes > SMALL).then(|| self.budget.reserve(all));
        let reservation = reservation.transpose().inspect_err(|_| {
            // Nothing stays in memory without its reservation.
            state.history.clear();
        })?;
        let snapshot = Arc::new(snapshot);
        state.latest = Some(Latest {
            snapshot: snapshot.clone(),
            begun,
            taken: Instant::now(),
            _reservation: reservation,
        });
        Ok(snapshot)
    }

    fn keep_sampling(self: &Arc<View>) {
        let mut state = self.state.lock();
        state.used = Instant::now();
        if !state.is_sampling {
            state.is_sampling = true;
            let view = Arc::downgrade(self);
            tokio::spawn(async move {
                let mut pause = INTERVAL;
                loop {
                    tokio::time::sleep(pause).await;
                    let Some(view) = view.upgrade() else { return };
                    if view.stop_if_abandoned(Instant::now()) {
                        return;
                    }
                    let began = Instant::now();
                    let _turn = view.taking.lock().await;
                    let taken = view.take().await;
                    let mut busy = began.elapsed();
                    match taken {
                        // It has waited for the controller, which is no work for the cluster.
                        Ok(snapshot) if snapshot.quorum_failure.is_some() => busy = Duration::ZERO,
                        Ok(_) => {}
                        Err(problem) => {
                            tracing::debug!("no snapshot of the cluster: {}", problem.detail());
                        }
                    }
                    pause = view.interval(Instant::now()).max(busy * MOST_BUSY);
                }
            });
        }
    }

    fn interval(&self, now: Instant) -> Duration {
        match now.duration_since(self.state.lock().used) >= UNUSED {
            true => UNUSED_INTERVAL,
            false => INTERVAL,
        }
    }

    fn stop_if_abandoned(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_abandoned = now.duration_since(state.used) >= ABANDONED;
        state.is_sampling = !is_abandoned;
        if is_abandoned {
            state.history.clear();
            state.latest = None;
        }
        is_abandoned
    }
}

#[cfg(test)]
mod tests {
    use ottla_client::{Client, ClientConfig};
    use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;

    use super::samples::{Sample, Unit};
    use super::*;

    const ALL: Range = Range {
        since: 0,
        until: i64::MAX,
        step_ms: 0,
    };

    fn view(budget: Budget) -> Arc<View> {
        let mut config = ClientConfig::new("127.0.0.1:1").unwrap();
        config.default_api_timeout = Duration::from_millis(300);
        let admin = Admin::new(Client::unconnected(config));
        View::new(admin.clone(), admin, budget, Sampling::new(None))
    }

    #[tokio::test]
    async fn readers_that_wait_at_the_same_time_share_one_failed_attempt() {
        let view = view(Budget::default());
        let readers = (0..50).map(|_| view.snapshot());
        for read in futures_util::future::join_all(readers).await {
            assert_eq!(read.err().map(|it| it.status()), Some(502));
        }
        assert_eq!(view.state.lock().changes, 1, "failed attempts");
        // A later reader makes a new attempt.
        assert!(view.snapshot().await.is_err());
        assert_eq!(view.state.lock().changes, 2, "failed attempts");
    }

    #[tokio::test]
    async fn a_young_snapshot_is_kept_for_a_state_that_changes_by_itself() {
        let view = view(Budget::default());
        let kept = view.keep(&mut view.state.lock(), with_topics(1), Instant::now(), &[]);
        assert!(kept.is_ok());
        view.outdate_if_older(Duration::from_secs(3600));
        assert!(view.usable().is_some());
        view.outdate_if_older(Duration::ZERO);
        assert!(view.usable().is_none());
    }

    /// A broker describes its old state until it has applied the change.
    #[tokio::test]
    async fn a_snapshot_soon_after_a_change_is_not_kept_for_long() {
        let view = view(Budget::default());
        view.outdate();
        let mut state = view.state.lock();
        let changed = state.changed.expect("it was changed");
        assert!(view.keep(&mut state, with_topics(1), changed, &[]).is_ok());
        state.seen_changes = state.changes;
        drop(state);
        let set_times = |begun: Instant, age: Duration| {
            let mut state = view.state.lock();
            let latest = state.latest.as_mut().expect("it is kept");
            latest.begun = begun;
            latest.taken = Instant::now().checked_sub(age).expect("it runs for longer");
        };
        set_times(changed, Duration::ZERO);
        assert!(view.usable().is_some());
        set_times(changed, UNSETTLED);
        assert!(view.usable().is_none());
        set_times(changed + SETTLING, UNSETTLED);
        assert!(view.usable().is_some());
    }

    #[tokio::test]
    async fn a_view_that_nobody_reads_is_sampled_rarely_and_then_forgotten() {
        let view = view(Budget::default());
        let sample = Sample {
            of: "cluster".to_owned(),
            name: "lag".to_owned(),
            unit: Unit::Records,
            value: 1.0,
        };
        view.state.lock().history.add(1, vec![sample]);
        assert_eq!(view.series("cluster", ALL).0, [1]);
        let used = view.state.lock().used;
        assert_eq!(view.interval(used + UNUSED / 2), INTERVAL);
        assert_eq!(view.interval(used + UNUSED), UNUSED_INTERVAL);
        assert!(!view.stop_if_abandoned(used + ABANDONED / 2));
        assert!(view.state.lock().is_sampling);
        assert!(view.stop_if_abandoned(used + ABANDONED));
        assert!(!view.state.lock().is_sampling);
        assert!(view.series("cluster", ALL).0.is_empty());
    }

    fn with_topics(count: usize) -> Snapshot {
        let topic = |number: usize| {
            let name = format!("topic-{number}");
            let info = ottla_client::TopicInfo {
                name: name.clone(),
                topic_id: ottla_types::Uuid::ZERO,
                error: ottla_types::ErrorCode::None,
                is_internal: false,
                partitions: Vec::new(),
            };
            let topic = Topic {
                info,
                offsets: Vec::new(),
                bytes: None,
                leader_bytes: Vec::new(),
                settings: None,
                records_per_second: None,
                records_out_per_second: None,
            };
            (name, topic)
        };
        Snapshot {
            at: 1,
            cluster_id: None,
            brokers: Vec::new(),
            topics: (0..count).map(topic).collect(),
            groups: None,
            quorum: None,
            quorum_failure: None,
            features: Vec::new(),
        }
    }

    #[tokio::test]
    async fn latencies_are_for_users_that_may_see_log_directories() {
        let view = view(Budget::default());
        let latency = Latency {
            name: "Produce p99",
            ms: 1.0,
        };
        let names = |at: i64, log_dirs: Option<Vec<DescribeLogDirsResult>>| {
            let broker = Broker {
                id: 1,
                host: "h".into(),
                port: 9092,
                rack: None,
                is_fenced: false,
                log_dirs,
            };
            let snapshot = Snapshot {
                at,
                brokers: vec![broker],
                ..with_topics(0)
            };
            let latency = [latency.clone()];
            assert!(
                view.keep(&mut view.state.lock(), snapshot, Instant::now(), &latency)
                    .is_ok()
            );
            let series = view.series("cluster", ALL).1;
            series.iter().any(|it| it.name.starts_with("latency/"))
        };
        // Old versions of the request have no error, and a user without the right sees none.
        assert!(!names(1, None) && !names(2, Some(Vec::new())));
        assert!(names(3, Some(vec![DescribeLogDirsResult::default()])));
    }

    #[tokio::test]
    async fn a_large_snapshot_is_part_of_the_budget() {
        let budget = Budget::default();
        let view = view(budget.clone());
        let keep = |topics: usize| {
            view.keep(
                &mut view.state.lock(),
                with_topics(topics),
                Instant::now(),
                &[],
            )
        };
        // A small one needs no reservation, so the page works while one user holds all memory.
        let all = budget.reserve(usize::MAX).unwrap();
        assert!(keep(10).is_ok());
        assert_eq!(view.series("cluster", ALL).0, [1]);
        assert_eq!(keep(100_000).err().map(|it| it.status()), Some(503));
        assert!(view.usable().is_none(), "it is not kept without its room");
        assert!(view.series("cluster", ALL).0.is_empty());
        drop(all);
        assert!(keep(100_000).is_ok());
        assert!(budget.reserve(usize::MAX).is_err());
        // One takes the room of the previous one.
        assert!(keep(10).is_ok());
        assert!(budget.reserve(usize::MAX).is_ok());
    }
}
