//! Applies the batches of the metadata log to images, in order.
//!
//! Records between `BeginTransactionRecord` and `EndTransactionRecord` (KIP-868) are held back until the
//! transaction ends, and dropped when it is aborted. A transaction may span batches.
//!
//! In Kafka: `org.apache.kafka.image.loader.MetadataBatchLoader`.

use ottla_protocol::metadata_records::MetadataRecord;

use crate::{MetadataDelta, MetadataImage, Provenance, ReplayError};

#[derive(Clone, Debug, Default)]
pub struct MetadataLoader {
    image: MetadataImage,
    /// The records of the open transaction.
    transaction: Option<Vec<MetadataRecord>>,
}

impl MetadataLoader {
    pub fn new(image: MetadataImage) -> MetadataLoader {
        MetadataLoader {
            image,
            transaction: None,
        }
    }

    /// The image loaded so far, without the records of an open transaction.
    pub fn image(&self) -> &MetadataImage {
        &self.image
    }

    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Replaces everything with the records of a snapshot.
    pub fn load_snapshot(
        &mut self,
        records: &[MetadataRecord],
        provenance: Provenance,
    ) -> Result<MetadataDelta, ReplayError> {
        let (image, _) = MetadataImage::empty().apply(records, provenance)?;
        self.transaction = None;
        let before = std::mem::replace(&mut self.image, image.clone());
        Ok(MetadataDelta::between(before, image))
    }

    /// Adds one batch of the log, whose last offset is in `provenance`. `None` if there is nothing
    /// to publish, because a transaction is still open after the batch.
    pub fn load_batch(
        &mut self,
        records: Vec<MetadataRecord>,
        provenance: Provenance,
    ) -> Result<Option<MetadataDelta>, ReplayError> {
        let mut ready = Vec::with_capacity(records.len());
        let mut transaction = self.transaction.take();
        // The number of records at the end of the batch that belong to an open transaction. The
        // image does not contain them, so the provenance of a snapshot must not cover them.
        let mut held_count = 0;
        for record in records {
            held_count += 1;
            match (record, &mut transaction) {
                (MetadataRecord::BeginTransaction(_), None) => {
                    transaction = Some(Vec::new());
                    held_count = 1;
                }
                (MetadataRecord::BeginTransaction(_), Some(_)) => {
                    return Err(ReplayError::NestedTransaction);
                }
                (MetadataRecord::EndTransaction(_), Some(held)) => {
                    ready.append(held);
                    transaction = None;
                }
                (MetadataRecord::AbortTransaction(_), Some(_)) => transaction = None,
                (MetadataRecord::EndTransaction(_) | MetadataRecord::AbortTransaction(_), None) => {
                    return Err(ReplayError::NoTransaction);
                }
                (record, Some(held)) => held.push(record),
                (record, None) => ready.push(record),
            }
        }
        self.transaction = transaction;
        let mut provenance = provenance;
        if self.transaction.is_some() {
            if ready.is_empty() {
                return Ok(None);
            }
            provenance.last_contained_offset.0 -= held_count;
        }
        let (image, delta) = self.image.apply(&ready, provenance)?;
        self.image = image;
        Ok(Some(delta))
    }
}

#[cfg(test)]
mod tests;
