//! The subscriptions and assignments that consumers of the classic protocol exchange through the
//! coordinator.
//!
//! Both start with their version. A version newer than the newest known one is read as that one,
//! because new fields are appended. Source: `ConsumerProtocol`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::consumer_protocol_assignment::TopicPartition;
use ottla_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use ottla_protocol::{Message, Reader};
use ottla_types::TopicId;

use crate::group::modern::Assignment;

/// The bytes are not a valid subscription or assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

pub(super) fn version_of(bytes: &Bytes) -> Result<i16, Malformed> {
    let mut bytes = bytes.clone();
    if bytes.len() < size_of::<i16>() {
        return Err(Malformed);
    }
    Ok(bytes.get_i16())
}

fn read<M: Message>(bytes: &Bytes) -> Result<M, Malformed> {
    let version = known_version(version_of(bytes)?)?;
    let mut reader = Reader::untrusted(bytes.slice(size_of::<i16>()..));
    M::decode(&mut reader, version).map_err(|_| Malformed)
}

/// Subscriptions and assignments have the same versions.
fn known_version(version: i16) -> Result<i16, Malformed> {
    let known = ConsumerProtocolAssignment::VERSIONS;
    if version < *known.start() {
        return Err(Malformed);
    }
    Ok(version.min(*known.end()))
}

pub(super) fn read_subscription(bytes: &Bytes) -> Result<ConsumerProtocolSubscription, Malformed> {
    read(bytes)
}

pub(super) fn read_assignment(bytes: &Bytes) -> Result<ConsumerProtocolAssignment, Malformed> {
    read(bytes)
}

/// The assignment for a consumer whose subscription has `version`. Deleted topics are omitted.
pub(super) fn write_assignment(
    assignment: &Assignment,
    version: i16,
    image: &MetadataImage,
) -> Result<Bytes, Malformed> {
    let version = known_version(version)?;
    let topics = assignment.topics().filter_map(|(topic_id, partitions)| {
        Some(TopicPartition {
            topic: image.topics.by_id(topic_id)?.name.clone(),
            partitions: partitions.iter().copied().collect(),
        })
    });
    let message = ConsumerProtocolAssignment {
        assigned_partitions: topics.collect(),
        user_data: None,
    };
    let body = message.encode_to_bytes(version).map_err(|_| Malformed)?;
    let mut bytes = BytesMut::with_capacity(size_of::<i16>() + body.len());
    bytes.put_i16(version);
    bytes.put(body);
    Ok(bytes.freeze())
}

/// Partitions by topic id. Topics that do not exist are omitted.
pub(super) fn by_topic_id<'a>(
    partitions: impl Iterator<Item = (&'a str, &'a [i32])>,
    image: &MetadataImage,
) -> Vec<(TopicId, Vec<i32>)> {
    partitions
        .filter_map(|(topic, partitions)| {
            Some((image.topics.by_name(topic)?.id, partitions.to_vec()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Malformed, read_assignment, read_subscription, write_assignment};
    use crate::group::modern::Assignment;
    use crate::group::modern::test_image::{TestImage, topic_id};

    #[test]
    fn assignments_are_read_as_they_are_written() {
        let image = TestImage::new().topic("a", 3).topic("b", 1).build();
        let assignment: Assignment = [
            (topic_id("a"), 2),
            (topic_id("a"), 0),
            (topic_id("gone"), 0),
        ]
        .into_iter()
        .collect();
        let bytes = write_assignment(&assignment, 9, &image).expect("writable");
        assert_eq!(&bytes[..2], [0, 3], "the newest version that is known");
        let read = read_assignment(&bytes).expect("readable");
        assert_eq!(read.assigned_partitions.len(), 1);
        assert_eq!(read.assigned_partitions[0].topic, "a");
        assert_eq!(read.assigned_partitions[0].partitions, [0, 2]);
    }

    #[test]
    fn malformed_input_is_refused() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\0\0",
            b"\xff\xff\0\0\0\0",
            b"\0\0\0\0\0\x09",
        ] {
            let bytes = Bytes::copy_from_slice(bytes);
            assert_eq!(read_subscription(&bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
