//! Segments as objects in the format of Aiven's plugin: a log in chunks, an object of indexes, and a
//! manifest.

mod chunk_index;
mod chunk_reader;
mod chunk_sizes;
mod data_key;
mod key_ring;
mod manifest;
mod object_key;
mod rate_limit;
mod storage;
mod transform;
mod upload;

pub use data_key::DataKey;
pub use storage::ChunkedStorage;
pub use transform::ChunkTransform;
