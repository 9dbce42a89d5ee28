//! A hash of the metadata of the subscribed topics, with which a group detects that they have
//! changed.
//!
//! It is in the group's record and must equal Kafka's: with a different hash, every group that
//! moves between Kafka and Ottla would be assigned again. Source: `Utils.computeTopicHash`,
//! `Utils.computeGroupHash`; XXH3, fed with numbers (little-endian) and strings (UTF-16 code units,
//! then their number) like hash4j.

use std::collections::HashMap;

use bytestring::ByteString;
use ottla_metadata::{MetadataImage, TopicImage};
use xxhash_rust::xxh3::Xxh3;

/// The version of the topic hash.
const TOPIC_HASH_MAGIC_BYTE: u8 = 0;

/// Caches the hashes of topics until they are forgotten.
#[derive(Debug, Default)]
pub struct TopicHashes {
    by_topic: HashMap<ByteString, u64>,
}

impl TopicHashes {
    /// The hash of all existing ones of `topics`, which must be in the order of their names.
    pub fn group_hash<'a>(
        &mut self,
        topics: impl Iterator<Item = &'a ByteString>,
        image: &MetadataImage,
    ) -> i64 {
        let mut hasher = Xxh3::new();
        let mut is_empty = true;
        for name in topics {
            let Some(topic) = image.topics.by_name(name) else {
                continue;
            };
            let hash = match self.by_topic.get(name) {
                Some(hash) => *hash,
                None => {
                    let hash = topic_hash(topic, image);
                    self.by_topic.insert(topic.name.clone(), hash);
                    hash
                }
            };
            hasher.update(&hash.to_le_bytes());
            is_empty = false;
        }
        if is_empty { 0 } else { hasher.digest() as i64 }
    }

    /// Called when the topic has changed, or has no subscribers any more.
    pub fn forget(&mut self, topic: &str) {
        self.by_topic.remove(topic);
    }

    pub fn clear(&mut self) {
        self.by_topic.clear();
    }
}

fn topic_hash(topic: &TopicImage, image: &MetadataImage) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&[TOPIC_HASH_MAGIC_BYTE]);
    let [high, low] = halves(topic.id.0);
    put_i64(&mut hasher, high);
    put_i64(&mut hasher, low);
    put_string(&mut hasher, &topic.name);
    put_len(&mut hasher, topic.partition_count());
    for index in 0..topic.partition_count() {
        put_len(&mut hasher, index);
        for rack in racks(topic, index, image) {
            put_len(&mut hasher, rack.encode_utf16().count());
            put_string(&mut hasher, rack);
        }
    }
    hasher.digest()
}

/// The racks of a partition's replicas, sorted like Java strings, one entry per replica.
fn racks<'a>(topic: &TopicImage, index: usize, image: &'a MetadataImage) -> Vec<&'a ByteString> {
    let partition = i32::try_from(index)
        .ok()
        .and_then(|index| topic.partition(ottla_types::PartitionIndex(index)));
    let replicas = partition.map_or(&[][..], |partition| &partition.replicas[..]);
    let mut racks: Vec<&ByteString> = replicas
        .iter()
        .filter_map(|replica| image.cluster.broker(*replica)?.rack.as_ref())
        .collect();
    racks.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    racks
}

fn halves(id: [u8; 16]) -> [i64; 2] {
    let id = u128::from_be_bytes(id);
    [(id >> 64) as i64, id as i64]
}

fn put_i64(hasher: &mut Xxh3, number: i64) {
    hasher.update(&number.to_le_bytes());
}

fn put_len(hasher: &mut Xxh3, len: usize) {
    hasher.update(&(len as i32).to_le_bytes());
}

fn put_string(hasher: &mut Xxh3, text: &str) {
    let mut units = 0;
    for unit in text.encode_utf16() {
        hasher.update(&unit.to_le_bytes());
        units += 1;
    }
    put_len(hasher, units);
}

#[cfg(test)]
mod tests {
    use bytestring::ByteString;

    use super::{TopicHashes, topic_hash};
    use crate::group::modern::test_image::TestImage;

    fn hash(image: &TestImage, topics: &[&'static str]) -> i64 {
        let names: Vec<ByteString> = topics.iter().map(|name| (*name).into()).collect();
        TopicHashes::default().group_hash(names.iter(), &image.build())
    }

    #[test]
    fn changes_that_affect_assignments_change_the_hash() {
        let image = TestImage::new().topic("a", 2).topic("b", 1);
        assert_eq!(hash(&image, &[]), 0);
        assert_eq!(hash(&image, &["unknown"]), 0);
        let of_both = hash(&image, &["a", "b"]);
        assert_ne!(of_both, 0);
        assert_eq!(of_both, hash(&image, &["a", "b", "unknown"]));
        assert_ne!(of_both, hash(&image, &["a"]));
        let larger = TestImage::new().topic("a", 3).topic("b", 1);
        assert_ne!(of_both, hash(&larger, &["a", "b"]));
        let racked = TestImage::new()
            .broker(1, Some("rack"))
            .topic("a", 2)
            .topic("b", 1);
        assert_ne!(of_both, hash(&racked, &["a", "b"]));
    }

    /// The numbers are those of hash4j 0.22 with Kafka's input.
    #[test]
    fn hashes_are_kafkas() {
        let image = TestImage::new()
            .broker(1, Some("r1"))
            .broker(2, Some("r2x"))
            .broker(3, None)
            .topic("a", 0)
            .replicas("a", 0, &[2, 1, 3])
            .replicas("a", 1, &[3]);
        let built = image.build();
        let topic = built.topics.by_name("a").expect("there");
        assert_eq!(topic_hash(topic, &built) as i64, 2_037_201_552_557_089_558);
        assert_eq!(hash(&image, &["a"]), -2_389_967_701_068_304_298);
    }

    #[test]
    fn a_hash_is_kept_until_it_is_forgotten() {
        let names: Vec<ByteString> = vec!["a".into()];
        let mut hashes = TopicHashes::default();
        let small = TestImage::new().topic("a", 1).build();
        let large = TestImage::new().topic("a", 2).build();
        let before = hashes.group_hash(names.iter(), &small);
        assert_eq!(hashes.group_hash(names.iter(), &large), before);
        hashes.forget("a");
        assert_ne!(hashes.group_hash(names.iter(), &large), before);
    }
}
