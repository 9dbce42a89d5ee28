//! Compares replicas batch by batch, up to the high watermark.
//!
//! Owns the next fetch offset of each partition, which advances past a batch only when every
//! replica has returned it. It uses no sockets and no clock
//! (`ReplicaVerificationTool.ReplicaBuffer` in Kafka).

use std::collections::BTreeMap;

use anyhow::Context;
use bytes::Bytes;
use ottla_records::BatchPrefix;
use ottla_records::legacy::AnyBatch;

type Partition = (String, i32);

/// A replica's data from a broker.
pub(super) struct FetchedReplica {
    pub(super) partition: Partition,
    /// -1 if the broker does not know it.
    pub(super) high_watermark: i64,
    pub(super) records: Bytes,
}

/// The result of a round.
pub(super) struct Outcome {
    /// One sentence each.
    pub(super) differences: Vec<String>,
    /// Whether replicas have different offsets, after which they can no longer be compared.
    pub(super) has_diverged: bool,
    /// The partition that is furthest below its high watermark.
    pub(super) report: String,
}

/// The offsets up to which the replicas were verified.
pub(super) struct Verification {
    replicas: BTreeMap<Partition, usize>,
    offsets: BTreeMap<Partition, i64>,
}

impl Verification {
    /// `replicas` holds the number of replicas of each partition, `offsets` the initial offsets.
    pub(super) fn new(
        replicas: BTreeMap<Partition, usize>,
        offsets: BTreeMap<Partition, i64>,
    ) -> Verification {
        Verification { replicas, offsets }
    }

    /// The next fetch offset of this partition.
    pub(super) fn offset(&self, partition: &Partition) -> i64 {
        self.offsets.get(partition).copied().unwrap_or_default()
    }

    /// Compares the brokers' data of one round. Fails if a batch cannot be parsed.
    pub(super) fn on_round(
        &mut self,
        answers: Vec<(i32, Vec<FetchedReplica>)>,
    ) -> anyhow::Result<Outcome> {
        let mut fetched: BTreeMap<Partition, Vec<(i32, FetchedReplica)>> = BTreeMap::new();
        for (broker, replicas) in answers {
            for replica in replicas {
                let of = fetched.entry(replica.partition.clone()).or_default();
                of.push((broker, replica));
            }
        }
        let mut outcome = Outcome {
            differences: Vec::new(),
            has_diverged: false,
            report: String::new(),
        };
        let (mut max_lag, mut furthest) = (-1, None);
        for (partition, expected) in &self.replicas {
            let mut replicas = fetched.remove(partition).unwrap_or_default();
            replicas.sort_by_key(|(broker, _)| *broker);
            let high_watermark = replicas.iter().map(|(_, it)| it.high_watermark).max();
            let offset = self.offsets.entry(partition.clone()).or_default();
            // A missing replica has returned no records.
            while replicas.len() == *expected {
                let Some(next) = compare_next(partition, &mut replicas, &mut outcome)
                    .with_context(|| format!("{}-{} at {offset}", partition.0, partition.1))?
                else {
                    break;
                };
                *offset = next;
            }
            let lag = high_watermark.unwrap_or(-1) - *offset;
            if lag > max_lag {
                max_lag = lag;
                furthest = Some((partition, *offset));
            }
        }
        let (name, at) = match furthest {
            Some(((topic, partition), offset)) => (format!("{topic}-{partition}"), offset),
            None => ("null".to_owned(), -1),
        };
        outcome.report = format!(
            "max lag is {max_lag} for partition {name} at offset {at} among {} partitions",
            self.replicas.len()
        );
        Ok(outcome)
    }
}

/// Compares one batch of every replica. Returns the offset after it; `None` if a replica has no
/// batch below its high watermark, or a different one than the first replica.
fn compare_next(
    (topic, partition): &Partition,
    replicas: &mut [(i32, FetchedReplica)],
    outcome: &mut Outcome,
) -> anyhow::Result<Option<i64>> {
    // The broker, last offset and checksum of the first replica's batch.
    let mut first: Option<(i32, i64, u32)> = None;
    for (broker, replica) in replicas {
        let Some(batch) = next_batch(&mut replica.records)? else {
            return Ok(None);
        };
        let last_offset = batch.last_offset().0;
        if last_offset >= replica.high_watermark {
            return Ok(None);
        }
        let checksum = match &batch {
            AnyBatch::Current(batch) => batch.header.crc,
            AnyBatch::Legacy(message) => message.crc,
        };
        match first {
            None => first = Some((*broker, last_offset, checksum)),
            Some((other, offset, _)) if offset != last_offset => {
                outcome.differences.push(format!(
                    "partition {topic}-{partition}: replica {other}'s offset {offset} doesn't match \
                     replica {broker}'s offset {last_offset}"
                ));
                outcome.has_diverged = true;
                return Ok(None);
            }
            Some((other, _, sum)) if sum != checksum => outcome.differences.push(format!(
                "partition {topic}-{partition} has unmatched checksum at offset {last_offset}; replica \
                 {other}'s checksum {sum}; replica {broker}'s checksum {checksum}"
            )),
            Some(_) => {}
        }
    }
    Ok(first.map(|(_, last_offset, _)| last_offset + 1))
}

/// The next batch; `None` if it is incomplete, as at the end of a response.
fn next_batch(records: &mut Bytes) -> anyhow::Result<Option<AnyBatch>> {
    const OVERHEAD: usize = BatchPrefix::LOG_OVERHEAD;
    if records.len() < OVERHEAD {
        return Ok(None);
    }
    let length = i32::from_be_bytes([records[8], records[9], records[10], records[11]]);
    match usize::try_from(length) {
        Ok(length) if records.len() - OVERHEAD < length => Ok(None),
        _ => Ok(Some(AnyBatch::read(records)?)),
    }
}

#[cfg(test)]
mod tests;
