//! `docs/commands.md`: the help of every command. The test writes the page, or compares it.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Command;

use super::{GROUPS, WIDTH, definition, usage};

const PAGE: &str = "docs/commands.md";
const BEGIN: &str = "<!-- commands: begin -->\n";
const END: &str = "<!-- commands: end -->";

#[test]
fn the_reference_page_has_the_help_of_every_command() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(PAGE);
    let page = std::fs::read_to_string(&path).expect(PAGE);
    let begin = page.find(BEGIN).expect("the reference has a place") + BEGIN.len();
    let end = page.find(END).expect("the place has an end");
    let text = reference();
    if std::env::var_os("OTTLA_WRITE_DOCS").is_some() {
        let page = format!("{}{text}{}", &page[..begin], &page[end..]);
        std::fs::write(&path, page).expect("written");
        return;
    }
    assert!(
        page[begin..end] == text,
        "{PAGE} is not up to date; run this test with OTTLA_WRITE_DOCS=1"
    );
}

fn reference() -> String {
    let mut definition = definition();
    // Gives every command its full name in the usage.
    definition.build();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = write!(text, "\n## {title}\n");
        for name in names.split(' ') {
            let command = definition.find_subcommand(name);
            help(
                command.unwrap_or_else(|| panic!("{name}")),
                &format!("ottla {name}"),
                &mut text,
            );
        }
    }
    text
}

/// The help of a command and of its own commands.
fn help(command: &Command, name: &str, text: &mut String) {
    let command = command.clone().term_width(WIDTH);
    let help = command.clone().render_long_help().to_string();
    let help = usage::wrap(&help, WIDTH);
    let _ = write!(text, "\n### {name}\n\n```text\n");
    for line in help.trim_end().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("```\n");
    let own = command.get_subcommands();
    for own in own.filter(|it| !it.is_hide_set() && it.get_name() != "help") {
        self::help(own, &format!("{name} {}", own.get_name()), text);
    }
}
