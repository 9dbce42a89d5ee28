//! Links between the pages of the repository: each target must exist, and the heading that it
//! names. All pages of `docs/` must be in its table of contents.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::complaint::Complaint;
use super::source_file::SourceFile;

/// The table of contents of the site.
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// The pages in this folder are listed in their own table.
pub const DECISIONS: &str = "docs/decisions/";

/// A link from a page to another file of the repository.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// The byte range of its text and target within the page.
    pub place: Range<usize>,
    /// As written in the page, without the fragment.
    pub written: String,
    /// Relative to the root of the repository; `None` if it leads outside.
    pub path: Option<String>,
    pub heading: Option<String>,
}

/// `exists` returns whether a path, relative to the repository root, is a file or folder.
pub fn check(files: &[SourceFile], exists: impl Fn(&str) -> bool) -> Vec<Complaint> {
    let pages: Vec<&SourceFile> = files.iter().filter(|it| it.path.ends_with(".md")).collect();
    let headings: HashMap<&str, Vec<String>> = pages
        .iter()
        .map(|page| (page.path.as_str(), headings(&page.text)))
        .collect();
    let mut complaints = Vec::new();
    for page in &pages {
        for link in links(&page.path, &page.text) {
            let line = page.text[..link.place.start].matches('\n').count() + 1;
            let mut complain =
                |text| complaints.push(Complaint::new(format!("{}:{line}", page.path), text));
            let Some(path) = &link.path else {
                complain(format!("{} leads out of the repository", link.written));
                continue;
            };
            if !exists(path) {
                complain(format!("there is no {path}"));
            } else if let Some(heading) = &link.heading
                && let Some(there) = headings.get(path.as_str())
                && !there.contains(heading)
            {
                complain(format!("{path} has no heading #{heading}"));
            }
        }
    }
    complaints.extend(unlisted(&pages));
    complaints
}

/// The pages of `docs/` that the table of contents lacks.
fn unlisted(pages: &[&SourceFile]) -> Vec<Complaint> {
    let Some(summary) = pages.iter().find(|page| page.path == SUMMARY) else {
        return vec![Complaint::new(SUMMARY, "is missing")];
    };
    let listed: Vec<String> = links(SUMMARY, &summary.text)
        .into_iter()
        .filter_map(|link| link.path)
        .collect();
    let is_left_out = |page: &&&SourceFile| {
        page.path.starts_with("docs/")
            && page.path != SUMMARY
            && !page.path.starts_with(DECISIONS)
            && !listed.contains(&page.path)
    };
    let left_out = pages.iter().filter(is_left_out);
    left_out
        .map(|page| Complaint::new(&page.path, format!("is not in {SUMMARY}; give it a line")))
        .collect()
}

/// The links of a page to other files and to its own headings.
pub fn links(page: &str, text: &str) -> Vec<Link> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let mut found = Vec::new();
    for (event, place) in events {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) =
            event
        else {
            continue;
        };
        let has_scheme = dest_url
            .split(['/', '#'])
            .next()
            .is_some_and(|it| it.contains(':'));
        if has_scheme {
            continue;
        }
        let (written, heading) = match dest_url.split_once('#') {
            Some((written, heading)) => (written, Some(heading.to_owned())),
            None => (&*dest_url, None),
        };
        let path = match written {
            "" => Some(page.to_owned()),
            _ => resolved(folder, written),
        };
        found.push(Link {
            place,
            written: written.to_owned(),
            path,
            heading,
        });
    }
    found
}

/// Resolves a path relative to a folder; `None` if it leaves the root.
fn resolved(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings, by the rules of GitHub and mdBook.
fn headings(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut current: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => current = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let name = slug(&current.take().unwrap_or_default());
                let again = (1..).map(|number| format!("{name}-{number}"));
                let mut names = std::iter::once(name.clone()).chain(again);
                found.extend(names.find(|name| !found.contains(name)));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(current) = &mut current {
                    current.push_str(&text);
                }
            }
            _ => {}
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.collect()
}

/// Whether a path, relative to the repository root, exists.
pub fn is_there(root: &Path) -> impl Fn(&str) -> bool {
    move |path: &str| root.join(path).exists()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn page(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn complaints(of: &str) -> Vec<String> {
        let files = [
            page("README.md", "# Ottla\n"),
            page("docs/a.md", of),
            page("docs/b.md", "# Two words, `code`\n## Again\n## Again\n"),
            page(SUMMARY, "- [a](a.md)\n- [b](b.md)\n"),
        ];
        let exists = |path: &str| files.iter().any(|it| it.path == path) || path == "crates";
        let found = check(&files, exists);
        found
            .iter()
            .map(|it| format!("{}: {}", it.place, it.text))
            .collect()
    }

    #[test]
    fn links_to_files_folders_headings_and_other_sites_are_accepted() {
        let text = "[x](../README.md) [y](../crates/) [z](b.md#two-words-code) [w](#here) [v](b.md#again-1)\n\n\
                    # Here\n[u](https://example.com/a.md) `[t](none.md)`\n";
        assert_eq!(complaints(text), [""; 0]);
    }

    #[test]
    fn broken_links_are_reported_with_their_line() {
        assert_eq!(
            complaints("x\n\n[x](none.md)"),
            ["docs/a.md:3: there is no docs/none.md"]
        );
        assert_eq!(
            complaints("[x](b.md#three)"),
            ["docs/a.md:1: docs/b.md has no heading #three"]
        );
        assert_eq!(
            complaints("![x](../../x.png)"),
            ["docs/a.md:1: ../../x.png leads out of the repository"]
        );
    }

    #[test]
    fn a_page_missing_in_the_table_of_contents_is_reported() {
        let files = [
            page("docs/a.md", ""),
            page(SUMMARY, ""),
            page("docs/decisions/1.md", ""),
        ];
        let found = check(&files, |_| true);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "docs/a.md");
    }
}
