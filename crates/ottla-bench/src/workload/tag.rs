//! Encodes the moment of a record in 64 bits, so that it can travel through a client with the
//! record and come back with its outcome.
//!
//! Ticks are 256 ns. A tag holds when the record was sent modulo 2^32 ticks (18 minutes, far more
//! than a record may be in flight), how long before that it was due (up to 9 minutes), and whether
//! it came after the warm-up.

use super::pacing::Moment;

const NS_PER_TICK: u64 = 256;
const LATE_BITS: u32 = 31;
const LATEST: u64 = (1 << LATE_BITS) - 1;
const AFTER_WARMUP: u64 = 1 << LATE_BITS;

/// The decoded tag of a completed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed {
    pub since_due_ns: u64,
    pub since_sent_ns: u64,
    pub after_warmup: bool,
}

#[inline]
pub fn tag(moment: Moment, after_warmup: bool) -> u64 {
    let sent = moment.sent / NS_PER_TICK;
    let late = ((moment.sent - moment.due) / NS_PER_TICK).min(LATEST);
    (sent << 32) | if after_warmup { AFTER_WARMUP } else { 0 } | late
}

/// `now` must be on the same clock as the moment.
#[inline]
pub fn elapsed(tag: u64, now: u64) -> Elapsed {
    let sent = (tag >> 32) as u32;
    let ticks = ((now / NS_PER_TICK) as u32).wrapping_sub(sent);
    let since_sent_ns = u64::from(ticks) * NS_PER_TICK;
    Elapsed {
        since_due_ns: since_sent_ns + (tag & LATEST) * NS_PER_TICK,
        since_sent_ns,
        after_warmup: tag & AFTER_WARMUP != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_gives_both_latencies_in_runs_of_any_length() {
        const MINUTE: u64 = 60_000_000_000;
        for start in [0, 5_000, 17 * MINUTE, 100_000 * MINUTE] {
            for (late, under_way) in [(0, 0), (0, 1_000_000), (3 * MINUTE, 2 * MINUTE)] {
                let moment = Moment {
                    due: start,
                    sent: start + late,
                };
                let now = moment.sent + under_way;
                let back = elapsed(tag(moment, true), now);
                let near = |found: u64, exact: u64| found.abs_diff(exact) <= 2 * NS_PER_TICK;
                assert!(near(back.since_sent_ns, under_way), "{back:?}");
                assert!(near(back.since_due_ns, late + under_way), "{back:?}");
                assert!(back.after_warmup && !elapsed(tag(moment, false), now).after_warmup);
            }
        }
    }

    #[test]
    fn too_large_latencies_are_clamped() {
        let moment = Moment {
            due: 0,
            sent: u64::MAX / 2,
        };
        let back = elapsed(tag(moment, false), moment.sent);
        assert_eq!(back.since_due_ns, LATEST * NS_PER_TICK);
        assert!(!back.after_warmup);
    }
}
