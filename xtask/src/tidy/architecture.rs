//! ARCHITECTURE.md and docs/format.md name code as `file.rs:item`; each item must exist.

use super::complaint::Complaint;
use super::source_file::SourceFile;

const PAGES: [&str; 2] = ["ARCHITECTURE.md", "docs/format.md"];

pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    PAGES
        .iter()
        .flat_map(|page| check_page(page, files))
        .collect()
}

fn check_page(name: &str, files: &[SourceFile]) -> Vec<Complaint> {
    let Some(page) = files.iter().find(|file| file.path == name) else {
        return vec![Complaint::new(name, "is missing")];
    };
    let mut complaints = Vec::new();
    let mut stops = 0;
    for (index, line) in page.text.lines().enumerate() {
        // References to code are in backquotes or in a fenced block.
        for word in line.split(|c: char| c.is_whitespace() || "`(),;".contains(c)) {
            let Some((path, function)) = word.split_once(".rs:") else {
                continue;
            };
            stops += 1;
            let place = format!("{}:{}", page.path, index + 1);
            let ending = format!("/{path}.rs");
            let found: Vec<&SourceFile> = files
                .iter()
                .filter(|file| file.path == format!("{path}.rs") || file.path.ends_with(&ending))
                .collect();
            let item = function
                .trim_end_matches(['.', ':'])
                .rsplit("::")
                .next()
                .unwrap_or_default();
            if found.is_empty() {
                complaints.push(Complaint::new(place, format!("there is no file {path}.rs")));
            } else if !found.iter().any(|file| defines(&file.text, item)) {
                complaints.push(Complaint::new(
                    place,
                    format!("{path}.rs has no item `{item}`"),
                ));
            }
        }
    }
    if stops == 0 {
        complaints.push(Complaint::new(name, "names no code as `file.rs:item`"));
    }
    complaints
}

fn defines(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        ["fn ", "struct ", "enum ", "trait "].iter().any(|keyword| {
            line.match_indices(keyword).any(|(at, _)| {
                line[at + keyword.len()..]
                    .strip_prefix(name)
                    .is_some_and(|rest| {
                        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(page: &str) -> Vec<SourceFile> {
        vec![
            SourceFile {
                path: PAGES[0].to_owned(),
                text: page.to_owned(),
            },
            SourceFile {
                path: PAGES[1].to_owned(),
                text: "`connection.rs:C::read_frame`".to_owned(),
            },
            SourceFile {
                path: "crates/x/src/net/connection.rs".to_owned(),
                text: "impl C {\n    pub fn read_frame<T>(&mut self) {}\n}".to_owned(),
            },
        ]
    }

    #[test]
    fn existing_names_are_accepted_with_any_path_suffix() {
        let page = "1. `x/src/net/connection.rs:read_frame` and net/connection.rs:C::read_frame.";
        assert_eq!(check(&files(page)), []);
    }

    #[test]
    fn missing_files_and_functions_are_found() {
        assert_eq!(check(&files("`net/connection.rs:read`")).len(), 1);
        assert_eq!(check(&files("`net/dispatch.rs:read_frame`")).len(), 1);
    }

    #[test]
    fn a_page_without_stops_and_a_missing_page_are_found() {
        assert_eq!(check(&files("words")).len(), 1);
        assert_eq!(check(&[]).len(), 2);
    }
}
