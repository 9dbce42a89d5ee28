//! What is sent, and what is known of it afterwards.

use bytes::Bytes;
use ottla_records::{BatchHeader, RecordHeader};

/// A record to be sent, owned.
#[derive(Clone, Default, Debug)]
pub struct ProducerRecord {
    pub topic: String,
    /// Nothing leaves it to the key, or to chance.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
    /// Milliseconds since 1970; nothing stands for now.
    pub timestamp: Option<i64>,
}

impl ProducerRecord {
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

/// A record to be sent, borrowed: it is encoded before the call returns, so that nothing need be owned.
#[derive(Clone, Copy, Default, Debug)]
pub struct RecordRef<'a> {
    pub topic: &'a str,
    /// Nothing leaves it to the key, or to chance.
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [RecordHeader],
    /// Milliseconds since 1970; nothing stands for now.
    pub timestamp: Option<i64>,
}

impl<'a> RecordRef<'a> {
    /// A record without a key, at whatever partition.
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

    /// What the record takes in a batch, at most, without the batch's header.
    #[inline]
    pub(super) fn size_upper_bound(&self) -> usize {
        // Length, attributes, timestamp, offset, the lengths of key and value, the number of headers.
        const NUMBERS: usize = 5 + 1 + 10 + 5 + 5 + 5 + 5;
        let mut size =
            NUMBERS + self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len);
        for header in self.headers {
            size += 10 + header.key.len() + header.value.as_ref().map_or(0, Bytes::len);
        }
        size
    }

    /// What Kafka takes a record for where it says how large records are: the bytes of a batch with nothing else in
    /// it, at most (`DefaultRecordBatch.estimateBatchSizeUpperBound`).
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

/// Bytes of a length as records have it: seven bits each, and one bit for the sign.
fn varint_size(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros() + 1;
    bits.div_ceil(7) as usize
}

/// Where a record has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordMetadata {
    pub partition: i32,
    /// -1 with acks=0, and where the broker had the record already from an attempt before.
    pub offset: i64,
    pub timestamp: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures are those of Kafka's own `estimateBatchSizeUpperBound` for the same records.
    #[test]
    fn a_record_is_taken_to_be_as_large_as_kafka_takes_it() {
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
