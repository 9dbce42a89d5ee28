//! Commits of offsets: synchronous, asynchronous and automatic.
//!
//! Commits are sequential: the next one is sent when the previous one has been answered, so that
//! the last one wins. As in Kafka, callbacks are called on the owner's thread, from within `poll`,
//! a commit or `close`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_sync::BoxFuture;
use ottla_types::ErrorCode;

use super::metrics::ConsumerSensors;
use super::offset_commits::{Answered, CommitCallback, CommitOffset};
use super::{Consumer, Partition, classic, modern};
use crate::admin::Admin;
use crate::error::ClientError;

/// Commits on behalf of a member, or of no member.
struct Committer {
    target: CommitTarget,
    sensors: Arc<ConsumerSensors>,
}

enum CommitTarget {
    Classic(classic::Committer),
    Modern(modern::Committer),
    /// The partitions are assigned manually.
    Standalone {
        admin: Admin,
        group: String,
    },
}

impl Committer {
    async fn commit(&self, offsets: &BTreeMap<Partition, CommitOffset>) -> Result<(), ClientError> {
        let began = ottla_sync::time::now();
        let committed = self.target.commit(offsets).await;
        if !offsets.is_empty() {
            self.sensors
                .on_commit_answered(ottla_sync::time::elapsed(began));
        }
        committed
    }
}

impl CommitTarget {
    fn commit<'a>(
        &'a self,
        offsets: &'a BTreeMap<Partition, CommitOffset>,
    ) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            match self {
                CommitTarget::Classic(committer) => committer.commit(offsets).await,
                CommitTarget::Modern(committer) => committer.commit(offsets).await,
                CommitTarget::Standalone { admin, group } => {
                    let plain = offsets
                        .iter()
                        .map(|(partition, offset)| (partition.clone(), offset.offset))
                        .collect();
                    let results = admin.alter_offsets(group, &plain).await?;
                    results.into_values().collect()
                }
            }
        })
    }
}

impl Consumer {
    /// Commits the positions after all records returned so far.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    ///
    /// let records = consumer.poll(Duration::from_secs(1)).await?;
    /// println!("{} records are processed", records.len());
    /// consumer.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let offsets = self.consumed();
        self.commit_offsets(&offsets).await
    }

    /// Commits these offsets.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    /// use ottla_client::CommitOffset;
    ///
    /// // The record at 4199 was the last one that was processed.
    /// let offsets = BTreeMap::from([(("orders".to_owned(), 0), CommitOffset::new(4200))]);
    /// consumer.commit_offsets(&offsets).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit_offsets(
        &mut self,
        offsets: &BTreeMap<Partition, CommitOffset>,
    ) -> Result<(), ClientError> {
        let committer = self.committer()?;
        if let Some(last) = self.commits.last.take() {
            let _ = last.await;
        }
        let began = ottla_sync::time::now();
        let result = committer.commit(offsets).await;
        self.sensors
            .on_commit_awaited(ottla_sync::time::elapsed(began));
        self.call_back();
        if result.is_ok() {
            self.tell_committed(offsets);
        }
        result
    }

    /// Commits the positions after all records returned so far, without waiting.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.commit_async(Some(Box::new(|offsets, committed| match committed {
    ///     Ok(()) => println!("committed {} offsets", offsets.len()),
    ///     Err(error) => eprintln!("not committed: {error}"),
    /// })))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_async(&mut self, callback: Option<CommitCallback>) -> Result<(), ClientError> {
        let offsets = self.consumed();
        self.commit_offsets_async(offsets, callback)
    }

    /// Commits these offsets without waiting. A failed commit is not retried, because a later one
    /// may be in flight.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    /// use ottla_client::CommitOffset;
    ///
    /// let offsets = BTreeMap::from([(("orders".to_owned(), 0), CommitOffset::new(4200))]);
    /// consumer.commit_offsets_async(offsets, None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_offsets_async(
        &mut self,
        offsets: BTreeMap<Partition, CommitOffset>,
        callback: Option<CommitCallback>,
    ) -> Result<(), ClientError> {
        let committer = self.committer()?;
        let (before, answered) = (self.commits.last.take(), self.commits.answered.clone());
        self.commits.last = Some(ottla_sync::task::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let result = committer.commit(&offsets).await;
            answered.lock().push(Answered {
                offsets,
                result,
                callback,
            });
        }));
        Ok(())
    }

    /// Calls the callbacks of answered commits.
    pub(super) fn call_back(&mut self) {
        let answered = std::mem::take(&mut *self.commits.answered.lock());
        for commit in answered {
            if commit.result.is_ok() {
                self.tell_committed(&commit.offsets);
            }
            match (commit.callback, commit.result) {
                (Some(callback), result) => callback(&commit.offsets, result),
                (None, Err(error)) => tracing::warn!(%error, "offsets could not be committed"),
                (None, Ok(())) => {}
            }
        }
    }

    /// Waits until all sent commits have been answered.
    pub(super) async fn finish_commits(&mut self) {
        if let Some(last) = self.commits.last.take() {
            let _ = last.await;
        }
        self.call_back();
    }

    fn consumed(&self) -> BTreeMap<Partition, CommitOffset> {
        let positions = self.positions.iter();
        positions
            .filter_map(|(partition, position)| {
                let offset = CommitOffset {
                    offset: position.next?,
                    leader_epoch: position.leader_epoch,
                    metadata: String::new(),
                };
                Some((partition.clone(), offset))
            })
            .collect()
    }

    fn committer(&self) -> Result<Committer, ClientError> {
        let group = self.group()?.to_owned();
        let target = match (&self.modern, &self.membership) {
            (Some(modern), _) => CommitTarget::Modern(modern.committer()),
            (None, Some(membership)) => CommitTarget::Classic(membership.committer()),
            (None, None) if self.joining.is_some() => {
                return Err(ClientError::broker(
                    format!("committing offsets of group {group}"),
                    ErrorCode::RebalanceInProgress.code(),
                    Some("the members are being redistributed; commit again after the next poll"),
                ));
            }
            (None, None) => CommitTarget::Standalone {
                admin: self.admin.clone(),
                group,
            },
        };
        Ok(Committer {
            target,
            sensors: self.sensors.clone(),
        })
    }

    /// Commits asynchronously, if an automatic commit is due.
    pub(super) fn auto_commit(&mut self) {
        let due = self.config.auto_commit
            && self.config.group_id.is_some()
            && ottla_sync::time::elapsed(self.last_auto_commit) >= self.config.auto_commit_interval;
        if !due {
            return;
        }
        self.last_auto_commit = ottla_sync::time::now();
        // Before the first assignment and during a rebalance, there is nothing to commit.
        if let Err(error) = self.commit_async(None) {
            tracing::debug!(%error, "offsets are not committed now");
        }
    }

    pub(super) async fn commit_quietly(&mut self) {
        if let Err(error) = self.commit().await {
            tracing::warn!(%error, "offsets could not be committed");
        }
    }

    pub(super) fn tell_committed(&mut self, offsets: &BTreeMap<Partition, CommitOffset>) {
        if offsets.is_empty() {
            return;
        }
        for interceptor in &mut self.interceptors {
            interceptor.on_commit(offsets);
        }
    }
}
