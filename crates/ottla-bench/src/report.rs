//! The report: a single self-contained HTML file.

use anyhow::Result;

use crate::figures::FIGURES;
use crate::results::ResultFile;

const PAGE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
const PLOTS: &str = include_str!("../assets/plots.js");
const EXPORT: &str = include_str!("../assets/export.js");
const UPLOT_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");

/// A page with the tables and plots of these results.
pub fn html(results: &[ResultFile]) -> Result<String> {
    let data = serde_json::json!({ "results": results, "figures": FIGURES });
    let parts = [
        ("/*UPLOT_STYLE*/", UPLOT_STYLE.to_owned()),
        ("/*STYLE*/", STYLE.to_owned()),
        ("/*UPLOT_SCRIPT*/", UPLOT_SCRIPT.to_owned()),
        ("/*EXPORT*/", EXPORT.to_owned()),
        ("/*PLOTS*/", PLOTS.to_owned()),
        ("/*DATA*/", embedded(&data)?),
        ("/*SCRIPT*/", SCRIPT.to_owned()),
    ];
    // In order, so that placeholders inside inserted text are not replaced.
    let mut page = String::new();
    let mut rest = PAGE;
    for (place, text) in &parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// JSON that cannot terminate the enclosing script element.
fn embedded(data: &serde_json::Value) -> Result<String> {
    let text = serde_json::to_string(data)?;
    Ok(text.replace('<', "\\u003c").replace('\u{2028}', "\\u2028"))
}
