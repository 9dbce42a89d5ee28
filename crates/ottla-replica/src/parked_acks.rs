//! The acknowledgements that wait at a leader, each until an end of the log has passed it.
//!
//! Kafka: `DelayedProduce` and its purgatory.

use std::collections::VecDeque;

use ottla_types::{ErrorCode, Offset};

use crate::{AckOutcome, Effect, RequiredAcks};

#[derive(Debug)]
pub(crate) struct ParkedAcks<Ack> {
    /// Appends whose write was asked for and not answered, in the order of their offsets.
    writing: VecDeque<Parked<Ack>>,
    /// Acknowledgements that wait for `settled_end`, in the order of their offsets.
    awaiting_settled: VecDeque<Parked<Ack>>,
    /// Acknowledgements that wait for `high_watermark`, in the order of their offsets.
    awaiting_high_watermark: VecDeque<Parked<Ack>>,
}

/// An acknowledgement that waits.
#[derive(Debug)]
pub(crate) struct Parked<Ack> {
    /// The end that has to be reached, exclusive.
    pub(crate) until: Offset,
    pub(crate) required_acks: RequiredAcks,
    pub(crate) deadline_ms: u64,
    /// What it will be told.
    pub(crate) outcome: AckOutcome,
    pub(crate) ack: Ack,
}

impl<Ack> ParkedAcks<Ack> {
    pub(crate) fn new() -> Self {
        ParkedAcks {
            writing: VecDeque::new(),
            awaiting_settled: VecDeque::new(),
            awaiting_high_watermark: VecDeque::new(),
        }
    }

    /// An append that is being written, behind all others.
    pub(crate) fn push_writing(&mut self, parked: Parked<Ack>) {
        self.writing.push_back(parked);
    }

    /// Puts an acknowledgement behind all that wait for the same end or an earlier one.
    pub(crate) fn park(&mut self, parked: Parked<Ack>) {
        let queue = match parked.required_acks {
            RequiredAcks::None | RequiredAcks::Leader | RequiredAcks::LeaderWithMinIsr => {
                &mut self.awaiting_settled
            }
            RequiredAcks::All => &mut self.awaiting_high_watermark,
        };
        let place = queue.partition_point(|waiting| waiting.until <= parked.until);
        queue.insert(place, parked);
    }

    /// The file reaches up to here.
    pub(crate) fn on_written(&mut self, log_end_offset: Offset) {
        while let Some(written) = self.writing.pop_front_if(|w| w.until <= log_end_offset) {
            self.park(written);
        }
    }

    /// What was to be written from here on is not in the file and will not be. What waited for it waits no
    /// longer: a refusal still holds, but a duplicate's first copy was lost.
    pub(crate) fn on_write_refused(
        &mut self,
        log_end_offset: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        for refused in self.writing.drain(..) {
            effects.push(Effect::ReleaseAck {
                ack: refused.ack,
                outcome: AckOutcome::StorageError,
            });
        }
        for queue in [
            &mut self.awaiting_settled,
            &mut self.awaiting_high_watermark,
        ] {
            for parked in queue.iter_mut() {
                if parked.until > log_end_offset {
                    parked.until = log_end_offset;
                    if parked.outcome.error_code() == ErrorCode::None {
                        parked.outcome = AckOutcome::StorageError;
                    }
                }
            }
        }
    }

    /// Releases those whose end has been reached. Those that waited for the high watermark are told where too
    /// few replicas are in sync by now (`Partition.checkEnoughReplicasReachOffset`).
    pub(crate) fn release_due(
        &mut self,
        settled_end: Offset,
        high_watermark: Offset,
        is_under_min_isr: bool,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        while let Some(parked) = self
            .awaiting_settled
            .pop_front_if(|parked| parked.until <= settled_end)
        {
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome: parked.outcome,
            });
        }
        while let Some(parked) = self
            .awaiting_high_watermark
            .pop_front_if(|parked| parked.until <= high_watermark)
        {
            let is_success = parked.outcome.error_code() == ErrorCode::None;
            let outcome = if is_success && is_under_min_isr {
                AckOutcome::NotEnoughReplicasAfterAppend
            } else {
                parked.outcome
            };
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome,
            });
        }
    }

    /// Releases those that have waited too long.
    pub(crate) fn expire(&mut self, now_ms: u64, effects: &mut Vec<Effect<Ack>>) {
        for queue in [
            &mut self.awaiting_settled,
            &mut self.awaiting_high_watermark,
        ] {
            // Deadlines do not follow the order of the offsets.
            for _ in 0..queue.len() {
                let Some(parked) = queue.pop_front() else {
                    break;
                };
                if parked.deadline_ms > now_ms {
                    queue.push_back(parked);
                } else {
                    effects.push(Effect::ReleaseAck {
                        ack: parked.ack,
                        outcome: AckOutcome::RequestTimedOut,
                    });
                }
            }
        }
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let parked = self.awaiting_settled.iter();
        let parked = parked.chain(&self.awaiting_high_watermark);
        parked.map(|parked| parked.deadline_ms).min()
    }

    /// Tells everybody who waits.
    pub(crate) fn release_all(self, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        let parked = self.awaiting_high_watermark.into_iter();
        let parked = parked.chain(self.awaiting_settled).chain(self.writing);
        for parked in parked {
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome,
            });
        }
    }
}
