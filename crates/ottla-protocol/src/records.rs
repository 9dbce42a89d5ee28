//! A `records` field: record batches that already exist in memory or in a file.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

/// Record batches in memory or in a segment file. Decoding always returns `Bytes`, a slice of the
/// request. Encoding copies neither, except for small batches in memory.
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

/// The source of a region: a file, or its replacement in a simulation.
pub trait RegionFile: AsFd + FileExt + Debug + Send + Sync {}

impl<F: AsFd + FileExt + Debug + Send + Sync> RegionFile for F {}

/// A part of a file. It owns a handle, so the file may be renamed or unlinked before the region is
/// sent.
#[derive(Clone, Debug)]
pub struct FileRegion {
    pub file: Arc<dyn RegionFile>,
    pub position: u64,
    /// The length in bytes.
    pub len: u64,
}

/// Equal if both are the same range of the same handle; contents are not compared.
impl PartialEq for FileRegion {
    fn eq(&self, other: &FileRegion) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
            && self.position == other.position
            && self.len == other.len
    }
}
