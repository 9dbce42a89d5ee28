//! The offsets that a request is about: `from`, `until` and `partitions`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_client::ClientError;
use ottla_client::admin::{ListedOffset, OffsetSpec};
use serde::Deserialize;

use crate::kept::Place;
use crate::problem::Problem;
use crate::view::Partition;
use crate::visit::Visit;

/// The longest list of offsets that is part of an address, which may have 64 KiB.
const MOST_FROM: usize = 8 << 10;
/// The memory of the offset of a partition.
const OFFSET_BYTES: usize = 32;
/// Before the name of offsets that the visit keeps.
const CURSOR: &str = "cursor:";

#[derive(Deserialize, Default, Clone, Debug)]
pub(crate) struct SelectionQuery {
    from: Option<String>,
    until: Option<String>,
    /// Numbers separated by commas.
    partitions: Option<String>,
    isolation: Option<Isolation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Isolation {
    ReadUncommitted,
    ReadCommitted,
}

/// Where reading begins.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Begin {
    Beginning,
    End,
    /// A number of records from the end, of all partitions together.
    Last(i64),
    Offset(i64),
    Offsets(BTreeMap<i32, i64>),
    Timestamp(i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    Offset(i64),
    Timestamp(i64),
}

/// The offsets of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) start: i64,
    /// Exclusive.
    pub(crate) end: i64,
}

impl SelectionQuery {
    pub(crate) fn is_committed(&self) -> bool {
        self.isolation == Some(Isolation::ReadCommitted)
    }

    /// The ranges of the chosen partitions, as the log is now.
    pub(crate) async fn resolve(
        &self,
        visit: &Visit,
        topic: &str,
    ) -> Result<BTreeMap<i32, Range>, Problem> {
        let from = begin(self.from.as_deref().unwrap_or("end"), visit)?;
        let until = self.until.as_deref().map(parse_until).transpose()?;
        let names = [topic.to_owned()];
        let metadata = visit.client().refresh_metadata(Some(&names), false).await?;
        let found = metadata.topics.get(topic).ok_or_else(|| {
            Problem::not_found(format!(
                "topic {topic} does not exist, or you may not describe it"
            ))
        })?;
        ClientError::check(format!("topic {topic}"), found.error.code(), None::<&str>)?;
        let existing: Vec<i32> = found.partitions.iter().map(|it| it.partition).collect();
        let chosen = chosen(self.partitions.as_deref(), &existing, &from)?;
        let partitions: Vec<Partition> = chosen.iter().map(|it| (topic.to_owned(), *it)).collect();
        let list = |spec| {
            visit
                .admin
                .list_offsets(&partitions, spec, self.is_committed())
        };
        let (starts, ends) =
            futures_util::future::join(list(OffsetSpec::Earliest), list(OffsetSpec::Latest)).await;
        let starts = known(starts)?;
        let ends = known(ends)?;
        let by_time = async |time: i64| known(list(OffsetSpec::Timestamp(time.max(0))).await);
        let from_times = match from {
            Begin::Timestamp(time) => by_time(time).await?,
            _ => BTreeMap::new(),
        };
        let until_times = match until {
            Some(Until::Timestamp(time)) => by_time(time).await?,
            _ => BTreeMap::new(),
        };
        let count = chosen.len().max(1) as i64;
        let ranges = chosen.into_iter().map(|partition| {
            let (log_start, log_end) = (starts[&partition], ends[&partition]);
            // No record is as new: -1.
            let at_time = |times: &BTreeMap<i32, i64>| match times.get(&partition) {
                Some(offset) if *offset >= 0 => *offset,
                _ => log_end,
            };
            let start = match &from {
                Begin::Beginning => log_start,
                Begin::End => log_end,
                Begin::Last(records) => log_end - (records.saturating_add(count - 1)) / count,
                Begin::Offset(offset) => *offset,
                Begin::Offsets(offsets) => offsets.get(&partition).copied().unwrap_or(log_end),
                Begin::Timestamp(_) => at_time(&from_times),
            };
            let end = match until {
                None => log_end,
                Some(Until::Offset(offset)) => offset.min(log_end),
                Some(Until::Timestamp(_)) => at_time(&until_times),
            };
            let start = start.clamp(log_start, log_end.max(log_start));
            let end = end.max(start);
            (partition, Range { start, end })
        });
        Ok(ranges.collect())
    }
}

fn known(
    listed: BTreeMap<Partition, Result<ListedOffset, ClientError>>,
) -> Result<BTreeMap<i32, i64>, Problem> {
    let listed = listed.into_iter();
    let offsets = listed.map(|((_, partition), it)| Ok((partition, it?.offset)));
    offsets.collect()
}

fn chosen(given: Option<&str>, existing: &[i32], from: &Begin) -> Result<Vec<i32>, Problem> {
    if let Begin::Offsets(offsets) = from
        && given.is_none()
    {
        return check_exist(offsets.keys().copied().collect(), existing);
    }
    let Some(given) = given.filter(|it| !it.is_empty()) else {
        return Ok(existing.to_vec());
    };
    let numbers = given.split(',').map(|it| it.trim().parse::<i32>());
    let numbers: Result<Vec<i32>, _> = numbers.collect();
    let numbers = numbers.map_err(|_| {
        Problem::invalid(
            "partitions",
            format!("partitions={given}: give numbers separated by commas"),
        )
    })?;
    check_exist(numbers, existing)
}

fn check_exist(mut numbers: Vec<i32>, existing: &[i32]) -> Result<Vec<i32>, Problem> {
    numbers.sort_unstable();
    numbers.dedup();
    let known: BTreeSet<&i32> = existing.iter().collect();
    match numbers.iter().find(|it| !known.contains(it)) {
        Some(missing) => Err(Problem::invalid(
            "partitions",
            format!(
                "there is no partition {missing}; the topic has {}",
                existing.len()
            ),
        )),
        None => Ok(numbers),
    }
}

/// The `from` that continues at these offsets; `None` if there are none. An address is bounded, so the offsets of very
/// many partitions stay here.
pub(crate) fn from_offsets(offsets: BTreeMap<i32, i64>, visit: &Visit) -> Option<String> {
    let pairs = offsets
        .iter()
        .map(|(partition, it)| format!("{partition}={it}"));
    let pairs: Vec<String> = pairs.collect();
    let text = format!("offsets:{}", pairs.join(","));
    match text.len() {
        _ if offsets.is_empty() => None,
        ..=MOST_FROM => Some(text),
        _ => Some(kept(offsets, visit).unwrap_or_else(|| format!("{CURSOR}no-memory"))),
    }
}

/// The `from` of offsets that stay here, if there is memory for them. Otherwise the place counts as forgotten.
fn kept(offsets: BTreeMap<i32, i64>, visit: &Visit) -> Option<String> {
    let reservation = visit.budget.reserve(offsets.len() * OFFSET_BYTES).ok()?;
    let place = Place {
        offsets,
        _reservation: reservation,
    };
    Some(format!("{CURSOR}{}", visit.cursors.keep(Arc::new(place))))
}

fn begin(text: &str, visit: &Visit) -> Result<Begin, Problem> {
    let Some(name) = text.strip_prefix(CURSOR) else {
        return parse_from(text);
    };
    let place = visit.cursors.get(name).ok_or_else(|| {
        let detail = format!(
            "from={text}: this place is forgotten; search again from a place of another kind"
        );
        Problem::invalid("from", detail)
    })?;
    Ok(Begin::Offsets(place.offsets.clone()))
}

fn parse_from(text: &str) -> Result<Begin, Problem> {
    let refused = || {
        Problem::invalid(
            "from",
            format!(
                "from={text}: give beginning, end, last:COUNT, offset:N, offsets:P=N,P=N or timestamp:MS"
            ),
        )
    };
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    let number = || {
        value
            .parse::<i64>()
            .ok()
            .filter(|it| *it >= 0)
            .ok_or_else(refused)
    };
    Ok(match kind {
        "beginning" if value.is_empty() => Begin::Beginning,
        "end" if value.is_empty() => Begin::End,
        "last" => Begin::Last(number()?),
        "offset" => Begin::Offset(number()?),
        "timestamp" => Begin::Timestamp(number()?),
        "offsets" => {
            let pairs = value.split(',').map(|pair| {
                let (partition, offset) = pair.split_once('=')?;
                Some((partition.parse().ok()?, offset.parse().ok()?))
            });
            let offsets: Option<BTreeMap<i32, i64>> = pairs.collect();
            Begin::Offsets(offsets.ok_or_else(refused)?)
        }
        _ => return Err(refused()),
    })
}

fn parse_until(text: &str) -> Result<Until, Problem> {
    let parsed = text.split_once(':').and_then(|(kind, value)| {
        let number = value.parse::<i64>().ok().filter(|it| *it >= 0)?;
        match kind {
            "offset" => Some(Until::Offset(number)),
            "timestamp" => Some(Until::Timestamp(number)),
            _ => None,
        }
    });
    parsed.ok_or_else(|| {
        Problem::invalid(
            "until",
            format!("until={text}: give offset:N or timestamp:MS"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn where_reading_begins() {
        for (text, expected) in [
            ("beginning", Begin::Beginning),
            ("end", Begin::End),
            ("last:50", Begin::Last(50)),
            ("offset:7", Begin::Offset(7)),
            (
                "timestamp:1700000000000",
                Begin::Timestamp(1_700_000_000_000),
            ),
            (
                "offsets:0=5,3=9",
                Begin::Offsets(BTreeMap::from([(0, 5), (3, 9)])),
            ),
        ] {
            assert_eq!(parse_from(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "start",
            "offset:",
            "offset:-1",
            "last:x",
            "offsets:",
            "offsets:1",
            "end:5",
        ] {
            assert_eq!(parse_from(text).unwrap_err().status(), 422, "{text}");
        }
        assert_eq!(parse_until("offset:5").unwrap(), Until::Offset(5));
        assert!(parse_until("5").is_err() && parse_until("day:5").is_err());
    }

    #[tokio::test]
    async fn the_next_page_has_a_short_address_whatever_the_number_of_partitions() {
        let config = ottla_client::ClientConfig::new("127.0.0.1:1").unwrap();
        let sampling = crate::sampling::Sampling::new(None);
        let visit = Visit::new(None, config, Budget::default(), sampling);
        let few = BTreeMap::from([(0, 5), (3, 9)]);
        assert_eq!(
            from_offsets(few, &visit).as_deref(),
            Some("offsets:0=5,3=9")
        );
        assert_eq!(from_offsets(BTreeMap::new(), &visit), None);
        let many: BTreeMap<i32, i64> = (0..10_000).map(|it| (it, i64::MAX)).collect();
        let from = from_offsets(many.clone(), &visit).unwrap();
        assert!(from.len() < 100, "{from}");
        // Also if it is read twice, as by a search that is repeated.
        for _ in 0..2 {
            assert_eq!(begin(&from, &visit).unwrap(), Begin::Offsets(many.clone()));
        }
        let refused = begin("cursor:guessed", &visit).unwrap_err();
        assert_eq!(refused.status(), 422);
        // A cursor reserves memory, and without memory it is not kept.
        assert!(visit.budget.reserve(usize::MAX).is_err());
        let (budget, sampling) = (Budget::default(), crate::sampling::Sampling::new(None));
        let config = ottla_client::ClientConfig::new("127.0.0.1:1").unwrap();
        let visit = Visit::new(None, config, budget, sampling);
        let _all = visit.budget.reserve(usize::MAX).unwrap();
        let from = from_offsets(many, &visit).unwrap();
        assert_eq!(begin(&from, &visit).unwrap_err().status(), 422);
    }

    #[test]
    fn partitions_are_those_that_exist() {
        let existing = [0, 1, 2];
        let of = |given| chosen(given, &existing, &Begin::Beginning);
        assert_eq!(of(None).unwrap(), existing);
        assert_eq!(of(Some("2, 0,2")).unwrap(), [0, 2]);
        assert!(of(Some("3")).is_err() && of(Some("a")).is_err());
        let from = Begin::Offsets(BTreeMap::from([(1, 0)]));
        assert_eq!(chosen(None, &existing, &from).unwrap(), [1]);
    }
}
