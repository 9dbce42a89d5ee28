//! A `records` field: record batches that exist elsewhere already, in memory or in a file.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

/// Record batches, in memory or in a segment file. Decoding always gives `Bytes`, a slice of the
/// request; encoding never copies either.
#[derive(Clone, Debug, PartialEq)]
pub enum Records {
    Bytes(Bytes),
    File(FileRegion),
}

impl Records {
    /// The size on the wire, in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Records::Bytes(bytes) => bytes.len() as u64,
            Records::File(region) => region.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in memory.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Records::Bytes(bytes) => Some(bytes),
            Records::File(_) => None,
        }
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Records {
        Records::Bytes(bytes)
    }
}

impl From<FileRegion> for Records {
    fn from(region: FileRegion) -> Records {
        Records::File(region)
    }
}

/// What a region is read and sent from: a file, or what a simulation has in its place.
pub trait RegionFile: AsFd + FileExt + Debug + Send + Sync {}

impl<F: AsFd + FileExt + Debug + Send + Sync> RegionFile for F {}

/// A part of a file. It owns a handle, so that the file may be renamed or unlinked before it is sent.
#[derive(Clone, Debug)]
pub struct FileRegion {
    pub file: Arc<dyn RegionFile>,
    pub position: u64,
    /// In bytes.
    pub len: u64,
}

/// The same region of the same handle; not whether two files hold the same bytes.
impl PartialEq for FileRegion {
    fn eq(&self, other: &FileRegion) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
            && self.position == other.position
            && self.len == other.len
    }
}
