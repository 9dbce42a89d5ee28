//! The size that the console adds to the binary, and the size of its page.
//!
//! A comparison with a build without the console would be exact, but takes too long. Instead, the
//! sizes of symbols are added up: symbols of `ottla-console` and of the crates that only the
//! console needs, by the dependency graph. Generic code counts for the console if its symbol names
//! one of these crates. Code shared with the rest of the binary does not count, and constants
//! without a symbol are missing, except the files of the page, which are added.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ottla_workspace::{process, workspace};
use serde_json::Value;

use super::options::Options;
use super::stand::{Broker, free_address};
use super::table::Line;
use crate::console_api::http::Http;

const CONSOLE: &str = "ottla-console";
const BINARY_BYTES: u64 = 1_000_000;
const ASSETS_BYTES: u64 = 150_000;
const ASSETS: &str = "crates/ottla-console/assets";

pub fn binary(_options: &Options) -> Result<Vec<Line>> {
    let metadata = process::output_of(workspace::cargo().args([
        "metadata",
        "--format-version",
        "1",
        "--offline",
        "--locked",
    ]))?;
    let crates = crates_of_console(&serde_json::from_str(&metadata)?)?;
    let binary = workspace::release_binary("ottla", "ottla")?;
    let mut nm = Command::new("nm");
    nm.args(["--print-size", "--size-sort", "--radix=d", "--demangle"])
        .arg(&binary);
    let symbols = process::output_of(&mut nm)?;
    let sizes = sizes_of(&symbols, &crates);
    let code: u64 = sizes.values().sum();
    ensure!(
        sizes.contains_key("ottla_console"),
        "{} has no symbols of the console",
        binary.display()
    );
    let files = compressed()?;
    let total = code + files;
    let all = std::fs::metadata(&binary)?.len();
    let mut largest: Vec<(&String, &u64)> = sizes.iter().collect();
    largest.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
    let largest: Vec<String> = largest
        .iter()
        .take(6)
        .map(|(name, size)| format!("{name} {}", kb(**size)))
        .collect();
    Ok(vec![
        Line::new(
            "size that the console adds to the binary",
            "≤ 1 MB",
            format!(
                "{} of {}: symbols of {} crates that only the console needs, {}, and the page {}",
                kb(total),
                kb(all),
                sizes.len(),
                kb(code),
                kb(files)
            ),
            total <= BINARY_BYTES,
        ),
        Line::shown("its largest crates", largest.join(", ")),
    ])
}

/// The page, as a browser gets it.
pub fn assets(_options: &Options) -> Result<Vec<Line>> {
    let bytes = compressed()?;
    Ok(vec![Line::new(
        "the files of the page, compressed",
        "≤ 150 kB",
        kb(bytes),
        bytes <= ASSETS_BYTES,
    )])
}

/// The bytes that a console sends for all files of the page.
fn compressed() -> Result<u64> {
    let address = free_address()?;
    let _broker = Broker::start(&address)?;
    let http = Http::new(address);
    let mut total = 0;
    for entry in std::fs::read_dir(workspace::root().join(ASSETS))? {
        let name = entry?.file_name();
        let name = name.to_str().context("a name that is no UTF-8")?;
        total += http.compressed(&format!("/{name}"))?;
    }
    Ok(total)
}

fn kb(bytes: u64) -> String {
    format!("{:.0} kB", bytes as f64 / 1000.0)
}

/// The names, as in symbols, of the console and of the crates that `ottla` needs only for it.
fn crates_of_console(metadata: &Value) -> Result<BTreeSet<String>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id_of = |name: &str| {
        let package = packages.iter().find(|it| it["name"] == name);
        package
            .map(|it| text(&it["id"]))
            .with_context(|| format!("no package {name}"))
    };
    let mut needs: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .context("no graph")?;
    for node in nodes {
        let dependencies = node["deps"].as_array().into_iter().flatten();
        // Without dependencies of builds and tests.
        let is_normal = |it: &&Value| {
            let mut kinds = it["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        };
        let normal = dependencies.filter(is_normal);
        let normal = normal.map(|it| (text(&it["pkg"]), text(&it["name"])));
        needs.insert(text(&node["id"]), normal.collect());
    }
    let console = id_of(CONSOLE)?;
    let reached = |without: Option<&str>| {
        let mut reached = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut waiting = vec![id_of("ottla")?];
        while let Some(id) = waiting.pop() {
            for (id, name) in needs.get(&id).into_iter().flatten() {
                if Some(id.as_str()) != without && reached.insert(id.clone()) {
                    names.insert(name.clone());
                    waiting.push(id.clone());
                }
            }
        }
        anyhow::Ok(names)
    };
    let with = reached(None)?;
    let without = reached(Some(&console))?;
    Ok(with.difference(&without).cloned().collect())
}

/// The bytes of symbols whose names have one of the crates, by the first of them in the name.
fn sizes_of(symbols: &str, crates: &BTreeSet<String>) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for line in symbols.lines() {
        // Address, size, kind, name.
        let mut fields = line.splitn(4, ' ');
        let (_, size, _, name) = (fields.next(), fields.next(), fields.next(), fields.next());
        let (Some(size), Some(name)) = (size.and_then(|it| it.parse::<u64>().ok()), name) else {
            continue;
        };
        if let Some(of) = crate_in(name, crates) {
            *sizes.entry(of.to_owned()).or_default() += size;
        }
    }
    sizes
}

fn crate_in<'a>(name: &'a str, crates: &BTreeSet<String>) -> Option<&'a str> {
    let is_part = |it: char| it.is_alphanumeric() || it == '_';
    let mut from = 0;
    while let Some(found) = name[from..].find("::") {
        let end = from + found;
        let start = name[..end].rfind(|it: char| !is_part(it)).map_or(0, |at| {
            // The character before a name can have several bytes.
            at + name[at..].chars().next().map_or(1, char::len_utf8)
        });
        // Only the first part of a path is a crate.
        let is_first = !name[..start].ends_with("::");
        let word = &name[start..end];
        if is_first && crates.contains(word) {
            return Some(word);
        }
        from = end + 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_symbol_counts_for_the_first_console_crate_in_its_name() {
        let crates = BTreeSet::from(["ottla_console", "protox"].map(str::to_owned));
        let symbols = "0000000000001000 0000000000000040 t <ottla_console::view::View as core::fmt::Debug>::fmt\n\
                       0000000000001040 0000000000000008 t core::ptr::drop_in_place<alloc::vec::Vec<protox::Error>>\n\
                       0000000000001050 0000000000000099 t tokio::protox::inner\n\
                       0000000000001060 0000000000000002 T main\n";
        let sizes = sizes_of(symbols, &crates);
        let expected = [("ottla_console".to_owned(), 40), ("protox".to_owned(), 8)];
        assert_eq!(sizes, BTreeMap::from(expected));
    }

    #[test]
    fn shared_crates_do_not_count_for_the_console() {
        let node = |id: &str, deps: &[(&str, Value)]| {
            let deps = deps.iter().map(
                |(to, kind)| json!({ "pkg": to, "name": to, "dep_kinds": [{ "kind": kind }] }),
            );
            json!({ "id": id, "deps": deps.collect::<Vec<_>>() })
        };
        let normal = Value::Null;
        let metadata = json!({
            "packages": [{ "name": "ottla", "id": "ottla" }, { "name": CONSOLE, "id": "console" }],
            "resolve": { "nodes": [
                node("ottla", &[("console", normal.clone()), ("shared", normal.clone())]),
                node("console", &[("own", normal.clone()), ("shared", normal.clone()), ("tests", json!("dev"))]),
                node("own", &[("deep", normal)]),
            ] },
        });
        let crates = crates_of_console(&metadata).unwrap();
        let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
        assert_eq!(crates, ["console", "deep", "own"]);
    }
}
