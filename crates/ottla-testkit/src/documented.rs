//! Tables of the documentation that tests write and hold to what they ran.

/// Holds the table of docs/recovery.md at that place to what the tests run, or writes it there.
pub fn assert_documented(place: &str, table: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recovery.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (
        format!("<!-- {place}: begin -->\n"),
        format!("<!-- {place}: end -->"),
    );
    let start = text.find(&begin).expect("the table has a place") + begin.len();
    let stop = text.find(&end).expect("the table's place has an end");
    if std::env::var_os("OTTLA_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &text[..start], &text[stop..])).unwrap();
        return;
    }
    assert_eq!(
        &text[start..stop],
        table,
        "docs/recovery.md is not up to date; run this test with OTTLA_WRITE_DOCS=1"
    );
}
