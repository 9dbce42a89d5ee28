//! A consumer whose records come from nowhere: what reading them costs, without a network.
//!
//! For the benchmark of this crate. What a leader would have answered is taken in and handed out as `poll`
//! does it: batches are checked and decompressed, records read, positions moved.

use bytes::Bytes;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_response::PartitionData;

use super::metrics::RequestTally;
use super::{Consumer, ConsumerConfig, ConsumerRecord, FetchedBatch, Partition};
use crate::client::Client;
use crate::config::ClientConfig;
use crate::error::ClientError;

/// See the module.
pub struct OfflineConsumer {
    consumer: Consumer,
    partition: Partition,
}

impl OfflineConsumer {
    pub fn new(config: ConsumerConfig, topic: &str) -> OfflineConsumer {
        let client = Client::unconnected(ClientConfig::default());
        let mut consumer = Consumer::new(client, config);
        let partition = (topic.to_owned(), 0);
        consumer.assign(std::slice::from_ref(&partition));
        OfflineConsumer {
            consumer,
            partition,
        }
    }

    /// Goes to offset 0 and takes in an answer from there on.
    pub fn answer(&mut self, records: Bytes) {
        self.consumer.seek(&self.partition, 0);
        let data = PartitionData {
            records: Some(Records::Bytes(records)),
            ..Default::default()
        };
        let tally = RequestTally::new(self.consumer.sensors.clone());
        self.consumer.on_data(&self.partition, 0, data, &tally);
    }

    /// As a poll would hand them out; none once the answer has been read.
    pub fn take_records(&mut self) -> Result<Vec<ConsumerRecord>, ClientError> {
        self.consumer
            .take_records(self.consumer.config.max_poll_records)
    }

    /// As [`OfflineConsumer::take_records`], borrowed.
    pub fn take_batches(&mut self) -> Result<Vec<FetchedBatch>, ClientError> {
        self.consumer
            .take_batches(self.consumer.config.max_poll_records)
    }
}
