//! Saves every plot with its buttons, and checks the files.
//!
//! Chromium is controlled over pipes with its DevTools protocol: it opens the report and clicks.
//! Messages are JSON, each terminated by a zero byte. Responses carry the number of their call; all
//! others are events.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use ottla_workspace::process::OwnedChild;

/// Chromium asks for confirmation before a page may save more files than this, and nobody can
/// confirm here.
const SAVED_PER_PAGE: u32 = 10;
/// Timeout of a response, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clicks all save buttons. Returns the number of valid files.
pub fn save_all(chromium: &Command, report: &Path, downloads: &Path) -> Result<u32> {
    let mut browser = Browser::start(chromium)?;
    browser.call(
        "Browser.setDownloadBehavior",
        json!({"behavior": "allowAndName", "downloadPath": downloads, "eventsEnabled": true}),
    )?;
    let page = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
    let attached = browser.call(
        "Target.attachToTarget",
        json!({"targetId": page["targetId"], "flatten": true}),
    )?;
    browser.session = Some(attached["sessionId"].clone());
    let mut saved = 0;
    let mut buttons = browser.open(report, 0)?;
    while saved < buttons {
        if saved > 0 && saved.is_multiple_of(SAVED_PER_PAGE) {
            buttons = browser.open(report, saved)?;
        }
        let kind = browser.click(saved)?;
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

struct Browser {
    // Kills the process on drop.
    _child: OwnedChild,
    to: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    last_id: u64,
    /// The session of the page, once attached.
    session: Option<Value>,
}

impl Browser {
    /// `chromium` is the command without its page.
    fn start(chromium: &Command) -> Result<Browser> {
        let mut command = Command::new("sh");
        // Chromium reads from descriptor 3 and writes to 4.
        command
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1",
                "sh",
            ])
            .arg(chromium.get_program())
            .args(chromium.get_args())
            .arg("--remote-debugging-pipe");
        let (child, to, from) = OwnedChild::converse(&mut command)?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        Ok(Browser {
            _child: child,
            to,
            messages,
            events: VecDeque::new(),
            last_id: 0,
            session: None,
        })
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone();
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.to.write_all(&bytes).context("Chromium has ended")?;
        self.to.flush()?;
        loop {
            let mut message = self.receive().context(method.to_owned())?;
            if message["id"] != id {
                self.events.push_back(message);
                continue;
            }
            ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
            return Ok(message["result"].take());
        }
    }

    /// Reopens the report and waits until it has drawn all its plots. Returns the number of save
    /// buttons.
    fn open(&mut self, report: &Path, visit: u32) -> Result<u32> {
        let url = format!("file://{}?{visit}#check", report.display());
        self.call("Page.navigate", json!({"url": url}))?;
        let began = Instant::now();
        // The page checks its plots after it has drawn them.
        let is_drawn = format!(
            "Boolean(location.search === '?{visit}' && document.body && document.body.dataset.checked)"
        );
        while self.evaluate(&is_drawn)? != true {
            ensure!(began.elapsed() < PATIENCE, "the page does not draw");
            std::thread::sleep(Duration::from_millis(20));
        }
        let buttons = self.evaluate("document.querySelectorAll('figure .tools button').length")?;
        let buttons = buttons.as_u64().and_then(|it| u32::try_from(it).ok());
        buttons.context("no number of buttons")
    }

    /// Clicks a button at its position, and returns its label.
    fn click(&mut self, index: u32) -> Result<String> {
        let found = self.evaluate(&format!(
            "(() => {{ const button = document.querySelectorAll('figure .tools button')[{index}]; \
             button.scrollIntoView({{ block: 'center' }}); const box = button.getBoundingClientRect(); \
             return [button.textContent, box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            self.call(
                "Input.dispatchMouseEvent",
                json!({"type": kind, "x": found[1], "y": found[2], "button": "left", "clickCount": 1}),
            )?;
        }
        let kind = found[0].as_str().context("a button without a text")?;
        Ok(kind.to_owned())
    }

    fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let mut answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true}),
        )?;
        ensure!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        Ok(answer["result"]["value"].take())
    }

    /// The next event with this name that matches; earlier events are discarded.
    fn event(&mut self, method: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        loop {
            let mut event = match self.events.pop_front() {
                Some(event) => event,
                None => self.receive().context(method.to_owned())?,
            };
            if event["method"] == method && is_wanted(&event["params"]) {
                return Ok(event["params"].take());
            }
        }
    }

    fn receive(&self) -> Result<Value> {
        let received = self.messages.recv_timeout(PATIENCE);
        received.context("Chromium says nothing, or has ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_their_buttons_promise() {
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
