//! The keys of a workload's records, as in Kafka 4.4's producer-perf-test (KIP-1299): decimal
//! numbers.

use super::random::Random;

/// The keys of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyDistribution {
    /// None.
    None,
    /// 0, 1, and so on up to but not including this, then again from 0.
    Range(u32),
    /// Uniformly random numbers below this.
    Random(u32),
}

/// The keys of one thread, all written into the same small buffer.
#[derive(Clone, Debug)]
pub struct Keys {
    distribution: KeyDistribution,
    random: Random,
    digits: Digits,
}

impl Keys {
    pub fn new(distribution: KeyDistribution, seed: u64, thread: u64) -> Keys {
        Keys {
            distribution,
            // A different sequence from that of sizes and values.
            random: Random::of_thread(!seed, thread),
            digits: Digits::default(),
        }
    }

    /// The key of the record with this number, counted over all threads.
    #[inline]
    pub fn next(&mut self, record: u64) -> Option<&[u8]> {
        let number = match self.distribution {
            KeyDistribution::None => return None,
            KeyDistribution::Range(range) => record % u64::from(range),
            KeyDistribution::Random(range) => u64::from(self.random.below(range)),
        };
        Some(self.digits.of(number))
    }
}

/// A number in decimal, written without an allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Digits([u8; 20]);

impl Digits {
    #[inline]
    pub(super) fn of(&mut self, mut number: u64) -> &[u8] {
        let mut start = self.0.len();
        loop {
            start -= 1;
            self.0[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[start..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn texts(distribution: KeyDistribution, count: u64) -> Vec<String> {
        let mut keys = Keys::new(distribution, 0, 0);
        (0..count)
            .map(|record| match keys.next(record) {
                Some(key) => String::from_utf8(key.to_vec()).unwrap(),
                None => "null".into(),
            })
            .collect()
    }

    #[test]
    fn keys_are_cyclic_or_random() {
        assert_eq!(texts(KeyDistribution::None, 2), ["null", "null"]);
        assert_eq!(
            texts(KeyDistribution::Range(3), 5),
            ["0", "1", "2", "0", "1"]
        );
        let drawn: BTreeSet<String> = texts(KeyDistribution::Random(4), 100).into_iter().collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }

    #[test]
    fn all_numbers_are_formatted() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            assert_eq!(Digits::default().of(number), number.to_string().as_bytes());
        }
    }
}
