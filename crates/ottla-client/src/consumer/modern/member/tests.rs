//! Transcripts: events of a member, with its heartbeat and its state after each.
//!
//! A line is `at <ms> <event>`. Below it, indented, are the heartbeat to send, if any, and the
//! member's state, epoch and next deadline.

use std::collections::BTreeSet;
use std::fmt::Write;

use ottla_protocol::messages::consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest;
use ottla_protocol::messages::consumer_group_heartbeat_response::{
    Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use ottla_types::{ErrorCode, Uuid};

use super::*;

fn settings() -> MemberSettings {
    MemberSettings {
        group_id: "g".into(),
        member_id: "m".into(),
        instance_id: None,
        rack: None,
        assignor: None,
        max_poll_interval_ms: 30_000,
        retry_backoff_ms: 100,
        retry_backoff_max_ms: 1000,
    }
}

/// `a:0,1 b:2`, where topics are letters of their ids.
fn partitions(words: &[&str]) -> Partitions {
    let mut partitions = Partitions::new();
    for word in words {
        let (topic, numbers) = word.split_once(':').expect("topic:partitions");
        let id = Uuid::from_u128(u128::from(topic.as_bytes()[0]));
        let numbers = numbers.split(',').map(|it| it.parse().expect("a number"));
        partitions.insert(id, numbers.collect::<BTreeSet<i32>>());
    }
    partitions
}

fn shown(partitions: &Partitions) -> String {
    let topics = partitions.iter().map(|(id, numbers)| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        format!("{}:{}", char::from(id.0[15]), numbers.join(","))
    });
    format!("[{}]", topics.collect::<Vec<_>>().join(" "))
}

fn said(request: &ConsumerGroupHeartbeatRequest) -> String {
    let mut said = format!("epoch={}", request.member_epoch);
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(said, " {name}={value}").expect("a string takes all");
        }
    };
    say(
        "instance",
        request.instance_id.as_ref().map(ToString::to_string),
    );
    say("rack", request.rack_id.as_ref().map(ToString::to_string));
    let timeout = Some(request.rebalance_timeout_ms).filter(|it| *it >= 0);
    say("timeout", timeout.map(|it| it.to_string()));
    let topics = request.subscribed_topic_names.as_ref();
    say(
        "topics",
        topics.map(|it| format!("{it:?}").replace('"', "")),
    );
    let regex = request.subscribed_topic_regex.as_ref();
    say("regex", regex.map(|it| format!("{it:?}")));
    say(
        "assignor",
        request.server_assignor.as_ref().map(ToString::to_string),
    );
    let has = request.topic_partitions.as_ref().map(|topics| {
        let topics = topics.iter();
        let set = |it: &super::TopicPartitions| it.partitions.iter().copied().collect();
        shown(&topics.map(|it| (it.topic_id, set(it))).collect())
    });
    say("has", has);
    said
}

fn answer(words: &[&str]) -> ConsumerGroupHeartbeatResponse {
    let mut response = ConsumerGroupHeartbeatResponse {
        heartbeat_interval_ms: 5000,
        member_epoch: words[0].parse().expect("an epoch"),
        ..Default::default()
    };
    if let Some(("target", target)) = words[1..].split_first().map(|(it, rest)| (*it, rest)) {
        let topics = partitions(target)
            .into_iter()
            .map(|(topic_id, numbers)| TopicPartitions {
                topic_id,
                partitions: numbers.into_iter().collect(),
                ..Default::default()
            });
        response.assignment = Some(Assignment {
            topic_partitions: topics.collect(),
            ..Default::default()
        });
    }
    response
}

struct Story {
    member: Member,
    /// The last target that was taken.
    taken: Option<Reconciliation>,
}

impl Story {
    /// Executes a line. Returns its results without heartbeats.
    fn step(&mut self, now: u64, words: &[&str]) -> Vec<String> {
        let member = &mut self.member;
        let (verb, rest) = words.split_first().expect("something happens");
        let mut out = Vec::new();
        match *verb {
            "member" => {
                let mut settings = settings();
                for word in rest {
                    let (key, value) = word.split_once('=').expect("key=value");
                    let value = Some(value.to_owned());
                    match key {
                        "instance" => settings.instance_id = value,
                        "rack" => settings.rack = value,
                        "assignor" => settings.assignor = value,
                        _ => panic!("{key}: not a setting of a member"),
                    }
                }
                *member = Member::new(settings);
            }
            "subscribes" => member.subscribe(Subscription {
                topics: rest.iter().map(|it| (*it).to_owned()).collect(),
                regex: None,
            }),
            "subscribes-regex" => member.subscribe(Subscription {
                regex: Some(rest[0].to_owned()),
                ..Subscription::default()
            }),
            "polls" => member.on_polled(now),
            "waits" => {}
            "answered" => {
                let advice = member.on_answered(now, &answer(rest));
                assert_eq!(advice, Advice::Nothing);
            }
            "refused" => {
                let code: i16 = rest[0].parse().expect("a code");
                let response = ConsumerGroupHeartbeatResponse {
                    error_code: code,
                    error_message: Some("why".into()),
                    ..Default::default()
                };
                match member.on_answered(now, &response) {
                    Advice::Nothing => {}
                    advice => out.push(format!("{advice:?}")),
                }
            }
            "unanswered" => member.on_failed(now),
            "takes" => {
                self.taken = member.reconciliation();
                let shown = self.taken.as_ref().map(|it| shown(&it.partitions));
                out.push(format!("takes {}", shown.as_deref().unwrap_or("nothing")));
            }
            "has" => {
                let taken = self.taken.take().expect("something was taken up");
                if !member.on_reconciled(&taken, partitions(rest)) {
                    out.push("too late".into());
                }
            }
            "gives-up" => {
                assert!(member.has_lost());
                member.on_given_up();
            }
            "leaves" => match member.leave() {
                Some(request) => out.push(format!("sends {}", said(&request))),
                None => out.push("has nothing to say".into()),
            },
            _ => panic!("{verb}: nothing that happens to a member"),
        }
        out
    }
}

#[test]
fn members_follow_the_transcripts() {
    let text = include_str!("transcripts.txt");
    let mut played = String::new();
    let member = Member::new(settings());
    let mut story = Story {
        member,
        taken: None,
    };
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            writeln!(played, "{line}").expect("a string takes all");
            if line.starts_with("# ") && played.ends_with(&format!("\n\n{line}\n")) {
                story.member = Member::new(settings());
            }
            continue;
        }
        let Some(happens) = line.strip_prefix("at ") else {
            continue;
        };
        writeln!(played, "{line}").expect("a string takes all");
        let words: Vec<&str> = happens.split_whitespace().collect();
        let now: u64 = words[0].parse().expect("a time");
        let mut lines = story.step(now, &words[1..]);
        if let Some(request) = story.member.next_heartbeat(now) {
            lines.push(format!("sends {}", said(&request)));
        }
        let (state, epoch) = (story.member.state, story.member.epoch());
        let lost = if story.member.has_lost() {
            ", has lost"
        } else {
            ""
        };
        let wakes = match story.member.wakes_at() {
            Some(at) => format!(", looks again at {at}"),
            None => String::new(),
        };
        lines.push(format!("{state:?} {epoch}{lost}{wakes}"));
        for line in lines {
            writeln!(played, "    {line}").expect("a string takes all");
        }
    }
    assert!(played == text, "the members did otherwise:\n{played}");
}

/// A coordinator that answers is retried soon. A coordinator that does not answer is retried with a
/// growing backoff.
#[test]
fn failures_are_retried_with_backoff() {
    let mut member = Member::new(settings());
    member.subscribe(Subscription {
        topics: BTreeSet::from(["a".into()]),
        regex: None,
    });
    member.on_polled(0);
    let mut now = 0;
    let mut pauses = Vec::new();
    for _ in 0..80 {
        assert!(member.next_heartbeat(now).is_some());
        member.on_failed(now);
        let next = member.wakes_at().expect("it continues");
        pauses.push(next - now);
        now = next;
        member.on_polled(now);
    }
    assert_eq!(pauses[..5], [100, 200, 400, 800, 1000]);
    assert_eq!(pauses[79], 1000);
    assert_eq!(member.state, State::Joining);
    let code = ErrorCode::NotCoordinator.code();
    assert!(member.next_heartbeat(now).is_some());
    let response = ConsumerGroupHeartbeatResponse {
        error_code: code,
        ..Default::default()
    };
    assert_eq!(member.on_answered(now, &response), Advice::FindCoordinator);
}
