//! Which segments are cleaned into one, so that segments do not grow smaller with every round.
//!
//! Kafka: `Cleaner.groupSegmentsBySize`.

use ottla_types::Offset;

/// What counts of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSizes {
    pub(super) base_offset: Offset,
    pub(super) log_bytes: u64,
    pub(super) offset_index_bytes: u64,
    pub(super) time_index_bytes: u64,
}

/// What one new segment may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentLimits {
    pub(super) log_bytes: u64,
    pub(super) index_bytes: u64,
}

/// Cuts `segments` into neighbours whose sums fit the limits. Returns how many are in each group.
pub(super) fn group(
    segments: &[SegmentSizes],
    limits: SegmentLimits,
    first_uncleanable_offset: Offset,
) -> Vec<usize> {
    let mut groups = Vec::new();
    let mut rest = segments;
    while let Some((first, mut others)) = rest.split_first() {
        let mut sum = *first;
        let mut count = 1;
        while let Some((segment, behind)) = others.split_first() {
            // Where the segment ends is not known without reading it; where the next begins is.
            let end = behind.first().map(|next| next.base_offset);
            let last = end.unwrap_or(first_uncleanable_offset).plus(-1);
            // An empty segment brings no offset. That its distance is not asked for lets it go at last.
            let fits_offsets =
                segment.log_bytes == 0 || last.since(first.base_offset) <= i64::from(i32::MAX);
            if sum.log_bytes + segment.log_bytes > limits.log_bytes
                || sum.offset_index_bytes + segment.offset_index_bytes > limits.index_bytes
                || sum.time_index_bytes + segment.time_index_bytes > limits.index_bytes
                || !fits_offsets
            {
                break;
            }
            sum.log_bytes += segment.log_bytes;
            sum.offset_index_bytes += segment.offset_index_bytes;
            sum.time_index_bytes += segment.time_index_bytes;
            count += 1;
            others = behind;
        }
        groups.push(count);
        rest = &rest[count..];
    }
    groups
}
