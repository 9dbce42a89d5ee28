//! The tokens that tie a redrive to the confirmed preview. A preview returns a token, and one
//! redrive can use it: the same request sent twice sends the records once, and a redrive with other
//! filters, another target or other offsets than the counted ones is refused.

use std::sync::Arc;

use super::plan::Plan;
use super::request::{MOST_BYTES, Redrive, too_long};
use crate::console::Visitor;
use crate::kept::Promise;
use crate::problem::Problem;
use crate::records::ranges::{self, Ranges};
use crate::records::selection::Range;
use crate::visit::Visit;

/// What must be the same in the preview and in the redrive, besides the ranges.
pub(super) fn what(topic: &str, redrive: &Redrive) -> Result<String, Problem> {
    let matching = redrive.matching.as_ref();
    let matching = matching.map(|it| (&it.filter, it.selection.is_committed(), it.limit));
    let all = (
        topic,
        &redrive.to,
        redrive.keep_partition,
        redrive.keep_timestamp,
        matching,
    );
    let text = serde_json::to_string(&all).map_err(|it| Problem::internal(it.to_string()))?;
    match text.len() {
        ..=MOST_BYTES => Ok(text),
        bytes => Err(Problem::invalid("matching", too_long(bytes))),
    }
}

/// Keeps the records that a preview has counted, or that a redrive has left. Returns the token that
/// confirms them, if there is memory for it.
pub(super) fn keep(visitor: &Visitor, plan: &Plan, parts: &[&Ranges]) -> Option<String> {
    let mut listed = Vec::new();
    for (partition, ranges) in parts.iter().copied().flatten() {
        listed.extend(ranges.iter().map(|it| (*partition, it.start, it.end)));
    }
    listed.sort_unstable();
    let bytes = size_of_val(listed.as_slice()) + plan.what.len();
    let promise = Promise {
        what: plan.what.clone(),
        topic_id: plan.topic_id.clone(),
        ranges: listed,
        _reservation: visitor.budget.reserve(bytes).ok()?,
    };
    Some(visitor.redrives.keep(Arc::new(promise)))
}

/// The token of a redrive and its preview, if that preview was of this redrive. The token stays good until it is taken.
pub(super) fn check(
    visitor: &Visitor,
    redrive: &Redrive,
    what: &str,
    asked: Option<&Ranges>,
) -> Result<(String, Arc<Promise>), Problem> {
    let token = redrive.token.clone().ok_or_else(|| {
        Problem::invalid(
            "token",
            "token is missing; give the token from the preview, which is valid for one redrive",
        )
    })?;
    let promise = visitor.redrives.get(&token).ok_or_else(used_up)?;
    if promise.what != what {
        return Err(Problem::conflict(
            "the preview of this token had another target, other filters or other options; count again",
        ));
    }
    match asked {
        Some(asked) if ranges::common(&ranges_of(&promise), asked) != *asked => {
            Err(Problem::conflict(
                "the preview of this token has not answered all of these ranges; count again",
            ))
        }
        _ => Ok((token, promise)),
    }
}

/// Of all redrives with the same token, the first one gets it.
pub(super) fn take(visit: &Visit, token: &str) -> Result<Arc<Promise>, Problem> {
    visit.redrives.take(token).ok_or_else(used_up)
}

fn used_up() -> Problem {
    Problem::conflict(
        "this token was used, or is forgotten: the records may have been sent, and the console's audit log has \
         which; count again",
    )
}

fn ranges_of(promise: &Promise) -> Ranges {
    let mut ranges = Ranges::new();
    for (partition, start, end) in &promise.ranges {
        ranges.entry(*partition).or_default().push(Range {
            start: *start,
            end: *end,
        });
    }
    ranges
}

#[cfg(test)]
mod tests {
    use ottla_client::ClientConfig;

    use super::*;
    use crate::audit::AuditNote;
    use crate::budget::Budget;
    use crate::sampling::Sampling;

    fn visitor() -> Visitor {
        let config = ClientConfig::new("127.0.0.1:1").unwrap();
        let sampling = Sampling::new(None);
        Visitor {
            visit: Arc::new(Visit::new(None, config, Budget::default(), sampling)),
            note: AuditNote::default(),
        }
    }

    fn redrive(of: serde_json::Value) -> Redrive {
        serde_json::from_str(&of.to_string()).unwrap()
    }

    fn ranges(start: i64, end: i64) -> Ranges {
        Ranges::from([(0, vec![Range { start, end }])])
    }

    #[tokio::test]
    async fn counted_ranges_are_kept_in_reserved_memory() {
        let visitor = visitor();
        let redrive = redrive(serde_json::json!({"to": "u", "matching": {"text": "a"}}));
        let plan = Plan {
            what: what("t", &redrive).unwrap(),
            topic_id: String::new(),
            to: "u".into(),
            ranges: ranges(0, 9),
            limit: 1,
            keep_partition: false,
            keep_timestamp: true,
        };
        let token = keep(&visitor, &plan, &[&ranges(0, 5)]).unwrap();
        assert!(visitor.budget.reserve(usize::MAX).is_err());
        drop(take(&visitor, &token).ok().unwrap());
        let all = visitor.budget.reserve(usize::MAX).unwrap();
        assert_eq!(keep(&visitor, &plan, &[&ranges(0, 5)]), None);
        drop(all);
        assert!(keep(&visitor, &plan, &[&ranges(0, 5)]).is_some());
    }

    #[tokio::test]
    async fn a_token_is_valid_for_one_redrive_of_the_counted_records() {
        let visitor = visitor();
        let mut counted = redrive(serde_json::json!({"to": "u", "matching": {"text": "a"}}));
        let what_of = |redrive: &Redrive| what("t", redrive).unwrap();
        let plan = Plan {
            what: what_of(&counted),
            topic_id: "of the preview".into(),
            to: "u".into(),
            ranges: ranges(0, 9),
            limit: 1,
            keep_partition: false,
            keep_timestamp: true,
        };
        let token = keep(&visitor, &plan, &[&ranges(0, 5), &ranges(7, 9)]);
        counted.token = token.clone();
        let part = ranges(7, 9);
        let check = |redrive: &Redrive, asked: &Ranges| {
            let checked = check(&visitor, redrive, &what_of(redrive), Some(asked));
            let checked = checked.map_err(|problem| problem.status());
            checked.map(|(token, promise)| {
                // The redrive compares it with the topic's.
                assert_eq!(promise.topic_id, "of the preview");
                token
            })
        };
        assert_eq!(check(&counted, &part), Ok(token.clone().unwrap()));
        assert_eq!(check(&counted, &ranges(0, 9)), Err(409));
        for other in [
            serde_json::json!({"to": "u", "matching": {"text": "b"}, "token": token}),
            serde_json::json!({"to": "u", "matching": {}, "token": token}),
            serde_json::json!({"to": "v", "matching": {"text": "a"}, "token": token}),
            serde_json::json!({"to": "u", "matching": {"text": "a"}, "keep_partition": true, "token": token}),
            serde_json::json!({"to": "u", "matching": {"text": "a"}, "token": "guessed"}),
        ] {
            assert_eq!(check(&redrive(other.clone()), &part), Err(409), "{other}");
        }
        let without = redrive(serde_json::json!({"to": "u", "matching": {"text": "a"}}));
        assert_eq!(check(&without, &part), Err(422));
        let token = token.unwrap();
        assert!(take(&visitor, &token).is_ok());
        assert_eq!(
            take(&visitor, &token).err().map(|it| it.status()),
            Some(409)
        );
        assert_eq!(check(&counted, &part), Err(409));
    }
}
