//! What comes of one event, while it is being found out.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::JoinGroupResponse;
use ottla_types::ErrorCode;

use super::config::GroupCoordinatorConfig;
use super::member::{JoinReply, Protocol};
use super::modern::GroupError;
use super::outcome::{
    Command, InitializeShareState, Outcome, Reply, ReplyTo, Response, TimerChange, TimerKey, Write,
    WriteId,
};
use super::record::CoordinatorRecord;
use super::refused::Refused;
use crate::runtime::WriteKind;

/// What waits for a write.
pub(super) enum Deferred {
    Reply(Reply),
    /// The leader's assignment, to be handed to the members of `generation_id`.
    Assignment {
        group_id: ByteString,
        generation_id: i32,
        assignments: Vec<(ByteString, Bytes)>,
    },
    StaticMemberReplaced(StaticMemberReplaced),
    /// Timers that are to run from the moment at which the reply is sent, and not at all if it is an error.
    ReplyAndTimers(Reply, Vec<TimerChange>),
    /// A reply, with which the share coordinator is asked for state that is now known to be missing.
    ReplyAndInitialize(Reply, InitializeShareState),
    /// What was done for a timer is tried again soon if it could not be written.
    Timer(TimerKey),
    /// Nothing: an empty group that could not be written is written again by its next change.
    Nothing,
}

/// What a decision may look at besides the state.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) config: &'a GroupCoordinatorConfig,
    pub(super) now_ms: i64,
}

/// A static member that was replaced while the group is stable: the new member id must be in the log
/// before the member is told of it.
#[derive(Debug)]
pub(super) struct StaticMemberReplaced {
    pub(super) group_id: ByteString,
    pub(super) group_instance_id: ByteString,
    pub(super) old_member_id: ByteString,
    pub(super) new_member_id: ByteString,
    pub(super) old_protocols: Vec<Protocol>,
    pub(super) old_rebalance_timeout_ms: i32,
    pub(super) old_session_timeout_ms: i32,
    /// As it was before the replacement, which older clients are told.
    pub(super) old_leader: ByteString,
    pub(super) supports_skipping_assignment: bool,
}

/// The outcome of one event, while it is being made.
pub(super) struct Effects {
    pub(super) outcome: Outcome,
    pub(super) deferred: Vec<(WriteId, Deferred)>,
    pub(super) next_write: WriteId,
}

impl Effects {
    /// Appends records whose effect on the state is already there, or comes with `deferred`.
    pub(super) fn write(&mut self, records: Vec<CoordinatorRecord>, deferred: Deferred) {
        self.write_as(WriteKind::Plain, records, deferred);
    }

    pub(super) fn write_as(
        &mut self,
        kind: WriteKind,
        records: Vec<CoordinatorRecord>,
        deferred: Deferred,
    ) {
        let id = self.next_write;
        self.next_write = WriteId(id.0 + 1);
        self.deferred.push((id, deferred));
        self.outcome.writes.push(Write { id, kind, records });
    }

    /// The id that the next write of this event will get.
    pub(super) fn next_write(&self) -> WriteId {
        self.next_write
    }

    /// Sends a reply now.
    pub(super) fn reply<T>(&mut self, to: ReplyTo<T>, response: T)
    where
        Response: From<T>,
    {
        self.send(to.with(response));
    }

    pub(super) fn send(&mut self, reply: Reply) {
        self.outcome.replies.push(reply);
    }

    /// Says at once that nothing comes of the request.
    pub(super) fn refuse<T: Refused>(&mut self, to: ReplyTo<T>, error: impl Into<GroupError>)
    where
        Response: From<T>,
    {
        self.reply(to, T::refused(error));
    }

    pub(super) fn refuse_join(&mut self, to: JoinReply, member_id: &ByteString, error: ErrorCode) {
        let response = JoinGroupResponse {
            member_id: member_id.clone(),
            ..Refused::refused(error)
        };
        self.reply(to, response);
    }

    pub(super) fn set_timer(&mut self, key: TimerKey, after_ms: i32) {
        let after_ms = u64::try_from(after_ms).unwrap_or(0);
        self.outcome.timers.push(TimerChange::Set { key, after_ms });
    }

    pub(super) fn set_long_timer(&mut self, key: TimerKey, after_ms: i64) {
        let after_ms = u64::try_from(after_ms).unwrap_or(0);
        self.outcome.timers.push(TimerChange::Set { key, after_ms });
    }

    /// Leaves a timer of the same key alone.
    pub(super) fn set_timer_if_absent(&mut self, key: TimerKey, after_ms: i32) {
        let after_ms = u64::try_from(after_ms).unwrap_or(0);
        let change = TimerChange::SetIfAbsent { key, after_ms };
        self.outcome.timers.push(change);
    }

    pub(super) fn change_timers(&mut self, changes: Vec<TimerChange>) {
        self.outcome.timers.extend(changes);
    }

    pub(super) fn command(&mut self, command: Command) {
        self.outcome.commands.push(command);
    }

    pub(super) fn cancel_timer(&mut self, key: TimerKey) {
        self.outcome.timers.push(TimerChange::Cancel { key });
    }
}
