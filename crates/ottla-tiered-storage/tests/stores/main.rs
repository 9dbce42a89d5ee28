//! The stores through their seam: files, objects in a directory, objects that Aiven's plugin wrote, damaged objects,
//! a server that fails on purpose, and real servers.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[cfg(feature = "azure")]
mod azure;
mod chunked;
mod damaged;
mod faults;
#[cfg(feature = "gcs")]
mod gcs;
#[cfg(feature = "gcs")]
mod google_rules;
mod local;
mod plugin;
mod reading;
#[cfg(feature = "real-stores")]
mod real_stores;
mod segments;
