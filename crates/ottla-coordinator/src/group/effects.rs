//! The effects of one event, collected while it is handled.

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

/// What follows when a write is committed.
pub(super) enum Deferred {
    Reply(Reply),
    /// The leader's assignment, for the members of `generation_id`.
    Assignment {
        group_id: ByteString,
        generation_id: i32,
        assignments: Vec<(ByteString, Bytes)>,
    },
    StaticMemberReplaced(StaticMemberReplaced),
    /// A reply, and timers that start when it is sent, unless it is an error.
    ReplyAndTimers(Reply, Vec<TimerChange>),
    /// A reply, and a request to the share coordinator to initialize missing state.
    ReplyAndInitialize(Reply, InitializeShareState),
    /// The work of a timer, which is retried if it could not be written.
    Timer(TimerKey),
    /// Nothing. An empty group that could not be written is written again with its next change.
    Nothing,
}

/// The inputs of a decision besides the state.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) config: &'a GroupCoordinatorConfig,
    pub(super) now_ms: i64,
}

/// A static member that was replaced while the group is stable. The new member id must be in the
/// log before the member gets it.
#[derive(Debug)]
pub(super) struct StaticMemberReplaced {
    pub(super) group_id: ByteString,
    pub(super) group_instance_id: ByteString,
    pub(super) old_member_id: ByteString,
    pub(super) new_member_id: ByteString,
    pub(super) old_protocols: Vec<Protocol>,
    pub(super) old_rebalance_timeout_ms: i32,
    pub(super) old_session_timeout_ms: i32,
    /// The leader before the replacement, which older clients receive.
    pub(super) old_leader: ByteString,
    pub(super) supports_skipping_assignment: bool,
}

/// The effects of one event, while it is handled.
pub(super) struct Effects {
    pub(super) outcome: Outcome,
    pub(super) deferred: Vec<(WriteId, Deferred)>,
    pub(super) next_write: WriteId,
}

impl Effects {
    /// Appends records whose effect on the state is already applied, or comes with `deferred`.
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

    /// Sends a reply at once.
    pub(super) fn reply<T>(&mut self, to: ReplyTo<T>, response: T)
    where
        Response: From<T>,
    {
        self.send(to.with(response));
    }

    pub(super) fn send(&mut self, reply: Reply) {
        self.outcome.replies.push(reply);
    }

    /// Refuses the request at once.
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

    /// Does not change an existing timer with the same key.
    pub(super) fn set_timer_if_absent(&mut self, key: TimerKey, after_ms: i32) {
        let after_ms = u64::try_from(after_ms).unwrap_or(0);
        let change = TimerChange::SetIfAbsent { key, after_ms };
        self.outcome.timers.push(change);
    }

    pub(super) fn change_timers(&mut self, changes: Vec<TimerChange>) {
        self.outcome.timers.extend(changes);
    }

    /// Sets the timers among these changes that do not exist.
    pub(super) fn set_missing_timers(&mut self, changes: &[TimerChange]) {
        for change in changes {
            if let TimerChange::Set { key, after_ms } = change {
                let (key, after_ms) = (key.clone(), *after_ms);
                let change = TimerChange::SetIfAbsent { key, after_ms };
                self.outcome.timers.push(change);
            }
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        self.outcome.commands.push(command);
    }

    pub(super) fn cancel_timer(&mut self, key: TimerKey) {
        self.outcome.timers.push(TimerChange::Cancel { key });
    }
}
