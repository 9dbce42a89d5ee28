//! Validation of commits and fetches of a streams group's offsets. Source:
//! `StreamsGroup.validateOffsetCommit`, `validateOffsetFetch`, `createAssignmentEpochValidator`.

use bytestring::ByteString;
use ottla_types::ErrorCode;

use super::group::StreamsGroup;
use crate::group::consumer::Committer;

impl StreamsGroup {
    /// Whether all of `partitions` can be committed.
    pub(in crate::group) fn validate_commit<'a>(
        &self,
        committer: &Committer<'_>,
        mut partitions: impl Iterator<Item = (&'a ByteString, i32)>,
    ) -> Result<(), ErrorCode> {
        let epoch = committer.member_epoch;
        if committer.needs_no_member(self.is_empty()) {
            return Ok(());
        }
        let member = self
            .member(committer.member_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        if !committer.is_transactional && !committer.knows_consumer_groups {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if epoch == member.member_epoch {
            return Ok(());
        }
        let topology = self.topology.as_ref().ok_or(ErrorCode::StaleMemberEpoch)?;
        // A member in a newer epoch can still commit for tasks that it has owned since the epoch of
        // the commit.
        let may_commit = |(topic, partition): (&ByteString, i32)| {
            topology
                .reading_from(topic)
                .and_then(|id| member.assignment_epoch(id, partition))
                .is_some_and(|assignment_epoch| epoch >= assignment_epoch)
        };
        if epoch < member.member_epoch && partitions.all(may_commit) {
            Ok(())
        } else {
            Err(ErrorCode::StaleMemberEpoch)
        }
    }

    /// The epoch for fetching offsets, and the error for any other epoch.
    pub(in crate::group) fn fetch_epoch(&self, member_id: &str) -> Option<(i32, ErrorCode)> {
        let member = self.member(member_id)?;
        Some((member.member_epoch, ErrorCode::StaleMemberEpoch))
    }
}
