//! `cargo xtask docs`: builds the documentation site with mdBook.
//!
//! The pages are copied to mdBook's source folder at the same relative paths, so links between them
//! stay valid. A link to a file outside the book becomes a link to the repository on the web. After
//! the build every link of the site is checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use ottla_workspace::process::{is_on_path, output_of};
use ottla_workspace::workspace;

use crate::tidy::links::{DECISIONS, SUMMARY, check, is_there, links};
use crate::tidy::repository_files;
use crate::tidy::source_file::SourceFile;

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

#[derive(clap::Args)]
pub struct Options {
    /// The directory for the site; by default target/site.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let files = repository_files()?;
    let complaints = check(&files, is_there(&workspace::root()));
    for complaint in &complaints {
        println!("{}: {}", complaint.place, complaint.text);
    }
    ensure!(
        complaints.is_empty(),
        "{} links lead nowhere",
        complaints.len()
    );
    ensure!(
        is_on_path("mdbook"),
        "the links are good; to build the site, install mdBook: cargo install mdbook"
    );
    let target = workspace::target_dir();
    let book = target.join("book");
    let out = options.out.clone().unwrap_or_else(|| target.join("site"));
    lay_out(&files, &book)?;
    output_of(
        Command::new("mdbook")
            .arg("build")
            .arg("--dest-dir")
            .arg(std::path::absolute(&out)?)
            .arg(&book),
    )?;
    let followed = follow(&out)?;
    println!("{} ({followed} links)", out.join("index.html").display());
    Ok(())
}

/// Writes mdBook's input: the pages of the table of contents, and the decisions as children of
/// their table.
fn lay_out(files: &[SourceFile], book: &Path) -> Result<()> {
    if book.exists() {
        fs::remove_dir_all(book)?;
    }
    let page = |path: &str| files.iter().find(|file| file.path == path);
    let summary = page(SUMMARY).context("there is no docs/SUMMARY.md")?;
    let decisions: Vec<&SourceFile> = files
        .iter()
        .filter(|file| file.path.starts_with(DECISIONS) && !file.path.ends_with("README.md"))
        .collect();
    let listed = links(SUMMARY, &summary.text)
        .into_iter()
        .filter_map(|link| link.path);
    let in_book: BTreeSet<String> = listed
        .chain(decisions.iter().map(|file| file.path.clone()))
        .collect();
    for path in &in_book {
        let file = page(path).with_context(|| format!("{SUMMARY} names {path}"))?;
        write(&book.join("src").join(path), &within_book(file, &in_book))?;
    }
    let summary = summary_of_book(&summary.text, &decisions);
    write(&book.join("src/SUMMARY.md"), &summary)?;
    let settings = format!(
        "[book]\ntitle = \"Ottla\"\nlanguage = \"en\"\nsrc = \"src\"\n\n[build]\ncreate-missing = false\n\n\
         [output.html]\nno-section-label = true\ngit-repository-url = \"{REPOSITORY}\"\n"
    );
    write(&book.join("book.toml"), &settings)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The table of contents relative to the root, with a line for each decision below their table.
fn summary_of_book(text: &str, decisions: &[&SourceFile]) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let link = links(SUMMARY, line).pop();
        let Some((link, path)) = link.as_ref().and_then(|it| Some((it, it.path.as_ref()?))) else {
            out.push_str(&format!("{line}\n"));
            continue;
        };
        out.push_str(&line.replace(&format!("]({})", link.written), &format!("]({path})")));
        out.push('\n');
        if *path == format!("{DECISIONS}README.md") {
            let indent = line.len() - line.trim_start().len() + 2;
            for decision in decisions {
                let title = decision.text.lines().next().unwrap_or_default();
                let title = title.trim_start_matches('#').trim();
                out.push_str(&format!("{:indent$}- [{title}]({})\n", "", decision.path));
            }
        }
    }
    out
}

/// Rewrites links that leave the book to the repository on the web, and links to a `README.md` to
/// the `index.html` that mdBook generates from it.
fn within_book(page: &SourceFile, in_book: &BTreeSet<String>) -> String {
    let mut text = page.text.clone();
    // From the end, so that earlier positions stay valid.
    for link in links(&page.path, &page.text).into_iter().rev() {
        let Some(path) = link.path else {
            continue;
        };
        let to = match link.written.strip_suffix("README.md") {
            Some(folder) if in_book.contains(&path) => format!("{folder}index.md"),
            None if in_book.contains(&path) => continue,
            _ => {
                let is_folder = workspace::root().join(&path).is_dir();
                let kind = if is_folder { "tree" } else { "blob" };
                format!("{REPOSITORY}/{kind}/main/{path}")
            }
        };
        let written = format!("]({}", link.written);
        let replaced = text[link.place.clone()].replace(&written, &format!("]({to}"));
        text.replace_range(link.place, &replaced);
    }
    text
}

/// Checks the links within a site and returns their number.
fn follow(site: &Path) -> Result<usize> {
    let mut folders = vec![site.to_owned()];
    let (mut followed, mut broken) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for found in fs::read_dir(&folder)? {
            let path = found?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // The print page repeats the links of all other pages, and the 404 page may be shown at
            // any address.
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if !name.ends_with(".html") || matches!(&*name, "print.html" | "404.html") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for target in targets(&text) {
                followed += 1;
                if !folder.join(&target).exists() {
                    broken.push(format!("{}: {target}", path.display()));
                }
            }
        }
    }
    ensure!(
        broken.is_empty(),
        "links of the site that lead nowhere:\n{}",
        broken.join("\n")
    );
    Ok(followed)
}

/// The link targets of a page that are files of the site.
fn targets(html: &str) -> Vec<String> {
    let attributes = ["href=\"", "src=\""];
    let values = attributes.iter().flat_map(|attribute| {
        let values = html.split(attribute).skip(1);
        values.filter_map(|rest| rest.split('"').next())
    });
    let paths = values.map(|value| value.split('#').next().unwrap_or_default());
    let is_within = |path: &&str| !path.is_empty() && !path.contains(':');
    paths.filter(is_within).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::links::tests::page;

    #[test]
    fn a_link_to_no_page_leads_to_the_repository_and_others_stay() {
        let text = "[a](b.md#x), [the client](../crates/ottla-client), [r](../README.md), [c](https://example.com)\n";
        let in_book = BTreeSet::from(["docs/b.md".to_owned(), "README.md".to_owned()]);
        let expected = format!(
            "[a](b.md#x), [the client]({REPOSITORY}/tree/main/crates/ottla-client), [r](../index.md), [c](https://example.com)\n"
        );
        assert_eq!(within_book(&page("docs/a.md", text), &in_book), expected);
    }

    #[test]
    fn the_table_of_contents_is_from_the_root_and_has_the_decisions() {
        let decision = page(
            "docs/decisions/0001-runtime.md",
            "# 1. The runtime\n\ntext\n",
        );
        let summary = "# Contents\n\n- [Ottla](../README.md)\n- [Decisions](decisions/README.md)\n";
        assert_eq!(
            summary_of_book(summary, &[&decision]),
            "# Contents\n\n- [Ottla](README.md)\n- [Decisions](docs/decisions/README.md)\n  \
             - [1. The runtime](docs/decisions/0001-runtime.md)\n"
        );
    }

    #[test]
    fn targets_within_a_site_are_found() {
        let html = r##"<a href="b.html#x">b</a> <a href="#y">y</a> <a href="https://e.com">e</a> <img src="c.png">"##;
        assert_eq!(targets(html), ["b.html", "c.png"]);
    }
}
