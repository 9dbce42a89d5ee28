//! A topic that permits unclean leader elections and is written with `acks=1`. Acknowledged records
//! may be lost there. The invariants: only records that were sent are read, a reader continues
//! after a truncation, and the replicas converge (`checks.rs`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ottla_client::{Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig, RecordRef};
use ottla_sync::simulation::{Host, now};
use ottla_sync::thread::JoinHandle;
use ottla_sync::time::sleep;
use ottla_testkit::client_histories::workload::Scene;

use crate::clients::{create_topic, on};

const TOPIC: &str = "unclean";
const CONFIGS: [(&str, &str); 2] = [
    ("unclean.leader.election.enable", "true"),
    ("min.insync.replicas", "1"),
];
/// How long the reader may take, without faults, to reach the end of the log.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct UncleanTopic {
    scene: Arc<Scene>,
    is_over: Rc<Cell<bool>>,
    writing: JoinHandle<Written>,
    reading: JoinHandle<Result<(), String>>,
}

/// Values are sent in ascending order, from 1 on.
#[derive(Default)]
struct Written {
    last: u64,
    acknowledged: BTreeSet<u64>,
}

impl UncleanTopic {
    pub fn start(scene: &Arc<Scene>) -> UncleanTopic {
        let is_over = Rc::new(Cell::new(false));
        let last = Rc::new(Cell::new(0));
        let writing = {
            let (scene, is_over, last) = (scene.clone(), is_over.clone(), last.clone());
            on(&Host::new("unclean-writer"), move || async move {
                while create_topic(&scene, TOPIC, 1, &CONFIGS).await.is_err() {
                    sleep(Duration::from_millis(200)).await;
                }
                let mut written = Written::default();
                while !is_over.get() {
                    if let Err(error) = write(&scene, &is_over, &last, &mut written).await {
                        tracing::debug!("writing uncleanly: {error:#}");
                    }
                }
                written
            })
        };
        let reading = {
            let (scene, is_over) = (scene.clone(), is_over.clone());
            on(&Host::new("unclean-reader"), move || async move {
                while !is_over.get() {
                    match read_on(&scene, &is_over, &last).await {
                        Ok(()) => {}
                        Err(Trouble::Wrong(sentence)) => return Err(sentence),
                        Err(Trouble::Client(error)) => {
                            tracing::debug!("reading the unclean topic: {error}");
                            sleep(Duration::from_millis(200)).await;
                        }
                    }
                }
                Ok(())
            })
        };
        UncleanTopic {
            scene: scene.clone(),
            is_over,
            writing,
            reading,
        }
    }

    /// Ends the clients. Gives how many records were acknowledged, and how many of them are lost.
    pub fn settle(self) -> Result<(u64, u64), String> {
        self.is_over.set(true);
        let written = self.writing.join().expect("it ends");
        self.reading.join().expect("it ends")?;
        let deadline = now() + PATIENCE;
        loop {
            let scene = self.scene.clone();
            let last = written.last;
            let host = Host::new("unclean-checker");
            let read = on(&host, move || async move { read_all(&scene, last).await });
            match read.join().expect("it ends") {
                Ok(values) => {
                    let lost = written.acknowledged.difference(&values).count();
                    return Ok((written.acknowledged.len() as u64, lost as u64));
                }
                Err(Trouble::Wrong(sentence)) => return Err(sentence),
                Err(Trouble::Client(error)) if now() > deadline => {
                    return Err(format!("unclean: not read after {PATIENCE:?}: {error}"));
                }
                Err(Trouble::Client(_)) => {
                    ottla_sync::thread::sleep(Duration::from_millis(500));
                }
            }
        }
    }
}

enum Trouble {
    /// A violation that no fault excuses.
    Wrong(String),
    /// An error that a fault may cause.
    Client(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Client(error.into())
    }
}

async fn write(
    scene: &Scene,
    is_over: &Cell<bool>,
    last: &Cell<u64>,
    written: &mut Written,
) -> Result<()> {
    let config = ProducerConfig {
        acks: 1,
        linger: Duration::ZERO,
        max_block: Duration::from_secs(5),
        delivery_timeout: Duration::from_secs(5),
        ..ProducerConfig::default()
    };
    let producer = Producer::new(scene.client().await?, config)?;
    while !is_over.get() {
        let value = written.last + 1;
        written.last = value;
        last.set(value);
        let bytes = value.to_be_bytes();
        let record = RecordRef {
            partition: Some(0),
            ..RecordRef::new(TOPIC, &bytes)
        };
        let delivery = producer.send_ref(record).await?;
        delivery.wait().await?;
        written.acknowledged.insert(value);
        sleep(Duration::from_millis(50)).await;
    }
    producer.close().await;
    Ok(())
}

async fn read_on(scene: &Scene, is_over: &Cell<bool>, last: &Cell<u64>) -> Result<(), Trouble> {
    let mut consumer = consumer(scene).await?;
    while !is_over.get() {
        poll(&mut consumer, last).await?;
    }
    Ok(())
}

/// All values in the log, once.
async fn read_all(scene: &Scene, last: u64) -> Result<BTreeSet<u64>, Trouble> {
    let partition = (TOPIC.to_owned(), 0);
    let mut consumer = consumer(scene).await?;
    let ends = consumer
        .end_offsets(std::slice::from_ref(&partition))
        .await?;
    let (last, mut values) = (Cell::new(last), BTreeSet::new());
    while consumer.position(&partition).unwrap_or(0) < ends[&partition] {
        values.extend(poll(&mut consumer, &last).await?);
    }
    Ok(values)
}

async fn consumer(scene: &Scene) -> Result<Consumer> {
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(scene.client().await?, config);
    consumer.assign(&[(TOPIC.to_owned(), 0)]);
    Ok(consumer)
}

/// Polls, and checks that each record was sent: values up to `last`, which grows while this waits.
async fn poll(consumer: &mut Consumer, last: &Cell<u64>) -> Result<Vec<u64>, Trouble> {
    let mut values = Vec::new();
    for record in consumer.poll(Duration::from_millis(300)).await? {
        let value = record.value.as_deref().unwrap_or_default();
        let value = <[u8; 8]>::try_from(value).map_or(u64::MAX, u64::from_be_bytes);
        if value == 0 || value > last.get() {
            let offset = record.offset;
            return Err(Trouble::Wrong(format!(
                "unclean: {value} at offset {offset} was never sent"
            )));
        }
        values.push(value);
    }
    Ok(values)
}
