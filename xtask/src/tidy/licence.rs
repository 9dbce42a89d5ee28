//! The licence text, and its name in every package.

use super::complaint::Complaint;
use super::source_file::SourceFile;

pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let licence = files.iter().find(|file| file.path == "LICENSE");
    if !licence.is_some_and(|file| {
        file.text.contains("Apache License") && file.text.contains("Version 2.0")
    }) {
        complaints.push(Complaint::new(
            "LICENSE",
            "must hold the Apache License, version 2.0",
        ));
    }
    for file in files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"))
    {
        let is_named = file.text.contains("license.workspace = true")
            || file.text.contains("license = \"Apache-2.0\"");
        if file.text.contains("[package]") && !is_named {
            complaints.push(Complaint::new(
                &file.path,
                "must say license.workspace = true",
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_missing_text_and_a_package_without_a_licence_are_found() {
        let licence = file("LICENSE", "Apache License\nVersion 2.0, January 2004");
        assert_eq!(check(std::slice::from_ref(&licence)), []);
        assert_eq!(check(&[file("LICENSE", "MIT")]).len(), 1);
        assert_eq!(
            check(&[
                licence,
                file("crates/x/Cargo.toml", "[package]\nname = \"x\"")
            ])
            .len(),
            1
        );
    }
}
