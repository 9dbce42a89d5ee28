//! Headless Chromium, controlled over pipes with its DevTools protocol.
//!
//! Messages are JSON, each terminated by a zero byte. Responses carry the number of their call; all
//! other messages are events.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use ottla_workspace::process::OwnedChild;

/// Timeout of a response, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The command that starts Chromium with a window of this size, without its page.
pub fn chromium(size: &str, is_dark: bool) -> Command {
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless=new",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        // Chromium's sandbox does not work for root, which tests run as in containers. The page is
        // our own.
        .arg("--no-sandbox")
        .arg("--force-device-scale-factor=1")
        .arg(format!("--window-size={size}"));
    if is_dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command
}

/// A running Chromium and, once attached, one page in it.
pub struct Browser {
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
    pub fn start(chromium: &Command) -> Result<Browser> {
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

    pub fn call(&mut self, method: &str, params: Value) -> Result<Value> {
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

    /// Opens an empty page; later calls and events are about it.
    pub fn attach(&mut self) -> Result<()> {
        self.session = None;
        let page = self.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attached = self.call(
            "Target.attachToTarget",
            json!({"targetId": page["targetId"], "flatten": true}),
        )?;
        self.session = Some(attached["sessionId"].clone());
        Ok(())
    }

    /// The value of an expression of JavaScript in the page.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        self.value_of(expression, false)
    }

    /// The value that a promise of the page resolves to.
    pub fn evaluate_promise(&mut self, expression: &str) -> Result<Value> {
        self.value_of(expression, true)
    }

    fn value_of(&mut self, expression: &str, is_promise: bool) -> Result<Value> {
        let mut answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": is_promise}),
        )?;
        ensure!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        Ok(answer["result"]["value"].take())
    }

    /// Saves a screenshot of the window.
    pub fn screenshot(&mut self, file: &Path) -> Result<()> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let data = taken["data"].as_str().context("Chromium sent no picture")?;
        std::fs::write(file, BASE64_STANDARD.decode(data)?)?;
        Ok(())
    }

    /// The events of a trace that has been ended, up to its completion.
    pub fn traced(&mut self) -> Result<Vec<Value>> {
        let mut traced = Vec::new();
        loop {
            let mut event = match self.events.pop_front() {
                Some(event) => event,
                None => self.receive().context("a trace")?,
            };
            if event["method"] == "Tracing.tracingComplete" {
                return Ok(traced);
            }
            if let Some(events) = event["params"]["value"].as_array_mut() {
                traced.append(events);
            }
        }
    }

    /// The next event with this name that matches; earlier events are discarded.
    pub fn event(&mut self, method: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
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

    /// The events with one of these names that have arrived so far. Other events that have arrived
    /// are discarded.
    pub fn arrived(&mut self, methods: &[&str]) -> Vec<Value> {
        self.events.extend(self.messages.try_iter());
        let all = self.events.drain(..);
        all.filter(|event| methods.iter().any(|method| event["method"] == *method))
            .collect()
    }

    fn receive(&self) -> Result<Value> {
        let received = self.messages.recv_timeout(PATIENCE);
        received.context("Chromium says nothing, or has ended")
    }
}
