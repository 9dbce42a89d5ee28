//! The values of a workload's records, prepared before the clock starts.
//!
//! Random values are slices of one pool, which every thread traverses from its own offset. The pool is far larger than
//! a batch, so no batch contains the same bytes twice, and a codec can only exploit the content itself:
//! [`Content::floor`].

use std::sync::Arc;

use super::keys::Digits;
use super::random::Random;

/// The content of random values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Random capital letters, as in Kafka's tool.
    Letters,
    /// Every four bytes are a big-endian number, uniform from 0 up to but not including this
    /// (`--value-bound`, KAFKA-3554): the lower the bound, the more compressible.
    Numbers { bound: u32 },
}

impl Content {
    /// Random bits in each byte.
    pub fn bits_per_byte(self) -> f64 {
        match self {
            Content::Letters => 26_f64.log2(),
            Content::Numbers { bound } => f64::from(bound).log2() / 4.0,
        }
    }

    /// The fraction of the bytes that no codec can save: the theoretical ratio of compressed size
    /// to size.
    pub fn floor(self) -> f64 {
        self.bits_per_byte() / 8.0
    }

    fn fill(self, bytes: &mut [u8], random: &mut Random) {
        match self {
            Content::Letters => bytes
                .iter_mut()
                .for_each(|byte| *byte = b'A' + random.below(26) as u8),
            Content::Numbers { bound } => {
                for chunk in bytes.chunks_mut(4) {
                    let number = random.below(bound).to_be_bytes();
                    chunk.copy_from_slice(&number[..chunk.len()]);
                }
            }
        }
    }
}

/// The sizes of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueSizes {
    pub least: usize,
    /// Inclusive. Sizes are uniformly distributed.
    pub most: usize,
}

impl ValueSizes {
    pub fn fixed(size: usize) -> ValueSizes {
        ValueSizes {
            least: size,
            most: size,
        }
    }

    /// Parses `100` or `0-1800`.
    pub fn parse(text: &str) -> Option<ValueSizes> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let sizes = ValueSizes {
            least: least.trim().parse().ok()?,
            most: most.trim().parse().ok()?,
        };
        // Record sizes are 32-bit numbers in Kafka's protocol.
        (sizes.least <= sizes.most && sizes.most <= i32::MAX as usize).then_some(sizes)
    }

    pub fn average(self) -> f64 {
        (self.least + self.most) as f64 / 2.0
    }
}

/// The source of a run's values. Cheap to clone; each thread takes its own [`Values`].
#[derive(Clone, Debug)]
pub enum ValueSource {
    /// Slices of a pool of random bytes.
    Pool {
        pool: Arc<[u8]>,
        sizes: ValueSizes,
        /// Slices start where these bits of the offset are 0.
        misaligned: usize,
    },
    /// One of these for each record, at random.
    Listed(Arc<[Box<[u8]>]>),
    /// The record number, counted over all threads, in decimal.
    Counted,
}

/// Larger than any common batch, so that no batch contains a slice twice.
const POOL_BYTES: usize = 16 << 20;

impl ValueSource {
    /// Prepares a pool; writing it also faults its memory in. Fewer `records` need a smaller one.
    pub fn random(content: Content, sizes: ValueSizes, seed: u64, records: u64) -> ValueSource {
        let wanted = usize::try_from(records)
            .unwrap_or(usize::MAX)
            .saturating_mul(sizes.most)
            .min(POOL_BYTES);
        let mut pool = vec![0; wanted.max(4 * sizes.most).next_multiple_of(4)];
        content.fill(&mut pool, &mut Random::new(seed));
        ValueSource::Pool {
            pool: pool.into(),
            sizes,
            misaligned: match content {
                Content::Letters => 0,
                Content::Numbers { .. } => 3,
            },
        }
    }

    pub fn listed(values: Vec<Vec<u8>>) -> ValueSource {
        ValueSource::Listed(values.into_iter().map(Vec::into_boxed_slice).collect())
    }

    /// The values of one of several threads.
    pub fn values(&self, seed: u64, thread: u64) -> Values {
        let mut random = Random::of_thread(seed, thread);
        let place = match self {
            ValueSource::Pool { pool, .. } if !pool.is_empty() => {
                (random.next_u64() % pool.len() as u64) as usize
            }
            _ => 0,
        };
        Values {
            source: self.clone(),
            random,
            place,
            digits: Digits::default(),
        }
    }
}

/// The values of one thread.
#[derive(Clone, Debug)]
pub struct Values {
    source: ValueSource,
    random: Random,
    /// The offset in the pool of the next value.
    place: usize,
    digits: Digits,
}

impl Values {
    /// The value of the record with this number, counted over all threads.
    #[inline]
    pub fn next(&mut self, record: u64) -> &[u8] {
        match &self.source {
            ValueSource::Pool {
                pool,
                sizes,
                misaligned,
            } => {
                let size = match sizes.most - sizes.least {
                    0 => sizes.most,
                    spread => sizes.least + self.random.below(spread as u32 + 1) as usize,
                };
                let mut start = (self.place + misaligned) & !misaligned;
                if start + size > pool.len() {
                    // A different start in each pass, so that passes do not repeat each other.
                    let room = (pool.len() - size) as u32;
                    start = self.random.below(room / 2 + 1) as usize & !misaligned;
                }
                self.place = start + size;
                &pool[start..start + size]
            }
            ValueSource::Listed(values) => &values[self.random.below(values.len() as u32) as usize],
            ValueSource::Counted => self.digits.of(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ottla_records::{Compression, CompressionType, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;

    fn random(content: Content, sizes: ValueSizes) -> Values {
        ValueSource::random(content, sizes, 3, u64::MAX).values(3, 0)
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(ValueSizes::parse("100"), Some(ValueSizes::fixed(100)));
        let range = ValueSizes::parse("0-1800").unwrap();
        assert_eq!((range.least, range.most, range.average()), (0, 1800, 900.0));
        for bad in ["", "x", "-1", "5-", "9-8", "0-99999999999"] {
            assert_eq!(ValueSizes::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_drawn_from_their_whole_range() {
        let mut values = random(Content::Letters, ValueSizes { least: 2, most: 5 });
        let mut seen = BTreeSet::new();
        for record in 0..10_000 {
            let value = values.next(record);
            assert!(value.iter().all(u8::is_ascii_uppercase));
            seen.insert(value.len());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn a_pool_is_reused_and_provides_large_values() {
        for size in [0, 1, 100, 20 << 20] {
            let mut values = random(Content::Letters, ValueSizes::fixed(size));
            for record in 0..20 {
                assert_eq!(values.next(record).len(), size);
            }
        }
        let few = ValueSource::random(Content::Letters, ValueSizes::fixed(10), 0, 3);
        let mut values = few.values(0, 0);
        assert!((0..1000).all(|record| values.next(record).len() == 10));
    }

    #[test]
    fn numbers_are_below_their_bound_at_every_position() {
        let sizes = ValueSizes { least: 9, most: 30 };
        let mut values = random(Content::Numbers { bound: 300 }, sizes);
        for record in 0..1000 {
            for number in values.next(record).chunks_exact(4) {
                let number = u32::from_be_bytes(number.try_into().unwrap());
                assert!(number < 300, "{number}");
            }
        }
    }

    #[test]
    fn listed_values_are_all_used_and_counters_increase() {
        let source = ValueSource::listed(vec![b"a".to_vec(), b"bc".to_vec()]);
        let mut values = source.values(0, 0);
        let seen: BTreeSet<Vec<u8>> = (0..50).map(|record| values.next(record).to_vec()).collect();
        assert_eq!(seen.len(), 2);
        let mut counted = ValueSource::Counted.values(0, 0);
        assert_eq!(counted.next(1234), b"1234");
    }

    /// No codec compresses below the stated ratio, and a good codec comes close to the entropy of
    /// the bytes: the pool repeats nothing within a batch.
    #[test]
    fn compressibility_is_as_stated() {
        for (content, factor) in [
            (Content::Letters, 1.15),
            (Content::Numbers { bound: 50 }, 2.0),
            (Content::Numbers { bound: 50_000 }, 1.5),
        ] {
            let mut values = random(content, ValueSizes::fixed(100));
            let mut batch = RecordBatchBuilder::new(Compression::from(CompressionType::Zstd));
            let records = 10_000;
            for record in 0..records {
                batch.append(Timestamp(0), None, Some(values.next(record)), &[]);
            }
            let size = batch.build().size_in_bytes() as f64;
            let share = size / (records * 100) as f64;
            let floor = content.floor();
            assert!(
                share > floor && share < floor * factor,
                "{content:?}: {share} {floor}"
            );
        }
    }
}
