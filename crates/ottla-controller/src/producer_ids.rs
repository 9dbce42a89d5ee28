//! `AllocateProducerIds`: assigns blocks of producer ids to brokers.
//!
//! In Kafka: `ProducerIdControlManager`.

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};
use ottla_protocol::metadata_records::{MetadataRecord, ProducerIdsRecord};
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode};

use crate::brokers::check_broker_epoch;
use crate::decision::{ControllerContext, Decision};
use crate::planted::{self, Bug};

/// The number of ids in a block.
pub const PRODUCER_ID_BLOCK_SIZE: i32 = 1000;

pub fn allocate_producer_ids(
    context: &ControllerContext<'_>,
    request: &AllocateProducerIdsRequest,
) -> Decision<AllocateProducerIdsResponse> {
    let failed = |code: ErrorCode| Decision::unchanged(AllocateProducerIdsResponse::of_error(code));
    let (broker, epoch) = (
        BrokerId(request.broker_id),
        BrokerEpoch(request.broker_epoch),
    );
    if let Err(error) = check_broker_epoch(context, broker, epoch) {
        return failed(error.code);
    }
    let start = context
        .image
        .next_producer_id
        .map_or(0, |next| next.value());
    let Some(next_producer_id) = start.checked_add(i64::from(PRODUCER_ID_BLOCK_SIZE)) else {
        return failed(ErrorCode::UnknownServerError);
    };
    let record = MetadataRecord::ProducerIds(ProducerIdsRecord {
        broker_id: broker.value(),
        broker_epoch: epoch.value(),
        next_producer_id: if planted::has(Bug::RepeatProducerIds) {
            start
        } else {
            next_producer_id
        },
        ..Default::default()
    });
    let response = AllocateProducerIdsResponse {
        producer_id_start: start,
        producer_id_len: PRODUCER_ID_BLOCK_SIZE,
        ..Default::default()
    };
    Decision::new(vec![record], response)
}

#[cfg(test)]
mod tests {
    use ottla_types::ProducerId;

    use super::*;
    use crate::test_support::{Cluster, SINGLE_NODE_EPOCH};

    fn request() -> AllocateProducerIdsRequest {
        AllocateProducerIdsRequest {
            broker_id: 1,
            broker_epoch: SINGLE_NODE_EPOCH,
            ..Default::default()
        }
    }

    #[test]
    fn blocks_are_consecutive() {
        let mut cluster = Cluster::single_node();
        for start in [0, 1000, 2000] {
            let decision = allocate_producer_ids(&cluster.context(), &request());
            assert_eq!(
                decision.records,
                [MetadataRecord::ProducerIds(ProducerIdsRecord {
                    broker_id: 1,
                    broker_epoch: SINGLE_NODE_EPOCH,
                    next_producer_id: start + 1000,
                    ..Default::default()
                })]
            );
            assert_eq!(decision.response.error_code, 0);
            assert_eq!(decision.response.producer_id_start, start);
            assert_eq!(decision.response.producer_id_len, 1000);
            cluster.apply(&decision.records);
        }
        assert_eq!(cluster.image.next_producer_id, Some(ProducerId(3000)));
    }

    #[test]
    fn stale_brokers_and_exhausted_ranges_get_no_block() {
        let mut cluster = Cluster::single_node();
        let stale = AllocateProducerIdsRequest {
            broker_epoch: SINGLE_NODE_EPOCH - 1,
            ..request()
        };
        let decision = allocate_producer_ids(&cluster.context(), &stale);
        assert_eq!(decision.records, []);
        assert_eq!(
            decision.response.error_code,
            ErrorCode::StaleBrokerEpoch.code()
        );

        cluster.apply(&[MetadataRecord::ProducerIds(ProducerIdsRecord {
            next_producer_id: i64::MAX - 999,
            ..Default::default()
        })]);
        let decision = allocate_producer_ids(&cluster.context(), &request());
        assert_eq!(decision.records, []);
        assert_eq!(
            decision.response.error_code,
            ErrorCode::UnknownServerError.code()
        );
    }
}
