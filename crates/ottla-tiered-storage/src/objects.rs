//! Objects in S3, GCS, Azure or a directory.

mod aws_credentials;
mod object_storage;
mod open;

pub use aws_credentials::Environment;
pub use object_storage::{ObjectStorage, once};
pub use open::open_store;
