//! Validation of commits and fetches of a consumer group's offsets. Source:
//! `ConsumerGroup.validateOffsetCommit`, `validateOffsetFetch`; KIP-1251 (commits in an earlier
//! epoch).

use bytestring::ByteString;
use ottla_types::{ErrorCode, TopicId};

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use crate::planted::{self, Bug};

/// The identity in a commit.
pub(in crate::group) struct Committer<'a> {
    pub(in crate::group) member_id: &'a ByteString,
    pub(in crate::group) instance_id: Option<&'a ByteString>,
    pub(in crate::group) member_epoch: i32,
    pub(in crate::group) is_transactional: bool,
    /// Whether the version of the request supports members of the consumer protocol.
    pub(in crate::group) knows_consumer_groups: bool,
}

impl Committer<'_> {
    /// Whether it is an administrator, a consumer with manual assignment, or an older client in a
    /// transaction.
    pub(in crate::group) fn needs_no_member(&self, is_group_empty: bool) -> bool {
        let is_anonymous =
            self.member_epoch == -1 && self.member_id.is_empty() && self.instance_id.is_none();
        (self.member_epoch < 0 && is_group_empty) || (self.is_transactional && is_anonymous)
    }
}

impl ConsumerGroup {
    /// Whether all of `partitions` can be committed. A topic without an id does not exist.
    pub(in crate::group) fn validate_commit(
        &self,
        committer: &Committer<'_>,
        mut partitions: impl Iterator<Item = (Option<TopicId>, i32)>,
    ) -> Result<(), ErrorCode> {
        let epoch = committer.member_epoch;
        if planted::has(Bug::TakeCommitsOfFormerMembers) {
            return Ok(());
        }
        if committer.needs_no_member(self.is_empty()) {
            return Ok(());
        }
        let member = self
            .member(committer.member_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        if !committer.is_transactional
            && !member.uses_classic_protocol()
            && !committer.knows_consumer_groups
        {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if epoch == member.member_epoch {
            return Ok(());
        }
        // A member in a newer epoch can still commit partitions that it has owned since the epoch
        // of the commit.
        let may_commit = |(topic_id, partition): (Option<TopicId>, i32)| {
            topic_id
                .and_then(|topic_id| member.assignment_epoch(topic_id, partition))
                .is_some_and(|assignment_epoch| epoch >= assignment_epoch)
        };
        if epoch < member.member_epoch && partitions.all(may_commit) {
            Ok(())
        } else {
            Err(stale(member))
        }
    }

    /// The epoch for fetching offsets, and the error for any other epoch.
    pub(in crate::group) fn fetch_epoch(&self, member_id: &str) -> Option<(i32, ErrorCode)> {
        let member = self.member(member_id)?;
        Some((member.member_epoch, stale(member)))
    }
}

fn stale(member: &ConsumerGroupMember) -> ErrorCode {
    if member.uses_classic_protocol() {
        ErrorCode::IllegalGeneration
    } else {
        ErrorCode::StaleMemberEpoch
    }
}
