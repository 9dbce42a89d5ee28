//! Creates files that must not exist yet. If one of them exists, or cannot be written, that is reported and
//! none is left.

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
    for (index, file) in files.iter().enumerate() {
        if let Err(error) = create(file) {
            // Otherwise the next attempt would report them as existing.
            for written in &files[..index] {
                let _ = std::fs::remove_file(&written.path);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn create(file: &NewFile) -> Result<(), String> {
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
    new.write_all(&file.bytes).map_err(|error| {
        let _ = std::fs::remove_file(&file.path);
        at(error)
    })
}

fn exists(file: &NewFile) -> String {
    format!(
        "{} exists already and is not overwritten; give another directory with --dir, or move the files away",
        file.path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_no_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let occupied = dir.path().join("file");
        std::fs::write(&occupied, b"").expect("a file");
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        let below_a_file = NewFile::public(occupied.join("third"), *b"c");
        let files = || {
            vec![
                NewFile::secret(first.clone(), *b"a"),
                NewFile::public(second.clone(), *b"b"),
            ]
        };
        let mut failing = files();
        failing.push(below_a_file);
        let error = write(&failing).expect_err("a file is no directory");
        assert!(error.contains("third"), "{error}");
        assert!(!first.exists() && !second.exists());
        assert_eq!(write(&files()), Ok(()));
        assert_eq!(std::fs::read(&second).expect("a file"), b"b");
        let error = write(&files()).expect_err("they exist");
        assert!(error.contains("exists already"), "{error}");
        assert!(first.exists() && second.exists());
    }
}
