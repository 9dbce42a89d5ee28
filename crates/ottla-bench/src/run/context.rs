//! The inputs and results of a round.

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
    /// Whether the run created the topic, and will delete it.
    pub is_ours: bool,
}

/// The inputs of a round.
pub struct Context<'a> {
    pub spec: &'a PointSpec,
    pub target: &'a RunningTarget,
    pub topic: &'a Topic,
    pub interruption: &'a Interruption,
    pub progress: &'a Progress,
    /// The title in the progress line.
    pub title: String,
}

/// The result of a round.
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
    /// From due to sent.
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
            // The delay is part of the latencies from due; separately only its curve is kept.
            if name != "send_delay" {
                add_figures(latencies, name, figures);
            }
        }
    }
}
