//! Causes rebalances during a round, to measure their cost: some time after the warm-up one more
//! consumer joins each group, and after the same time again it leaves. Its records count like the
//! records of the other members.

use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Handle;

use super::Interruption;
use super::clients::{BenchConsumer, Subscription};
use super::consuming::{StopCondition, consume};
use super::watch::{Watch, Window};
use crate::target::Cluster;

/// Polling interval of a waiting consumer, so that it notices the end of the round.
const LOOK: Duration = Duration::from_millis(20);

/// When the consumer joins and leaves, by the round's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rebalance {
    pub joins: u64,
    pub leaves: u64,
}

impl Rebalance {
    pub fn planned(after: Option<Duration>, window: Window) -> Option<Rebalance> {
        let after = after?.as_nanos() as u64;
        Some(Rebalance {
            joins: window.start + after,
            leaves: window.start + 2 * after,
        })
    }

    /// Describes the event between two clock readings, if any.
    pub fn between(&self, before: u64, now: u64) -> Option<&'static str> {
        let is_due = |instant: u64| before < instant && instant <= now;
        if is_due(self.joins) {
            Some("a consumer joins each group")
        } else if is_due(self.leaves) {
            Some("the consumers leave that joined")
        } else {
            None
        }
    }
}

/// The inputs of the additional consumer.
pub struct ExtraConsumer {
    pub rebalance: Rebalance,
    pub cluster: Cluster,
    pub settings: std::collections::BTreeMap<String, String>,
    pub topic: String,
    pub group: String,
}

impl ExtraConsumer {
    /// Waits for its time, consumes with the other members, and leaves.
    pub fn run(
        self,
        watch: &Watch,
        all: &dyn Fn() -> u64,
        until: &StopCondition,
        runtime: &Handle,
        interruption: &Interruption,
    ) -> Result<()> {
        while watch.clock().now() < self.rebalance.joins {
            if until.is_reached(all(), interruption) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        let subscription = Subscription::Group(&self.group);
        let started =
            BenchConsumer::start(&self.cluster, &self.settings, &self.topic, subscription);
        let consumer = runtime.block_on(started)?;
        let leaves = Some(self.rebalance.leaves);
        consume(consumer, watch, all, until, leaves, runtime, interruption)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_joins_after_the_warm_up_and_leaves_after_as_long() {
        let window = Window {
            start: 5_000_000_000,
            end: u64::MAX,
        };
        assert_eq!(Rebalance::planned(None, window), None);
        let rebalance = Rebalance::planned(Some(Duration::from_secs(2)), window).unwrap();
        let second = 1_000_000_000;
        assert_eq!(rebalance.joins, 7 * second);
        assert_eq!(rebalance.leaves, 9 * second);
        let told: Vec<_> = (1..12)
            .filter_map(|now| {
                let what = rebalance.between((now - 1) * second, now * second)?;
                Some((now, what))
            })
            .collect();
        assert_eq!(
            told,
            [
                (7, "a consumer joins each group"),
                (9, "the consumers leave that joined")
            ]
        );
    }
}
