//! Random numbers for workloads: a few instructions each, and reproducible for a seed on every
//! machine.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
#[derive(Clone, Copy, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// One of several independent sequences of the same seed, so that threads do not repeat each
    /// other.
    pub fn of_thread(seed: u64, thread: u64) -> Random {
        let mut random = Random::new(seed.wrapping_add(thread.wrapping_mul(0xd134_2543_de82_ef95)));
        Random::new(random.next_u64())
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_RATIO);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform from 0 up to but not including `bound`, which must be at least 1.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        // The high half of a product instead of a remainder: no division, and a bias below 2^-32.
        ((u64::from(bound) * (self.next_u64() >> 32)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn seeds_repeat_and_threads_differ() {
        let numbers = |mut random: Random| [random.next_u64(), random.next_u64()];
        assert_eq!(numbers(Random::new(7)), numbers(Random::new(7)));
        assert_ne!(numbers(Random::new(7)), numbers(Random::new(8)));
        assert_ne!(
            numbers(Random::of_thread(7, 0)),
            numbers(Random::of_thread(7, 1))
        );
    }

    #[test]
    fn bounded_numbers_are_uniform() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 26];
        for _ in 0..260_000 {
            counts[random.below(26) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
        assert_eq!(random.below(1), 0);
    }
}
