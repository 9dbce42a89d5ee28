//! Caches of fetched data, bounded in bytes and in time, and fetches that several readers share.

mod bounded_cache;
mod chunk_cache;
mod shared_fetches;

pub use bounded_cache::{BoundedCache, ENTRY_BYTES};
pub use chunk_cache::{CachedChunk, ChunkCache, ChunkFile, ChunkKey};
pub use shared_fetches::{KEPT_FOR, KeptFetches, SharedFetch, SharedFetches};
