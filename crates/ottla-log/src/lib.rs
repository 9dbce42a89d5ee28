//! One partition's files: segments, indexes, epochs, producer state, recovery and retention.
