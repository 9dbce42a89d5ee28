//! Creates files that must not exist yet. If one of them exists, it is reported and none is written.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A file to be created.
pub struct NewFile {
    path: PathBuf,
    bytes: Vec<u8>,
    mode: u32,
}

impl NewFile {
    /// Readable for all users.
    pub fn public(path: PathBuf, bytes: impl Into<Vec<u8>>) -> NewFile {
        let bytes = bytes.into();
        NewFile {
            path,
            bytes,
            mode: 0o644,
        }
    }

    /// Readable for its owner only.
    pub fn secret(path: PathBuf, bytes: impl Into<Vec<u8>>) -> NewFile {
        NewFile {
            mode: 0o600,
            ..NewFile::public(path, bytes)
        }
    }
}

/// Writes the files, and creates their directories.
pub fn write(files: &[NewFile]) -> Result<(), String> {
    if let Some(existing) = files.iter().find(|file| file.path.exists()) {
        return Err(exists(existing));
    }
    for file in files {
        let at = |error: std::io::Error| match error.kind() {
            ErrorKind::AlreadyExists => exists(file),
            _ => format!(
                "{}: {error}; give another directory with --dir",
                file.path.display()
            ),
        };
        if let Some(dir) = file.path.parent() {
            std::fs::create_dir_all(dir).map_err(at)?;
        }
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(file.mode)
            .open(&file.path)
            .map_err(at)?;
        new.write_all(&file.bytes).map_err(at)?;
    }
    Ok(())
}

fn exists(file: &NewFile) -> String {
    format!(
        "{} exists already and is not overwritten; give another directory with --dir, or move the files away",
        file.path.display()
    )
}
