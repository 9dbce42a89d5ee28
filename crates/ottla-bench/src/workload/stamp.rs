//! Timestamps in the first bytes of a record's value, from which its reader computes its age. Both
//! sides must share one clock, and therefore one process.

use super::pacing::Moment;

/// The size of the two timestamps.
pub const STAMP_BYTES: u64 = 16;

/// The bit that marks a record as due after the warm-up.
const MEASURED: u64 = 1 << 63;

/// Writes the moment into the first [`STAMP_BYTES`] of a value, which must be at least that long.
pub fn stamp(value: &mut [u8], moment: Moment, is_measured: bool) {
    debug_assert!(value.len() as u64 >= STAMP_BYTES);
    let due = moment.due | if is_measured { MEASURED } else { 0 };
    value[..8].copy_from_slice(&due.to_be_bytes());
    value[8..16].copy_from_slice(&moment.sent.to_be_bytes());
}

/// The moment in a value, and whether it is after the warm-up.
pub fn stamp_of(value: &[u8]) -> Option<(Moment, bool)> {
    let number = |at: usize| Some(u64::from_be_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let (due, sent) = (number(0)?, number(8)?);
    let moment = Moment {
        due: due & !MEASURED,
        sent,
    };
    Some((moment, due & MEASURED != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_round_trips() {
        let mut value = vec![b'x'; 20];
        let moment = Moment { due: 5, sent: 9 };
        stamp(&mut value, moment, true);
        assert_eq!(stamp_of(&value), Some((moment, true)));
        assert_eq!(&value[16..], b"xxxx");
        stamp(&mut value, moment, false);
        assert_eq!(stamp_of(&value), Some((moment, false)));
        assert_eq!(stamp_of(b"short"), None);
    }
}
