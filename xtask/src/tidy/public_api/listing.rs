//! The committed listing of a public API: that of the published version, and what has changed since
//! then.

use std::collections::{BTreeMap, BTreeSet};

/// An API compared with the published one.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    /// The version that was published last.
    pub published: String,
    lines: BTreeMap<String, Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Kept,
    Added,
    Removed,
}

impl Mark {
    const ALL: [(Mark, &str); 3] = [
        (Mark::Kept, "  "),
        (Mark::Added, "+ "),
        (Mark::Removed, "- "),
    ];

    fn text(self) -> &'static str {
        let found = Mark::ALL.iter().find(|(mark, _)| *mark == self);
        found.map_or("", |(_, text)| *text)
    }
}

const HEAD: &str = "\
# The public API, written by `cargo xtask tidy --accept-api`; docs/testing.md explains it.
# A line with + was added since the published version, one with - was removed or changed.
";
const PUBLISHED: &str = "published ";

impl Listing {
    /// The API of a version that is published as it is.
    pub fn published(version: &str, lines: BTreeSet<String>) -> Listing {
        Listing {
            published: version.to_owned(),
            lines: lines.into_iter().map(|line| (line, Mark::Kept)).collect(),
        }
    }

    /// `None` if it is not in the format of [`Listing::text`].
    pub fn parse(text: &str) -> Option<Listing> {
        let mut published = None;
        let mut lines = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(version) = line.strip_prefix(PUBLISHED) {
                published = Some(version.to_owned());
                continue;
            }
            let mut marks = Mark::ALL.iter();
            let found = marks.find_map(|(mark, text)| Some((line.strip_prefix(text)?, *mark)));
            let (line, mark) = found?;
            lines.insert(line.to_owned(), mark);
        }
        Some(Listing {
            published: published?,
            lines,
        })
    }

    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}{PUBLISHED}{}\n", self.published);
        for (line, mark) in &self.lines {
            text.push_str(&format!("{}{line}\n", mark.text()));
        }
        text
    }

    /// The same published API compared with another present one.
    pub fn with(&self, present: &BTreeSet<String>) -> Listing {
        let mut lines: BTreeMap<String, Mark> = present
            .iter()
            .map(|line| (line.clone(), Mark::Added))
            .collect();
        let published = self.lines.iter().filter(|(_, mark)| **mark != Mark::Added);
        for (line, _) in published {
            let mark = match present.contains(line) {
                true => Mark::Kept,
                false => Mark::Removed,
            };
            lines.insert(line.clone(), mark);
        }
        Listing {
            published: self.published.clone(),
            lines,
        }
    }

    /// What was published and is not there any more.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        let removed = self
            .lines
            .iter()
            .filter(|(_, mark)| **mark == Mark::Removed);
        removed.map(|(line, _)| line.as_str())
    }

    /// The lines of an API that differ from this listing, with `+` or `-`.
    pub fn differences(&self, present: &BTreeSet<String>) -> Vec<String> {
        let listed: BTreeSet<&String> = self
            .lines
            .iter()
            .filter(|(_, mark)| **mark != Mark::Removed)
            .map(|(line, _)| line)
            .collect();
        let removed = listed.iter().filter(|line| !present.contains(**line));
        let added = present.iter().filter(|line| !listed.contains(line));
        let removed = removed.map(|line| format!("- {line}"));
        removed
            .chain(added.map(|line| format!("+ {line}")))
            .collect()
    }
}

/// Whether the second version promises what the first one had. Of 0.x.y, x is the number that an
/// incompatible change raises.
pub fn is_compatible(published: &str, version: &str) -> bool {
    significant(published) == significant(version)
}

/// The next version that promises nothing of this one.
pub fn next_incompatible(version: &str) -> String {
    match significant(version) {
        (0, minor) => format!("0.{}.0", minor + 1),
        (major, _) => format!("{}.0.0", major + 1),
    }
}

/// Major and minor version; 0 as the minor one from 1.0 on.
fn significant(version: &str) -> (u64, u64) {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, if major == 0 { minor } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_listing_keeps_what_was_published() {
        let first = Listing::published("0.1.0", lines(&["a", "b"]));
        let second = first.with(&lines(&["b", "c"]));
        assert_eq!(second.removed().collect::<Vec<_>>(), ["a"]);
        assert!(second.text().ends_with("published 0.1.0\n- a\n  b\n+ c\n"));
        assert_eq!(Listing::parse(&second.text()), Some(second));
        // What was only added may change until it is published.
        let second = first.with(&lines(&["b", "c"]));
        let third = second.with(&lines(&["b", "d"]));
        assert_eq!(third.removed().collect::<Vec<_>>(), ["a"]);
        assert_eq!(third.with(&lines(&["a", "b"])), first);
        assert_eq!(Listing::parse("nothing of the kind"), None);
    }

    #[test]
    fn differences_are_those_from_the_present_of_the_listing() {
        let listing = Listing::published("0.1.0", lines(&["a", "b"])).with(&lines(&["b", "c"]));
        assert_eq!(listing.differences(&lines(&["b", "c"])), [""; 0]);
        assert_eq!(listing.differences(&lines(&["b", "d"])), ["- c", "+ d"]);
    }

    #[test]
    fn versions_promise_what_semver_says() {
        for (published, version, is_promised) in [
            ("0.1.0", "0.1.7", true),
            ("0.1.0", "0.2.0", false),
            ("1.2.0", "1.9.3", true),
            ("1.2.0", "2.0.0", false),
        ] {
            assert_eq!(is_compatible(published, version), is_promised, "{version}");
        }
        assert_eq!(next_incompatible("0.1.4"), "0.2.0");
        assert_eq!(next_incompatible("1.3.4"), "2.0.0");
    }
}
