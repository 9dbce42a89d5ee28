//! The Rust side of the golden bytes; the Java side is `conformance/java/golden`, and `cargo xtask
//! golden` runs both.
//!
//! `golden check FILE` reads what Kafka's classes wrote: it decodes each message, compares its
//! canonical text, encodes it again and compares the bytes. It also checks that every message and
//! version of the schemas occurs, and that the API table equals Kafka's. `golden write FILE`
//! generates values and writes them for the Java side to check. A line is: name, version, filling,
//! bytes in hexadecimal terminated by a dash, canonical text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use bytes::Bytes;
use ottla_protocol::ApiKey;
use ottla_protocol::sample::{AnyMessage, Sampler, Style, all_messages};

fn main() -> ExitCode {
    let messages: BTreeMap<&str, AnyMessage> = all_messages()
        .into_iter()
        .map(|message| (message.name, message))
        .collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check", file] => check(&messages, file),
        ["write", file] => write(&messages, file),
        _ => Err("usage: golden check|write FILE".to_owned()),
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn check(messages: &BTreeMap<&str, AnyMessage>, file: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let mut seen: BTreeSet<(&str, i16)> = BTreeSet::new();
    let mut problems = Vec::new();
    let (table, values): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("@api "));
    let own_table: Vec<String> = ApiKey::ALL.iter().map(|api| table_line(*api)).collect();
    if table != own_table {
        problems.push(format!(
            "the APIs are\n{}\nwhere Kafka has\n{}",
            own_table.join("\n"),
            table.join("\n")
        ));
    }
    for line in values {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let &[name, version, filling, hex, expected] = &words[..] else {
            return Err(format!("{file}: {line:?} is not of the form agreed on"));
        };
        let version: i16 = version
            .parse()
            .map_err(|_| format!("{line:?}: no version"))?;
        seen.insert((name, version));
        if let Err(problem) = difference(messages, name, version, hex, expected) {
            problems.push(format!("{name} version {version} {filling}: {problem}"));
        }
    }
    for (name, message) in messages {
        for version in message
            .versions
            .clone()
            .filter(|version| !seen.contains(&(name, *version)))
        {
            problems.push(format!(
                "{name} version {version}: not among the golden bytes"
            ));
        }
    }
    if problems.is_empty() {
        Ok(format!(
            "{} messages and versions read, none differs",
            seen.len()
        ))
    } else {
        Err(format!(
            "{}\n{} problems",
            problems.join("\n"),
            problems.len()
        ))
    }
}

/// The properties of an API besides its fields, in the format of the Java side.
fn table_line(api: ApiKey) -> String {
    let mut line = format!(
        "@api {} {api} {} {} {} {} {}",
        api.code(),
        api.valid_versions().start(),
        api.valid_versions().end(),
        api.stable_versions().end(),
        api.on_broker(),
        api.on_controller()
    );
    for version in api.valid_versions() {
        let request = api.request_header_version(version);
        let response = api.response_header_version(version);
        let _ = write!(line, " {request}/{response}");
    }
    line
}

fn difference(
    messages: &BTreeMap<&str, AnyMessage>,
    name: &str,
    version: i16,
    hex: &str,
    expected: &str,
) -> Result<(), String> {
    let message = messages
        .get(name)
        .ok_or("the schemas have no such message")?;
    let bytes = from_hex(hex.strip_suffix('-').unwrap_or(hex)).ok_or("not hexadecimal")?;
    let read = (message.read)(bytes.clone(), version).map_err(|error| error.to_string())?;
    if read.remaining > 0 {
        return Err(format!("{} bytes were not read", read.remaining));
    }
    if read.text != expected {
        return Err(format!(
            "read as\n  {}\nwhere Kafka wrote\n  {expected}",
            read.text
        ));
    }
    let written = read.written.map_err(|error| error.to_string())?;
    if written != bytes {
        return Err(format!(
            "written as\n  {}\nwhere Kafka wrote\n  {hex}",
            to_hex(&written)
        ));
    }
    Ok(())
}

fn write(messages: &BTreeMap<&str, AnyMessage>, file: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = 0u64;
    for (name, message) in messages {
        for version in message.versions.clone() {
            let fillings = [Style::Bare, Style::Full, Style::Extreme, Style::Extreme]
                .into_iter()
                .chain([Style::Mixed; 6]);
            for style in fillings {
                let sampler = Sampler::new(lines, style);
                let (bytes, text) = (message.sample)(sampler, version)
                    .map_err(|error| format!("{name} version {version}: {error}"))?;
                let hex = to_hex(&bytes);
                let _ = writeln!(out, "{name} {version} {style:?}-{lines} {hex}- {text}");
                lines += 1;
            }
        }
    }
    std::fs::write(file, out).map_err(|error| format!("{file}: {error}"))?;
    Ok(format!(
        "{} messages, {lines} values written",
        messages.len()
    ))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Bytes> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect::<Option<Vec<u8>>>()
        .map(Bytes::from)
}
