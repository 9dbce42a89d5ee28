//! What a round is given, and what comes of it.

use super::{Interruption, Progress};
use crate::figures::Figures;
use crate::results::Round;
use crate::results::curve::add_figures;
use crate::scenario::PointSpec;
use crate::target::RunningTarget;
use crate::workload::latencies::Latencies;

/// The topic of a round.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    /// Made by the run, which deletes it.
    pub is_ours: bool,
}

/// What a round needs.
pub struct Context<'a> {
    pub spec: &'a PointSpec,
    pub target: &'a RunningTarget,
    pub topic: &'a Topic,
    pub interruption: &'a Interruption,
    pub progress: &'a Progress,
    /// What the progress line calls it.
    pub title: String,
}

/// What came of a round.
#[derive(Default)]
pub struct RoundOutcome {
    pub round: Round,
    pub distributions: Distributions,
    pub notes: Vec<String>,
}

/// The latencies of a round, or of all rounds of a point.
#[derive(Clone, Default)]
pub struct Distributions {
    pub ack: Latencies,
    pub ack_from_send: Latencies,
    pub e2e: Latencies,
    pub e2e_from_send: Latencies,
    /// From when records were due to when they were sent.
    pub send_delay: Latencies,
}

impl Distributions {
    pub fn named(&self) -> [(&'static str, &Latencies); 5] {
        [
            ("ack", &self.ack),
            ("ack_from_send", &self.ack_from_send),
            ("e2e", &self.e2e),
            ("e2e_from_send", &self.e2e_from_send),
            ("send_delay", &self.send_delay),
        ]
    }

    pub fn add(&mut self, other: &Distributions) {
        self.ack.add(&other.ack);
        self.ack_from_send.add(&other.ack_from_send);
        self.e2e.add(&other.e2e);
        self.e2e_from_send.add(&other.e2e_from_send);
        self.send_delay.add(&other.send_delay);
    }

    pub fn figures(&self, figures: &mut Figures) {
        for (name, latencies) in self.named() {
            // The delay is in the latencies from due; by itself only its curve is kept.
            if name != "send_delay" {
                add_figures(latencies, name, figures);
            }
        }
    }
}
