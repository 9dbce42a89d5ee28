//! A part of a file that is sent without reading it into memory.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use crate::handles::LogFile;

/// `len` bytes of a log file from `position`. Owns the handle, so the bytes stay readable after the
/// segment was deleted. Nothing is read until it is needed.
#[derive(Clone, Debug)]
pub struct FileRegion {
    pub file: Arc<LogFile>,
    pub position: u64,
    pub len: u64,
}

impl FileRegion {
    pub fn new(file: impl Into<ottla_sync::fs::File>, position: u64, len: u64) -> FileRegion {
        FileRegion {
            file: Arc::new(LogFile::alone(file.into())),
            position,
            len,
        }
    }

    /// Reads the bytes, for readers inside the broker; fetch responses send the region itself.
    pub fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, self.position)?;
        Ok(Bytes::from(bytes))
    }
}
