//! Prints the tables of settings for `docs/settings.md`, between its two marks.

fn main() {
    print!("{}", ottla_config::settings_markdown());
}
