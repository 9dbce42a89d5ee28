//! The public API of the published crate: every item has an example, and what was published stays until
//! the version says that it does not.
//!
//! The API is listed in `public-api.txt` beside the crate's manifest, so that a change of it is seen
//! when it is made. A line of the listing that disappears breaks other crates, as does one that
//! changes; a line that is added breaks none.

mod documentation;
mod listing;
mod reading;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::complaint::Complaint;
use super::dependencies::PUBLISHED;
use super::modules;
use super::source_file::SourceFile;
use listing::Listing;
use reading::Entry;

const FOLDER: &str = "crates/ottla-client/";
const LISTING: &str = "crates/ottla-client/public-api.txt";
const ACCEPT: &str = "`cargo xtask tidy --accept-api`";

/// Public items without an example in their documentation.
pub fn examples(files: &[SourceFile]) -> Vec<Complaint> {
    let all = entries(files);
    let missing = all.iter().filter(|entry| entry.has_example == Some(false));
    missing
        .map(|entry| {
            let text = format!(
                "`{}` has no example; give it one that rustdoc compiles together with the others",
                entry.path
            );
            Complaint::new(format!("{FOLDER}{}", entry.file), text)
        })
        .collect()
}

/// Changes of the API that are not in the listing, or that the version does not allow.
pub fn changes(files: &[SourceFile], metadata: &str) -> Result<Vec<Complaint>> {
    let (present, version) = (lines(files), version(metadata)?);
    Ok(compared(committed(files), &present, &version))
}

/// Writes the present API into the listing. Without one, the present API counts as published.
pub fn accept(files: &[SourceFile], metadata: &str, root: &Path) -> Result<()> {
    let present = lines(files);
    let listing = match committed(files) {
        None => Listing::published(&version(metadata)?, present),
        Some(text) => {
            let listing = Listing::parse(text).with_context(|| unreadable(LISTING))?;
            listing.with(&present)
        }
    };
    std::fs::write(root.join(LISTING), listing.text()).context(LISTING)
}

fn committed(files: &[SourceFile]) -> Option<&str> {
    let file = files.iter().find(|file| file.path == LISTING)?;
    Some(&file.text)
}

fn unreadable(path: &str) -> String {
    format!("{path} is not a listing; restore it from the last commit")
}

fn compared(committed: Option<&str>, present: &BTreeSet<String>, version: &str) -> Vec<Complaint> {
    let Some(text) = committed else {
        let text = format!("is missing; {ACCEPT} writes it");
        return vec![Complaint::new(LISTING, text)];
    };
    let Some(listing) = Listing::parse(text) else {
        return vec![Complaint::new(LISTING, unreadable("it"))];
    };
    let mut complaints = Vec::new();
    let differences = listing.differences(present);
    if !differences.is_empty() {
        let text = format!(
            "the public API has changed; if that is meant, {ACCEPT} lists it:\n        {}",
            differences.join("\n        ")
        );
        complaints.push(Complaint::new(LISTING, text));
    }
    let listing = listing.with(present);
    let removed: Vec<&str> = listing.removed().collect();
    let published = &listing.published;
    if !removed.is_empty() && listing::is_compatible(published, version) {
        let text = format!(
            "version {version} promises what {published} has, and this was removed or changed; keep it, or raise \
             `version` in Cargo.toml to {}:\n        - {}",
            listing::next_incompatible(published),
            removed.join("\n        - ")
        );
        complaints.push(Complaint::new(PUBLISHED, text));
    }
    complaints
}

fn lines(files: &[SourceFile]) -> BTreeSet<String> {
    entries(files).into_iter().map(|entry| entry.line).collect()
}

fn entries(files: &[SourceFile]) -> Vec<Entry> {
    let sources: BTreeMap<&str, &str> = files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(FOLDER)?, file.text.as_str())))
        .collect();
    reading::read(&modules::read(&sources), &PUBLISHED.replace('-', "_"))
}

fn version(metadata: &str) -> Result<String> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array();
    let mut packages = packages.into_iter().flatten();
    let package = packages.find(|package| package["name"] == PUBLISHED);
    let version = package.and_then(|package| package["version"].as_str());
    Ok(version.context("cargo metadata has no version")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(text: &str) -> Vec<SourceFile> {
        vec![SourceFile {
            path: format!("{FOLDER}src/lib.rs"),
            text: text.to_owned(),
        }]
    }

    fn with_listing(text: &str, listing: &Listing) -> Vec<SourceFile> {
        let mut files = crate_of(text);
        files.push(SourceFile {
            path: LISTING.to_owned(),
            text: listing.text(),
        });
        files
    }

    fn complaints(files: &[SourceFile], version: &str) -> Vec<String> {
        let metadata =
            format!(r#"{{"packages":[{{"name":"ottla-client","version":"{version}"}}]}}"#);
        let found = changes(files, &metadata).unwrap();
        found.into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn an_item_without_an_example_is_found() {
        let found = examples(&crate_of("//! ```\n//! f();\n//! ```\npub fn f() {}"));
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("`ottla_client::f`"), "{found:?}");
    }

    #[test]
    fn a_removal_needs_another_version_even_if_it_is_listed() {
        let before = "pub fn f() {} pub fn g() {}";
        let published = Listing::published("0.1.0", lines(&crate_of(before)));
        assert_eq!(
            complaints(&with_listing(before, &published), "0.1.0"),
            [""; 0]
        );

        let after = "pub fn f() {} pub fn g(_: u8) {}";
        let found = complaints(&with_listing(after, &published), "0.1.0");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("- pub fn ottla_client::g()\n        + pub fn ottla_client::g(u8)")
        );
        assert!(found[1].contains("to 0.2.0:\n        - pub fn ottla_client::g()"));

        let accepted = published.with(&lines(&crate_of(after)));
        let files = with_listing(after, &accepted);
        assert_eq!(complaints(&files, "0.1.1").len(), 1);
        assert_eq!(complaints(&files, "0.2.0"), [""; 0]);
    }

    #[test]
    fn an_addition_needs_to_be_listed() {
        let published = Listing::published("0.1.0", lines(&crate_of("pub fn f() {}")));
        let after = "pub fn f() {} pub fn g() {}";
        assert_eq!(
            complaints(&with_listing(after, &published), "0.1.0").len(),
            1
        );
        let accepted = published.with(&lines(&crate_of(after)));
        assert_eq!(
            complaints(&with_listing(after, &accepted), "0.1.0"),
            [""; 0]
        );
        assert_eq!(complaints(&crate_of(after), "0.1.0").len(), 1);
    }

    #[test]
    fn the_api_of_the_client_is_read() {
        let files = crate::tidy::repository_files().unwrap();
        let lines = lines(&files);
        for line in [
            "pub mod ottla_client::admin",
            "pub use ottla_client::admin::Admin = ottla_client::Admin",
            "pub async fn ottla_client::Admin::delete_topic(&self, &str) -> Result<(), ClientError>",
            "pub async fn ottla_client::Client::connect(ClientConfig) -> Result<Client, ClientError>",
            "pub ottla_client::ClientConfig::client_id: String",
            "impl Clone for ottla_client::Producer",
            "pub use ottla_client::Secret = ottla_sasl::Secret",
        ] {
            assert!(lines.contains(line), "{line} is missing in {lines:#?}");
        }
    }
}
