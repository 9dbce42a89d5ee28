//! Reproducible tar archives: sorted, one timestamp for all files, owned by root by default.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use crate::contents::{Contents, Entry, Item, Role};

/// The numeric owner of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    pub user: u64,
    pub group: u64,
}

/// A tar archive, compressed with gzip at a level from 0 to 9.
pub fn tar_gz(
    contents: &Contents,
    owner_of: impl Fn(&str) -> Owner,
    time: u32,
    level: u32,
) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::new(level));
    gzip.write_all(&tar(contents, "./", owner_of, time)?)?;
    Ok(gzip.finish()?)
}

/// A tar archive of these paths and their parent directories. Names begin with `./`, as when `tar`
/// packs a directory, or without a prefix for readers that look files up by name.
pub fn tar(
    contents: &Contents,
    prefix: &str,
    owner_of: impl Fn(&str) -> Owner,
    time: u32,
) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in with_parents(contents) {
        let mut header = Header::new_gnu();
        let below = path.trim_start_matches('/');
        let name = match entry.item {
            Item::Directory if below.is_empty() => prefix.to_owned(),
            Item::Directory => format!("{prefix}{below}/"),
            _ => format!("{prefix}{below}"),
        };
        if name.is_empty() {
            continue;
        }
        let fields = header.as_old_mut();
        ensure!(
            name.len() < fields.name.len(),
            "{path}: longer than tar has room for"
        );
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_mode(entry.mode);
        header.set_mtime(time.into());
        let owner = owner_of(&path);
        header.set_uid(owner.user);
        header.set_gid(owner.group);
        let bytes: &[u8] = match &entry.item {
            Item::File(bytes) => {
                header.set_entry_type(EntryType::Regular);
                bytes
            }
            Item::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_link_name_literal(target)?;
                &[]
            }
            Item::Directory => {
                header.set_entry_type(EntryType::Directory);
                &[]
            }
        };
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, bytes)?;
    }
    Ok(tar.into_inner()?)
}

/// Adds the parent directories of every path, each before its contents.
fn with_parents(contents: &Contents) -> BTreeMap<String, Entry> {
    let mut parents = BTreeSet::from(["/".to_owned()]);
    for path in contents.keys() {
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
            parents.insert(path[..at].to_owned());
        }
    }
    let directory = |path| {
        let (item, role) = (Item::Directory, Role::Plain);
        (
            path,
            Entry {
                item,
                mode: 0o755,
                role,
            },
        )
    };
    let mut all: BTreeMap<String, Entry> = parents.into_iter().map(directory).collect();
    all.extend(contents.clone());
    all
}

/// The contents of a compressed tar archive by absolute path, with owners.
pub fn read_tar_gz(bytes: &[u8]) -> Result<BTreeMap<String, (Entry, Owner)>> {
    let mut found = BTreeMap::new();
    let mut tar = tar::Archive::new(GzDecoder::new(bytes));
    for entry in tar.entries()? {
        let mut entry = entry?;
        let name = String::from_utf8(entry.path_bytes().into_owned())?;
        let path = name
            .strip_prefix('.')
            .with_context(|| format!("{name} does not begin with ./"))?;
        let path = match path.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        ensure!(
            !path.split('/').any(|part| part == ".."),
            "{path} leads out of the archive"
        );
        let mode = entry.header().mode()?;
        let owner = Owner {
            user: entry.header().uid()?,
            group: entry.header().gid()?,
        };
        let item = match entry.header().entry_type() {
            EntryType::Directory => Item::Directory,
            EntryType::Symlink => {
                let target = entry.link_name_bytes().context("a link without a target")?;
                Item::Link(String::from_utf8(target.into_owned())?)
            }
            _ => {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                Item::File(bytes)
            }
        };
        let role = Role::Plain;
        found.insert(path.to_owned(), (Entry { item, mode, role }, owner));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_comes_back_with_the_directories_above_and_is_the_same_each_time() {
        let entry = |item, mode| Entry {
            item,
            mode,
            role: Role::Plain,
        };
        let contents = Contents::from([
            (
                "/a/b/tool".to_owned(),
                entry(Item::File(b"x".to_vec()), 0o755),
            ),
            (
                "/a/link".to_owned(),
                entry(Item::Link("b/tool".into()), 0o777),
            ),
        ]);
        let owner = Owner { user: 7, group: 8 };
        let of = |path: &str| {
            if path == "/a/link" {
                owner
            } else {
                Owner::default()
            }
        };
        let bytes = tar_gz(&contents, of, 5, 6).unwrap();
        assert_eq!(bytes, tar_gz(&contents, of, 5, 6).unwrap());
        let found = read_tar_gz(&bytes).unwrap();
        let paths: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(paths, ["/", "/a", "/a/b", "/a/b/tool", "/a/link"]);
        assert_eq!(found["/a/b/tool"].0, contents["/a/b/tool"]);
        assert_eq!(found["/a/link"], (contents["/a/link"].clone(), owner));
    }
}
