//! Which segments are merged into one, so that segments do not shrink with every cleaning.
//!
//! Kafka: `Cleaner.groupSegmentsBySize`.

use ottla_types::Offset;

/// The sizes of one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSizes {
    pub(super) base_offset: Offset,
    pub(super) log_bytes: u64,
    pub(super) offset_index_bytes: u64,
    pub(super) time_index_bytes: u64,
}

/// Limits of one cleaned segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentLimits {
    pub(super) log_bytes: u64,
    pub(super) index_bytes: u64,
}

/// Cuts `segments` into groups of neighbours whose sums fit the limits. Returns the size of each
/// group.
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
            // The segment's end offset is not known without reading it; the base offset of the next
            // segment is.
            let end = behind.first().map(|next| next.base_offset);
            let last = end.unwrap_or(first_uncleanable_offset).plus(-1);
            // An empty segment adds no offset. Exempting it from the distance check lets it be
            // merged away.
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
