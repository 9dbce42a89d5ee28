//! What a visit knows of the cluster: the latest snapshot, and sampled series.
//!
//! Nothing is requested before the first visitor comes. From then on a snapshot is taken regularly,
//! more rarely when nobody has asked for some minutes, and after hours without a reader no more:
//! then the series are forgotten. Pages are answered from the latest snapshot, so that their cost
//! does not grow with the number of tabs. A change through the console makes the next reader wait
//! for a new snapshot.

mod collect;
mod history;
mod samples;
mod snapshot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{Admin, ClientError};
use parking_lot::Mutex;

pub(crate) use collect::now_ms;
pub(crate) use history::{Range, Series};
#[cfg(test)]
pub(crate) use snapshot::TopicSettings;
pub(crate) use snapshot::{Broker, Feature, Group, Partition, Snapshot, Topic};

use crate::latencies::BrokerLatencies;
use crate::sampling::Sampling;
use history::History;

/// The time between snapshots. Longer if taking one takes long, so that it stays a small part of
/// the cluster's work.
const INTERVAL: Duration = Duration::from_secs(10);
const MOST_BUSY: u32 = 20;
/// After this time without a reader, snapshots are taken for the series alone, at this interval.
const UNUSED: Duration = Duration::from_secs(10 * 60);
const UNUSED_INTERVAL: Duration = Duration::from_secs(60);
/// After this time without a reader, no more snapshots are taken, and the series are forgotten:
/// they would show little of the last hours.
const ABANDONED: Duration = Duration::from_secs(4 * 60 * 60);
/// A reader does not get a snapshot that is older.
const STALE: Duration = Duration::from_secs(60);

pub(crate) struct View {
    admin: Admin,
    sampling: Sampling,
    state: Mutex<State>,
    /// Held while a snapshot is taken.
    taking: tokio::sync::Mutex<()>,
}

struct State {
    latest: Option<(Arc<Snapshot>, Instant)>,
    history: History,
    used: Instant,
    is_sampling: bool,
    /// How often something was changed, and how often before the latest snapshot was begun.
    changes: u64,
    seen_changes: u64,
}

impl State {
    fn is_outdated(&self) -> bool {
        self.changes != self.seen_changes
    }
}

impl View {
    pub(crate) fn new(admin: Admin, sampling: Sampling) -> Arc<View> {
        Arc::new(View {
            admin,
            state: Mutex::new(State {
                latest: None,
                history: History::new(sampling.clone()),
                used: Instant::now(),
                is_sampling: false,
                changes: 0,
                seen_changes: 0,
            }),
            sampling,
            taking: tokio::sync::Mutex::new(()),
        })
    }

    /// The latest snapshot; waits for one if there is none that is recent.
    pub(crate) async fn snapshot(self: &Arc<View>) -> Result<Arc<Snapshot>, ClientError> {
        self.keep_sampling();
        match self.usable() {
            Some(snapshot) => Ok(snapshot),
            None => {
                let _turn = self.taking.lock().await;
                // Another reader may have waited for the same.
                match self.usable() {
                    Some(snapshot) => Ok(snapshot),
                    None => self.take().await,
                }
            }
        }
    }

    /// Makes the next reader wait for a new snapshot.
    pub(crate) fn outdate(&self) {
        self.state.lock().changes += 1;
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
        self.sampling.latencies.is_some()
    }

    pub(crate) fn interval_ms(&self) -> u64 {
        INTERVAL.as_millis() as u64
    }

    fn usable(&self) -> Option<Arc<Snapshot>> {
        let state = self.state.lock();
        let (snapshot, taken) = state.latest.as_ref()?;
        (!state.is_outdated() && taken.elapsed() < STALE).then(|| snapshot.clone())
    }

    async fn take(&self) -> Result<Arc<Snapshot>, ClientError> {
        // A reader that goes away meanwhile leaves everything as it was.
        let (previous, changes, is_outdated) = {
            let state = self.state.lock();
            (state.latest.clone(), state.changes, state.is_outdated())
        };
        let previous = previous.map(|(snapshot, _)| snapshot);
        let taken = collect::take(&self.admin, previous.as_deref(), is_outdated).await;
        let latencies = self.sampling.latencies.as_ref();
        let latencies = latencies.map(BrokerLatencies::read).unwrap_or_default();
        let mut state = self.state.lock();
        match taken {
            Ok(snapshot) => {
                let snapshot = Arc::new(snapshot);
                let samples = samples::of_snapshot(&snapshot, &latencies);
                state.history.add(snapshot.at, samples);
                state.latest = Some((snapshot.clone(), Instant::now()));
                state.seen_changes = changes;
                Ok(snapshot)
            }
            Err(error) => {
                // A reader must not take the old one for the present state.
                state.changes += 1;
                Err(error)
            }
        }
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
                    if let Err(error) = view.take().await {
                        tracing::debug!(%error, "no snapshot of the cluster");
                    }
                    pause = view
                        .interval(Instant::now())
                        .max(began.elapsed() * MOST_BUSY);
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

    use super::samples::{Sample, Unit};
    use super::*;

    #[tokio::test]
    async fn a_view_that_nobody_reads_is_sampled_rarely_and_then_forgotten() {
        let config = ClientConfig::new("127.0.0.1:1").unwrap();
        let admin = Admin::new(Client::unconnected(config));
        let view = View::new(admin, Sampling::new(None));
        let sample = Sample {
            of: "cluster".to_owned(),
            name: "lag".to_owned(),
            unit: Unit::Records,
            value: 1.0,
        };
        view.state.lock().history.add(1, vec![sample]);
        let all = Range {
            since: 0,
            until: i64::MAX,
            step_ms: 0,
        };
        assert_eq!(view.series("cluster", all).0, [1]);
        let used = view.state.lock().used;
        assert_eq!(view.interval(used + UNUSED / 2), INTERVAL);
        assert_eq!(view.interval(used + UNUSED), UNUSED_INTERVAL);
        assert!(!view.stop_if_abandoned(used + ABANDONED / 2));
        assert!(view.state.lock().is_sampling);
        assert!(view.stop_if_abandoned(used + ABANDONED));
        assert!(!view.state.lock().is_sampling);
        assert!(view.series("cluster", all).0.is_empty());
    }
}
