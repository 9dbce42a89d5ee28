//! Prints the table of settings for `COMPATIBILITY.md`, between its two marks.

fn main() {
    print!("{}", ottla_config::settings_markdown());
}
