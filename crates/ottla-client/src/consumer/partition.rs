//! What a consumer calls a partition.

/// A partition by topic name and number.
pub(crate) type Partition = (String, i32);
