//! A group whose members consume, process and produce in transactions (KIP-447). Each input record
//! must appear in the output exactly once, whichever members are killed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ottla_client::{
    CommitOffset, Consumer, ConsumerConfig, GroupProtocol, OffsetReset, Producer, ProducerConfig,
    RecordRef,
};
use ottla_sync::simulation::{Host, Random, now, stream};
use ottla_testkit::client_histories::Value;
use ottla_testkit::client_histories::workload::{PARTITIONS, Scene, TOPICS};

use crate::clients::on;

pub(crate) const SOURCE: &str = TOPICS[0];
pub(crate) const TARGET: &str = "moved";
const GROUP: &str = "movers";
const MEMBERS: usize = 2;
/// How long the group may take without faults to process everything.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Movers {
    scene: Arc<Scene>,
    hosts: Vec<Host>,
    is_over: Rc<Cell<bool>>,
    random: Random,
    pub kills: u64,
}

impl Movers {
    pub fn start(scene: &Arc<Scene>) -> Movers {
        let mut movers = Movers {
            scene: scene.clone(),
            hosts: Vec::new(),
            is_over: Rc::default(),
            random: stream("movers"),
            kills: 0,
        };
        movers.hosts = (0..MEMBERS).map(|member| movers.member(member)).collect();
        movers
    }

    fn member(&self, member: usize) -> Host {
        let (scene, is_over) = (self.scene.clone(), self.is_over.clone());
        let host = Host::new(&format!("mover-{member}"));
        let mut random = stream(&format!("mover-{member}-{}", self.kills));
        on(&host, move || async move {
            while !is_over.get() {
                // After any error, a new instance continues from the group's offsets.
                if let Err(error) = take_part(&scene, member, &mut random, &is_over).await {
                    tracing::info!(member, "{error:#}");
                }
                ottla_sync::time::sleep(Duration::from_millis(200)).await;
            }
        });
        host
    }

    /// Kills a member at random times; another process replaces it.
    pub fn disturb(&mut self) {
        if self.random.one_in(2) {
            let member = self.random.index(MEMBERS);
            self.hosts[member].kill();
            self.kills += 1;
            self.hosts[member] = self.member(member);
        }
    }

    /// Waits until the target contains exactly the committed records of the source, each once.
    pub fn settle(self, expected: &BTreeSet<Value>) -> Result<u64, String> {
        let deadline = now() + PATIENCE;
        loop {
            let scene = self.scene.clone();
            let host = Host::new("mover-reader");
            let read = on(&host, move || async move { read_target(&scene).await });
            let found = read.join().expect("it ends");
            let mut counts: BTreeMap<Value, u32> = BTreeMap::new();
            for value in found.iter().flatten() {
                *counts.entry(*value).or_default() += 1;
            }
            if let Some((value, count)) = counts.iter().find(|(_, count)| **count > 1) {
                return Err(format!("moved records: {value} was moved {count} times"));
            }
            if let Some(value) = counts.keys().find(|value| !expected.contains(value)) {
                return Err(format!(
                    "moved records: {value} was moved and not committed"
                ));
            }
            if counts.len() == expected.len() {
                self.is_over.set(true);
                return Ok(counts.len() as u64);
            }
            if now() > deadline {
                return Err(format!(
                    "moved records: after {PATIENCE:?}, {} of {} were moved; the reader: {found:?}",
                    counts.len(),
                    expected.len()
                ));
            }
            ottla_sync::thread::sleep(Duration::from_millis(500));
        }
    }
}

fn consumer_config() -> ConsumerConfig {
    ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        read_committed: true,
        ..ConsumerConfig::default()
    }
}

async fn take_part(
    scene: &Scene,
    member: usize,
    random: &mut Random,
    is_over: &Cell<bool>,
) -> Result<()> {
    let config = ProducerConfig {
        transactional_id: Some(format!("mover-{member}")),
        transaction_timeout: Duration::from_secs(10),
        max_block: Duration::from_secs(10),
        delivery_timeout: Duration::from_secs(10),
        linger: Duration::ZERO,
        ..ProducerConfig::default()
    };
    let producer = Producer::new(scene.client().await?, config)?;
    let config = ConsumerConfig {
        group_id: Some(GROUP.to_owned()),
        group_protocol: GroupProtocol::Consumer,
        ..consumer_config()
    };
    let mut consumer = Consumer::new(scene.client().await?, config);
    let ended = move_records(&producer, &mut consumer, random, is_over).await;
    producer.close_within(Duration::ZERO).await;
    let _ = consumer.close_within(Duration::from_secs(1)).await;
    ended
}

async fn move_records(
    producer: &Producer,
    consumer: &mut Consumer,
    random: &mut Random,
    is_over: &Cell<bool>,
) -> Result<()> {
    producer.init_transactions().await?;
    consumer.subscribe(&[SOURCE.to_owned()])?;
    while !is_over.get() {
        let records = consumer.poll(Duration::from_millis(300)).await?;
        if records.is_empty() {
            continue;
        }
        let group = consumer.group_metadata();
        producer.begin_transaction()?;
        let mut offsets = BTreeMap::new();
        for record in &records {
            let value = record.value.as_deref().unwrap_or_default();
            let moved = RecordRef {
                partition: Some(record.partition),
                ..RecordRef::new(TARGET, value)
            };
            producer.send_ref(moved).await?;
            let partition = (record.topic.to_string(), record.partition);
            offsets.insert(partition, CommitOffset::new(record.offset + 1));
        }
        producer
            .send_offsets_to_transaction(&offsets, &group)
            .await?;
        if random.one_in(8) {
            producer.abort_transaction().await?;
            bail!("aborts, and continues at the offsets of the group");
        }
        producer.commit_transaction().await?;
    }
    Ok(())
}

/// All committed values in the target.
async fn read_target(scene: &Scene) -> Result<Vec<Value>> {
    let partitions: Vec<_> = (0..PARTITIONS).map(|at| (TARGET.to_owned(), at)).collect();
    let mut consumer = Consumer::new(scene.client().await?, consumer_config());
    consumer.assign(&partitions);
    let ends = consumer.end_offsets(&partitions).await?;
    let mut values = Vec::new();
    let is_behind = |consumer: &Consumer| {
        let mut ends = ends.iter();
        ends.any(|(partition, end)| consumer.position(partition).unwrap_or(0) < *end)
    };
    while is_behind(&consumer) {
        for record in consumer.poll(Duration::from_millis(500)).await? {
            let value = record.value.as_deref().unwrap_or_default();
            values.push(<[u8; 8]>::try_from(value).map_or(0, Value::from_be_bytes));
        }
    }
    consumer.close().await?;
    Ok(values)
}
