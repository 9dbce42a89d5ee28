//! Positions: the consumer's own, committed offsets, and offsets of the logs.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use ottla_types::ErrorCode;

use super::{Consumer, OffsetReset, Partition};
use crate::admin::{CommittedOffset, ListedOffset, OffsetSpec};
use crate::error::ClientError;
use crate::metadata::{PartitionInfo, TopicInfo};

impl Consumer {
    /// The offset of the next record that `poll` returns for a partition, if it is known.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// println!("next: {:?}", consumer.position(&("orders".to_owned(), 0)));
    /// # }
    /// ```
    pub fn position(&self, partition: &Partition) -> Option<i64> {
        self.positions.get(partition)?.next
    }

    /// The number of records after the position, as of the leader's last response.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// for partition in consumer.assignment() {
    ///     println!("{partition:?}: {:?} records behind", consumer.current_lag(&partition));
    /// }
    /// # }
    /// ```
    pub fn current_lag(&self, partition: &Partition) -> Option<i64> {
        let position = self.positions.get(partition)?;
        position.lag(self.config.read_committed)
    }

    /// Sets the position.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// consumer.seek(&("orders".to_owned(), 0), 4200);
    /// # }
    /// ```
    pub fn seek(&mut self, partition: &Partition, offset: i64) {
        self.seek_after(partition, offset, -1);
    }

    /// As [`Consumer::seek`], with the leader epoch of the record before the offset, as in a
    /// commit; -1 if unknown.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer, last: &ottla_client::ConsumerRecord) {
    /// // Continues after `last`, and notices if the log was truncated before it.
    /// let partition = (last.topic.to_string(), last.partition);
    /// consumer.seek_after(&partition, last.offset + 1, last.leader_epoch);
    /// # }
    /// ```
    pub fn seek_after(&mut self, partition: &Partition, offset: i64, leader_epoch: i32) {
        if !self.positions.contains_key(partition) {
            return;
        }
        let mut position = self.new_position();
        position.next = Some(offset);
        position.leader_epoch = leader_epoch;
        position.is_paused = self.positions.get(partition).is_some_and(|it| it.is_paused);
        self.positions.insert(partition.clone(), position);
    }

    /// Seeks to the first offset of each partition.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// let assignment = consumer.assignment();
    /// consumer.seek_to_beginning(&assignment).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn seek_to_beginning(&mut self, partitions: &[Partition]) -> Result<(), ClientError> {
        self.seek_to(partitions, OffsetSpec::Earliest).await
    }

    /// Seeks to the end of each partition: with `isolation.level=read_committed`, to the last stable offset.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// let assignment = consumer.assignment();
    /// consumer.seek_to_end(&assignment).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn seek_to_end(&mut self, partitions: &[Partition]) -> Result<(), ClientError> {
        self.seek_to(partitions, OffsetSpec::Latest).await
    }

    async fn seek_to(
        &mut self,
        partitions: &[Partition],
        spec: OffsetSpec,
    ) -> Result<(), ClientError> {
        for (partition, offset) in self.list(partitions, spec).await? {
            self.seek(&partition, offset);
        }
        Ok(())
    }

    /// The first offset of each partition.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// for ((topic, partition), start) in consumer.beginning_offsets(&consumer.assignment()).await? {
    ///     println!("{topic}-{partition} starts at {start}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn beginning_offsets(
        &self,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, i64>, ClientError> {
        self.list(partitions, OffsetSpec::Earliest).await
    }

    /// The offset after the last record that this consumer can read.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// for (partition, end) in consumer.end_offsets(&consumer.assignment()).await? {
    ///     let left = consumer.position(&partition).map(|position| end - position);
    ///     println!("{partition:?}: {left:?} records left");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn end_offsets(
        &self,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, i64>, ClientError> {
        self.list(partitions, OffsetSpec::Latest).await
    }

    async fn list(
        &self,
        partitions: &[Partition],
        spec: OffsetSpec,
    ) -> Result<BTreeMap<Partition, i64>, ClientError> {
        let read_committed = self.config.read_committed;
        let listed = self
            .admin
            .list_offsets(partitions, spec, read_committed)
            .await;
        listed
            .into_iter()
            .map(|(partition, listed)| Ok((partition, listed?.offset)))
            .collect()
    }

    /// For each partition, the first record that is not older than the given time; `None` if there
    /// is none.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// let midnight = 1_767_225_600_000;
    /// let times = consumer.assignment().into_iter().map(|partition| (partition, midnight)).collect();
    /// for (partition, found) in consumer.offsets_for_times(&times).await? {
    ///     if let Some(first) = found {
    ///         consumer.seek(&partition, first.offset);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn offsets_for_times(
        &self,
        times: &BTreeMap<Partition, i64>,
    ) -> Result<BTreeMap<Partition, Option<ListedOffset>>, ClientError> {
        let mut by_time: BTreeMap<i64, Vec<Partition>> = BTreeMap::new();
        for (partition, time) in times {
            by_time.entry(*time).or_default().push(partition.clone());
        }
        let mut found = BTreeMap::new();
        for (time, partitions) in by_time {
            let spec = OffsetSpec::Timestamp(time);
            let read_committed = self.config.read_committed;
            for (partition, listed) in self
                .admin
                .list_offsets(&partitions, spec, read_committed)
                .await
            {
                let listed = Some(listed?).filter(|listed| listed.offset >= 0);
                found.insert(partition, listed);
            }
        }
        Ok(found)
    }

    /// The committed offsets of the group.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// for (partition, committed) in consumer.committed().await? {
    ///     println!("{partition:?}: {}", committed.offset);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn committed(&self) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        let began = ottla_sync::time::now();
        let committed = self.admin.committed_offsets(self.group()?).await;
        self.sensors
            .on_committed_asked(ottla_sync::time::elapsed(began));
        committed
    }

    /// The committed offsets of these partitions. Those without one are missing.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// let partition = ("orders".to_owned(), 0);
    /// let committed = consumer.committed_of(std::slice::from_ref(&partition)).await?;
    /// println!("{:?}", committed.get(&partition).map(|committed| committed.offset));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn committed_of(
        &self,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        let member = self.modern.as_ref().map(|modern| modern.epoch_and_id());
        let began = ottla_sync::time::now();
        let committed = self
            .admin
            .stable_offsets_for(self.group()?, partitions, member)
            .await;
        self.sensors
            .on_committed_asked(ottla_sync::time::elapsed(began));
        committed
    }

    /// The partitions of a topic. A topic that does not exist is created if both client and broker
    /// allow that; otherwise it is an error.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// for partition in consumer.partitions_for("orders").await? {
    ///     println!("{}: leader {}", partition.partition, partition.leader);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn partitions_for(&self, topic: &str) -> Result<Vec<PartitionInfo>, ClientError> {
        let names = [topic.to_owned()];
        let creates = self.config.allow_auto_create_topics;
        self.client.refresh_metadata(Some(&names), creates).await?;
        let metadata = self.client.topics(&names).await?;
        let found = metadata.topics.get(topic);
        Ok(found.map_or_else(Vec::new, |topic| topic.partitions.clone()))
    }

    /// All topics that this client may see.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// for (name, topic) in consumer.list_topics().await? {
    ///     println!("{name}: {} partitions", topic.partitions.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_topics(&self) -> Result<BTreeMap<String, TopicInfo>, ClientError> {
        let metadata = self.client.refresh_metadata(None, false).await?;
        Ok(metadata.topics.clone())
    }

    pub(super) fn group(&self) -> Result<&str, ClientError> {
        self.config.group_id.as_deref().ok_or_else(|| {
            ClientError::Config("committing offsets needs a group; give group.id".into())
        })
    }

    /// Determines the start offsets of partitions without a position.
    pub(super) async fn find_positions(&mut self) -> Result<(), ClientError> {
        let metadata = self.client.metadata();
        let missing: Vec<Partition> = self
            .positions
            .iter()
            .filter(|(_, position)| position.next.is_none())
            .map(|(partition, _)| partition.clone())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        // A topic that does not exist yet is waited for.
        let mut there = Vec::new();
        for partition in missing {
            if metadata.topics.contains_key(&partition.0) || self.is_there(&partition.0).await? {
                there.push(partition);
            }
        }
        let committed: BTreeMap<Partition, CommittedOffset> = match &self.config.group_id {
            Some(group) if !there.is_empty() => {
                let member = self.modern.as_ref().map(|modern| modern.epoch_and_id());
                match self.admin.stable_offsets_for(group, &there, member).await {
                    // The member has another epoch or none by now, which the next poll will handle.
                    Err(error)
                        if matches!(
                            error.code(),
                            Some(ErrorCode::StaleMemberEpoch | ErrorCode::UnknownMemberId)
                        ) =>
                    {
                        return Ok(());
                    }
                    offsets => offsets?,
                }
            }
            _ => BTreeMap::new(),
        };
        let mut to_reset = Vec::new();
        for partition in there {
            match committed.get(&partition) {
                Some(committed) => {
                    if let Some(position) = self.positions.get_mut(&partition) {
                        position.next = Some(committed.offset);
                        position.leader_epoch = committed.leader_epoch;
                    }
                }
                None => to_reset.push(partition),
            }
        }
        self.reset(&to_reset, "there is no committed offset").await
    }

    async fn is_there(&self, topic: &str) -> Result<bool, ClientError> {
        let names = [topic.to_owned()];
        let creates = self.config.allow_auto_create_topics;
        let metadata = self.client.refresh_metadata(Some(&names), creates).await?;
        Ok(metadata
            .topics
            .get(topic)
            .is_some_and(|topic| topic.error == ErrorCode::None))
    }

    pub(super) async fn reset(
        &mut self,
        partitions: &[Partition],
        why: &str,
    ) -> Result<(), ClientError> {
        let Some((topic, partition)) = partitions.first() else {
            return Ok(());
        };
        let spec = match self.config.offset_reset {
            OffsetReset::Earliest => OffsetSpec::Earliest,
            OffsetReset::Latest => OffsetSpec::Latest,
            OffsetReset::ByDuration(age) => {
                let now = ottla_sync::time::wall_clock()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                OffsetSpec::Timestamp(now.saturating_sub(age).as_millis() as i64)
            }
            OffsetReset::None => {
                return Err(ClientError::broker(
                    format!("{topic}-{partition}"),
                    ErrorCode::OffsetOutOfRange.code(),
                    Some(format!("{why}, and auto.offset.reset is none")),
                ));
            }
        };
        let read_committed = self.config.read_committed;
        let listed = self
            .admin
            .list_offsets(partitions, spec, read_committed)
            .await;
        for (partition, listed) in listed {
            let mut offset = listed?.offset;
            if offset < 0 {
                // No record is that recent.
                let latest = self
                    .list(std::slice::from_ref(&partition), OffsetSpec::Latest)
                    .await?;
                offset = latest.get(&partition).copied().unwrap_or(0);
            }
            self.seek(&partition, offset);
        }
        Ok(())
    }
}
