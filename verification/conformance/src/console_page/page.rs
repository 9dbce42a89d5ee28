//! One page in a browser: the actions of a user, and the conditions on its contents.
//!
//! Clicks and keys are the browser's own, not events of a script. Elements are found by their
//! accessible name, so that a test fails if a name is missing.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::browser::{Browser, chromium};

/// How long something may take to appear. On a busy machine, what the page gets from the console can be
/// 60 s old.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// The first pause between two looks at the page. A look lays out the whole page and reads its text, so
/// the pauses grow with what has been waited, up to [`SELDOM`].
const AGAIN: Duration = Duration::from_millis(25);
const SELDOM: Duration = Duration::from_millis(150);
/// Resolves when the page has been drawn twice: fonts and plots are there then, and what it changes for
/// another width.
const DRAWN: &str = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(true), 150))))";
/// Finds elements by accessible names, measures, and watches for violations of the policy.
const IN_PAGE: &str = include_str!("in_page.js");
/// At 60 frames a second, in milliseconds.
const FRAME_MS: f64 = 1000.0 / 60.0;
/// The limit of the check. The page has to stay below a frame on a quiet machine, which is printed; a
/// machine that runs other tests can take twice as long for the same work (17.4 ms were seen). A
/// table that renders all of its rows takes hundreds.
const MOST_MS: f64 = 3.0 * FRAME_MS;
/// In which a table is scrolled from its top to its end.
const FRAMES: u32 = 120;

// The browser ends before its profile is deleted: fields are dropped in this order.
pub struct Page {
    browser: Browser,
    _profile: tempfile::TempDir,
    axe: String,
    /// Messages and exceptions of the page, and violations of its content security policy.
    complaints: Vec<String>,
}

impl Page {
    pub fn open(axe: &str) -> Result<Page> {
        let profile = tempfile::Builder::new()
            .prefix("ottla-browser-")
            .tempdir()?;
        let mut command = chromium("1280,900", false);
        // A separate profile: otherwise the page would be opened by a running Chromium of this user.
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let mut browser = Browser::start(&command)?;
        browser.attach()?;
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        browser.call(
            "Page.addScriptToEvaluateOnNewDocument",
            json!({"source": IN_PAGE}),
        )?;
        Ok(Page {
            browser,
            _profile: profile,
            axe: axe.to_owned(),
            complaints: Vec::new(),
        })
    }

    pub fn go(&mut self, url: &str) -> Result<()> {
        self.leave("Page.navigate", json!({"url": url}))
    }

    pub fn reload(&mut self) -> Result<()> {
        self.leave("Page.reload", json!({}))
    }

    /// Replaces the document, and waits until the new one is complete: until then, the old one can
    /// still answer.
    fn leave(&mut self, method: &str, params: Value) -> Result<()> {
        self.until("window.isLeft = true", "a document")?;
        self.browser.call(method, params)?;
        self.until(
            "window.isLeft === undefined && document.readyState === 'complete'",
            "the page to load",
        )
    }

    pub fn see(&mut self, text: &str) -> Result<()> {
        self.see_within(PATIENCE, text)
    }

    pub fn see_within(&mut self, patience: Duration, text: &str) -> Result<()> {
        let seen = format!("inPage.text().includes({})", json!(text));
        self.until_within(patience, &seen, &format!("“{text}”"))
    }

    pub fn see_not(&mut self, text: &str) -> Result<()> {
        let gone = format!("!inPage.text().includes({})", json!(text));
        self.until(&gone, &format!("“{text}” to go"))
    }

    pub fn holds(&mut self, expression: &str) -> Result<()> {
        self.until(expression, expression)
    }

    pub fn address_is(&mut self, address: &str) -> Result<()> {
        let is_there = format!("location.pathname + location.search === {}", json!(address));
        self.until(&is_there, &format!("the address {address}"))
    }

    pub fn click(&mut self, name: &str) -> Result<()> {
        self.click_found(&target(name), name)
    }

    /// Clicks until the click has hit: what arrives meanwhile may move the page under the pointer.
    fn click_found(&mut self, found: &str, name: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let place = self.place(found, name)?;
            for kind in ["mousePressed", "mouseReleased"] {
                self.browser.call(
                    "Input.dispatchMouseEvent",
                    json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1}),
                )?;
            }
            // A click that leads to another document leaves none to ask, or one that seeks nothing.
            let is_missed = self.browser.evaluate("inPage.isMissed()");
            if !matches!(&is_missed, Ok(missed) if *missed == true) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "a click does not reach “{name}”; {}",
                self.shown()?
            );
        }
    }

    pub fn fill(&mut self, label: &str, text: &str) -> Result<()> {
        let focused = format!("inPage.focus({})", json!(label));
        self.until(&focused, &format!("a field “{label}”"))?;
        // The value of a date field differs from the typed keys.
        let set = format!("inPage.set({}, {})", json!(label), json!(text));
        if self.browser.evaluate(&set)? == true {
            return Ok(());
        }
        if text.is_empty() {
            return self.press(&["Backspace".to_owned()]);
        }
        self.browser
            .call("Input.insertText", json!({"text": text}))?;
        Ok(())
    }

    pub fn choose(&mut self, label: &str, option: &str) -> Result<()> {
        let chosen = format!("inPage.choose({}, {})", json!(label), json!(option));
        self.until(&chosen, &format!("“{option}” in the field “{label}”"))
    }

    pub fn press(&mut self, keys: &[String]) -> Result<()> {
        for key in keys {
            // Only printable keys have a text.
            let is_printable = key.chars().count() == 1;
            let text = if is_printable {
                key.as_str()
            } else if key == "Enter" {
                "\r"
            } else {
                ""
            };
            let code = match key.as_str() {
                "Enter" => 13,
                "Escape" => 27,
                "Backspace" => 8,
                "Tab" => 9,
                _ => 0,
            };
            for kind in ["keyDown", "keyUp"] {
                let text = if kind == "keyDown" { text } else { "" };
                self.browser.call(
                    "Input.dispatchKeyEvent",
                    json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code}),
                )?;
            }
        }
        Ok(())
    }

    pub fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        self.browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        )?;
        self.browser.evaluate_promise(DRAWN)?;
        Ok(())
    }

    pub fn set_dark(&mut self, is_dark: bool) -> Result<()> {
        let value = if is_dark { "dark" } else { "light" };
        self.browser.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": value}]}),
        )?;
        Ok(())
    }

    pub fn shoot(&mut self, file: &Path) -> Result<()> {
        self.browser.evaluate_promise(DRAWN)?;
        self.browser.screenshot(file)
    }

    /// Runs axe-core on the page as it is.
    pub fn check_accessibility(&mut self) -> Result<()> {
        if self.browser.evaluate("typeof axe === 'undefined'")? == true {
            self.browser
                .evaluate(&format!("{};true", self.axe.clone()))?;
        }
        let found = self.browser.evaluate_promise(
            "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.flatMap(it => it.nodes.map(\
             node => it.id + ': ' + node.html.slice(0, 200) + ' ' + (node.any[0]?.message ?? ''))))",
        )?;
        let violations: Vec<String> = serde_json::from_value(found)?;
        ensure!(
            violations.is_empty(),
            "{} violations of accessibility: {}",
            violations.len(),
            violations.join("\n    ")
        );
        Ok(())
    }

    pub fn check_width(&mut self) -> Result<()> {
        let found = self.browser.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]",
        )?;
        ensure!(
            found[0].as_f64() <= found[1].as_f64(),
            "the page is {} wide in a window of {}",
            found[0],
            found[1]
        );
        Ok(())
    }

    /// Scrolls the table of the page from its top to its end, and traces it.
    pub fn scroll(&mut self) -> Result<Scrolling> {
        self.until("inPage.table() !== null", "a table")?;
        self.browser.call(
            "Tracing.start",
            json!({"transferMode": "ReportEvents", "traceConfig": {"includedCategories": ["toplevel", "devtools.timeline"]}}),
        )?;
        let scrolled = self
            .browser
            .evaluate_promise(&format!("inPage.scroll({FRAMES})"))?;
        self.browser.call("Tracing.end", json!({}))?;
        let events = self.browser.traced()?;
        let tasks = main_thread_tasks(&events);
        ensure!(
            tasks.len() >= FRAMES as usize,
            "the trace has only {} tasks",
            tasks.len()
        );
        let number = |name: &str| {
            let found = scrolled[name].as_f64();
            found.with_context(|| format!("the page has not measured {name}"))
        };
        Ok(Scrolling {
            rows: number("rows")?,
            blanks: number("blanks")?,
            median_ms: number("median_ms")?,
            p95_ms: number("p95_ms")?,
            tasks,
        })
    }

    /// Scrolls, and fails if the main thread needs more CPU time for a frame than a frame has at 60
    /// per second. The time between frames also depends on other load of the machine, and is only
    /// printed.
    pub fn check_scrolling(&mut self) -> Result<()> {
        let scrolling = self.scroll()?;
        let each = scrolling.cpu_ms();
        let longest = scrolling.tasks.iter().copied().fold(0.0, f64::max);
        let over = scrolling.tasks.iter().filter(|task| **task > MOST_MS);
        let over = over.count();
        println!(
            "     {} rows scrolled in {FRAMES} frames: {each:.1} ms of CPU a frame, {over} tasks over {MOST_MS:.0} ms, the longest \
             {longest:.1} ms; a frame every {:.1} ms",
            scrolling.rows, scrolling.median_ms,
        );
        let blanks = scrolling.blanks;
        ensure!(blanks == 0.0, "{blanks} frames showed no rows");
        ensure!(
            each <= MOST_MS,
            "a frame takes {each:.1} ms of CPU, more than {MOST_MS:.1} ms"
        );
        // The first frames compile, and some collect garbage.
        ensure!(
            over * 20 <= FRAMES as usize,
            "{over} tasks in {FRAMES} frames took more than {MOST_MS:.0} ms; the longest {longest:.1} ms"
        );
        Ok(())
    }

    /// The time from a click until a text is there, in the page's own clock.
    pub fn within(&mut self, most_ms: u32, name: &str, text: &str) -> Result<()> {
        let seen = format!("inPage.text().includes({})", json!(text));
        let took = self.time(&target(name), name, &seen)?;
        println!("     “{text}” {took:.0} ms after the click on “{name}”");
        ensure!(
            took <= f64::from(most_ms),
            "“{text}” took {took:.0} ms, more than {most_ms} ms"
        );
        Ok(())
    }

    /// As [`Page::time`], of a click on an entry of the navigation.
    pub fn time_entry(&mut self, name: &str, expression: &str) -> Result<f64> {
        let entry = format!("inPage.entry({})", json!(name));
        self.time(&entry, name, expression)
    }

    /// As [`Page::time`], of a click on the button or link of this name.
    pub fn time_click(&mut self, name: &str, expression: &str) -> Result<f64> {
        self.time(&target(name), name, expression)
    }

    /// The time from a click until an expression of JavaScript is true, in milliseconds of the page's
    /// own clock. It is looked at in each frame.
    fn time(&mut self, found: &str, name: &str, expression: &str) -> Result<f64> {
        self.browser
            .evaluate(&format!("inPage.clock(() => {expression})"))?;
        self.click_found(found, name)?;
        self.until("inPage.took() !== null", expression)?;
        let took = self.browser.evaluate("inPage.took()")?;
        took.as_f64().context("the page has not seen it")
    }

    /// Fails if the page has logged an error, thrown, or violated its policy since it was opened.
    pub fn check_log(&mut self) -> Result<()> {
        self.gather()?;
        ensure!(
            self.complaints.is_empty(),
            "the page has complained: {}",
            self.complaints.join("; ")
        );
        Ok(())
    }

    fn gather(&mut self) -> Result<()> {
        // The response to a call comes after the events before it.
        self.browser.evaluate("0")?;
        for event in self
            .browser
            .arrived(&["Runtime.exceptionThrown", "Log.entryAdded"])
        {
            let params = &event["params"];
            let entry = &params["entry"];
            // An answer such as 404 is logged too; the page shows it.
            let is_answer = entry["source"] == "network";
            if entry["level"] == "error" && !is_answer {
                self.complaints.push(entry["text"].to_string());
            }
            if !params["exceptionDetails"].is_null() {
                let details = &params["exceptionDetails"];
                self.complaints
                    .push(details["exception"]["description"].to_string());
            }
        }
        Ok(())
    }

    /// The middle of an element, scrolled into view, once it is there and stays where it is.
    fn place(&mut self, found: &str, name: &str) -> Result<Value> {
        let began = Instant::now();
        let mut last = Value::Null;
        loop {
            let place = self.browser.evaluate(found)?;
            if !place.is_null() && place == last {
                return Ok(place);
            }
            last = place;
            ensure!(
                began.elapsed() < PATIENCE,
                "there is nothing “{name}” to click; {}",
                self.shown()?
            );
            std::thread::sleep(AGAIN);
        }
    }

    fn until(&mut self, expression: &str, what: &str) -> Result<()> {
        self.until_within(PATIENCE, expression, what)
    }

    fn until_within(&mut self, patience: Duration, expression: &str, what: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            // While a document is replaced, there is none to ask.
            let is_so = self.browser.evaluate(expression);
            if matches!(&is_so, Ok(value) if *value == true) {
                return Ok(());
            }
            if began.elapsed() > patience {
                if let Err(error) = is_so {
                    return Err(error.context(format!("waited for {what}")));
                }
                bail!("waited in vain for {what}; {}", self.shown()?);
            }
            std::thread::sleep(pause(began.elapsed()));
        }
    }

    /// The address and the contents of the page, for messages.
    fn shown(&mut self) -> Result<String> {
        self.gather()?;
        let text = self.browser.evaluate(
            "location.pathname + location.search + ' shows: ' + inPage.text().replaceAll(/\\s+/g, ' ').slice(0, 900)",
        )?;
        Ok(format!(
            "{} {}",
            text.as_str().unwrap_or_default(),
            self.complaints.join("; ")
        ))
    }
}

/// The pause before the next look at the page, of one who has waited this long.
fn pause(waited: Duration) -> Duration {
    (waited / 8).clamp(AGAIN, SELDOM)
}

/// Where a button or link of this name is, in JavaScript.
fn target(name: &str) -> String {
    format!("inPage.target({})", json!(name))
}

/// How a table was scrolled through in [`FRAMES`] frames.
pub struct Scrolling {
    pub rows: f64,
    /// Frames that showed no rows.
    pub blanks: f64,
    /// Between two frames.
    pub median_ms: f64,
    pub p95_ms: f64,
    /// The CPU time of each task of the main thread, in milliseconds.
    tasks: Vec<f64>,
}

impl Scrolling {
    /// Of the main thread, for a frame.
    pub fn cpu_ms(&self) -> f64 {
        self.tasks.iter().sum::<f64>() / f64::from(FRAMES)
    }
}

/// The CPU time of the main thread's tasks in the page's process, in milliseconds.
fn main_thread_tasks(events: &[Value]) -> Vec<f64> {
    let scrolling = events
        .iter()
        .find(|event| event["name"] == "FireAnimationFrame");
    let Some(scrolling) = scrolling else {
        return Vec::new();
    };
    let is_of_page =
        |event: &&Value| event["pid"] == scrolling["pid"] && event["tid"] == scrolling["tid"];
    let tasks = events
        .iter()
        .filter(is_of_page)
        .filter(|event| event["name"] == "ThreadControllerImpl::RunTask");
    tasks
        .filter_map(|task| task["tdur"].as_f64())
        .map(|microseconds| microseconds / 1000.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_looked_at_less_often_the_longer_it_takes() {
        let pause = |waited| pause(Duration::from_millis(waited)).as_millis();
        assert_eq!(
            [0, 100, 400, 800, 60_000].map(pause),
            [25, 25, 50, 100, 150]
        );
    }

    #[test]
    fn tasks_of_other_threads_are_not_counted() {
        let event = |name: &str, tid: u32, microseconds: u32| json!({"name": name, "pid": 1, "tid": tid, "dur": 2 * microseconds, "tdur": microseconds});
        let events = [
            event("FireAnimationFrame", 7, 10),
            event("ThreadControllerImpl::RunTask", 7, 2_000),
            event("ThreadControllerImpl::RunTask", 8, 90_000),
            event("Paint", 7, 90_000),
        ];
        assert_eq!(main_thread_tasks(&events), [2.0]);
        assert_eq!(main_thread_tasks(&events[1..]), [0.0; 0]);
    }
}
