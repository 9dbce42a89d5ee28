//! A consumer that reads with `read_uncommitted`, during the faults: the topics of the histories,
//! and a topic that a producer writes with `acks=all` outside transactions. A leader that the other
//! nodes do not reach still writes such records, because it need not ask a coordinator about them.
//!
//! The consumer gets records of open and aborted transactions, but only up to the high watermark:
//! no change of leader removes a record that it has read. So in the end each record is at the
//! offset where it was read, and all acknowledged records exist.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ottla_client::{
    Consumer, ConsumerConfig, Delivery, OffsetReset, Producer, ProducerConfig, RecordRef,
};
use ottla_sync::simulation::{Host, now};
use ottla_sync::thread::JoinHandle;
use ottla_sync::time::sleep;
use ottla_testkit::client_histories::Value;
use ottla_testkit::client_histories::workload::Scene;

use crate::clients::{create_topic, on};

/// The topic without transactions, with as many partitions as there are brokers.
pub(crate) const TOPIC: &str = "plain";
const PARTITIONS: i32 = 3;

/// Short, so that a record is requested before the followers have it.
const MAX_WAIT: Duration = Duration::from_millis(60);
/// How long the last reading may take, without faults.
const PATIENCE: Duration = Duration::from_secs(60);

/// A partition and an offset in it.
type Place = (String, i32, i64);

pub(crate) struct Uncommitted {
    scene: Arc<Scene>,
    is_over: Rc<Cell<bool>>,
    writing: JoinHandle<BTreeSet<Value>>,
    reading: JoinHandle<Result<BTreeMap<Place, Value>, String>>,
}

impl Uncommitted {
    pub fn start(scene: &Arc<Scene>) -> Uncommitted {
        let is_over = Rc::new(Cell::new(false));
        let (creator, writer, ended) = (scene.clone(), scene.clone(), is_over.clone());
        let created = on(&Host::new("plain-admin"), move || async move {
            while create_topic(&creator, TOPIC, PARTITIONS, &[])
                .await
                .is_err()
            {
                sleep(Duration::from_millis(100)).await;
            }
        });
        created.join().expect("it ends");
        let writing = on(&Host::new("plain-writer"), move || async move {
            let (mut next, mut acknowledged) = (1, BTreeSet::new());
            while !ended.get() {
                let mut sent = Vec::new();
                if let Err(error) = write_on(&writer, &ended, &mut next, &mut sent).await {
                    tracing::debug!("writing {TOPIC}: {error:#}");
                    sleep(Duration::from_millis(100)).await;
                }
                let written = sent.iter().filter(|(_, delivery)| is_written(delivery));
                acknowledged.extend(written.map(|(value, _)| *value));
            }
            acknowledged
        });
        let (reader, ended) = (scene.clone(), is_over.clone());
        let reading = on(&Host::new("uncommitted-reader"), move || async move {
            let mut read = Read::default();
            while !ended.get() && read.finding.is_none() {
                if let Err(error) = read_on(&reader, &ended, &mut read).await {
                    tracing::debug!("reading uncommitted records: {error:#}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
            read.finding.map_or(Ok(read.values), Err)
        });
        Uncommitted {
            scene: scene.clone(),
            is_over,
            writing,
            reading,
        }
    }

    /// Reads everything again. Returns how many records were read before.
    pub fn settle(self) -> Result<u64, String> {
        self.is_over.set(true);
        let acknowledged = self.writing.join().expect("it ends");
        let read = self.reading.join().expect("it ends")?;
        let deadline = now() + PATIENCE;
        let present = loop {
            let scene = self.scene.clone();
            let again = on(&Host::new("uncommitted-checker"), move || async move {
                read_all(&scene).await
            });
            match again.join().expect("it ends") {
                Ok(present) => break present,
                Err(error) if now() > deadline => {
                    return Err(format!(
                        "uncommitted reads: not read after {PATIENCE:?}: {error:#}"
                    ));
                }
                Err(_) => ottla_sync::thread::sleep(Duration::from_millis(200)),
            }
        };
        let is_gone = |(place, value): &(&Place, &Value)| present.get(*place) != Some(*value);
        if let Some((place, value)) = read.iter().find(is_gone) {
            return Err(format!(
                "uncommitted reads: {value} was read at {place:?}, and {:?} is there",
                present.get(place)
            ));
        }
        let plain = present.iter().filter(|((topic, ..), _)| topic == TOPIC);
        let plain: BTreeSet<Value> = plain.map(|(_, value)| *value).collect();
        match acknowledged.difference(&plain).next() {
            None => Ok(read.len() as u64),
            Some(lost) => Err(format!("acknowledged records: {lost} of {TOPIC} is lost")),
        }
    }
}

#[derive(Default)]
struct Read {
    values: BTreeMap<Place, Value>,
    /// The next offset of each partition.
    next: BTreeMap<(String, i32), i64>,
    finding: Option<String>,
}

/// Continues at the position of `read`, until a failure or a finding.
async fn read_on(scene: &Scene, is_over: &Cell<bool>, read: &mut Read) -> Result<()> {
    let mut consumer = consumer(scene).await?;
    for (partition, offset) in &read.next {
        consumer.seek(partition, *offset);
    }
    while !is_over.get() {
        for record in consumer.poll(Duration::from_millis(300)).await? {
            let (place, value) = of_record(&record);
            let partition = (place.0.clone(), place.1);
            read.next.insert(partition, place.2 + 1);
            if let Some(before) = read.values.insert(place.clone(), value)
                && before != value
            {
                read.finding = Some(format!(
                    "uncommitted reads: {before} was read at {place:?}, and then {value}"
                ));
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn read_all(scene: &Scene) -> Result<BTreeMap<Place, Value>> {
    let mut consumer = consumer(scene).await?;
    let ends = consumer.end_offsets(&partitions()).await?;
    let mut present = BTreeMap::new();
    let is_behind = |consumer: &Consumer| {
        let mut ends = ends.iter();
        ends.any(|(partition, end)| consumer.position(partition).unwrap_or(0) < *end)
    };
    while is_behind(&consumer) {
        let records = consumer.poll(Duration::from_millis(300)).await?;
        present.extend(records.iter().map(of_record));
    }
    Ok(present)
}

fn of_record(record: &ottla_client::ConsumerRecord) -> (Place, Value) {
    let value = record.value.as_deref().unwrap_or_default();
    let value = <[u8; 8]>::try_from(value).map_or(0, Value::from_be_bytes);
    let place = (record.topic.to_string(), record.partition, record.offset);
    (place, value)
}

async fn consumer(scene: &Scene) -> Result<Consumer> {
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        fetch_max_wait: MAX_WAIT,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(scene.client().await?, config);
    consumer.assign(&partitions());
    Ok(consumer)
}

fn partitions() -> Vec<(String, i32)> {
    let plain = (0..PARTITIONS).map(|partition| (TOPIC.to_owned(), partition));
    Scene::partitions().into_iter().chain(plain).collect()
}

/// Sends values in ascending order, until a record is given up.
async fn write_on(
    scene: &Scene,
    is_over: &Cell<bool>,
    next: &mut Value,
    sent: &mut Vec<(Value, Delivery)>,
) -> Result<()> {
    let config = ProducerConfig {
        linger: Duration::ZERO,
        max_block: Duration::from_secs(5),
        delivery_timeout: Duration::from_secs(6),
        ..ProducerConfig::default()
    };
    let producer = Producer::new(scene.client().await?, config)?;
    let has_failed = |(_, delivery): &(Value, Delivery)| matches!(delivery.outcome(), Some(Err(_)));
    while !is_over.get() && !sent.iter().any(has_failed) {
        let bytes = next.to_be_bytes();
        let record = RecordRef {
            partition: Some((*next % PARTITIONS as u64) as i32),
            ..RecordRef::new(TOPIC, &bytes)
        };
        let value = *next;
        *next += 1;
        sent.push((value, producer.send_ref(record).await?));
        sleep(Duration::from_millis(150)).await;
    }
    producer.close().await;
    Ok(())
}

fn is_written(delivery: &Delivery) -> bool {
    matches!(delivery.outcome(), Some(Ok(_)))
}
