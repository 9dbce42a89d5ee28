//! What is sent, and what is known of it afterwards.

use bytes::Bytes;
use ottla_records::RecordHeader;

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
}

/// Where a record has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordMetadata {
    pub partition: i32,
    /// -1 with acks=0, and where the broker had the record already from an attempt before.
    pub offset: i64,
    pub timestamp: i64,
}
