//! The files in a partition's directory, by name.

use std::path::Path;

use crate::error::StorageError;

pub(crate) struct Listed {
    /// The names of the regular files.
    pub(crate) files: Vec<String>,
    /// Nothing else is in the directory.
    pub(crate) is_complete: bool,
}

pub(crate) fn list(dir: &Path) -> Result<Listed, StorageError> {
    let error = |error| StorageError::new("list", dir, error);
    let mut files = Vec::new();
    let mut is_complete = true;
    for entry in ottla_sync::fs::read_dir(dir).map_err(error)? {
        let entry = entry.map_err(error)?;
        if entry.file_type().map_err(error)?.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            files.push(name);
        } else {
            is_complete = false;
        }
    }
    Ok(Listed { files, is_complete })
}
