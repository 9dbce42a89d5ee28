//! Files that only their owner may read, because they may hold passwords.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file by `text`. A crash leaves either the old or the new one.
pub(crate) fn write_for_owner(path: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&unfinished)?.write_all(text.as_bytes())?;
    fs::rename(&unfinished, path)
}
