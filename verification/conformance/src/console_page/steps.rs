//! The steps of a transcript, and how they are written.

use anyhow::{Context, Result, bail, ensure};

/// One step. A text in `"` or `'` may hold blanks, and the other of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// `open /topics`
    Open(String),
    /// `reload`
    Reload,
    /// `see "text"`: the text is visible, within some minutes.
    See(String),
    /// `wait 300 "text"`: the text is visible, within this many seconds.
    Wait(u64, String),
    /// `not "text"`: it is not, or goes within some minutes.
    SeeNot(String),
    /// `click "name"`: a button, link or check box with this accessible name; if there are several,
    /// the first. If a dialog is open, in that.
    Click(String),
    /// `type "label" "text"`: replaces the text of a field.
    Type(String, String),
    /// `choose "label" "option"`
    Choose(String, String),
    /// `press g t`: keys, one after the other.
    Press(Vec<String>),
    /// `address /topics?search=x`: where the page is now, within some minutes.
    Address(String),
    /// `size 390 844`
    Size(u32, u32),
    /// `dark` and `light`
    Dark(bool),
    /// `accessible`: axe-core finds no violation.
    Accessible,
    /// `fits`: the page is no wider than the window.
    Fits,
    /// `smooth`: scrolling through the whole table of the page drops no frame for the page's sake.
    Smooth,
    /// `within 100 "name" "text"`: a click on `name` shows `text` within this many milliseconds.
    Within(u32, String, String),
    /// `shot name`: keeps a screenshot.
    Shot(String),
    /// `holds EXPRESSION`: JavaScript that is true, within some minutes.
    Holds(String),
    /// `tool topics --list`: runs one of Ottla's tools against the cluster. Before `until` and
    /// `until-not`, the tool may fail, and is run again.
    Tool(Vec<String>),
    /// `printed "text"`: the last tool has printed `text`.
    Printed(String),
    /// `until "text"`: the last tool, which is run again if necessary, prints `text` within some
    /// minutes.
    Until(String),
    /// `until-not "text"`: it does not, or stops printing it within some minutes.
    UntilNot(String),
    /// `hanging-transaction x 0`: a record, an hour old, of a transaction that no coordinator knows, in
    /// partition 0 of topic `x`. The broker must not verify transactions.
    HangingTransaction(String, i32),
    /// `start producer-perf-test --topic x …`: starts one of Ottla's tools, which runs until the end
    /// of the transcript.
    Start(Vec<String>),
}

/// The server that a transcript needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// `mock NAME=VALUE …`: the mock, with these variables in its environment.
    Mock(Vec<(String, String)>),
    /// `broker [two] [secured] NAME=VALUE …`: a broker with these settings, and its console.
    Brokers(Brokers),
}

/// A cluster, and how the console and the tools connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brokers {
    /// 1, or 2 with `two`.
    pub count: usize,
    /// `secured`: the cluster has ACLs, delegation tokens and logins, and the console and the tools
    /// log in as a super user.
    pub is_secured: bool,
    pub settings: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub struct Transcript {
    pub server: Needs,
    /// With their line numbers.
    pub steps: Vec<(usize, Step)>,
}

impl Transcript {
    /// Whether the step at this index is repeated by the next one until it has the wanted outcome.
    pub fn is_repeated(&self, index: usize) -> bool {
        let next = self.steps.get(index + 1);
        matches!(next, Some((_, Step::Until(_) | Step::UntilNot(_))))
    }

    /// Whether it measures times.
    pub fn measures(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|(_, step)| matches!(step, Step::Smooth | Step::Within(..)))
    }
}

/// Parses a transcript. Empty lines and lines that begin with `#` are left out.
pub fn parse(text: &str) -> Result<Transcript> {
    let mut server = None;
    let mut steps = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        if verb == "mock" || verb == "broker" {
            ensure!(server.is_none(), "line {number}: a second server");
            let needs = match verb {
                "mock" => settings(rest).map(Needs::Mock),
                _ => brokers(rest).map(Needs::Brokers),
            };
            server = Some(needs.with_context(|| format!("line {number}"))?);
            continue;
        }
        let step = step(verb, rest).with_context(|| format!("line {number}: {line}"))?;
        steps.push((number, step));
    }
    let server = server.context("it names no server: begin with `mock` or `broker`")?;
    Ok(Transcript { server, steps })
}

fn brokers(text: &str) -> Result<Brokers> {
    let is_flag = |word: &&str| matches!(*word, "two" | "secured");
    let flags: Vec<&str> = text.split_whitespace().take_while(is_flag).collect();
    let rest: Vec<&str> = text.split_whitespace().skip_while(is_flag).collect();
    Ok(Brokers {
        count: if flags.contains(&"two") { 2 } else { 1 },
        is_secured: flags.contains(&"secured"),
        settings: settings(&rest.join(" "))?,
    })
}

fn settings(text: &str) -> Result<Vec<(String, String)>> {
    let pair = |word: &str| -> Result<(String, String)> {
        let (name, value) = word
            .split_once('=')
            .with_context(|| format!("`{word}` is not NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    text.split_whitespace().map(pair).collect()
}

fn step(verb: &str, rest: &str) -> Result<Step> {
    let words = words(rest)?;
    let mut left = words.iter().cloned();
    let mut next = || left.next().context("a word is missing");
    let step = match verb {
        "open" => Step::Open(next()?),
        "reload" => Step::Reload,
        "see" => Step::See(next()?),
        "wait" => Step::Wait(next()?.parse()?, next()?),
        "not" => Step::SeeNot(next()?),
        "click" => Step::Click(next()?),
        "type" => Step::Type(next()?, next()?),
        "choose" => Step::Choose(next()?, next()?),
        "press" => return Ok(Step::Press(words)),
        "address" => Step::Address(next()?),
        "size" => Step::Size(next()?.parse()?, next()?.parse()?),
        "dark" => Step::Dark(true),
        "light" => Step::Dark(false),
        "accessible" => Step::Accessible,
        "fits" => Step::Fits,
        "smooth" => Step::Smooth,
        "within" => Step::Within(next()?.parse()?, next()?, next()?),
        "shot" => Step::Shot(next()?),
        "holds" => return Ok(Step::Holds(rest.to_owned())),
        "tool" => return Ok(Step::Tool(words)),
        "printed" => Step::Printed(next()?),
        "until" => Step::Until(next()?),
        "until-not" => Step::UntilNot(next()?),
        "hanging-transaction" => Step::HangingTransaction(next()?, next()?.parse()?),
        "start" => return Ok(Step::Start(words)),
        _ => bail!("no step is called `{verb}`"),
    };
    ensure!(left.next().is_none(), "a word too many");
    Ok(step)
}

/// Words between blanks, or in quotes.
fn words(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let quote = rest
            .chars()
            .next()
            .filter(|first| matches!(first, '"' | '\''));
        let (word, after) = match quote {
            Some(quote) => rest[1..]
                .split_once(quote)
                .context("a quote is not closed")?,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_with_their_lines() {
        let found = parse(
            "# a search\nmock TOPICS=7\n\nopen /topics\ntype \"Search topics\" 'or \"ders'\npress g t\n",
        )
        .unwrap();
        assert_eq!(
            found.server,
            Needs::Mock(vec![("TOPICS".into(), "7".into())])
        );
        let expected = [
            (4, Step::Open("/topics".into())),
            (5, Step::Type("Search topics".into(), "or \"ders".into())),
            (6, Step::Press(vec!["g".into(), "t".into()])),
        ];
        assert_eq!(found.steps, expected);
    }

    #[test]
    fn a_tool_may_fail_only_before_until() {
        let found = parse("mock\ntool a\nprinted b\ntool c\nuntil d\ntool e\nuntil-not f").unwrap();
        let repeated: Vec<bool> = (0..6).map(|index| found.is_repeated(index)).collect();
        assert_eq!(repeated, [false, false, true, false, true, false]);
    }

    #[test]
    fn brokers_have_flags_and_settings() {
        let found = parse("broker two secured a.b=c\nopen /").unwrap();
        let expected = Brokers {
            count: 2,
            is_secured: true,
            settings: vec![("a.b".into(), "c".into())],
        };
        assert_eq!(found.server, Needs::Brokers(expected));
    }

    #[test]
    fn mistakes_are_found_with_their_line() {
        for (text, said) in [
            ("open /", "no server"),
            ("mock\nclik \"a\"", "line 2: clik \"a\""),
            ("mock\nclick \"a", "line 2"),
            ("mock\nsee", "line 2"),
            ("mock\nsee \"a\" \"b\"", "line 2"),
            ("mock\nmock", "line 2: a second server"),
            ("mock x", "line 1"),
            ("broker three", "line 1"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
