//! Pure: metadata records folded into an immutable cluster image, and deltas between images.
