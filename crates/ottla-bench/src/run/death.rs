//! Kills a leader during a round, to measure the loss of records.
//!
//! Kills the broker of the run that leads most partitions of the topic, but never the first broker,
//! which is also the controller. The broker is restarted after the round, so that the next round
//! starts with the whole cluster.

use anyhow::{Context as _, Result};

use super::context::Context;
use super::watch::Window;
use crate::workload::pacing::RunClock;

pub struct Death {
    /// When the kill is due, by the round's clock; `None` if it has happened or is not requested.
    due: Option<u64>,
    victim: Option<i32>,
}

impl Death {
    pub fn planned(context: &Context<'_>, window: Window) -> Death {
        let after = context.spec.measure.leader_dies;
        Death {
            due: after.map(|after| window.start + after.as_nanos() as u64),
            victim: None,
        }
    }

    /// Kills the broker when it is due, and returns a description.
    pub async fn happen(
        &mut self,
        context: &Context<'_>,
        clock: RunClock,
    ) -> Result<Option<String>> {
        let (Some(due), Some(local)) = (self.due, &context.target.local) else {
            return Ok(None);
        };
        if clock.now() < due {
            return Ok(None);
        }
        self.due = None;
        let leaders = context.target.cluster.leaders(&context.topic.name).await?;
        let (victim, led) = leaders
            .into_iter()
            .filter(|(broker, _)| *broker > 1)
            .max_by_key(|(_, led)| *led)
            .context(
                "only the broker that is the controller too leads partitions; give more partitions",
            )?;
        local.kill_broker(victim)?;
        self.victim = Some(victim);
        Ok(Some(format!(
            "broker {victim} dies, which led {led} partitions"
        )))
    }

    pub fn has_happened(&self) -> bool {
        self.victim.is_some()
    }

    /// Restarts the broker.
    pub async fn undo(&self, context: &Context<'_>) -> Result<()> {
        let (Some(victim), Some(local)) = (self.victim, &context.target.local) else {
            return Ok(());
        };
        tokio::task::block_in_place(|| local.revive_broker(victim))?;
        context.target.cluster.wait_for_all().await
    }
}
