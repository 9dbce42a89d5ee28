//! What a share consumer has in hand of a partition, and what it says of it. Pure.
//!
//! Every offset that was acquired is accounted for: those without a record, as compaction and transactions leave them,
//! are acknowledged as gaps. An offset is in hand until it is acknowledged, and after that until the broker has answered.
//! Kafka has this in `org.apache.kafka.clients.consumer.internals.ShareInFlightBatch` and `Acknowledgements`.

use std::collections::BTreeMap;

use super::ShareRecord;

/// What becomes of a record (`org.apache.kafka.clients.consumer.AcknowledgeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum AcknowledgeType {
    /// It has been processed.
    Accept = 1,
    /// It has not, and is to be delivered to somebody again.
    Release = 2,
    /// It cannot be, by anybody.
    Reject = 3,
    /// It takes more time: the lock begins anew, and the next poll gives it again.
    Renew = 4,
}

/// Of an offset without a record.
const GAP: i8 = 0;

/// Offsets in a row of which the same is said. Both ends are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    pub(super) kind: i8,
}

/// What one partition has given and not got back.
#[derive(Default, Debug)]
pub(super) struct InHand {
    /// Handed out, and nothing is said of them.
    open: BTreeMap<i64, ShareRecord>,
    /// Said, and not on the way. Those that are renewed come with their records.
    said: BTreeMap<i64, (i8, Option<ShareRecord>)>,
}

impl InHand {
    /// What a fetch acquired without a record.
    pub(super) fn on_gap(&mut self, offset: i64) {
        self.said.insert(offset, (GAP, None));
    }

    pub(super) fn on_handed_out(&mut self, record: &ShareRecord) {
        self.open.insert(record.record.offset, record.clone());
    }

    /// Whether something can be said of it.
    pub(super) fn holds(&self, offset: i64) -> bool {
        self.open.contains_key(&offset) || self.said.contains_key(&offset)
    }

    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn has_said(&self) -> bool {
        !self.said.is_empty()
    }

    pub(super) fn has_renewals(&self) -> bool {
        self.said.values().any(|(_, renewed)| renewed.is_some())
    }

    /// `false` if the offset is not in hand, or too much is said of it already.
    pub(super) fn acknowledge(&mut self, offset: i64, kind: AcknowledgeType) -> bool {
        let record = match self.open.remove(&offset) {
            Some(record) => Some(record),
            // Somebody changes their mind before it is sent.
            None => match self.said.get_mut(&offset) {
                Some((said, _)) if *said == GAP => return false,
                Some((said, renewed)) if kind != AcknowledgeType::Renew => {
                    (*said, *renewed) = (kind as i8, None);
                    return true;
                }
                _ => return false,
            },
        };
        let renewed = record.filter(|_| kind == AcknowledgeType::Renew);
        self.said.insert(offset, (kind as i8, renewed));
        true
    }

    /// All that was handed out is done.
    pub(super) fn accept_open(&mut self) {
        for offset in std::mem::take(&mut self.open).into_keys() {
            self.said
                .insert(offset, (AcknowledgeType::Accept as i8, None));
        }
    }

    /// What is to be sent, in the order of the offsets, and the records that are renewed by it.
    pub(super) fn take_said(&mut self) -> (Vec<Batch>, Vec<ShareRecord>) {
        let (mut batches, mut renewed): (Vec<Batch>, Vec<ShareRecord>) = Default::default();
        for (offset, (kind, record)) in std::mem::take(&mut self.said) {
            renewed.extend(record);
            match batches.last_mut() {
                Some(last) if last.kind == kind && last.last_offset + 1 == offset => {
                    last.last_offset = offset;
                }
                _ => batches.push(Batch {
                    first_offset: offset,
                    last_offset: offset,
                    kind,
                }),
            }
        }
        (batches, renewed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_records::TimestampType;

    use super::*;
    use crate::consumer::ConsumerRecord;

    fn holding(offsets: &[i64]) -> InHand {
        let mut in_hand = InHand::default();
        for offset in offsets {
            let record = ConsumerRecord {
                topic: Arc::from("t"),
                partition: 0,
                offset: *offset,
                leader_epoch: 0,
                timestamp: 0,
                timestamp_type: TimestampType::CreateTime,
                key: None,
                value: None,
                headers: Vec::new(),
            };
            in_hand.on_handed_out(&ShareRecord {
                record,
                delivery_count: 1,
            });
        }
        in_hand
    }

    fn said(in_hand: &mut InHand) -> Vec<(i64, i64, i8)> {
        let (batches, _) = in_hand.take_said();
        let batches = batches.into_iter();
        batches
            .map(|it| (it.first_offset, it.last_offset, it.kind))
            .collect()
    }

    #[test]
    fn neighbours_of_one_kind_are_said_together() {
        let mut in_hand = holding(&[3, 4, 5, 8]);
        in_hand.on_gap(6);
        assert!(in_hand.acknowledge(4, AcknowledgeType::Release));
        in_hand.accept_open();
        assert!(!in_hand.has_open());
        assert_eq!(
            said(&mut in_hand),
            [(3, 3, 1), (4, 4, 2), (5, 5, 1), (6, 6, 0), (8, 8, 1)]
        );
        assert!(!in_hand.has_said());
        let mut in_hand = holding(&[3, 4, 5]);
        in_hand.accept_open();
        assert_eq!(said(&mut in_hand), [(3, 5, 1)]);
    }

    #[test]
    fn only_what_is_in_hand_can_be_acknowledged() {
        let mut in_hand = holding(&[3]);
        in_hand.on_gap(4);
        assert!(!in_hand.acknowledge(2, AcknowledgeType::Accept));
        assert!(!in_hand.acknowledge(4, AcknowledgeType::Accept));
        assert!(in_hand.acknowledge(3, AcknowledgeType::Accept));
        // Before it is sent, one may think again.
        assert!(in_hand.acknowledge(3, AcknowledgeType::Reject));
        assert_eq!(said(&mut in_hand), [(3, 3, 3), (4, 4, 0)]);
        assert!(!in_hand.acknowledge(3, AcknowledgeType::Accept));
    }

    #[test]
    fn what_is_renewed_comes_again() {
        let mut in_hand = holding(&[3, 4]);
        assert!(in_hand.acknowledge(4, AcknowledgeType::Renew));
        assert!(in_hand.has_renewals());
        let (batches, renewed) = in_hand.take_said();
        assert_eq!(batches[0].kind, 4);
        assert_eq!(renewed[0].record.offset, 4);
        assert!(in_hand.has_open());
    }
}
