//! Topic changes that a kill interrupts, because their responses are not awaited. Acknowledged
//! changes must hold, other changes may.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::picture::Picture;

/// The broker may apply a change later than the controller answers. For changes without an answer
/// nothing says when; they get only this time.
const TIME_TO_APPLY: Duration = Duration::from_secs(2);
/// Maximum time until acknowledged changes are applied.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request to create or delete a topic, and its answer.
pub struct Change {
    pub topic: String,
    /// The number of partitions to create; `None` for a deletion.
    pub created: Option<usize>,
    /// `ok`, or the class of the client's error.
    answer: String,
}

impl Change {
    /// `asked` as in the workload's `churn`, `answer` as in its `churn-answers`.
    pub fn new(asked: &Value, answer: &Value) -> Change {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_creation = asked.get("create").is_some();
        Change {
            topic: text(&asked[if is_creation { "create" } else { "delete" }]),
            created: is_creation.then(|| asked["partitions"].as_u64().unwrap_or(1) as usize),
            answer: text(answer),
        }
    }

    /// Whether the topic exists.
    pub fn is_there(&self, picture: &Picture) -> bool {
        picture.contains_key(&format!("topic {}", self.topic))
    }

    /// Why the picture contradicts the answer, if it does.
    pub fn contradiction(&self, picture: &Picture) -> Option<String> {
        let is_there = self.is_there(picture);
        let (what, holds) = match (self.created.is_some(), self.answer.as_str()) {
            (true, "ok" | "TopicExistsException") => ("creation", is_there),
            (false, "ok" | "UnknownTopicOrPartitionException") => ("deletion", !is_there),
            _ => return None,
        };
        (!holds).then(|| {
            format!(
                "the {what} of {} was answered with {}, and the topic is {}there",
                self.topic,
                self.answer,
                if is_there { "" } else { "not " }
            )
        })
    }
}

/// Waits until the broker has applied the changes; returns the picture then.
pub fn await_applied(changes: &[Change], look: impl FnMut() -> Result<Picture>) -> Result<Picture> {
    std::thread::sleep(TIME_TO_APPLY);
    look_until_applied(changes, PATIENCE, look)
}

/// Looks until no acknowledged change is contradicted, but not longer than this; returns the last
/// picture.
fn look_until_applied(
    changes: &[Change],
    patience: Duration,
    mut look: impl FnMut() -> Result<Picture>,
) -> Result<Picture> {
    let began = Instant::now();
    loop {
        let picture = look()?;
        let are_applied = changes
            .iter()
            .all(|change| change.contradiction(&picture).is_none());
        if are_applied || began.elapsed() >= patience {
            return Ok(picture);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created(answer: &str) -> Change {
        Change::new(&json!({"create": "t", "partitions": 3}), &json!(answer))
    }

    fn deleted(answer: &str) -> Change {
        Change::new(&json!({"delete": "t"}), &json!(answer))
    }

    fn there() -> Picture {
        Picture::from([("topic t".to_owned(), String::new())])
    }

    #[test]
    fn only_acknowledged_changes_must_hold() {
        let absent = Picture::new();
        for answer in ["ok", "TopicExistsException"] {
            assert_eq!(created(answer).contradiction(&there()), None);
            assert!(created(answer).contradiction(&absent).is_some());
        }
        for answer in ["ok", "UnknownTopicOrPartitionException"] {
            assert_eq!(deleted(answer).contradiction(&absent), None);
            assert!(deleted(answer).contradiction(&there()).is_some());
        }
        for picture in [there(), absent] {
            assert_eq!(created("TimeoutException").contradiction(&picture), None);
            assert_eq!(deleted("TimeoutException").contradiction(&picture), None);
        }
        assert_eq!(created("ok").created, Some(3));
        assert_eq!(deleted("ok").created, None);
    }

    #[test]
    fn a_broker_may_apply_a_change_late() {
        let mut looks = vec![there(), Picture::new(), Picture::new()];
        let patience = Duration::from_secs(60);
        let picture = look_until_applied(&[created("ok")], patience, || {
            Ok(looks.pop().expect("it was there"))
        });
        assert!(created("ok").is_there(&picture.unwrap()));
        assert!(looks.is_empty());
    }

    #[test]
    fn a_change_that_is_never_applied_is_seen() {
        let look = || Ok(Picture::new());
        let picture = look_until_applied(&[created("ok")], Duration::ZERO, look).unwrap();
        assert!(created("ok").contradiction(&picture).is_some());
    }
}
