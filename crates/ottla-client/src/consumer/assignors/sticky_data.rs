//! The user data of members with a sticky assignor: the sticky one sends its previous partitions
//! and their generation, the cooperative one only the generation (`subscriptionUserData` of
//! `StickyAssignor` and `CooperativeStickyAssignor`).

use bytes::{BufMut, Bytes, BytesMut};
use ottla_protocol::Reader;

use super::Assignor;
use crate::consumer::Partition;

/// `None` for the other assignors.
pub(in crate::consumer) fn encode(
    assignor: Assignor,
    had: &[Partition],
    generation: i32,
) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    match assignor {
        Assignor::Range | Assignor::RoundRobin => return None,
        // A member without a previous assignment sends nothing.
        Assignor::Sticky if had.is_empty() => return None,
        Assignor::Sticky => {
            let mut topics: std::collections::BTreeMap<&str, Vec<i32>> = Default::default();
            for (topic, partition) in had {
                topics.entry(topic).or_default().push(*partition);
            }
            bytes.put_i32(topics.len() as i32);
            for (topic, partitions) in topics {
                bytes.put_i16(topic.len() as i16);
                bytes.put_slice(topic.as_bytes());
                bytes.put_i32(partitions.len() as i32);
                partitions.into_iter().for_each(|it| bytes.put_i32(it));
            }
        }
        Assignor::CooperativeSticky => {}
    }
    bytes.put_i32(generation);
    Some(bytes.freeze())
}

/// The previous partitions and their generation; `None` if they are missing or malformed.
pub(in crate::consumer) fn decode(
    assignor: Assignor,
    data: &Option<Bytes>,
) -> Option<(Vec<Partition>, i32)> {
    let mut reader = Reader::new(data.clone()?);
    let mut had = Vec::new();
    match assignor {
        Assignor::Range | Assignor::RoundRobin => return None,
        Assignor::Sticky => {
            for _ in 0..reader.i32().ok()? {
                let topic = reader.string(false).ok()?;
                for _ in 0..reader.i32().ok()? {
                    had.push((topic.to_string(), reader.i32().ok()?));
                }
            }
        }
        Assignor::CooperativeSticky => {}
    }
    // Version 0 of the sticky assignor's data ends here.
    Some((had, reader.i32().unwrap_or(-1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_round_trips() {
        let had = vec![
            ("a".to_owned(), 0),
            ("a".to_owned(), 2),
            ("b".to_owned(), 1),
        ];
        let data = encode(Assignor::Sticky, &had, 7);
        assert_eq!(decode(Assignor::Sticky, &data), Some((had.clone(), 7)));
        let data = encode(Assignor::CooperativeSticky, &had, 7);
        assert_eq!(data.as_deref(), Some(&[0, 0, 0, 7][..]));
        assert_eq!(
            decode(Assignor::CooperativeSticky, &data),
            Some((Vec::new(), 7))
        );
        assert_eq!(encode(Assignor::Range, &had, 7), None);
    }

    #[test]
    fn invalid_user_data_is_ignored() {
        for bytes in [&[0x7f, 0xff, 0xff, 0xff][..], &[0, 0, 0, 1, 0, 9, 1], &[]] {
            let data = Some(Bytes::copy_from_slice(bytes));
            assert_eq!(decode(Assignor::Sticky, &data), None);
        }
    }
}
