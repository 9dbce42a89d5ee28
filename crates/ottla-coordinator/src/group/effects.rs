//! What comes of one event, while it is being found out.

use bytestring::ByteString;
use ottla_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use ottla_types::ErrorCode;

use super::coordinator::Deferred;
use super::outcome::{
    Command, Outcome, Reply, ReplyTo, Response, TimerChange, TimerKey, Write, WriteId,
};
use super::record::CoordinatorRecord;
use crate::runtime::WriteKind;

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
    pub(super) fn reply(&mut self, to: ReplyTo, response: Response) {
        self.outcome.replies.push(Reply { to, response });
    }

    pub(super) fn reply_join(&mut self, to: ReplyTo, response: JoinGroupResponse) {
        self.reply(to, Response::JoinGroup(response));
    }

    pub(super) fn refuse_join(&mut self, to: ReplyTo, member_id: &ByteString, error: ErrorCode) {
        self.reply_join(
            to,
            JoinGroupResponse {
                member_id: member_id.clone(),
                error_code: error.code(),
                ..Default::default()
            },
        );
    }

    pub(super) fn refuse_sync(&mut self, to: ReplyTo, error: ErrorCode) {
        self.reply(
            to,
            Response::SyncGroup(SyncGroupResponse {
                error_code: error.code(),
                ..Default::default()
            }),
        );
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
