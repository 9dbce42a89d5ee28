//! Caches of fetched data, bounded in bytes and in time, and fetches that several readers share.

mod bounded_cache;
mod chunk_cache;
mod shared_fetches;

pub use bounded_cache::BoundedCache;
pub use chunk_cache::{CachedChunk, ChunkCache, ChunkKey};
pub use shared_fetches::{KeptFetches, SharedFetch, SharedFetches};
