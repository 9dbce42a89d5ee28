//! The stores through their seam: files, objects in a directory, objects that Aiven's plugin wrote,
//! and an S3 server that fails on purpose.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod chunked;
mod fake_s3;
mod faults;
mod local;
mod plugin;
mod reading;
#[cfg(feature = "real-s3")]
mod real_s3;
mod segments;
