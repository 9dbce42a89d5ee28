//! The boundaries between the newest batches of the active segment, for readers at the end of the log.
//!
//! A ring of slots that the appender fills and any reader reads without a lock. Most fetches are
//! for the newest records and find their positions here, without the index or the file.
//!
//! Each slot is one boundary: the offset after a batch and the position where the batch ends. Slot
//! `n` is overwritten by slot `n + SLOTS`. A reader accepts a slot only if the count, read
//! afterwards, shows that overwriting had not begun:
//! 1. the appender publishes count `n` after filling slot `n - 1`, then fills slot `n` with release
//!    stores;
//! 2. a reader that sees any of those stores therefore sees a count of at least `n` afterwards;
//! 3. so a count below `i + SLOTS` read after slot `i` proves that slot `i` was whole.
//!
//! The first boundaries of a log are in a smaller list, which is never overwritten: most logs get a
//! few batches and are idle, and the ring is larger than all their other state.

use once_cell::race::OnceBox;
use ottla_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use ottla_types::Offset;

const SLOTS: usize = 128;
/// Boundaries, with the initial one, until the ring is allocated. With the pointer to the ring, they fill
/// a block of 128 bytes.
const FIRST_SLOTS: usize = 7;

pub(crate) struct BatchTail {
    /// The initial boundary; the only one of a log that is not written to.
    first: Boundary,
    /// Allocated by the first push.
    slots: OnceBox<Slots>,
    /// Boundaries published so far; the newest is number `count - 1`.
    count: AtomicU64,
}

#[derive(Default)]
struct Slots {
    /// The boundaries below [`FIRST_SLOTS`].
    first: [Slot; FIRST_SLOTS],
    /// The ring, with copies of the boundaries before. Allocated by the push of number
    /// [`FIRST_SLOTS`], before its count is published.
    ring: OnceBox<[Slot; SLOTS]>,
}

impl Slots {
    fn make_ring(&self) -> Box<[Slot; SLOTS]> {
        let ring: Box<[Slot; SLOTS]> = Box::new(std::array::from_fn(|_| Slot::default()));
        for (slot, before) in ring.iter().zip(&self.first) {
            slot.set(before.get());
        }
        ring
    }
}

#[derive(Default)]
struct Slot {
    next_offset: AtomicI64,
    end_position: AtomicU64,
}

impl Slot {
    fn get(&self) -> Boundary {
        Boundary {
            next_offset: Offset(self.next_offset.load(Ordering::Acquire)),
            position: self.end_position.load(Ordering::Acquire),
        }
    }

    fn set(&self, boundary: Boundary) {
        self.next_offset
            .store(boundary.next_offset.0, Ordering::Release);
        self.end_position
            .store(boundary.position, Ordering::Release);
    }
}

/// Where one batch ends and the next begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Boundary {
    /// The offset after the last of the batch before the boundary.
    pub(crate) next_offset: Offset,
    pub(crate) position: u64,
}

impl BatchTail {
    /// A tail with one boundary: the end of the bytes that the segment already holds.
    pub(crate) fn new(first: Boundary) -> Self {
        Self {
            first,
            slots: OnceBox::new(),
            count: AtomicU64::new(1),
        }
    }

    /// Adds a boundary. Only the appender calls this.
    pub(crate) fn push(&self, boundary: Boundary) {
        let count = self.count.load(Ordering::Relaxed);
        let slots = self.slots.get_or_init(|| {
            let slots = Box::<Slots>::default();
            slots.first[0].set(self.first);
            slots
        });
        let slots = match count < FIRST_SLOTS as u64 {
            true => slots.first.as_slice(),
            false => slots.ring.get_or_init(|| slots.make_ring()).as_slice(),
        };
        slots[count as usize % SLOTS].set(boundary);
        self.count.store(count + 1, Ordering::Release);
    }

    fn read(&self, number: u64) -> Option<Boundary> {
        // Without a ring the number is below FIRST_SLOTS: a count above it is published after the
        // ring is there.
        let Some(slots) = self.slots.get() else {
            return Some(self.first);
        };
        let slots = match slots.ring.get() {
            Some(ring) => ring.as_slice(),
            None => slots.first.as_slice(),
        };
        let boundary = slots[number as usize % SLOTS].get();
        (self.count.load(Ordering::Acquire) < number + SLOTS as u64).then_some(boundary)
    }

    /// The last boundary whose next offset is at most `offset`, and the boundary after it, if any.
    /// `None` if the ring does not reach back to `offset`.
    pub(crate) fn floor(&self, offset: Offset) -> Option<(Boundary, Option<Boundary>)> {
        let count = self.count.load(Ordering::Acquire);
        let oldest = (count + 1).saturating_sub(SLOTS as u64);
        // Tailing readers need the newest boundary; others are found by binary search.
        let newest = self.read(count - 1)?;
        if newest.next_offset <= offset {
            return Some((newest, None));
        }
        let (mut low, mut high) = (oldest, count - 1);
        let mut after = newest;
        let mut before = self.read(low)?;
        if before.next_offset > offset {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let boundary = self.read(middle)?;
            if boundary.next_offset <= offset {
                (low, before) = (middle, boundary);
            } else {
                (high, after) = (middle, boundary);
            }
        }
        Some((before, Some(after)))
    }
}

#[cfg(test)]
mod tests {
    use ottla_sync::atomic::{AtomicBool, Ordering};

    use ottla_types::Offset;

    use super::{BatchTail, Boundary, SLOTS};

    fn boundary(n: i64) -> Boundary {
        Boundary {
            next_offset: Offset(n * 10),
            position: n as u64 * 1000,
        }
    }

    #[test]
    fn boundaries_are_found_while_the_ring_holds_them() {
        let tail = BatchTail::new(boundary(0));
        assert_eq!(tail.floor(Offset(0)), Some((boundary(0), None)));
        assert_eq!(tail.floor(Offset(9)), Some((boundary(0), None)));
        for n in 1..=1000 {
            tail.push(boundary(n));
        }
        assert_eq!(tail.floor(Offset(10_000)), Some((boundary(1000), None)));
        let reach = 1000 - SLOTS as i64 + 2;
        for n in reach..1000 {
            let expected = Some((boundary(n), Some(boundary(n + 1))));
            assert_eq!(tail.floor(Offset(n * 10)), expected, "{n}");
            assert_eq!(tail.floor(Offset(n * 10 + 9)), expected, "{n}");
        }
        assert_eq!(tail.floor(Offset(reach * 10 - 1)), None);
    }

    #[test]
    fn the_first_boundaries_are_found_before_and_after_the_ring_is_there() {
        let tail = BatchTail::new(boundary(0));
        let newest = 2 * super::FIRST_SLOTS as i64;
        for pushed in 1..=newest {
            tail.push(boundary(pushed));
            for n in 0..pushed {
                let expected = Some((boundary(n), Some(boundary(n + 1))));
                assert_eq!(tail.floor(Offset(n * 10 + 5)), expected, "{n} of {pushed}");
            }
            let last = Some((boundary(pushed), None));
            assert_eq!(tail.floor(Offset(pushed * 10)), last);
        }
    }

    #[test]
    fn a_reader_never_sees_half_a_boundary() {
        let tail = BatchTail::new(boundary(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..400_000 {
                    tail.push(boundary(n));
                }
                stop.store(true, Ordering::Release);
            });
            let mut found = 0u64;
            while !stop.load(Ordering::Acquire) || found == 0 {
                let newest = tail.read(tail.count.load(Ordering::Acquire) - 1);
                let Some(newest) = newest else { continue };
                for back in 0..SLOTS as i64 {
                    let offset = Offset(newest.next_offset.0 - back * 10);
                    if let Some((before, after)) = tail.floor(offset) {
                        assert_eq!(before.position, before.next_offset.0 as u64 * 100);
                        assert!(before.next_offset <= offset);
                        if let Some(after) = after {
                            assert_eq!(after.position, after.next_offset.0 as u64 * 100);
                            assert_eq!(after.next_offset.0, before.next_offset.0 + 10);
                        }
                        found += 1;
                    }
                }
            }
        });
    }
}
