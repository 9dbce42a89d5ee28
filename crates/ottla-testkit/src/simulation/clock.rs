//! The clock of one node: it began at some time of its own, and is fast or slow.

/// How far a clock may be from the true time, in thousandths.
const MAX_DRIFT: u64 = 100;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    base_ms: u64,
    /// 1000 is right.
    rate: u64,
}

impl Clock {
    pub(crate) fn skewed(random: &mut super::random::Random) -> Clock {
        Clock {
            base_ms: random.below(1_000_000),
            rate: 1000 - MAX_DRIFT + random.below(2 * MAX_DRIFT + 1),
        }
    }

    pub(crate) fn now_ms(self, true_ms: u64) -> u64 {
        self.base_ms + true_ms * self.rate / 1000
    }

    /// The first true time at which this clock shows `local_ms`.
    pub(crate) fn true_ms(self, local_ms: u64) -> u64 {
        local_ms
            .saturating_sub(self.base_ms)
            .saturating_mul(1000)
            .div_ceil(self.rate)
    }
}
