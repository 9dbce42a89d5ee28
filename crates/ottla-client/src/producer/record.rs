//! Records to send, and their results.

use bytes::Bytes;
use ottla_records::{BatchHeader, RecordHeader};

/// An owned record to send.
///
/// ```
/// use ottla_client::ProducerRecord;
/// use ottla_client::ottla_records::RecordHeader;
///
/// let record = ProducerRecord {
///     topic: "orders".to_owned(),
///     key: Some("customer-7".into()),
///     value: Some("1 book".into()),
///     headers: vec![RecordHeader::new("trace", Some("4bf9".into()))],
///     ..ProducerRecord::default()
/// };
/// # assert_eq!(record.headers.len(), 1);
/// ```
#[derive(Clone, Default, Debug)]
pub struct ProducerRecord {
    pub topic: String,
    /// `None`: chosen by the key, or by the sticky partitioner.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
    /// Milliseconds since 1970; `None` for the current time.
    pub timestamp: Option<i64>,
}

impl ProducerRecord {
    /// The record, borrowed.
    ///
    /// ```
    /// use ottla_client::ProducerRecord;
    ///
    /// let record = ProducerRecord { topic: "orders".to_owned(), ..ProducerRecord::default() };
    /// assert_eq!(record.as_ref().topic, "orders");
    /// ```
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &self.headers,
            timestamp: self.timestamp,
        }
    }
}

/// A borrowed record to send. It is encoded before the call returns.
///
/// ```
/// use ottla_client::RecordRef;
///
/// let record = RecordRef { key: Some(b"customer-7"), ..RecordRef::new("orders", b"1 book") };
/// # assert_eq!(record.partition, None);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct RecordRef<'a> {
    pub topic: &'a str,
    /// `None`: chosen by the key, or by the sticky partitioner.
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [RecordHeader],
    /// Milliseconds since 1970; `None` for the current time.
    pub timestamp: Option<i64>,
}

impl<'a> RecordRef<'a> {
    /// A record without a key and a partition.
    ///
    /// ```
    /// use ottla_client::RecordRef;
    ///
    /// let record = RecordRef::new("orders", b"1 book");
    /// assert_eq!((record.key, record.partition), (None, None));
    /// ```
    pub fn new(topic: &'a str, value: &'a [u8]) -> RecordRef<'a> {
        RecordRef {
            topic,
            value: Some(value),
            ..RecordRef::default()
        }
    }

    pub(super) fn to_owned(self) -> ProducerRecord {
        ProducerRecord {
            topic: self.topic.to_owned(),
            partition: self.partition,
            key: self.key.map(Bytes::copy_from_slice),
            value: self.value.map(Bytes::copy_from_slice),
            headers: self.headers.to_vec(),
            timestamp: self.timestamp,
        }
    }

    /// An upper bound of the record's size in a batch, without the batch header.
    #[inline]
    pub(super) fn size_upper_bound(&self) -> usize {
        // Length, attributes, timestamp, offset, the lengths of key and value, the number of
        // headers.
        const NUMBERS: usize = 5 + 1 + 10 + 5 + 5 + 5 + 5;
        let mut size =
            NUMBERS + self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len);
        for header in self.headers {
            size += 10 + header.key.len() + header.value.as_ref().map_or(0, Bytes::len);
        }
        size
    }

    /// Kafka's estimate of a record's size in metrics: an upper bound for a batch with this record
    /// alone (`DefaultRecordBatch.estimateBatchSizeUpperBound`).
    pub(super) fn estimated_batch_size(&self) -> usize {
        const MOST_AROUND_A_RECORD: usize = 21;
        let sized = |part: Option<&[u8]>| part.map_or(1, |it| varint_size(it.len()) + it.len());
        let headers: usize = self
            .headers
            .iter()
            .map(|it| sized(Some(&it.key)) + sized(it.value.as_deref()))
            .sum();
        let parts = sized(self.key) + sized(self.value) + varint_size(self.headers.len());
        BatchHeader::SIZE + MOST_AROUND_A_RECORD + parts + headers
    }
}

/// The encoded size of a length: seven bits per byte, with one bit for the sign.
fn varint_size(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros() + 1;
    bits.div_ceil(7) as usize
}

/// Where a record was written.
///
/// ```no_run
/// # async fn example(delivery: ottla_client::Delivery) -> Result<(), ottla_client::ClientError> {
/// let written = delivery.wait().await?;
/// println!("{}: {} at {}", written.partition, written.offset, written.timestamp);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordMetadata {
    pub partition: i32,
    /// -1 with acks=0, and if an earlier attempt had already written the record.
    pub offset: i64,
    pub timestamp: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from Kafka's `estimateBatchSizeUpperBound` for the same records.
    #[test]
    fn the_size_of_a_record_is_estimated_as_in_kafka() {
        let of = |key: Option<&[u8]>, value: &[u8], headers: &[RecordHeader]| {
            let record = RecordRef {
                key,
                value: Some(value),
                headers,
                ..RecordRef::default()
            };
            record.estimated_batch_size()
        };
        assert_eq!(of(None, b"", &[]), 61 + 21 + 1 + 1 + 1);
        assert_eq!(of(None, &[0; 63], &[]), 61 + 21 + 1 + 64 + 1);
        assert_eq!(of(None, &[0; 64], &[]), 61 + 21 + 1 + 66 + 1);
        assert_eq!(of(Some(b"k"), &[0; 100], &[]), 61 + 21 + 2 + 102 + 1);
        let header = RecordHeader::new("h", None);
        assert_eq!(of(None, b"v", &[header]), 61 + 21 + 1 + 2 + 1 + 2 + 1);
    }
}
