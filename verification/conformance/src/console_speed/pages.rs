//! How long a page takes to come, and how smoothly a long table scrolls.

use std::time::Instant;

use anyhow::Result;
use ottla_workspace::toolchain;

use super::options::Options;
use super::stand::Stand;
use super::table::{Line, Spread};
use crate::console_page::page::Page;
use crate::console_page::servers::{Kind, Server};
use crate::console_page::steps::Needs;

const MOST_MS: f64 = 100.0;
/// At 60 frames a second, plus the resolution of a browser's clock.
const FRAME_MS: f64 = 1000.0 / 60.0;
const FRAME_LIMIT_MS: f64 = FRAME_MS + 1.0;

/// The entries of the navigation, and an element that a page has only when it is loaded.
const PAGES: &[(&str, &str)] = &[
    ("Topics", "document.body.innerText.includes('speed-000')"),
    (
        "Groups",
        "document.body.innerText.includes('There are no groups yet')",
    ),
    (
        "Transactions",
        "document.body.innerText.includes('There are no transactions')",
    ),
    (
        "Security",
        "document.body.innerText.includes('The cluster has no authorizer')",
    ),
    (
        "Brokers",
        "document.querySelector('main tbody a, #content tbody a') !== null",
    ),
    (
        "Measure",
        "document.body.innerText.includes('no directory for benchmarks')",
    ),
    (
        "Cluster",
        "document.body.innerText.includes('metadata.version')",
    ),
];

/// Clicks on each page of the navigation, each round in a newly loaded page without cached data.
pub fn pages(options: &Options) -> Result<Vec<Line>> {
    toolchain::require(&toolchain::CHROMIUM)?;
    let stand = Stand::start()?;
    stand.create_partitions(options.partitions)?;
    let mut page = Page::open("")?;
    let began = Instant::now();
    page.go(&stand.url())?;
    page.holds("document.body.innerText.includes('metadata.version')")?;
    let first = began.elapsed().as_secs_f64() * 1000.0;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); PAGES.len() + 1];
    for _ in 0..options.rounds.max(5) {
        // Where none of the pages is.
        page.go(&format!("{}/nowhere", stand.url()))?;
        page.holds("document.body.innerText.includes('names no page')")?;
        for (index, (name, condition)) in PAGES.iter().enumerate() {
            times[index].push(page.time_entry(name, &of_page(name, condition))?);
            if *name == "Topics" {
                let rows = "document.querySelectorAll('tbody tr').length > 3";
                let took = page.time_click("speed-000", &of_page("speed-000", rows))?;
                times[PAGES.len()].push(took);
            }
        }
    }
    page.check_log()?;
    let names = PAGES.iter().map(|(name, _)| *name);
    let names = names.chain(["a topic of 100 partitions"]);
    let mut lines = vec![Line::shown(
        &format!(
            "the browser's start page, {} partitions",
            options.partitions
        ),
        format!("{first:.0} ms with loading the page and the first look at the cluster"),
    )];
    for (name, times) in names.zip(&times) {
        let spread = Spread::of(times)?;
        lines.push(Line::new(
            &format!("click on {name}, {} partitions", options.partitions),
            "≤ 100 ms",
            format!("{spread} ms"),
            spread.median <= MOST_MS,
        ));
    }
    Ok(lines)
}

/// A condition on the page with this title: the previous page stays until the new page is loaded.
fn of_page(title: &str, condition: &str) -> String {
    format!("(document.querySelector('h1')?.innerText ?? '').startsWith('{title}') && {condition}")
}

/// Scrolls through 100,000 rows. They come from the mock of the server: the page cannot tell the
/// difference, and no cluster of this size is needed.
pub fn tables(options: &Options) -> Result<Vec<Line>> {
    const ROWS: &str = "100000";
    toolchain::require(&toolchain::CHROMIUM)?;
    toolchain::require(&toolchain::NODE)?;
    let needs = Needs::Mock(vec![("TOPICS".to_owned(), ROWS.to_owned())]);
    let server = Server::start(&needs, Kind::Ottla)?;
    let mut page = Page::open("")?;
    let (mut median, mut late, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let mut blanks = 0.0;
    for _ in 0..options.rounds {
        page.go(&format!("{}/topics", server.url()))?;
        page.see("100,000")?;
        let scrolling = page.scroll()?;
        median.push(scrolling.median_ms);
        late.push(scrolling.p95_ms);
        cpu.push(scrolling.cpu_ms());
        blanks += scrolling.blanks;
    }
    let (median, late, cpu) = (Spread::of(&median)?, Spread::of(&late)?, Spread::of(&cpu)?);
    let is_smooth = median.median <= FRAME_LIMIT_MS && cpu.median <= FRAME_MS && blanks == 0.0;
    Ok(vec![
        Line::new(
            "scrolling through 100,000 rows",
            "60 frames/s",
            format!("a frame every {median} ms, {cpu} ms of CPU each, {blanks} without rows"),
            is_smooth,
        ),
        Line::shown(
            "its late frames",
            format!("95 % of the frames within {late} ms"),
        ),
    ])
}
