//! The active controller: decides requests before their records are on disk, and answers them when
//! the records are committed.
//!
//! In Kafka: `QuorumController`.

use std::collections::VecDeque;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::{ControllerContext, LeaderBalance, elect_unclean_leaders};
use ottla_metadata::{MetadataDelta, MetadataVersion, Provenance};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{ControlRecord, Event, KRaftVersion, Quorum};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use ottla_context::time_of_day;

use super::Controller;
use super::decisions::{Decisions, Pending};
use crate::controller::requests::Facts;
use crate::quorum::work::{Decide, Decided};
use ottla_storage::metadata::metadata_log::{MetadataLog, MetadataLogError};
use ottla_storage::metadata::record_batches::{ControlValue, control_batch, records_batch};

/// The pause between two searches for expired delegation tokens, while there are tokens.
const TOKEN_SWEEP_PAUSE_MS: u64 = 1_000;

impl Controller {
    /// Called when this node becomes leader. Decisions include the records in the log that are not
    /// known to be committed.
    pub(super) fn begin_deciding(&mut self) -> Result<(), MetadataLogError> {
        let mut loader = self.committed.0.clone();
        let mut pending = VecDeque::new();
        for batch in std::mem::take(&mut self.uncommitted) {
            let (end, bytes) = (batch.last_offset.plus(1), batch.size_bytes);
            let delta = batch
                .load_into(&mut loader)
                .map_err(|reason| self.log.error(reason))?;
            pending.extend(delta.map(|delta| (end, Pending::Delta(Box::new(delta)))));
            pending.push_back((end, Pending::Flushed(Box::new(loader.clone()), bytes)));
        }
        self.deciding = Some(Decisions {
            flushed: (loader.clone(), self.log.log_end_offset()),
            loader,
            pending,
            bytes_unflushed: 0,
            is_unflushed: false,
            has_unflushed_control: false,
            is_activated: false,
            is_activation_due: false,
        });
        self.refresh_config();
        Ok(())
    }

    /// Called when this node is no longer leader. Returns to the committed records; the uncommitted
    /// records may still become committed.
    pub(super) fn end_deciding(&mut self) -> Result<(), MetadataLogError> {
        self.refuse_pending(ErrorCode::NotController);
        self.leader_balance.end();
        if self.deciding.take().is_some() {
            self.uncommitted = self.log.batches_from(self.committed.1)?.into();
            self.refresh_config();
        }
        Ok(())
    }

    /// Decides a request, if this node is the active controller.
    pub(super) fn decide(&mut self, decide: Decide) -> Result<(), MetadataLogError> {
        let Some(decided) = self.with_context(decide) else {
            return Ok(());
        };
        let Decided {
            kraft_version,
            records,
            reply,
        } = decided;
        if let Some(level) = kraft_version
            && !self.raise_kraft_version(level)?
        {
            reply(Err(ErrorCode::KafkaStorageError));
            return Ok(());
        }
        match self.append(records) {
            Ok(()) => {
                let end = self.log.log_end_offset();
                if let Some(deciding) = &mut self.deciding {
                    deciding.pending.push_back((end, Pending::Reply(reply)));
                }
                Ok(())
            }
            // Neither the log nor the image has changed.
            Err(error) if error.is_temporary => {
                tracing::warn!("a request to the controller is refused: {error}");
                reply(Err(ErrorCode::KafkaStorageError));
                Ok(())
            }
            Err(error) => {
                reply(Err(ErrorCode::KafkaStorageError));
                Err(error)
            }
        }
    }

    /// Raises `kraft.version` in the quorum. Returns false if earlier decisions were taken back
    /// because the disk is full, in which case the decision that needs this level was based on
    /// records that are gone.
    fn raise_kraft_version(&mut self, level: i16) -> Result<bool, MetadataLogError> {
        let decided_end = self.log.log_end_offset();
        // The state machine must know the log end offset before it appends.
        self.settle_or_refuse()?;
        if self.log.log_end_offset() < decided_end {
            return Ok(false);
        }
        if let Some(version) = KRaftVersion::from_feature_level(level) {
            tracing::info!(
                "kraft.version is raised to {level}: voters are recorded in the log from now on"
            );
            let epoch = self.quorum.epoch();
            self.step(Event::KRaftVersionUpgradeRequested { epoch, version })?;
        }
        Ok(true)
    }

    /// `None` if this node is not the active controller.
    fn with_context<T>(
        &mut self,
        decide: impl FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> T,
    ) -> Option<T> {
        let deciding = self.deciding.as_ref().filter(|it| it.is_activated)?;
        let quorum = &self.quorum;
        let mut context = ControllerContext {
            image: deciding.loader.image(),
            config: &self.config,
            kraft_version: quorum.kraft_version().feature_level(),
            kraft_version_upgrade: &|level| check_upgrade(quorum, level),
            client: ByteString::new(),
            mutation_quota: None,
            random: &mut || ottla_sync::random::random("controller decisions"),
        };
        let facts = Facts {
            cluster_id: &self.cluster_id,
            next_offset: self.log.log_end_offset(),
            sessions: &self.sessions,
            now_ms: self.now_ms(),
            timestamp: time_of_day(),
        };
        Some(decide(&mut context, &facts))
    }

    /// Becomes the active controller: writes the first records of a new leader, and accepts
    /// requests afterwards.
    pub(super) fn activate(&mut self) -> Result<(), MetadataLogError> {
        let now_ms = self.now_ms();
        let Some(deciding) = self.deciding.as_mut().filter(|it| !it.is_activated) else {
            return Ok(());
        };
        deciding.is_activated = true;
        deciding.is_activation_due = false;
        self.sessions.begin(deciding.loader.image(), now_ms);
        self.leader_balance.begin(now_ms);
        self.next_unclean_elections_ms = now_ms.saturating_add(unclean_interval_ms(&self.config));
        let is_in_transaction = deciding.loader.is_in_transaction();
        let bootstrap = std::mem::take(&mut self.bootstrap);
        let records = self.with_context(|context, _| {
            ottla_controller::activation_records(context, &bootstrap, is_in_transaction)
        });
        self.bootstrap = bootstrap;
        self.append(records.unwrap_or_default())
    }

    /// Appends records as one batch, and applies them to the decided image.
    fn append(&mut self, records: Vec<MetadataRecord>) -> Result<(), MetadataLogError> {
        let Some(deciding) = self.deciding.as_mut().filter(|_| !records.is_empty()) else {
            return Ok(());
        };
        let permits_unclean = |record: &MetadataRecord| matches!(record, MetadataRecord::Config(config) if &*config.name == "unclean.leader.election.enable");
        if records.iter().any(permits_unclean) {
            self.next_unclean_elections_ms = 0;
        }
        let now = time_of_day();
        let (offset, epoch) = (self.log.log_end_offset(), self.quorum.epoch());
        // The records that set `metadata.version` are themselves written in the new version.
        let metadata_version = records
            .iter()
            .find_map(|record| match record {
                MetadataRecord::FeatureLevel(feature)
                    if &*feature.name == MetadataVersion::FEATURE_NAME =>
                {
                    MetadataVersion::from_feature_level(feature.feature_level)
                }
                _ => None,
            })
            .unwrap_or(deciding.loader.image().metadata_version());
        let batch =
            records_batch(offset, epoch, now, &records, metadata_version).map_err(|error| {
                self.log
                    .error(format!("records cannot be encoded: {error}"))
            })?;
        self.log.append(&batch, now)?;
        deciding.bytes_unflushed += batch.size_in_bytes() as u64;
        deciding.is_unflushed = true;
        let provenance = Provenance {
            last_contained_offset: batch.header.last_offset(),
            last_contained_epoch: epoch,
            last_contained_log_time: now,
        };
        let delta = deciding
            .loader
            .load_batch(records, provenance)
            .map_err(|error| {
                self.log.error(format!(
                    "decided records do not apply to the metadata image: {error}"
                ))
            })?;
        if let Some(delta) = delta {
            let has_new_settings = changes_broker_settings(&delta);
            let end = batch.header.next_offset();
            deciding
                .pending
                .push_back((end, Pending::Delta(Box::new(delta))));
            if has_new_settings {
                self.refresh_config();
            }
        }
        Ok(())
    }

    /// Appends control records of the quorum as one batch.
    pub(super) fn append_control(
        &mut self,
        epoch: LeaderEpoch,
        base_offset: Offset,
        records: Vec<ControlRecord>,
    ) -> Result<(), MetadataLogError> {
        let values: Vec<ControlValue> = records.into_iter().map(ControlValue::from).collect();
        let now = time_of_day();
        let batch = control_batch(base_offset, epoch, now, &values).map_err(|error| {
            self.log
                .error(format!("control records cannot be encoded: {error}"))
        })?;
        self.when_there_is_space(|log| log.append(&batch, now))?;
        let Some(deciding) = &mut self.deciding else {
            return Err(self.log.error("only a leader appends to it".to_owned()));
        };
        deciding.bytes_unflushed += batch.size_in_bytes() as u64;
        deciding.is_unflushed = true;
        deciding.has_unflushed_control = true;
        let provenance = Provenance {
            last_contained_offset: batch.header.last_offset(),
            last_contained_epoch: epoch,
            last_contained_log_time: now,
        };
        let delta = deciding
            .loader
            .load_batch(Vec::new(), provenance)
            .map_err(|error| self.log.error(error.to_string()))?;
        let end = batch.header.next_offset();
        deciding
            .pending
            .extend(delta.map(|delta| (end, Pending::Delta(Box::new(delta)))));
        Ok(())
    }

    /// Flushes the log, publishes committed records and answers their requests, until no work is
    /// left.
    pub(super) fn settle(&mut self) -> Result<(), MetadataLogError> {
        let mut has_flushed = false;
        loop {
            if self
                .deciding
                .as_ref()
                .is_some_and(|it| it.is_activation_due)
            {
                self.activate()?;
            }
            let Some(deciding) = self.deciding.as_ref().filter(|it| it.is_unflushed) else {
                break;
            };
            let began = ottla_sync::time::now();
            let end_offset = match deciding.has_unflushed_control {
                // Control records cannot be taken back.
                true => self.when_there_is_space(MetadataLog::flush)?,
                false => self.log.flush()?,
            };
            let micros = ottla_sync::time::elapsed(began).as_micros() as u64;
            tracing::debug!(end = end_offset.0, micros, "metadata is on disk");
            let Some(deciding) = &mut self.deciding else {
                break;
            };
            has_flushed = true;
            deciding.is_unflushed = false;
            deciding.has_unflushed_control = false;
            deciding.flushed = (deciding.loader.clone(), end_offset);
            let bytes = std::mem::take(&mut deciding.bytes_unflushed);
            let flushed = Pending::Flushed(Box::new(deciding.loader.clone()), bytes);
            deciding.pending.push_back((end_offset, flushed));
            self.step(Event::LogFlushed { end_offset })?;
        }
        self.release();
        self.answer_caught_up();
        match has_flushed {
            true => self.log.maintain(),
            false => Ok(()),
        }
    }

    /// As `settle`. If the disk is full, the decisions that are not on disk are refused.
    pub(super) fn settle_or_refuse(&mut self) -> Result<(), MetadataLogError> {
        match self.settle() {
            Err(error) if error.is_temporary && self.can_roll_back() => {
                tracing::warn!("requests to the controller are refused: {error}");
                self.roll_back()?;
                self.release();
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn can_roll_back(&self) -> bool {
        self.deciding
            .as_ref()
            .is_some_and(|it| it.is_unflushed && !it.has_unflushed_control)
    }

    /// Answers requests and publishes committed records, in the order of the decisions. Requesters
    /// that need it published on this node wait for that outside this thread.
    fn release(&mut self) {
        let Some(high_watermark) = self.quorum.high_watermark() else {
            return;
        };
        loop {
            let Some(deciding) = &mut self.deciding else {
                return;
            };
            let is_committed = |(end, _): &(Offset, Pending)| {
                *end <= high_watermark
                    || ottla_sync::planted::has(
                        "the controller acts before its records are committed",
                    )
            };
            if !deciding.pending.front().is_some_and(is_committed) {
                return;
            }
            let Some((end, pending)) = deciding.pending.pop_front() else {
                return;
            };
            match pending {
                Pending::Delta(delta) => self.take_committed(end, *delta),
                Pending::Reply(reply) => {
                    let published_at = match self.is_publishing {
                        true => end,
                        false => Offset::ZERO,
                    };
                    reply(Ok(published_at));
                }
                Pending::Flushed(loader, bytes) => {
                    self.committed = (*loader, end);
                    self.count_committed(bytes);
                }
            }
        }
    }

    /// Returns to the state on disk, and refuses the decisions since then. None of them was
    /// answered.
    fn roll_back(&mut self) -> Result<(), MetadataLogError> {
        let Some((loader, end)) = self.deciding.as_ref().map(|it| it.flushed.clone()) else {
            return Ok(());
        };
        self.when_there_is_space(|log| log.truncate_to(end, time_of_day()))?;
        let Some(deciding) = &mut self.deciding else {
            return Ok(());
        };
        deciding.loader = loader;
        deciding.is_unflushed = false;
        deciding.bytes_unflushed = 0;
        for (at, pending) in std::mem::take(&mut deciding.pending) {
            match pending {
                pending if at <= end => deciding.pending.push_back((at, pending)),
                Pending::Reply(reply) => reply(Err(ErrorCode::KafkaStorageError)),
                Pending::Delta(_) | Pending::Flushed(..) => {}
            }
        }
        self.refresh_config();
        Ok(())
    }

    fn is_activated(&self) -> bool {
        self.deciding.as_ref().is_some_and(|it| it.is_activated)
    }

    /// Fences the brokers whose sessions have expired.
    pub(super) fn fence_silent_brokers(&mut self) -> Result<(), MetadataLogError> {
        let Some(deciding) = self.deciding.as_ref().filter(|it| it.is_activated) else {
            return Ok(());
        };
        for id in self.sessions.silent(deciding.loader.image(), self.now_ms()) {
            tracing::info!("broker {id} is fenced: its session has expired");
            let records =
                self.with_context(|context, _| ottla_controller::fence_broker(context, id));
            match self.append(records.unwrap_or_default()) {
                Err(error) if error.is_temporary => {
                    tracing::warn!("broker {id} stays unfenced: {error}")
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Elects preferred leaders when the periodic check is due.
    pub(super) fn balance_leaders(&mut self) -> Result<(), MetadataLogError> {
        let now_ms = self.now_ms();
        let is_due = |at_ms: u64| at_ms <= now_ms;
        if !self.leader_balance.wake_at_ms().is_some_and(is_due) {
            return Ok(());
        }
        let mut balance = std::mem::replace(&mut self.leader_balance, LeaderBalance::new(false, 0));
        let records = self.with_context(|context, _| balance.elections(context, now_ms));
        self.leader_balance = balance;
        let records = records.unwrap_or_default();
        if !records.is_empty() {
            let count = records.len();
            tracing::info!("{count} partitions are led by their preferred replicas again");
        }
        match self.append(records) {
            // The next check finds them again.
            Err(error) if error.is_temporary => {
                tracing::warn!("leadership is not moved back to the preferred replicas: {error}");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Elects leaders of leaderless partitions whose topics permit unclean elections: periodically
    /// (`unclean.leader.election.interval.ms`) and when a setting has permitted them.
    pub(super) fn elect_unclean_leaders(&mut self) -> Result<(), MetadataLogError> {
        let now_ms = self.now_ms();
        if !self.is_activated() || now_ms < self.next_unclean_elections_ms {
            return Ok(());
        }
        self.next_unclean_elections_ms = now_ms.saturating_add(unclean_interval_ms(&self.config));
        let records = self.with_context(|context, _| elect_unclean_leaders(context));
        match self.append(records.unwrap_or_default()) {
            // The next check finds them again.
            Err(error) if error.is_temporary => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes the expired delegation tokens. They are invalid already, so a periodic removal is
    /// enough.
    pub(super) fn remove_expired_tokens(&mut self) -> Result<(), MetadataLogError> {
        let now_ms = self.now_ms();
        if !self.is_activated() || now_ms < self.next_token_sweep_ms {
            return Ok(());
        }
        let records = self.with_context(|context, facts| {
            ottla_controller::remove_expired_tokens(context, facts.timestamp)
        });
        let records = records.unwrap_or_default();
        let interval_ms = self.config.delegation_token_expiry_check_interval_ms.max(1) as u64;
        // There may be more expired tokens.
        let pause_ms = match records.is_empty() {
            true => interval_ms,
            false => interval_ms.min(TOKEN_SWEEP_PAUSE_MS),
        };
        self.next_token_sweep_ms = now_ms.saturating_add(pause_ms);
        match self.append(records) {
            Err(error) if error.is_temporary => Ok(()),
            outcome => outcome,
        }
    }

    /// The time until the next check for preferred leaders.
    pub(super) fn leader_check(&self, now_ms: u64) -> Option<Duration> {
        let wake_at_ms = self.leader_balance.wake_at_ms()?;
        Some(Duration::from_millis(wake_at_ms.saturating_sub(now_ms)))
    }

    /// The time until the next check of the sessions.
    pub(super) fn session_check(&self) -> Option<Duration> {
        let deciding = self.deciding.as_ref().filter(|it| it.is_activated)?;
        let look_every_ms = self.sessions.look_every_ms(deciding.loader.image())?;
        Some(Duration::from_millis(look_every_ms))
    }

    /// Answers all uncommitted requests with an error.
    pub(super) fn refuse_pending(&mut self, error: ErrorCode) {
        let Some(deciding) = &mut self.deciding else {
            return;
        };
        for (_, pending) in std::mem::take(&mut deciding.pending) {
            if let Pending::Reply(reply) = pending {
                reply(Err(error));
            }
        }
    }
}

fn unclean_interval_ms(config: &BrokerConfig) -> u64 {
    config.unclean_leader_election_interval_ms.max(1) as u64
}

/// Whether raising `kraft.version` to the level would change anything. The error is a message for
/// the response.
fn check_upgrade(quorum: &Quorum, level: i16) -> Result<bool, String> {
    let version = KRaftVersion::from_feature_level(level)
        .ok_or_else(|| format!("Unknown KRaft feature level: {level}"))?;
    quorum
        .check_kraft_version_upgrade(quorum.epoch(), version)
        .map_err(|refusal| refusal.to_string())
}

pub(super) fn changes_broker_settings(delta: &MetadataDelta) -> bool {
    delta
        .configs
        .iter()
        .any(|resource| resource.kind == ottla_metadata::ConfigResourceType::Broker)
}
