//! Objects in S3, GCS, Azure or a directory.

mod aws_credentials;
#[cfg(feature = "azure")]
mod azure;
mod client;
#[cfg(feature = "gcs")]
mod gcs;
#[cfg(feature = "gcs")]
mod gcs_requests;
mod object_storage;
mod open;
mod rotated;
mod store_error;

pub use aws_credentials::Environment;
pub use object_storage::{ObjectStorage, once};
pub use open::open_store;
