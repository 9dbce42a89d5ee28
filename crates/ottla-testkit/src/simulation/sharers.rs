//! Members of a share group (KIP-932): they are given records of the partitions that they are assigned, and say what becomes of each.
//!
//! Kafka: `ShareConsumeRequestManager`, `ShareFetchCollector`, `ShareMembershipManager`. They accept most of what they are given, give
//! some back, reject some, ask for more time, and forget some until their locks run out.

use std::collections::{BTreeSet, VecDeque};

use bytestring::ByteString;
use ottla_coordinator::share_partition::{AcknowledgeType, AcknowledgementBatch, AcquireMode};
use ottla_types::{ErrorCode, Offset, TopicIdPartition};

use super::group_clients::Then;
use super::membership::Member;
use super::message::{ClientRequest, ClientResponse, ShareAcknowledge, ShareFetch};
use super::random::Random;

#[derive(Default)]
pub(crate) struct Sharer {
    /// What it has been given, and has said nothing of: partition, first and last offset.
    held: VecDeque<(i32, Offset, Offset)>,
    /// The partition that it asks about.
    source: i32,
    /// What it was before it began anew: brokers find its connections closed.
    pub former: Option<(ByteString, BTreeSet<i32>)>,
}

impl Sharer {
    /// It begins anew, with nothing.
    pub(crate) fn leave(&mut self, member: &Member) {
        let partitions = member.positions.keys().copied().collect();
        *self = Sharer {
            former: Some((member.id.clone(), partitions)),
            ..Sharer::default()
        };
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn next_request(
        &mut self,
        member: &Member,
        key_of: impl Fn(i32) -> Option<TopicIdPartition>,
        random: &mut Random,
    ) -> Option<ClientRequest> {
        if random.per_mille(600)
            && let Some((source, first, last)) = self.held.pop_front()
        {
            return self.acknowledge(member, (key_of(source)?, first, last), random);
        }
        let sources: Vec<i32> = member.positions.keys().copied().collect();
        self.source = random.pick(&sources)?;
        Some(ClientRequest::ShareFetch(ShareFetch {
            group_id: member.group_id.clone(),
            member_id: member.id.clone(),
            partition: key_of(self.source)?,
            mode: match random.below(2) {
                0 => AcquireMode::BatchOptimized,
                _ => AcquireMode::RecordLimit,
            },
            batch_size: 1 + random.below(6) as i32,
            max_records: 1 + random.below(12) as i32,
        }))
    }

    fn acknowledge(
        &mut self,
        member: &Member,
        (partition, first, last): (TopicIdPartition, Offset, Offset),
        random: &mut Random,
    ) -> Option<ClientRequest> {
        use AcknowledgeType::{Accept, Reject, Release, Renew};
        let mut any = || match random.below(100) {
            0..70 => Some(Accept),
            70..80 => Some(Release),
            80..86 => Some(Reject),
            86..94 => Some(Renew),
            _ => None,
        };
        let each: Vec<AcknowledgeType> = match any()? {
            kind @ Renew => {
                self.held.push_back((partition.partition.0, first, last));
                vec![kind]
            }
            kind @ Accept => vec![kind],
            _ => (first.0..=last.0)
                .map(|_| any().filter(|kind| *kind != Renew).unwrap_or(Release))
                .collect(),
        };
        Some(ClientRequest::ShareAcknowledge(ShareAcknowledge {
            group_id: member.group_id.clone(),
            member_id: member.id.clone(),
            partition,
            batches: vec![AcknowledgementBatch {
                first_offset: first,
                last_offset: last,
                types: each,
            }],
        }))
    }

    pub(crate) fn receive(&mut self, response: ClientResponse) -> Then {
        match response {
            ClientResponse::ShareFetched(Ok(batches)) if batches.is_empty() => Then::Wait,
            ClientResponse::ShareFetched(Ok(batches)) => {
                let given = batches.iter();
                let given = given.map(|it| (self.source, it.first_offset, it.last_offset));
                self.held.extend(given);
                Then::Go
            }
            // Its lock has run out, or the leader is another: somebody gets the records.
            ClientResponse::ShareAcknowledged(
                ErrorCode::None | ErrorCode::InvalidRecordState | ErrorCode::InvalidRequest,
            ) => Then::Go,
            _ => Then::Trouble,
        }
    }
}
