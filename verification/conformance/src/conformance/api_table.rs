//! Compares the APIs and versions that both brokers advertise with the table in `COMPATIBILITY.md`.
//!
//! Every API that Ottla does not advertise, or advertises in other versions than Apache Kafka, must
//! have a row there.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use ottla_peers::{AdvertisedApi, Node, Peer, advertised_apis, reference};
use ottla_workspace::report::Tally;
use ottla_workspace::workspace;

/// For an answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn compare(kafka: &Node, ottla: &Node) -> Result<Tally> {
    let documented = std::fs::read_to_string(workspace::root().join("COMPATIBILITY.md"))
        .context("COMPATIBILITY.md, which holds the table of APIs")?;
    let differences = differences(
        &advertised_apis(kafka.port(), PATIENCE)?,
        &advertised_apis(ottla.port(), PATIENCE)?,
    );
    let reference = Peer::load(reference::KAFKA)?;
    let column = column_of(&documented, reference.version()?)?;
    let undocumented: Vec<String> = differences
        .values()
        .filter(|row| !is_documented(&documented, column, row))
        .map(Row::text)
        .collect();
    let count = differences.len();
    if undocumented.is_empty() {
        println!("ok   advertised APIs: {count} differences, all in COMPATIBILITY.md");
    } else {
        let heading =
            format!("FAIL advertised APIs: {count} differences, not in COMPATIBILITY.md are");
        print!("{}", super::shown(&heading, &undocumented));
    }
    Ok(Tally {
        passed: usize::from(undocumented.is_empty()),
        failed: undocumented.len(),
    })
}

/// An API that the brokers advertise differently; `None` if a broker lacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    api_key: i16,
    kafka: Option<(i16, i16)>,
    ottla: Option<(i16, i16)>,
}

impl Row {
    fn text(&self) -> String {
        let versions = |versions: Option<(i16, i16)>| match versions {
            Some((min, max)) => format!("{min}-{max}"),
            None => "not advertised".to_owned(),
        };
        format!(
            "API key {}: Kafka {}, Ottla {}",
            self.api_key,
            versions(self.kafka),
            versions(self.ottla)
        )
    }
}

fn differences(kafka: &[AdvertisedApi], ottla: &[AdvertisedApi]) -> BTreeMap<i16, Row> {
    let mut rows: BTreeMap<i16, Row> = BTreeMap::new();
    let row = |api_key| Row {
        api_key,
        kafka: None,
        ottla: None,
    };
    for api in kafka {
        let found = rows.entry(api.api_key).or_insert_with(|| row(api.api_key));
        found.kafka = Some((api.min_version, api.max_version));
    }
    for api in ottla {
        let found = rows.entry(api.api_key).or_insert_with(|| row(api.api_key));
        found.ottla = Some((api.min_version, api.max_version));
    }
    rows.retain(|_, row| row.kafka != row.ottla);
    rows
}

/// The column of a version of Kafka in the table `| key | API | Apache Kafka 4.3.1 | 4.4.0 | Ottla | …`.
fn column_of(compatibility: &str, version: &str) -> Result<usize> {
    let mut headings = compatibility.lines().map(cells_of);
    let headings = headings.find(|cells| cells.get(1) == Some(&"key"));
    let column = headings.and_then(|cells| cells.iter().position(|it| it.ends_with(version)));
    column.with_context(|| format!("COMPATIBILITY.md has no column for Kafka {version}"))
}

/// Whether the table has a row with these versions of Kafka in the column, and of Ottla.
fn is_documented(compatibility: &str, column: usize, row: &Row) -> bool {
    compatibility.lines().map(cells_of).any(|cells| {
        let is_row = cells.len() > 6 && cells[1].parse() == Ok(row.api_key);
        is_row && cells[column] == cell(row.kafka) && cells[5] == cell(row.ottla)
    })
}

fn cells_of(line: &str) -> Vec<&str> {
    line.split('|').map(str::trim).collect()
}

fn cell(versions: Option<(i16, i16)>) -> String {
    match versions {
        Some((min, max)) if min == max => format!("{min}"),
        Some((min, max)) => format!("{min}–{max}"),
        None => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(api_key: i16, min_version: i16, max_version: i16) -> AdvertisedApi {
        AdvertisedApi {
            api_key,
            min_version,
            max_version,
        }
    }

    #[test]
    fn apis_that_differ_or_are_missing_are_found() {
        let kafka = [api(0, 3, 13), api(1, 4, 18), api(18, 0, 4)];
        let ottla = [api(0, 3, 13), api(1, 4, 17)];
        let rows = differences(&kafka, &ottla);
        assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [1, 18]);
        assert_eq!(rows[&18].ottla, None);
    }

    #[test]
    fn a_row_counts_only_with_its_current_versions() {
        let row = Row {
            api_key: 24,
            kafka: Some((0, 5)),
            ottla: None,
        };
        let table = "| key | API | Apache Kafka 4.3.1 | 4.4.0 | Ottla | remarks |\n\
                     | 24 | AddPartitionsToTxn | 0–5 | 0–6 | – | transactions |";
        let of = |version| column_of(table, version).unwrap();
        assert!(is_documented(table, of("4.3.1"), &row));
        assert!(!is_documented(table, of("4.4.0"), &row));
        assert!(!is_documented("", of("4.3.1"), &row));
        assert!(column_of(table, "4.5.0").is_err());
    }
}
