//! Consuming. Time counts from when the partitions are assigned, as that of Kafka's tool does, which leaves out the joining of a
//! group.

use std::ptr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use rdkafka::bindings;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::measurement::{Interface, config_of, report};

#[derive(Args)]
pub struct Options {
    #[arg(long)]
    topic: String,
    #[arg(long)]
    num_records: u64,
    #[arg(long, value_enum, default_value = "batches")]
    interface: Interface,
    /// Settings of librdkafka.
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// Records taken with one call.
const TOGETHER: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Read {
    records: u64,
    bytes: u64,
}

impl Read {
    fn add(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes as u64;
    }
}

pub fn run(options: &Options) -> Result<()> {
    let mut config = config_of(&options.settings)?;
    // It wants to have one, and is never in it.
    config.set("group.id", "rdkafka-perf");
    let consumer: BaseConsumer = config.create()?;
    let metadata = consumer.fetch_metadata(Some(&options.topic), PATIENCE)?;
    let mut assignment = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        assignment.add_partition_offset(&options.topic, partition.id(), Offset::Beginning)?;
    }
    ensure!(
        assignment.count() > 0,
        "{} has no partitions",
        options.topic
    );
    let since = Instant::now();
    consumer.assign(&assignment)?;
    let mut read = Read::default();
    match options.interface {
        Interface::Records => one_by_one(&consumer, options.num_records, &mut read)?,
        Interface::Batches => in_batches(&consumer, options.num_records, &mut read)?,
    }
    let took = since.elapsed();
    eprintln!("{} bytes of keys and values", read.bytes);
    report(read.records, took);
    Ok(())
}

fn one_by_one(consumer: &BaseConsumer, wanted: u64, read: &mut Read) -> Result<()> {
    while read.records < wanted {
        match consumer.poll(PATIENCE) {
            Some(message) => {
                let message = message?;
                read.add(message.payload_len() + message.key_len());
            }
            None => bail!("only {} records came", read.records),
        }
    }
    Ok(())
}

fn in_batches(consumer: &BaseConsumer, wanted: u64, read: &mut Read) -> Result<()> {
    // SAFETY: the consumer outlives the queue, which is destroyed below.
    let queue = unsafe { bindings::rd_kafka_queue_get_consumer(consumer.client().native_ptr()) };
    ensure!(!queue.is_null(), "the consumer has no queue");
    let mut messages = [ptr::null_mut(); TOGETHER];
    while read.records < wanted {
        // SAFETY: there is room for so many pointers.
        let count = unsafe {
            bindings::rd_kafka_consume_batch_queue(
                queue,
                PATIENCE.as_millis() as i32,
                messages.as_mut_ptr(),
                messages.len(),
            )
        };
        ensure!(count > 0, "only {} records came", read.records);
        for message in &messages[..count as usize] {
            // SAFETY: the call has filled so many places with messages, each of which is looked at and destroyed once.
            unsafe {
                let code = (**message).err;
                if code == bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    read.add((**message).len + (**message).key_len);
                }
                bindings::rd_kafka_message_destroy(*message);
                let end = bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF;
                let none = bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
                ensure!(code == none || code == end, "librdkafka: {code:?}");
            }
        }
    }
    // SAFETY: it is not used any more.
    unsafe { bindings::rd_kafka_queue_destroy(queue) };
    Ok(())
}
