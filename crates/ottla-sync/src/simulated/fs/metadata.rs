//! Metadata of files and directories.

use std::io;
use std::time::SystemTime;

#[derive(Clone, Debug)]
pub struct Metadata {
    pub(super) len: u64,
    pub(super) modified: SystemTime,
    pub(super) file_type: FileType,
}

impl Metadata {
    #[expect(clippy::len_without_is_empty, reason = "as in the standard library")]
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(self.modified)
    }

    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    pub fn is_file(&self) -> bool {
        self.file_type.is_file()
    }

    pub fn is_dir(&self) -> bool {
        self.file_type.is_dir()
    }
}

impl TryFrom<&std::fs::Metadata> for Metadata {
    type Error = io::Error;

    fn try_from(metadata: &std::fs::Metadata) -> io::Result<Metadata> {
        Ok(Metadata {
            len: metadata.len(),
            modified: metadata.modified()?,
            file_type: metadata.file_type().into(),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileType {
    File,
    Dir,
    Other,
}

impl FileType {
    pub fn is_file(self) -> bool {
        self == FileType::File
    }

    pub fn is_dir(self) -> bool {
        self == FileType::Dir
    }
}

impl From<std::fs::FileType> for FileType {
    fn from(file_type: std::fs::FileType) -> FileType {
        match (file_type.is_file(), file_type.is_dir()) {
            (true, _) => FileType::File,
            (_, true) => FileType::Dir,
            _ => FileType::Other,
        }
    }
}
