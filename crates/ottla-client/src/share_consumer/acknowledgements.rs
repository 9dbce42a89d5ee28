//! The records of a partition that a share consumer holds, and their acknowledgements. Pure.
//!
//! A record is held until its acknowledgement is sent.
//!
//! In Kafka: `org.apache.kafka.clients.consumer.internals.ShareInFlightBatch` and
//! `Acknowledgements`.

use std::collections::BTreeMap;

use super::ShareRecord;

/// The result of processing a record (`org.apache.kafka.clients.consumer.AcknowledgeType`).
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
/// use ottla_client::AcknowledgeType;
///
/// for job in consumer.poll(Duration::from_secs(1)).await? {
///     let became = match job.record.value.as_deref() {
///         Some(b"later") => AcknowledgeType::Release,
///         Some(_) => AcknowledgeType::Accept,
///         None => AcknowledgeType::Reject,
///     };
///     consumer.acknowledge(&job, became)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum AcknowledgeType {
    /// It was processed.
    Accept = 1,
    /// It was not processed, and is to be delivered again.
    Release = 2,
    /// It cannot be processed by any member.
    Reject = 3,
    /// It takes more time: the lock is renewed, and the next poll returns the record again.
    Renew = 4,
}

/// For an offset without a record.
pub(super) const GAP: i8 = 0;

/// Consecutive offsets with the same acknowledgement. Both ends are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    pub(super) kind: i8,
}

/// The held records of one partition.
#[derive(Default, Debug)]
pub(super) struct HeldRecords {
    /// Returned records, with their acknowledgements as far as there are any.
    records: BTreeMap<i64, (ShareRecord, Option<AcknowledgeType>)>,
    /// Acknowledgements of offsets without a held record.
    others: Vec<Batch>,
    /// Records that `others` renews.
    others_renewed: Vec<ShareRecord>,
}

impl HeldRecords {
    pub(super) fn on_handed_out(&mut self, record: &ShareRecord) {
        self.records
            .insert(record.record.offset, (record.clone(), None));
    }

    /// Acknowledges offsets that are not returned: offsets without a record, and unreadable
    /// records.
    pub(super) fn say(&mut self, batches: impl IntoIterator<Item = Batch>) {
        self.others.extend(batches);
    }

    /// Puts the result of [`HeldRecords::take_said`] back to be sent again.
    pub(super) fn put_back(&mut self, batches: Vec<Batch>, renewed: Vec<ShareRecord>) {
        self.others.extend(batches);
        self.others_renewed.extend(renewed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.others.is_empty()
    }

    /// Whether there are returned records without an acknowledgement.
    pub(super) fn has_open(&self) -> bool {
        self.records.values().any(|(_, said)| said.is_none())
    }

    pub(super) fn has_said(&self) -> bool {
        !self.others.is_empty() || self.records.values().any(|(_, said)| said.is_some())
    }

    pub(super) fn has_renewals(&self) -> bool {
        let renewed = Some(AcknowledgeType::Renew);
        !self.others_renewed.is_empty() || self.records.values().any(|(_, said)| *said == renewed)
    }

    /// Returns `false` if the record is not held. Until it is sent, the last call counts.
    pub(super) fn acknowledge(&mut self, offset: i64, kind: AcknowledgeType) -> bool {
        match self.records.get_mut(&offset) {
            Some((_, said)) => {
                *said = Some(kind);
                true
            }
            None => false,
        }
    }

    /// Accepts all returned records without an acknowledgement.
    pub(super) fn accept_open(&mut self) {
        for (_, said) in self.records.values_mut() {
            said.get_or_insert(AcknowledgeType::Accept);
        }
    }

    /// The acknowledgements to send, ordered by offset, and the records that they renew.
    pub(super) fn take_said(&mut self) -> (Vec<Batch>, Vec<ShareRecord>) {
        let mut all = std::mem::take(&mut self.others);
        let mut renewed = std::mem::take(&mut self.others_renewed);
        let said = self.records.extract_if(.., |_, (_, said)| said.is_some());
        for (offset, (record, said)) in said {
            let kind = said.map_or(GAP, |kind| kind as i8);
            if said == Some(AcknowledgeType::Renew) {
                renewed.push(record);
            }
            all.push(Batch {
                first_offset: offset,
                last_offset: offset,
                kind,
            });
        }
        all.sort_by_key(|batch| batch.first_offset);
        let mut batches: Vec<Batch> = Vec::new();
        for batch in all {
            match batches.last_mut() {
                Some(last)
                    if last.kind == batch.kind && last.last_offset + 1 == batch.first_offset =>
                {
                    last.last_offset = batch.last_offset;
                }
                _ => batches.push(batch),
            }
        }
        (batches, renewed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_records::TimestampType;
    use ottla_types::Uuid;

    use super::*;
    use crate::consumer::ConsumerRecord;

    fn holding(offsets: &[i64]) -> HeldRecords {
        let mut in_hand = HeldRecords::default();
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
                source: (0, (Uuid::from_u128(7), 0)),
            });
        }
        in_hand
    }

    fn gap(offset: i64) -> Batch {
        Batch {
            first_offset: offset,
            last_offset: offset,
            kind: GAP,
        }
    }

    fn said(in_hand: &mut HeldRecords) -> Vec<(i64, i64, i8)> {
        let (batches, _) = in_hand.take_said();
        let batches = batches.into_iter();
        batches
            .map(|it| (it.first_offset, it.last_offset, it.kind))
            .collect()
    }

    #[test]
    fn adjacent_acknowledgements_of_one_type_are_merged() {
        let mut in_hand = holding(&[3, 4, 5, 8]);
        in_hand.say([gap(6)]);
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
    fn only_acquired_records_can_be_acknowledged() {
        let mut in_hand = holding(&[3]);
        in_hand.say([gap(4)]);
        assert!(!in_hand.acknowledge(2, AcknowledgeType::Accept));
        assert!(!in_hand.acknowledge(4, AcknowledgeType::Accept));
        assert!(in_hand.acknowledge(3, AcknowledgeType::Accept));
        // Until it is sent, the acknowledgement can be changed.
        assert!(in_hand.acknowledge(3, AcknowledgeType::Renew));
        assert!(in_hand.has_renewals());
        assert!(in_hand.acknowledge(3, AcknowledgeType::Reject));
        assert!(!in_hand.has_renewals());
        assert_eq!(said(&mut in_hand), [(3, 3, 3), (4, 4, 0)]);
        assert!(!in_hand.acknowledge(3, AcknowledgeType::Accept));
    }

    #[test]
    fn renewed_records_are_returned_again() {
        let mut in_hand = holding(&[3, 4]);
        assert!(in_hand.acknowledge(4, AcknowledgeType::Renew));
        assert!(in_hand.has_renewals());
        let (batches, renewed) = in_hand.take_said();
        assert_eq!(batches[0].kind, 4);
        assert_eq!(renewed[0].record.offset, 4);
        assert!(in_hand.has_open() && !in_hand.has_renewals());

        in_hand.put_back(batches, renewed);
        assert!(in_hand.has_said() && in_hand.has_renewals());
        let (batches, renewed) = in_hand.take_said();
        assert_eq!((batches.len(), renewed.len()), (1, 1));
        in_hand.accept_open();
        in_hand.take_said();
        assert!(in_hand.is_empty());
    }
}
