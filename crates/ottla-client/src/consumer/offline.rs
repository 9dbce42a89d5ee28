//! A consumer without a network, to measure the cost of reading records.
//!
//! For the benchmark of this crate. A leader's response is taken and returned as in `poll`: batches
//! are checked and decompressed, records read, positions advanced.

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

    /// Seeks to offset 0 and takes a response from there.
    pub fn answer(&mut self, records: Bytes) {
        self.consumer.seek(&self.partition, 0);
        let data = PartitionData {
            records: Some(Records::Bytes(records)),
            ..Default::default()
        };
        let tally = RequestTally::new(self.consumer.sensors.clone());
        self.consumer.on_data(&self.partition, 0, data, &tally);
    }

    /// Returns records as a poll does; none at the end of the response.
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
