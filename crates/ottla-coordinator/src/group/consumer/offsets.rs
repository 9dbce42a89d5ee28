//! Who may commit and read the offsets of a consumer group.
//! Source: `ConsumerGroup.validateOffsetCommit`, `validateOffsetFetch`; KIP-1251 (commits of a former epoch).

use bytestring::ByteString;
use ottla_types::{ErrorCode, TopicId};

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use crate::planted::{self, Bug};

/// What a commit says about who makes it.
pub(in crate::group) struct Committer<'a> {
    pub(in crate::group) member_id: &'a ByteString,
    pub(in crate::group) instance_id: Option<&'a ByteString>,
    pub(in crate::group) member_epoch: i32,
    pub(in crate::group) is_transactional: bool,
    /// Whether the request is of a version that members of the consumer protocol may use.
    pub(in crate::group) knows_consumer_groups: bool,
}

impl ConsumerGroup {
    /// Whether all of `partitions` may be committed. A topic without an id does not exist.
    pub(in crate::group) fn validate_commit(
        &self,
        committer: &Committer<'_>,
        mut partitions: impl Iterator<Item = (Option<TopicId>, i32)>,
    ) -> Result<(), ErrorCode> {
        let epoch = committer.member_epoch;
        if planted::has(Bug::TakeCommitsOfFormerMembers) {
            return Ok(());
        }
        if epoch < 0 && self.is_empty() {
            // An administrator, or a consumer that assigns partitions to itself.
            return Ok(());
        }
        let is_anonymous =
            epoch == -1 && committer.member_id.is_empty() && committer.instance_id.is_none();
        if committer.is_transactional && is_anonymous {
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
        // A member that has gone on since it made the commit may still commit what it has had since then.
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

    /// The epoch that a member fetches offsets in, and the error for another.
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
