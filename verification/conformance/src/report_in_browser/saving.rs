//! Saves every plot with its buttons, and checks the files.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::browser::{Browser, PATIENCE};

/// Chromium asks for confirmation before a page may save more files than this, and no user can
/// confirm here.
const SAVED_PER_PAGE: u32 = 10;

/// Clicks all save buttons. Returns the number of valid files.
pub fn save_all(chromium: &Command, report: &Path, downloads: &Path) -> Result<u32> {
    let mut browser = Browser::start(chromium)?;
    browser.call(
        "Browser.setDownloadBehavior",
        json!({"behavior": "allowAndName", "downloadPath": downloads, "eventsEnabled": true}),
    )?;
    browser.attach()?;
    let mut saved = 0;
    let mut buttons = open(&mut browser, report, 0)?;
    while saved < buttons {
        if saved > 0 && saved.is_multiple_of(SAVED_PER_PAGE) {
            buttons = open(&mut browser, report, saved)?;
        }
        let kind = click(&mut browser, saved)?;
        let begins = browser.event("Browser.downloadWillBegin", |_| true)?;
        let done = browser.event("Browser.downloadProgress", |it| {
            it["guid"] == begins["guid"] && it["state"] != "inProgress"
        })?;
        let name = begins["suggestedFilename"].as_str().unwrap_or_default();
        ensure!(done["state"] == "completed", "{name} was not saved: {done}");
        let file = downloads.join(begins["guid"].as_str().unwrap_or_default());
        let bytes = std::fs::read(&file).with_context(|| format!("{name} is not there"))?;
        check(&kind, name, &bytes).with_context(|| format!("button {saved}: {name}"))?;
        saved += 1;
    }
    Ok(saved)
}

/// Checks that a file is a non-empty picture of this kind with a matching name.
fn check(kind: &str, name: &str, bytes: &[u8]) -> Result<()> {
    match kind {
        "SVG" => {
            let text = std::str::from_utf8(bytes)?;
            ensure!(name.ends_with(".svg"), "its name");
            ensure!(
                text.starts_with("<svg xmlns=") && text.ends_with("</svg>"),
                "not SVG"
            );
            ensure!(
                text.contains("<path d=\"M") || text.contains("<circle "),
                "no series in it"
            );
        }
        "PNG" => {
            ensure!(name.ends_with(".png"), "its name");
            let header = bytes.get(..24).context("too short for PNG")?;
            ensure!(header.starts_with(b"\x89PNG\r\n\x1a\n"), "not PNG");
            let side = |at: usize| {
                header[at..at + 4]
                    .iter()
                    .fold(0u32, |sum, byte| sum << 8 | u32::from(*byte))
            };
            let (width, height) = (side(16), side(20));
            ensure!(width >= 200 && height >= 100, "only {width} by {height}");
            ensure!(bytes.ends_with(b"IEND\xaeB`\x82"), "cut off");
        }
        other => bail!("a button says {other:?}"),
    }
    Ok(())
}

/// Reopens the report and waits until it has drawn all its plots. Returns the number of save
/// buttons.
fn open(browser: &mut Browser, report: &Path, visit: u32) -> Result<u32> {
    let url = format!("file://{}?{visit}#check", report.display());
    browser.call("Page.navigate", json!({"url": url}))?;
    let began = Instant::now();
    // The page checks its plots after it has drawn them.
    let is_drawn = format!(
        "Boolean(location.search === '?{visit}' && document.body && document.body.dataset.checked)"
    );
    while browser.evaluate(&is_drawn)? != true {
        ensure!(began.elapsed() < PATIENCE, "the page does not draw");
        std::thread::sleep(Duration::from_millis(20));
    }
    let buttons = browser.evaluate("document.querySelectorAll('figure .tools button').length")?;
    let buttons = buttons.as_u64().and_then(|it| u32::try_from(it).ok());
    buttons.context("no number of buttons")
}

/// Clicks a button at its position, and returns its label.
fn click(browser: &mut Browser, index: u32) -> Result<String> {
    let found = browser.evaluate(&format!(
        "(() => {{ const button = document.querySelectorAll('figure .tools button')[{index}]; \
         button.scrollIntoView({{ block: 'center' }}); const box = button.getBoundingClientRect(); \
         return [button.textContent, box.x + box.width / 2, box.y + box.height / 2]; }})()"
    ))?;
    for kind in ["mousePressed", "mouseReleased"] {
        browser.call(
            "Input.dispatchMouseEvent",
            json!({"type": kind, "x": found[1], "y": found[2], "button": "left", "clickCount": 1}),
        )?;
    }
    let kind = found[0].as_str().context("a button without a text")?;
    Ok(kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_files_have_the_type_of_their_button() {
        let svg = b"<svg xmlns=\"x\"><path d=\"M1 2\"/></svg>";
        check("SVG", "a.svg", svg).unwrap();
        assert!(check("SVG", "a.png", svg).is_err());
        assert!(check("SVG", "a.svg", b"<svg xmlns=\"x\"></svg>").is_err());
        assert!(check("SVG", "a.svg", b"").is_err());
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x01\0".to_vec();
        assert!(check("PNG", "a.png", &png).is_err(), "without an end");
        png.extend(b"IEND\xaeB`\x82");
        check("PNG", "a.png", &png).unwrap();
        png[18] = 0;
        assert!(check("PNG", "a.png", &png).is_err(), "no width");
        assert!(check("PNG", "a.png", svg).is_err());
    }
}
