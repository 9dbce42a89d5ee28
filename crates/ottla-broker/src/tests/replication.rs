//! Brokers that replicate from each other over sockets. Each has its own controller, to which the
//! tests write the decisions of a common controller. The AlterPartition of a leader goes to its own
//! controller, and the tests copy the result to the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, Properties};
use ottla_controller::Decision;
use ottla_log::EpochEntry;
use ottla_metadata::PartitionRegistration;
use ottla_protocol::Records;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::produce_response::PartitionProduceResponse;
use ottla_protocol::messages::{BrokerHeartbeatRequest, DeleteRecordsRequest, ListOffsetsRequest};
use ottla_protocol::metadata_records::{
    BrokerRegistrationChangeRecord, ConfigRecord, MetadataRecord, PartitionChangeRecord,
    PartitionRecord, TopicRecord,
};
use ottla_records::RecordBatch;
use ottla_types::{BrokerId, DirectoryId, ErrorCode, TopicPartition};

mod reading;
mod trouble;

use super::client::Client;
use super::produce_and_fetch::{batch, fetch_from, produce_to};
use super::topic_id;
use crate::{Broker, Endpoint, Partition, RunningBroker};
use ottla_coordination::groups::OFFSETS_TOPIC;
use ottla_metrics::Metric;

const TOPIC: &str = "orders";
const PATIENCE: Duration = Duration::from_secs(60);

/// Brokers 1, 2, … that know each other.
struct Cluster {
    members: Vec<Member>,
    settings: Vec<(String, String)>,
}

struct Member {
    id: i32,
    data: tempfile::TempDir,
    running: Option<RunningBroker>,
}

impl Member {
    fn broker(&self) -> &Arc<Broker> {
        self.running.as_ref().expect("it runs").broker()
    }

    async fn start(&mut self, settings: &[(String, String)]) {
        let mut properties = Properties::new("the test");
        let (id, dir) = (self.id.to_string(), self.data.path().display().to_string());
        for (key, value) in [
            // Each broker knows the other brokers only from the tests, and receives no heartbeats.
            ("broker.session.timeout.ms", "3600000"),
            ("process.roles", "broker,controller"),
            ("node.id", &*id),
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            ),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.bootstrap.servers", "127.0.0.1:0"),
            ("log.dirs", &*dir),
            ("broker.session.timeout.ms", "600000"),
            // A busy machine may stand still for a second and more.
            ("replica.lag.time.max.ms", "5000"),
            ("replica.fetch.wait.max.ms", "200"),
            ("replica.fetch.backoff.ms", "100"),
        ] {
            properties.set(key, value);
        }
        for (key, value) in settings {
            let value = value.replace("{id}", &id);
            properties.set(key, &value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        let running = Broker::format_and_start(config).await;
        self.running = Some(running.expect("the broker starts"));
    }

    fn port(&self) -> u16 {
        let running = self.running.as_ref().expect("it runs");
        let mut listeners = running.listeners().iter();
        let of_brokers = listeners.find(|it| Endpoint::of(it) == Endpoint::Broker);
        of_brokers.expect("it is there").local_addr.port()
    }

    fn directory(&self) -> DirectoryId {
        let log_dirs = self.broker().log_dirs().expect("the broker runs");
        log_dirs.online_directory_ids()[0]
    }
}

impl Cluster {
    async fn start(count: i32, settings: &[(&str, &str)]) -> Cluster {
        let settings = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut cluster = Cluster {
            members: Vec::new(),
            settings: settings.collect(),
        };
        for id in 1..=count {
            let mut member = Member {
                id,
                data: tempfile::tempdir().expect("a directory"),
                running: None,
            };
            member.start(&cluster.settings).await;
            cluster.members.push(member);
        }
        cluster.sync().await;
        cluster
    }

    fn member(&self, id: i32) -> &Member {
        &self.members[id as usize - 1]
    }

    fn running(&self) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(|member| member.running.is_some())
    }

    async fn stop(&mut self, id: i32) {
        let running = self.members[id as usize - 1].running.take();
        running.expect("it runs").stop().await;
    }

    async fn start_again(&mut self, id: i32) {
        let settings = self.settings.clone();
        self.members[id as usize - 1].start(&settings).await;
        self.sync().await;
    }

    async fn write_to(&self, id: i32, records: Vec<MetadataRecord>) {
        let controller = self
            .member(id)
            .broker()
            .controller()
            .expect("it has joined");
        let written = controller.decide(|_, _| Decision::new(records, ()));
        written.await.expect("good records");
    }

    async fn write(&self, records: Vec<MetadataRecord>) {
        for member in self.running() {
            self.write_to(member.id, records.clone()).await;
        }
    }

    /// Writes to each broker the registrations of the other brokers, unfenced, and the newest
    /// registration of each partition.
    async fn sync(&self) {
        let newest = [TOPIC, OFFSETS_TOPIC].map(|topic| {
            let known = self.running().filter_map(|it| registration_of(it, topic));
            (topic, known.max_by_key(|it| it.partition_epoch))
        });
        for member in self.running() {
            let mut records = Vec::new();
            let image = member.broker().metadata().clone();
            for other in self.running().filter(|other| other.id != member.id) {
                let own = other.broker().metadata().clone();
                let registered = own.cluster.broker(BrokerId(other.id));
                let registered = registered.expect("it is registered with itself");
                let mut record = registered.to_record(own.metadata_version());
                for endpoint in &mut record.end_points {
                    endpoint.host = "127.0.0.1".into();
                    endpoint.port = other.port();
                }
                let known = image.cluster.broker(BrokerId(other.id));
                if known.is_none_or(|known| known.epoch != registered.epoch) {
                    records.push(MetadataRecord::RegisterBroker(record));
                }
            }
            for (topic, newest) in &newest {
                let known = registration_of(member, topic);
                if let (Some(newest), Some(known)) = (newest, known)
                    && newest.partition_epoch > known.partition_epoch
                {
                    let version = image.metadata_version();
                    let record = newest.to_record(topic_id(topic), 0.into(), version, true);
                    records.push(MetadataRecord::Partition(record));
                }
            }
            if !records.is_empty() {
                self.write_to(member.id, records).await;
            }
            for other in self.running().filter(|other| other.id != member.id) {
                let heartbeat = BrokerHeartbeatRequest {
                    broker_id: other.id,
                    broker_epoch: other.broker().broker_epoch().0,
                    current_metadata_offset: i64::MAX,
                    ..Default::default()
                };
                let heard = member.broker().node.ask_controller(heartbeat).await;
                assert_eq!(heard.expect("it is there").error_code, 0);
            }
        }
    }

    /// Creates the topic with one partition, led by its first replica.
    async fn create_topic(&self, replicas: &[i32], settings: &[(&'static str, &'static str)]) {
        self.create(TOPIC, replicas, settings).await;
    }

    async fn create(
        &self,
        topic: &'static str,
        replicas: &[i32],
        settings: &[(&'static str, &'static str)],
    ) {
        let directories = replicas.iter().map(|&id| self.member(id).directory());
        let mut records = vec![
            MetadataRecord::Topic(TopicRecord {
                name: topic.into(),
                topic_id: topic_id(topic),
                ..Default::default()
            }),
            MetadataRecord::Partition(PartitionRecord {
                partition_id: 0,
                topic_id: topic_id(topic),
                replicas: replicas.to_vec(),
                isr: replicas.to_vec(),
                leader: replicas[0],
                leader_epoch: 0,
                partition_epoch: 0,
                directories: directories.collect(),
                ..Default::default()
            }),
        ];
        for (key, value) in settings {
            records.push(MetadataRecord::Config(ConfigRecord {
                resource_type: 2,
                resource_name: topic.into(),
                name: (*key).into(),
                value: Some((*value).into()),
                ..Default::default()
            }));
        }
        self.write(records).await;
    }

    /// Fences broker `other` in the metadata of broker `at`.
    async fn fence(&self, at: i32, other: i32) {
        let fenced = BrokerRegistrationChangeRecord {
            broker_id: other,
            broker_epoch: broker_epoch(self, at, other),
            fenced: 1,
            ..Default::default()
        };
        let records = vec![MetadataRecord::BrokerRegistrationChange(fenced)];
        self.write_to(at, records).await;
    }

    fn election(leader: i32, isr: &[i32]) -> Vec<MetadataRecord> {
        vec![MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id: 0,
            topic_id: topic_id(TOPIC),
            leader,
            isr: Some(isr.to_vec()),
            ..Default::default()
        })]
    }

    async fn connect(&self, id: i32) -> Client {
        let running = self.member(id).running.as_ref().expect("it runs");
        let mut listeners = running.listeners().iter();
        let found = listeners.find(|it| Endpoint::of(it) == Endpoint::Broker);
        Client::connect(found.expect("it is there").local_addr).await
    }

    async fn produce(&self, to: i32, acks: i16, values: &[&str]) -> PartitionProduceResponse {
        let mut client = self.connect(to).await;
        let request = produce_to(TOPIC, 0, acks, batch(values));
        let response = client.ask(9, &request).await;
        response.responses[0].partition_responses[0].clone()
    }

    fn partition(&self, id: i32) -> Arc<Partition> {
        let partitions = &self.member(id).broker().partitions;
        let found = partitions.find(&TopicPartition::new(TOPIC, 0));
        found.expect("the partition is here")
    }

    /// The in-sync replicas as a broker knows them, sorted.
    fn isr(&self, at: i32) -> Vec<i32> {
        let registration = registration_at(self.member(at)).expect("the topic is there");
        let mut isr: Vec<i32> = registration.isr.iter().map(|id| id.0).collect();
        isr.sort_unstable();
        isr
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Cluster) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < give_up, "{what}: {}", self.describe());
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.sync().await;
        }
    }

    /// Waits until these replicas have the same contents up to the same end, and know that it is
    /// committed.
    async fn until_the_same(&self, ids: &[i32]) {
        let ends = |id: i32| {
            let partition = self.partition(id);
            let reader = partition.reader();
            (reader.log_end_offset(), reader.high_watermark())
        };
        self.until("all hold the same", |_| {
            let first = ends(ids[0]);
            first.0 == first.1 && ids.iter().all(|&id| ends(id) == first)
        })
        .await;
        let first = batches(&self.partition(ids[0]));
        for &id in &ids[1..] {
            assert_eq!(batches(&self.partition(id)), first, "broker {id}");
            assert_eq!(epochs(&self.partition(id)), epochs(&self.partition(ids[0])));
        }
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for member in self.running() {
            let partition = member.broker().partitions.get(TOPIC, 0);
            let reader = partition.as_ref().map(|partition| partition.reader());
            let ends = reader.map(|reader| (reader.log_end_offset(), reader.high_watermark()));
            let registration = registration_at(member);
            text += &format!("\n{}: {ends:?} {registration:?}", member.id);
        }
        text
    }
}

fn registration_at(member: &Member) -> Option<PartitionRegistration> {
    registration_of(member, TOPIC)
}

fn registration_of(member: &Member, topic: &str) -> Option<PartitionRegistration> {
    let image = member.broker().metadata().clone();
    image.topics.by_name(topic)?.partition(0.into()).cloned()
}

/// The batches in the segments of a replica.
fn batches(partition: &Partition) -> Vec<RecordBatch> {
    let reader = partition.reader();
    let mut batches = Vec::new();
    for base_offset in reader.segment_base_offsets() {
        let path = reader.dir().join(format!("{:020}.log", base_offset.0));
        let bytes = std::fs::read(path).expect("the segment is there");
        for batch in RecordBatch::read_all(bytes.into()) {
            batches.push(batch.expect("a batch"));
        }
    }
    batches
}

/// The leader epochs of a replica's records. A leader records its epoch before it has any records,
/// a follower with the first.
fn epochs(partition: &Partition) -> Vec<EpochEntry> {
    let reader = partition.reader();
    let (epochs, end) = (reader.leader_epochs(), reader.log_end_offset());
    let entries = epochs.entries().iter().copied();
    entries.filter(|entry| entry.start_offset < end).collect()
}

/// The values of the records of a replica.
fn values(partition: &Partition) -> Vec<String> {
    let records = batches(partition)
        .into_iter()
        .flat_map(|batch| batch.records(1024 * 1024).expect("records"))
        .map(|record| record.expect("a record"));
    let values = records.map(|record| record.value.expect("a value").to_vec());
    values
        .map(|value| String::from_utf8(value).expect("text"))
        .collect()
}

fn code(response: &PartitionProduceResponse) -> ErrorCode {
    ErrorCode::from_code(response.error_code)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_hold_the_same_batches() {
    let settings = [
        ("replica.fetch.wait.max.ms", "2000"),
        ("replica.lag.time.max.ms", "60000"),
    ];
    let cluster = Cluster::start(3, &settings).await;
    cluster
        .create_topic(
            &[1, 2, 3],
            &[("min.insync.replicas", "3"), ("segment.bytes", "1048576")],
        )
        .await;
    let large = "x".repeat(100_000);
    let mut client = cluster.connect(1).await;
    let began = Instant::now();
    for round in 0..60 {
        let value = format!("{round} {large}");
        let request = produce_to(TOPIC, 0, -1, batch(&[&value, "small"]));
        let response = client.ask(9, &request).await;
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(
            (code(answer), answer.base_offset),
            (ErrorCode::None, 2 * round)
        );
        // An acknowledged record is on all replicas.
        for id in 2..=3 {
            let end = cluster.partition(id).reader().log_end_offset();
            assert!(end.0 >= 2 * round + 2, "broker {id} ends at {end}");
        }
    }
    // Followers wait for appends at the leader. If they were not woken, each would take
    // `replica.fetch.wait.max.ms`, and all of them two minutes.
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    cluster.until_the_same(&[1, 2, 3]).await;
    assert!(cluster.partition(2).reader().number_of_segments() > 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_write_of_a_partition_does_not_wait_for_the_fetch_under_way() {
    let settings = [
        ("replica.fetch.wait.max.ms", "25000"),
        ("replica.lag.time.max.ms", "60000"),
    ];
    let cluster = Cluster::start(3, &settings).await;
    cluster.create_topic(&[1, 2, 3], &[]).await;
    assert_eq!(code(&cluster.produce(1, -1, &["a"]).await), ErrorCode::None);
    // The followers wait at broker 1 for later records, and are assigned another partition.
    let mut client = cluster.connect(1).await;
    cluster.create("others", &[1, 2, 3], &[]).await;
    // The request times out before the fetches do.
    let request = produce_to("others", 0, -1, batch(&["b"]));
    assert!(request.timeout_ms < 25_000);
    let response = client.ask(9, &request).await;
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(code(answer), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_replica_leaves_the_isr_and_returns() {
    let mut cluster = Cluster::start(2, &[]).await;
    cluster
        .create_topic(&[1, 2], &[("min.insync.replicas", "2")])
        .await;
    assert_eq!(code(&cluster.produce(1, -1, &["a"]).await), ErrorCode::None);
    cluster.stop(2).await;
    // Still in the ISR: records wait for it, and are not acknowledged.
    let mut request = produce_to(TOPIC, 0, -1, batch(&["b"]));
    // Longer than `replica.lag.time.max.ms`.
    request.timeout_ms = 8_000;
    let mut client = cluster.connect(1).await;
    let (waited, ()) = tokio::join!(
        client.ask(9, &request),
        cluster.until("2 leaves", |cluster| cluster.isr(1) == [1])
    );
    let waited = &waited.responses[0].partition_responses[0];
    assert_eq!(code(waited), ErrorCode::RequestTimedOut);
    let refused = cluster.produce(1, -1, &["c"]).await;
    assert_eq!(code(&refused), ErrorCode::NotEnoughReplicas);
    assert_eq!(code(&cluster.produce(1, 1, &["d"]).await), ErrorCode::None);
    let reader = cluster.partition(1).reader().clone();
    assert_eq!(
        (reader.log_end_offset().0, reader.high_watermark().0),
        (3, 1),
        "nothing is committed by less than min.insync.replicas"
    );

    cluster.start_again(2).await;
    cluster
        .until("2 comes back", |cluster| cluster.isr(1) == [1, 2])
        .await;
    cluster.until_the_same(&[1, 2]).await;
    assert_eq!(values(&cluster.partition(2)), ["a", "b", "d"]);
    let counted = |id: i32, metric| cluster.member(id).broker().context.metrics.get(metric);
    assert_eq!(counted(1, Metric::IsrShrinks), 1);
    assert_eq!(counted(1, Metric::IsrExpands), 1);
    let replicated = counted(2, Metric::ReplicationBytesIn);
    assert!(replicated > 0);
    // Including "a", which the previous process had fetched.
    assert!(counted(1, Metric::ReplicationBytesOut) > replicated);
    assert_eq!(cluster.partition(2).fetch_lag(), Some(0));
    assert_eq!(cluster.partition(1).fetch_lag(), None);
    let families = crate::metrics::collect(cluster.member(2).broker());
    let text = ottla_metrics::openmetrics::to_openmetrics(families);
    for line in [
        "kafka_server_replicafetchermanager_maxlag{clientId=\"Replica\"} 0.0\n",
        "kafka_server_fetcherlagmetrics_consumerlag{clientId=\"ReplicaFetcherThread-0-1\",\
         topic=\"orders\",partition=\"0\"} 0.0\n",
        "kafka_server_brokertopicmetrics_bytesout_total{} 0.0\n",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(text.contains("kafka_server_fetcherstats_requests_total{brokerHost=\"127.0.0.1\""));
    assert_eq!(code(&cluster.produce(1, -1, &["e"]).await), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_the_new_leader_lacks_are_truncated() {
    let cluster = Cluster::start(2, &[]).await;
    cluster.create_topic(&[1, 2], &[]).await;
    for value in ["a", "b"] {
        assert_eq!(
            code(&cluster.produce(1, -1, &[value]).await),
            ErrorCode::None
        );
    }
    cluster.until_the_same(&[1, 2]).await;
    // Broker 1 does not learn of it, and continues for a while.
    cluster.write_to(2, Cluster::election(2, &[2])).await;
    for value in ["lost", "lost too"] {
        assert_eq!(
            code(&cluster.produce(1, 1, &[value]).await),
            ErrorCode::None
        );
    }
    let kept = cluster.produce(2, -1, &["kept"]).await;
    assert_eq!((code(&kept), kept.base_offset), (ErrorCode::None, 2));
    assert_eq!(
        values(&cluster.partition(1)),
        ["a", "b", "lost", "lost too"]
    );

    cluster.sync().await;
    cluster
        .until("1 is in sync", |cluster| cluster.isr(2) == [1, 2])
        .await;
    cluster.until_the_same(&[1, 2]).await;
    assert_eq!(values(&cluster.partition(1)), ["a", "b", "kept"]);
    let stale = cluster.produce(1, 1, &["x"]).await;
    assert_eq!(code(&stale), ErrorCode::NotLeaderOrFollower);

    // And back again, with nothing to truncate.
    cluster.write(Cluster::election(1, &[1, 2])).await;
    assert_eq!(
        code(&cluster.produce(1, -1, &["more"]).await),
        ErrorCode::None
    );
    cluster.until_the_same(&[1, 2]).await;
    assert_eq!(values(&cluster.partition(2)), ["a", "b", "kept", "more"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_leader_refuses_its_parked_appends_and_fetches() {
    let cluster = Cluster::start(2, &[]).await;
    cluster
        .create_topic(&[1, 2], &[("min.insync.replicas", "2")])
        .await;
    assert_eq!(code(&cluster.produce(1, -1, &["a"]).await), ErrorCode::None);
    cluster.until_the_same(&[1, 2]).await;
    let mut client = cluster.connect(1).await;
    let mut long = fetch_from(TOPIC, 0, 1);
    long.max_wait_ms = 120_000;
    let waiting = client.send(10, &long).await;
    // Broker 2 leads and does not fetch any more; broker 1 still waits for it.
    cluster.write_to(2, Cluster::election(2, &[2])).await;
    let (appended, ()) = tokio::join!(cluster.produce(1, -1, &["lost"]), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.write_to(1, Cluster::election(2, &[2])).await;
    });
    assert_eq!(code(&appended), ErrorCode::NotLeaderOrFollower);
    let began = Instant::now();
    let told = client
        .receive::<ottla_protocol::messages::FetchRequest>(10, waiting)
        .await;
    let answer = &told.responses[0].partitions[0];
    assert_eq!(answer.error_code, ErrorCode::NotLeaderOrFollower.code());
    assert!(began.elapsed() < Duration::from_secs(60), "it was woken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_below_the_start_of_the_leader_log_restarts_there() {
    let cluster = Cluster::start(2, &[]).await;
    cluster.create_topic(&[1], &[]).await;
    for value in ["a", "b", "c", "d"] {
        cluster.produce(1, 1, &[value]).await;
    }
    assert_eq!(delete_records(&cluster, 1, 2).await, (2, ErrorCode::None));
    let directories = [1, 2].map(|id| cluster.member(id).directory());
    let added = MetadataRecord::PartitionChange(PartitionChangeRecord {
        partition_id: 0,
        topic_id: topic_id(TOPIC),
        replicas: Some(vec![1, 2]),
        directories: Some(directories.to_vec()),
        ..Default::default()
    });
    cluster.write(vec![added]).await;
    cluster
        .until("2 is in sync", |cluster| cluster.isr(1) == [1, 2])
        .await;
    cluster
        .until("2 has it", |cluster| {
            cluster.partition(2).reader().high_watermark().0 == 4
        })
        .await;
    assert_eq!(values(&cluster.partition(2)), ["c", "d"]);
    assert_eq!(cluster.partition(2).reader().log_start_offset().0, 2);
}

async fn delete_records(cluster: &Cluster, at: i32, offset: i64) -> (i64, ErrorCode) {
    let request = DeleteRecordsRequest {
        timeout_ms: 8_000,
        topics: vec![DeleteRecordsTopic {
            name: TOPIC.into(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = cluster.connect(at).await.ask(2, &request).await;
    let answer = &response.topics[0].partitions[0];
    (
        answer.low_watermark,
        ErrorCode::from_code(answer.error_code),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_deleted_when_all_live_replicas_have_deleted_them() {
    let mut cluster = Cluster::start(2, &[]).await;
    cluster.create_topic(&[1, 2], &[]).await;
    for value in ["a", "b", "c"] {
        cluster.produce(1, -1, &[value]).await;
    }
    cluster.until_the_same(&[1, 2]).await;
    assert_eq!(delete_records(&cluster, 1, 2).await, (2, ErrorCode::None));
    assert_eq!(cluster.partition(2).reader().log_start_offset().0, 2);
    let at_follower = delete_records(&cluster, 2, 3).await;
    assert_eq!(at_follower, (-1, ErrorCode::NotLeaderOrFollower));

    cluster.stop(2).await;
    let began = Instant::now();
    let late = delete_records(&cluster, 1, 3).await;
    assert_eq!(late, (2, ErrorCode::RequestTimedOut));
    assert!(began.elapsed() >= Duration::from_secs(8));
    cluster.fence(1, 2).await;
    assert_eq!(delete_records(&cluster, 1, 3).await, (3, ErrorCode::None));
}

fn has_records(answer: &PartitionData) -> bool {
    let records = answer.records.as_ref().and_then(Records::as_bytes);
    records.is_some_and(|records| !records.is_empty())
}

fn broker_epoch(cluster: &Cluster, at: i32, of: i32) -> i64 {
    let image = cluster.member(at).broker().metadata().clone();
    image.cluster.broker_epoch(BrokerId(of)).0
}

/// At one byte per second, a batch passes each time the windows of the rate have dropped the
/// previous one, after eleven seconds. However busy the machine is, not all of them have arrived
/// after one second.
#[tokio::test(flavor = "multi_thread")]
async fn throttled_replicas_catch_up_at_the_configured_rate() {
    const LEADER: &str = "leader.replication.throttled";
    const FOLLOWER: &str = "follower.replication.throttled";
    const BATCHES: i64 = 8;
    for (throttled, replicas) in [
        (LEADER, ("leader.replication.throttled.replicas", "0:1")),
        (FOLLOWER, ("follower.replication.throttled.replicas", "0:2")),
    ] {
        let settings = [
            ("replica.fetch.max.bytes", "50000"),
            // The test controls the ISR.
            ("replica.lag.time.max.ms", "600000"),
        ];
        let mut cluster = Cluster::start(2, &settings).await;
        let rates = |rate: &'static str| {
            [LEADER, FOLLOWER].map(|direction| {
                MetadataRecord::Config(ConfigRecord {
                    resource_type: 4,
                    resource_name: "".into(),
                    name: format!("{direction}.rate").into(),
                    value: Some(rate.into()),
                    ..Default::default()
                })
            })
        };
        let (slow, fast) = (rates("1").to_vec(), rates("1000000000").to_vec());
        cluster.write(slow.clone()).await;
        cluster.create_topic(&[1, 2], &[replicas]).await;
        cluster.stop(2).await;
        let value = "x".repeat(100_000);
        for _ in 0..BATCHES {
            cluster.produce(1, 1, &[&value]).await;
        }
        // Twice, so that it is newer than the checkpoint that broker 2 wrote when it stopped.
        for _ in 0..2 {
            cluster.write(Cluster::election(1, &[1])).await;
        }
        cluster.start_again(2).await;
        let copied = |cluster: &Cluster| cluster.partition(2).reader().log_end_offset().0;
        cluster
            .until("2 has a batch", |cluster| copied(cluster) > 0)
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let copied = copied(&cluster);
        assert!(copied < BATCHES, "{throttled}: all are copied at once");
        assert_eq!(cluster.isr(1), [1], "{throttled}");
        cluster.write(fast.clone()).await;
        cluster
            .until("2 comes back", |cluster| cluster.isr(1) == [1, 2])
            .await;
        // A replica in sync is not throttled.
        cluster.write(slow).await;
        for _ in 0..BATCHES {
            let answer = cluster.produce(1, -1, &[&value]).await;
            assert_eq!(code(&answer), ErrorCode::None, "{throttled}");
        }
        cluster.write(fast).await;
        cluster.until_the_same(&[1, 2]).await;
    }
}
