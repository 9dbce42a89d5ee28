//! A piece of a file that can be sent without being read.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use crate::handles::LogFile;

/// `len` bytes of a log file from `position`. Owns the handle, so that the bytes stay readable after the
/// segment was deleted; nothing is read until somebody asks.
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

    /// Reads the bytes. For readers inside the broker: fetches send the region itself.
    pub fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, self.position)?;
        Ok(Bytes::from(bytes))
    }
}
