//! `docs/settings.md` agrees with the tables about every setting.

// The test reads the page; the crate itself reads no file.
#![allow(clippy::disallowed_methods)]

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->";

#[test]
fn the_page_holds_the_tables_of_settings() {
    let page = std::fs::read_to_string(PAGE).expect("docs/settings.md");
    let begin = page.find(BEGIN).expect("the tables have a place") + BEGIN.len();
    let end = page.find(END).expect("the tables' place has an end");
    let tables = format!("\n{}", ottla_config::settings_markdown());
    if std::env::var_os("OTTLA_WRITE_DOCS").is_some() {
        let text = format!("{}{tables}{}", &page[..begin], &page[end..]);
        std::fs::write(PAGE, text).expect("written");
        return;
    }
    assert!(
        page[begin..end] == tables,
        "docs/settings.md is not up to date; run this test with OTTLA_WRITE_DOCS=1"
    );
}
