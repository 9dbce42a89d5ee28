//! Subscriptions with regular expressions. They are matched with topics outside the coordinator,
//! and the result comes back as an event.
//!
//! All expressions of a group are resolved together, at most every ten seconds, and one resolution
//! at a time. Source: `GroupMetadataManager.maybeUpdateRegularExpressions`,
//! `handleRegularExpressionsResult`, `TopicRegexResolver`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_types::{ErrorCode, Timestamp};

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use super::record;
use super::topic_regex::{ResolvedRegex, TopicRegex};
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::modern::GroupError;
use crate::group::outcome::{Command, Outcome, Requester, ResolveRegexes};
use crate::group::recorded::Decision;

const MIN_REFRESH_INTERVAL_MS: i64 = 10_000;

/// The topics of `image` that match each of `regexes` and are visible according to `is_visible`.
/// Can take long.
pub fn resolve(
    regexes: &BTreeSet<ByteString>,
    image: &MetadataImage,
    is_visible: impl Fn(&str) -> bool,
    now: Timestamp,
) -> BTreeMap<ByteString, ResolvedRegex> {
    // The expressions were validated when the members joined. One that does not compile matches
    // nothing.
    let compiled: Vec<(&ByteString, Option<TopicRegex>)> = regexes
        .iter()
        .map(|regex| (regex, TopicRegex::compile(regex).ok()))
        .collect();
    let mut resolved: BTreeMap<ByteString, ResolvedRegex> = BTreeMap::new();
    for regex in regexes {
        resolved.insert(
            regex.clone(),
            ResolvedRegex {
                topics: BTreeSet::new(),
                version: image.provenance.last_contained_offset.value(),
                timestamp_ms: now.value(),
            },
        );
    }
    for topic in image.topics.iter() {
        let mut is_seen = None;
        for (regex, compiled) in &compiled {
            let is_match = compiled.as_ref().is_some_and(|it| it.matches(&topic.name));
            if is_match
                && *is_seen.get_or_insert_with(|| is_visible(&topic.name))
                && let Some(resolved) = resolved.get_mut(*regex)
            {
                resolved.topics.insert(topic.name.clone());
            }
        }
    }
    resolved
}

/// The change of the group's regular expressions by a request of a member.
#[derive(Default)]
pub(super) struct RegexChange {
    is_change: bool,
    /// Whether the topics of the new expression are already known.
    is_resolved: bool,
    /// Whether the expression is new in the group.
    is_new: bool,
    /// The previous expression, if no other member is subscribed to it.
    abandoned: Option<ByteString>,
}

impl RegexChange {
    /// `group` is the state before the request.
    pub(super) fn of(
        group: &ConsumerGroup,
        member: &ConsumerGroupMember,
        updated: &ConsumerGroupMember,
    ) -> Result<Self, GroupError> {
        if member.subscribed_topic_regex == updated.subscribed_topic_regex {
            return Ok(RegexChange::default());
        }
        let mut change = RegexChange {
            is_change: true,
            ..RegexChange::default()
        };
        if let Some(former) = member.regex()
            && group.subscribed_regexes().get(former) == 1
        {
            change.abandoned = Some(former.clone());
        }
        match updated.regex() {
            Some(regex) if group.subscribed_regexes().get(regex) == 0 => {
                TopicRegex::compile(regex).map_err(|error| {
                    GroupError::new(
                        ErrorCode::InvalidRegularExpression,
                        format!(
                            "SubscribedTopicRegex `{regex}` is not a valid regular expression: \
                             {error}."
                        ),
                    )
                })?;
                change.is_new = true;
            }
            Some(regex) => change.is_resolved = group.resolved_regex(regex).is_some(),
            None => change.is_resolved = member.regex().is_some(),
        }
        Ok(change)
    }

    pub(super) fn is_change(&self) -> bool {
        self.is_change
    }

    pub(super) fn is_resolved_change(&self) -> bool {
        self.is_resolved
    }

    pub(super) fn write_tombstone(&self, decision: &mut Decision<ConsumerGroup>) {
        if let Some(regex) = &self.abandoned {
            let group_id = decision.group_id();
            decision.write(record::regex_tombstone(&group_id, regex));
        }
    }
}

impl GroupCoordinator {
    /// Requests a resolution of the group's regular expressions if the known one may be outdated.
    /// `group` is the state after the request.
    pub(super) fn refresh_regexes(
        &mut self,
        group: &ConsumerGroup,
        change: &RegexChange,
        requester: &Requester,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let subscribed = group.subscribed_regexes();
        if subscribed.len() == 0 || self.resolving.contains(&group.group_id) {
            return;
        }
        // All expressions are resolved together, so the age of one is that of all.
        let last = group
            .resolved_regexes()
            .next()
            .map(|(_, resolved)| resolved);
        let age_ms = last.map(|last| now.value().saturating_sub(last.timestamp_ms));
        if age_ms.is_some_and(|age_ms| age_ms <= MIN_REFRESH_INTERVAL_MS) {
            return;
        }
        let max_age_ms = i64::from(self.config.group_consumer_regex_refresh_interval_ms);
        let version = last.map_or(0, |last| last.version);
        let is_due = change.is_new
            || subscribed.len() != group.num_resolved_regexes()
            || version < self.metadata.version_with_new_topics()
            || age_ms.is_none_or(|age_ms| age_ms > max_age_ms);
        if is_due {
            self.resolving.insert(group.group_id.clone());
            effects.command(Command::ResolveRegexes(ResolveRegexes {
                group_id: group.group_id.clone(),
                regexes: subscribed.iter().map(|(regex, _)| regex.clone()).collect(),
                requester: requester.clone(),
            }));
        }
    }

    /// Handles the result of a [`ResolveRegexes`].
    pub fn on_regexes_resolved(
        &mut self,
        group_id: &ByteString,
        resolved: BTreeMap<ByteString, ResolvedRegex>,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        self.resolving.remove(group_id);
        let Some(group) = self.consumer_group(group_id) else {
            return self.finish(effects);
        };
        let mut decision = Decision::about(group.clone(), now);
        let mut has_changed = false;
        for (regex, resolved) in resolved {
            if decision.group.subscribed_regexes().get(&regex) == 0 {
                continue;
            }
            let former = decision.group.resolved_regex(&regex);
            has_changed |= match former {
                Some(former) => former.topics != resolved.topics,
                None => !resolved.topics.is_empty(),
            };
            decision.write(record::resolved_regex(group_id, &regex, &resolved));
        }
        let hash = self
            .metadata
            .look(group_id, decision.group.subscribed_topics());
        if has_changed || hash != decision.group.metadata_hash {
            decision.bump_group_epoch(hash);
            self.metadata
                .has_looked(group_id, now.value(), decision.group.group_epoch);
        }
        self.conclude(decision, Deferred::Nothing, &mut effects);
        self.finish(effects)
    }
}
