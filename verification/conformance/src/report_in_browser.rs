//! `cargo xtask report`: runs a small `ottla bench`, opens the report in headless Chromium, and
//! counts the drawn elements.
//!
//! If its URL ends in `#check`, the page watches its canvases while it draws each series, checks
//! whether plots overlap, and writes the results into an attribute. The report is
//! checked in light and dark mode, at desktop and phone width; screenshots are kept below the
//! target directory. Finally each plot is saved in both formats.

mod saving;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::browser::chromium;
use ottla_workspace::report::Tally;
use ottla_workspace::{process, toolchain, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// Check this existing report instead of running a benchmark.
    #[arg(long)]
    html: Option<PathBuf>,
}

/// A view in which the report must be complete.
const VIEWS: &[(&str, &str, bool)] = &[
    ("light", "1280,2400", false),
    ("dark", "1280,2400", true),
    ("phone", "500,2400", false),
];

pub fn run(options: &Options) -> Result<()> {
    toolchain::require(&toolchain::CHROMIUM)?;
    let folder = workspace::target_dir().join("report");
    let report = match &options.html {
        Some(report) => report.canonicalize()?,
        None => new_report(&folder)?,
    };
    std::fs::create_dir_all(&folder)?;
    let least_plots = match options.html {
        Some(_) => 1,
        None => PLOTS_OF_NEW_REPORT,
    };
    let mut tally = Tally::default();
    for (name, size, is_dark) in VIEWS {
        let found = checked(&report, size, *is_dark)?;
        let picture = folder.join(name).with_extension("png");
        take_picture(&report, size, *is_dark, &picture)?;
        let is_whole = found.plots >= least_plots
            && found.series > 0
            && found.drawn == found.series
            && found.svg == found.plots
            && found.apart == found.plots;
        println!("{name:<6} {found:?}; {}", picture.display());
        tally.add(Tally::of(is_whole));
    }
    let downloads = tempfile::Builder::new().prefix("ottla-saved-").tempdir()?;
    let mut browser = chromium(VIEWS[0].1, false);
    // A separate profile: otherwise the page would be opened by a running Chromium of this user.
    let profile = downloads.path().join("profile");
    browser.arg(format!("--user-data-dir={}", profile.display()));
    let saved = saving::save_all(&browser, &report, downloads.path())?;
    println!("saved  {saved} files");
    tally.add(Tally::of(saved >= 2 * least_plots));
    println!("{tally}");
    ensure!(
        tally.failed == 0,
        "a plot has not drawn its series, lies over another, or cannot be saved; `data-missing` of its figure names the \
         series"
    );
    Ok(())
}

/// The page's report about itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    plots: u32,
    series: u32,
    drawn: u32,
    svg: u32,
    apart: u32,
}

/// 2 for sweeps, 1 over stored bytes, 1 over time, 4 for each round in detail, and 1 for the round
/// without a time series.
const PLOTS_OF_NEW_REPORT: u32 = 2 + 1 + 1 + 3 * 4 + 1;

/// Runs scenarios that together produce every kind of plot.
fn new_report(folder: &Path) -> Result<PathBuf> {
    let binary = match std::env::var_os("OTTLA_BINARY") {
        Some(named) => PathBuf::from(named),
        None => workspace::release_binary("ottla", "ottla")?,
    };
    workspace::make_empty(folder)?;
    let mut bench = Command::new(binary);
    bench
        .args(["bench", "run", "linkedin-2014/message-size"])
        .args(["linkedin-2014/stored-data", "rate-ladder/write-and-read"])
        .arg("linkedin-2014/end-to-end-latency")
        .args(["--scale", "small", "--time", "1s", "--repetitions", "2"])
        .arg("--out")
        .arg(folder);
    process::output_of(&mut bench)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            return Ok(path.canonicalize()?);
        }
    }
    bail!("ottla bench has written no report")
}

fn checked(report: &Path, size: &str, is_dark: bool) -> Result<Found> {
    let mut command = chromium(size, is_dark);
    command
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}#check", report.display()));
    let page = process::output_of(&mut command)?;
    found_in(&page).context("the page has not looked at its plots; its script has failed")
}

fn found_in(page: &str) -> Option<Found> {
    let (_, rest) = page.split_once("data-checked=\"")?;
    let (text, _) = rest.split_once('"')?;
    let mut found = Found::default();
    for word in text.split(' ') {
        let (name, number) = word.split_once('=')?;
        let number = number.parse().ok()?;
        match name {
            "plots" => found.plots = number,
            "series" => found.series = number,
            "drawn" => found.drawn = number,
            "svg" => found.svg = number,
            "apart" => found.apart = number,
            _ => return None,
        }
    }
    Some(found)
}

fn take_picture(report: &Path, size: &str, is_dark: bool, picture: &Path) -> Result<()> {
    let mut command = chromium(size, is_dark);
    command
        .arg("--virtual-time-budget=5000")
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", report.display()));
    process::output_of(&mut command)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_the_page_is_parsed() {
        let page = "<body data-checked=\"plots=3 series=5 drawn=4 svg=3 apart=2\">";
        let expected = Found {
            plots: 3,
            series: 5,
            drawn: 4,
            svg: 3,
            apart: 2,
        };
        assert_eq!(found_in(page), Some(expected));
        assert_eq!(found_in("<body>"), None);
    }
}
