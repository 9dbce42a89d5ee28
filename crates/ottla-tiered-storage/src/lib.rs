//! Where remote log segments are kept (KIP-405): stores and object formats.
//!
//! Owns the connections to a store, the format of its objects, and caches of read data. Does not depend on partitions
//! or on `__remote_log_metadata`: the callers decide when a segment is copied or deleted, and pass in its metadata and
//! files.
//!
//! Invariants:
//! - Bytes from a store can produce an error that names the object, never a panic, an unbounded
//!   allocation or a loop.
//! - A read returns the bytes that were uploaded, as far as the format can tell: chunks of the wrong
//!   length, frames that do not decompress and tags that do not match are errors.
//! - No password, key or token is in an error or a log line.
//!
//! Kafka: `org.apache.kafka.server.log.remote.storage.RemoteStorageManager`.

#![forbid(unsafe_code)]
// Tests create files and tasks themselves.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod blocking;
mod error;
mod remote_storage;

mod custom_metadata;
mod settings;

mod cache;
mod objects;

mod chunked;
mod local_tiered_storage;

mod open;

pub use blocking::Permit;
pub use cache::{BoundedCache, ENTRY_BYTES};
pub use chunked::{ChunkTransform, ChunkedStorage, DataKey};
pub use custom_metadata::{CustomMetadataError, CustomMetadataField, CustomMetadataFields};
pub use error::{RemoteStorageError, RemoteStorageErrorKind};
pub use local_tiered_storage::LocalTieredStorage;
pub use open::{open, open_to_read};
pub use remote_storage::{
    IndexType, LogSegmentData, RemoteStorageManager, SegmentStream, StoredObject, read_all,
};
pub use settings::{CHUNKED_CLASS, ChunkedSettings, LOCAL_CLASS, LocalSettings, StorageSettings};
