//! What the nodes and the clients of a run say to each other.

use bytestring::ByteString;
use ottla_coordinator::persister::{
    InitializeState, ReadState, SharePartitionKey, StateRead, WriteState,
};
use ottla_coordinator::share_partition::{AcknowledgementBatch, AcquireMode, AcquiredBatch};
use ottla_coordinator::transaction::{AddPartitions, EndTransaction};
use ottla_coordinator::{TransactionEnd, TransactionalProducer};
use ottla_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use ottla_protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionRequest, AlterPartitionResponse, AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    CreateTopicsRequest, CreateTopicsResponse, ElectLeadersRequest, OffsetCommitRequest,
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TxnOffsetCommitRequest,
};
use ottla_raft::wire::{WireRequest, WireResponse};
use ottla_records::RecordBatch;
use ottla_replica::{FetchPosition, FetchRefusal, LeaderOffsets};
use ottla_types::{
    BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, ProducerId, TopicIdPartition, TopicName,
    TopicPartition,
};

use super::metadata_log::{MetadataBatch, SnapshotContent};

/// Brokers are below it, controllers from here on, then clients.
pub(crate) const FIRST_CONTROLLER: i32 = 101;
pub(crate) const FIRST_CLIENT: i32 = 1001;

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub from: i32,
    pub to: i32,
    /// An answer goes to the life that asked, as over a connection.
    pub to_life: Option<u64>,
    /// Of the sender: where the answer goes. Of a client, the number of its connection.
    pub from_life: u64,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Quorum {
        /// Under which id the node that asked knows the one that it asked.
        known_as: BrokerId,
        correlation_id: u64,
        payload: QuorumPayload,
    },
    /// To the active controller.
    Ask {
        correlation_id: u64,
        request: ControllerRequest,
    },
    Answer {
        correlation_id: u64,
        response: Result<ControllerResponse, ErrorCode>,
    },
    Fetch {
        correlation_id: u64,
        broker_epoch: BrokerEpoch,
        partitions: Vec<(TopicIdPartition, FetchPosition, Offset)>,
    },
    Fetched {
        correlation_id: u64,
        /// Or nothing, where the connection broke.
        partitions: Option<Vec<(TopicIdPartition, FetchPosition, FetchAnswer)>>,
    },
    ListOffsets {
        partition: TopicIdPartition,
        leader_epoch: LeaderEpoch,
    },
    OffsetsListed {
        partition: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        result: Result<LeaderOffsets, ErrorCode>,
    },
    /// Of a broker to another, about a transaction.
    AskBroker {
        correlation_id: u64,
        request: BrokerRequest,
    },
    BrokerAnswered {
        correlation_id: u64,
        /// Nothing, where the connection broke.
        response: Option<BrokerResponse>,
    },
    Client {
        correlation_id: u64,
        request: ClientRequest,
    },
    ToClient {
        correlation_id: u64,
        response: ClientResponse,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum QuorumPayload {
    Request(WireRequest),
    /// With what would be bytes in it.
    Response {
        response: WireResponse,
        batches: Vec<MetadataBatch>,
        snapshot: Option<SnapshotContent>,
    },
    Failure(ErrorCode),
}

#[derive(Clone, Debug)]
pub(crate) enum ControllerRequest {
    Register(BrokerRegistrationRequest),
    Heartbeat(BrokerHeartbeatRequest),
    AlterPartition(AlterPartitionRequest),
    AssignDirectories(AssignReplicasToDirsRequest),
    AllocateProducerIds(AllocateProducerIdsRequest),
    CreateTopics(CreateTopicsRequest),
    ElectLeaders(ElectLeadersRequest),
    Reassign(AlterPartitionReassignmentsRequest),
}

#[derive(Clone, Debug)]
pub(crate) enum ControllerResponse {
    Registered(BrokerRegistrationResponse),
    Heartbeat(BrokerHeartbeatResponse),
    AlteredPartition(AlterPartitionResponse),
    DirectoriesAssigned,
    ProducerIds(AllocateProducerIdsResponse),
    TopicsCreated(CreateTopicsResponse),
    LeadersElected,
    Reassigned,
}

#[derive(Clone, Debug)]
pub(crate) enum FetchAnswer {
    Records {
        batches: Vec<RecordBatch>,
        high_watermark: Offset,
        log_start_offset: Offset,
    },
    Refused(FetchRefusal),
}

#[derive(Clone, Debug)]
pub(crate) enum BrokerRequest {
    AddPartitions(AddPartitions),
    WriteMarkers {
        producer: TransactionalProducer,
        end: TransactionEnd,
        partitions: Vec<TopicPartition>,
    },
    ShareState(ShareStateRequest),
}

/// To a share coordinator, about one share partition.
#[derive(Clone, Debug)]
pub(crate) enum ShareStateRequest {
    Initialize(InitializeState),
    Read(ReadState),
    Write(WriteState),
}

impl ShareStateRequest {
    pub(crate) fn key(&self) -> &SharePartitionKey {
        match self {
            ShareStateRequest::Initialize(request) => &request.key,
            ShareStateRequest::Read(request) => &request.key,
            ShareStateRequest::Write(request) => &request.key,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum BrokerResponse {
    PartitionsAdded(ErrorCode),
    MarkersWritten(Vec<(TopicPartition, ErrorCode)>),
    /// What was read, where that was asked for.
    ShareState(Result<Option<StateRead>, ErrorCode>),
}

#[derive(Clone, Debug)]
pub(crate) enum ClientRequest {
    Metadata,
    InitProducerId,
    Produce {
        partition: TopicIdPartition,
        batch: RecordBatch,
        /// Of the transaction that it is part of.
        transactional_id: Option<ByteString>,
        timeout_ms: u64,
    },
    Fetch {
        partition: TopicIdPartition,
        offset: Offset,
        leader_epoch: Option<LeaderEpoch>,
    },
    /// With `read_committed`.
    FetchCommitted {
        partition: TopicIdPartition,
        offset: Offset,
    },
    InitTransactions {
        transactional_id: ByteString,
        timeout_ms: i32,
    },
    CommitInTransaction(TxnOffsetCommitRequest),
    EndTransaction(EndTransaction),
    GroupHeartbeat(ConsumerGroupHeartbeatRequest),
    CommitOffsets(OffsetCommitRequest),
    FetchOffsets(OffsetFetchRequestGroup),
    ShareHeartbeat(ShareGroupHeartbeatRequest),
    ShareFetch(ShareFetch),
    ShareAcknowledge(ShareAcknowledge),
    /// The connection of a member is closed for good.
    ShareMemberGone {
        group_id: ByteString,
        member_id: ByteString,
    },
}

/// Records of a partition for a member of a share group.
#[derive(Clone, Debug)]
pub(crate) struct ShareFetch {
    pub group_id: ByteString,
    pub member_id: ByteString,
    pub partition: TopicIdPartition,
    pub mode: AcquireMode,
    pub batch_size: i32,
    pub max_records: i32,
}

/// What a member says of records that it has acquired.
#[derive(Clone, Debug)]
pub(crate) struct ShareAcknowledge {
    pub group_id: ByteString,
    pub member_id: ByteString,
    pub partition: TopicIdPartition,
    pub batches: Vec<AcknowledgementBatch>,
}

impl ClientRequest {
    /// Whether a client that closes its connection can rely on it that the request comes no more.
    ///
    /// What is on its way over a closed connection is not delivered seconds later. What belongs to a transaction is let
    /// through all the same, since KIP-890 promises that it does no harm.
    pub(crate) fn ends_with_its_connection(&self) -> bool {
        matches!(
            self,
            ClientRequest::GroupHeartbeat(_)
                | ClientRequest::CommitOffsets(_)
                | ClientRequest::FetchOffsets(_)
                | ClientRequest::ShareHeartbeat(_)
                | ClientRequest::ShareFetch(_)
                | ClientRequest::ShareAcknowledge(_)
        )
    }
}

#[derive(Clone, Debug)]
pub(crate) enum ClientResponse {
    /// Who leads what, in which epoch, and who else has it.
    Metadata(Vec<LedPartition>),
    ProducerId(i64),
    Produced(Result<Offset, ErrorCode>),
    Fetched(Result<Vec<RecordBatch>, ErrorCode>),
    FetchedCommitted(Result<CommittedFetch, ErrorCode>),
    TransactionsInitialized(Result<TransactionalProducer, ErrorCode>),
    CommittedInTransaction(ErrorCode),
    TransactionEnded(Result<Option<TransactionalProducer>, ErrorCode>),
    Heard(Box<ConsumerGroupHeartbeatResponse>),
    OffsetsCommitted(ErrorCode),
    OffsetsFetched(OffsetFetchResponseGroup),
    ShareHeard(Box<ShareGroupHeartbeatResponse>),
    ShareFetched(Result<Vec<AcquiredBatch>, ErrorCode>),
    ShareAcknowledged(ErrorCode),
    /// Nobody listens there, or what was asked for cannot be had there now.
    Failed,
}

/// What a `read_committed` consumer gets.
#[derive(Clone, Debug)]
pub(crate) struct CommittedFetch {
    pub batches: Vec<RecordBatch>,
    /// Whose records among them were aborted, each from where on.
    pub aborted: Vec<(ProducerId, Offset)>,
}

#[derive(Clone, Debug)]
pub(crate) struct LedPartition {
    pub topic: TopicName,
    pub partition: TopicIdPartition,
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub replicas: Vec<BrokerId>,
}
