//! One process of a history: transactions of sends and polls, polls outside transactions, and
//! sometimes a producer that is replaced during a transaction and tries to continue.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ottla_client::{ClientError, Consumer, Delivery, Producer, ProducerConfig, RecordRef};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::client_histories::{Operation, Outcome, Step, Value};

use super::scene::{POLL, Scene, consumer, seen};

/// How long a process tries to create a producer after the run has ended.
const PATIENCE: Duration = Duration::from_secs(60);

struct Worker {
    scene: Arc<Scene>,
    process: u32,
    random: StdRng,
    next_value: Value,
    history: Vec<Operation>,
    consumer: Consumer,
}

/// The operations of a process, and the error that prevented it from completing its last one.
pub async fn work(scene: Arc<Scene>, process: u32, seed: u64) -> (Vec<Operation>, Option<String>) {
    let consumer = match consumer(&scene).await {
        Ok(consumer) => consumer,
        Err(error) => return (Vec::new(), Some(format!("no consumer: {error:#}"))),
    };
    let mut worker = Worker {
        scene,
        process,
        random: StdRng::seed_from_u64(seed),
        next_value: 1 + (Value::from(process) << 32),
        history: Vec::new(),
        consumer,
    };
    let ended = worker.run().await;
    (
        worker.history,
        ended.err().map(|error| format!("{error:#}")),
    )
}

impl Worker {
    async fn run(&mut self) -> Result<()> {
        let mut current = new_producer(&self.scene, self.process).await?;
        while !self.scene.is_over() {
            ottla_sync::time::sleep(self.scene.pause.mul_f64(self.random.random())).await;
            match self.random.random_range(0..100) {
                0..20 => {
                    let polled = self.poll().await;
                    self.note(vec![polled], Outcome::Committed, None);
                }
                20..25 => {
                    let sought = self.seek();
                    self.note(vec![sought], Outcome::Committed, None);
                }
                25..30 => {
                    let newer = new_producer(&self.scene, self.process).await?;
                    self.be_fenced(&current).await;
                    current = newer;
                }
                30..34 => current = self.replace_in_the_middle(current).await?,
                chosen => {
                    let commits = chosen >= 44;
                    if !self.transaction(&current, commits).await {
                        current.close_within(Duration::ZERO).await;
                        current = new_producer(&self.scene, self.process).await?;
                    }
                }
            }
        }
        current.close().await;
        Ok(())
    }

    fn note(&mut self, steps: Vec<Step>, outcome: Outcome, commit_asked_at: Option<u64>) {
        self.history.push(Operation {
            process: self.process,
            steps,
            outcome,
            commit_asked_at,
        });
    }

    async fn poll(&mut self) -> Step {
        // A failed poll returns no records and does not move the consumer.
        let polled = self.consumer.poll(POLL).await.unwrap_or_default();
        let at = self.scene.now();
        let records = polled.iter().map(seen).collect();
        Step::Polled { at, records }
    }

    /// Seeks to the beginning of one log.
    fn seek(&mut self) -> Step {
        let partitions = Scene::partitions();
        let chosen = self.random.random_range(0..partitions.len());
        let (topic, partition) = &partitions[chosen];
        self.consumer.seek(&partitions[chosen], 0);
        Step::Sought {
            log: Scene::log(topic, *partition),
        }
    }

    /// Sends a record. Its offset is filled in when the transaction has ended.
    async fn send(
        &mut self,
        producer: &Producer,
        steps: &mut Vec<Step>,
        sent: &mut Vec<(usize, Delivery)>,
    ) -> Result<(), ClientError> {
        let partitions = Scene::partitions();
        let (topic, partition) = &partitions[self.random.random_range(0..partitions.len())];
        let value = self.next_value;
        self.next_value += 1;
        steps.push(Step::Sent {
            log: Scene::log(topic, *partition),
            value,
            offset: None,
        });
        let bytes = value.to_be_bytes();
        let record = RecordRef {
            partition: Some(*partition),
            ..RecordRef::new(topic, &bytes)
        };
        sent.push((steps.len() - 1, producer.send_ref(record).await?));
        Ok(())
    }

    /// One to four sends and polls; a producer error ends the sequence.
    async fn some_steps(
        &mut self,
        producer: &Producer,
        steps: &mut Vec<Step>,
        sent: &mut Vec<(usize, Delivery)>,
    ) -> Result<(), ClientError> {
        for _ in 0..=self.random.random_range(0..4) {
            match self.random.random_range(0..3) {
                0 => steps.push(self.poll().await),
                _ => self.send(producer, steps, sent).await?,
            }
        }
        Ok(())
    }

    /// Runs a transaction. Returns whether the producer is still usable.
    async fn transaction(&mut self, producer: &Producer, commits: bool) -> bool {
        if producer.begin_transaction().is_err() {
            return false;
        }
        let (mut steps, mut sent) = (Vec::new(), Vec::new());
        let worked = self.some_steps(producer, &mut steps, &mut sent).await;
        let (outcome, asked, may_go_on) = if worked.is_ok() && commits {
            let asked = self.scene.now();
            let is_committed = producer.commit_transaction().await.is_ok();
            let outcome = match is_committed {
                true => Outcome::Committed,
                false => Outcome::Unknown,
            };
            (outcome, Some(asked), is_committed)
        } else {
            // If this abort fails, the next producer of this process aborts the transaction.
            let is_ended = producer.abort_transaction().await.is_ok();
            (Outcome::Aborted, None, is_ended)
        };
        if !may_go_on {
            producer.close_within(Duration::ZERO).await;
        }
        fill_in(&mut steps, sent);
        self.note(steps, outcome, asked);
        may_go_on
    }

    /// Another producer fences this one between its records.
    async fn replace_in_the_middle(&mut self, producer: Producer) -> Result<Producer> {
        let (mut steps, mut sent) = (Vec::new(), Vec::new());
        if producer.begin_transaction().is_ok() {
            let _ = self.send(&producer, &mut steps, &mut sent).await;
            producer.flush().await;
        }
        let newer = new_producer(&self.scene, self.process).await?;
        let _ = self.send(&producer, &mut steps, &mut sent).await;
        let committed = producer.commit_transaction().await;
        producer.close_within(Duration::ZERO).await;
        fill_in(&mut steps, sent);
        // If no record arrived, there was nothing to commit and no commit was requested.
        let has_arrived =
            |step: &Step| matches!(step, Step::Sent { offset, .. } if offset.is_some());
        let had_begun = steps.iter().any(has_arrived);
        self.note(steps, Outcome::Aborted, None);
        if committed.is_ok() && had_begun {
            bail!("a producer has committed after another one had taken its place");
        }
        Ok(newer)
    }

    /// A fenced producer tries a complete transaction; none of it may become visible.
    async fn be_fenced(&mut self, producer: &Producer) {
        let (mut steps, mut sent) = (Vec::new(), Vec::new());
        if producer.begin_transaction().is_ok() {
            let _ = self.send(producer, &mut steps, &mut sent).await;
            let _ = producer.commit_transaction().await;
        }
        producer.close_within(Duration::ZERO).await;
        fill_in(&mut steps, sent);
        self.note(steps, Outcome::Aborted, None);
    }
}

fn fill_in(steps: &mut [Step], sent: Vec<(usize, Delivery)>) {
    for (at, delivery) in sent {
        if let Some(Ok(written)) = delivery.outcome()
            && let Step::Sent { offset, .. } = &mut steps[at]
        {
            *offset = Some(written.offset);
        }
    }
}

/// A producer that has fenced this process's previous one. The previous transaction is complete.
async fn new_producer(scene: &Scene, process: u32) -> Result<Producer> {
    let mut over_since = None;
    loop {
        let error = match try_producer(scene, process).await {
            Ok(producer) => return Ok(producer),
            Err(error) => error,
        };
        if scene.is_over() {
            let since = *over_since.get_or_insert_with(ottla_sync::time::now);
            if ottla_sync::time::elapsed(since) > PATIENCE {
                bail!("no producer for {PATIENCE:?}: {error:#}");
            }
        }
        ottla_sync::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn try_producer(scene: &Scene, process: u32) -> Result<Producer> {
    let config = ProducerConfig {
        transactional_id: Some(format!("history-{process}")),
        transaction_timeout: Duration::from_secs(10),
        max_block: Duration::from_secs(15),
        delivery_timeout: Duration::from_secs(15),
        linger: Duration::ZERO,
        ..ProducerConfig::default()
    };
    let producer = Producer::new(scene.client().await?, config)?;
    match producer.init_transactions().await {
        Ok(()) => Ok(producer),
        Err(error) => {
            producer.close_within(Duration::ZERO).await;
            Err(error.into())
        }
    }
}
