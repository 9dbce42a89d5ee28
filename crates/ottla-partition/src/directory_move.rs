//! Moving replicas between log directories while they are in use (KIP-113, KIP-858).
//!
//! 1. A copy is created in the other directory. A task fills it from the log, in rounds on a
//!    blocking thread, limited by `replica.alter.log.dirs.io.max.bytes.per.second` and
//!    `num.replica.alter.log.dirs.threads`.
//! 2. When it has caught up, appends are held, and the remaining records are copied and fsynced.
//! 3. The new directory is reported to the controller.
//! 4. When the controller has committed the assignment, the copy replaces the log between two steps
//!    of the partition: directories are renamed, and appends continue.
//!
//! Invariant: while the controller may assume that the replica is in the new directory, either the
//! copy lacks no record of the log or it has a name that a start does not recognise as a copy. A
//! start after a crash may replace the log by a copy, whatever the copy contains, as Kafka does
//! (`LogManager.recoverAbandonedFutureLogs`).
//!
//! A move is cancelled by removing the copy from [`LogDirs`]; the task notices.
//!
//! Kafka: `ReplicaManager.alterReplicaLogDirs`, `ReplicaAlterLogDirsThread`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_config::BrokerConfig;
use ottla_log::{Log, LogReader};
use ottla_sync::Mutex;
use ottla_sync::task::JoinHandle;
use ottla_sync::{Semaphore, SemaphorePermit, oneshot};
use ottla_types::{DirectoryId, ErrorCode, TopicPartition};

use ottla_node::dir_assignments::DirAssignments;
use ottla_storage::log_dirs::{LogDirs, OpenSettings, PromoteError};

use crate::partition::host::PartitionHost;
use crate::partition::{AppendHold, LogLocation, Partition};
use crate::partitions::Partitions;

mod copying;
#[cfg(test)]
mod tests;

use copying::{Copied, CopyError, MAX_LAST_BYTES, copy_round, flush};

/// Bytes copied per round, before other replicas get a turn.
const ROUND_BYTES: u64 = 4 * 1024 * 1024;
/// Pause after appends outran the copy at the end.
const OUTRUN: Duration = Duration::from_millis(20);
/// Maximum time that appends are held for the controller's response. Producers and coordinators
/// wait longer.
const MAX_HOLD: Duration = Duration::from_secs(3);
/// Pause after the controller did not respond in time.
const UNANSWERED: Duration = Duration::from_secs(30);
/// Pause after the copy could not be read or written.
const RETRY: Duration = Duration::from_secs(1);

/// The moves in progress.
#[derive(Debug)]
pub struct DirectoryMoves {
    host: Arc<PartitionHost>,
    partitions: Arc<Partitions>,
    dir_assignments: Arc<DirAssignments>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// One permit per thread of `num.replica.alter.log.dirs.threads`.
    turns: Semaphore,
    /// The earliest time for the next round of any move.
    next_round: Mutex<Instant>,
}

impl DirectoryMoves {
    pub fn new(
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
        dir_assignments: Arc<DirAssignments>,
        config: &BrokerConfig,
    ) -> DirectoryMoves {
        let threads = config.num_replica_alter_log_dirs_threads;
        let threads = threads.and_then(|threads| usize::try_from(threads).ok());
        DirectoryMoves {
            host,
            partitions,
            dir_assignments,
            tasks: Mutex::default(),
            turns: Semaphore::new(threads.unwrap_or(config.log_dirs.len()).max(1)),
            next_round: Mutex::new(ottla_sync::time::now()),
        }
    }

    /// Waits until every task has closed its copy, at broker stop.
    pub async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A panic was reported where it happened.
            let _ = task.await;
        }
    }

    /// Acquires a permit, held for one round of a copy.
    pub async fn take_turn(&self) -> SemaphorePermit<'_> {
        self.turns.acquire().await.expect("never closed")
    }

    /// How long to wait after copying `bytes`, so that all moves together stay within the rate.
    fn throttle(&self, bytes: u64, bytes_per_second: i64) -> Duration {
        let now = ottla_sync::time::now();
        let mut next_round = self.next_round.lock();
        let rate = bytes_per_second.max(1) as f64;
        // A huge rate ("no limit") adds nothing; a tiny one must not overflow.
        let takes = Duration::from_secs_f64((bytes as f64 / rate).min(3600.0));
        *next_round = (*next_round).max(now) + takes;
        *next_round - now
    }
    /// Moves a replica to the log directory at `path`, cancelling a move to another directory. For
    /// a replica that does not exist yet, the directory is remembered. Blocks.
    pub fn alter_replica_log_dir(
        self: &Arc<Self>,
        topic_partition: &TopicPartition,
        path: &str,
    ) -> Result<(), ErrorCode> {
        // The set of partitions changes only under this lock.
        let _changing = self.partitions.changing.lock();
        let log_dirs = self.host.log_dirs().ok_or(ErrorCode::KafkaStorageError)?;
        if !LogDirs::may_have_future(topic_partition) {
            return Err(ErrorCode::InvalidTopicException);
        }
        let directory = log_dirs.destination(path)?;
        let partition = match self.partitions.local(
            &self.host.context,
            &topic_partition.topic,
            topic_partition.partition.value(),
        ) {
            Ok(partition) => partition,
            Err(ErrorCode::KafkaStorageError) => return Err(ErrorCode::KafkaStorageError),
            Err(code) => {
                log_dirs.prefer(topic_partition, directory);
                return Err(match code {
                    ErrorCode::NotLeaderOrFollower => ErrorCode::ReplicaNotAvailable,
                    code => code,
                });
            }
        };
        if !log_dirs.is_online(&partition.reader()) {
            return Err(ErrorCode::KafkaStorageError);
        }
        match log_dirs.future_directory_of(topic_partition) {
            Some(under_way) if under_way == directory => return Ok(()),
            Some(_) => log_dirs.remove_future(topic_partition),
            None => {}
        }
        if log_dirs.directory_of(topic_partition) == Some(directory) {
            return Ok(());
        }
        let settings = OpenSettings {
            config: partition.reader().config(),
            producer_id_expiration_ms: self.host.context.config().producer_id_expiration_ms.into(),
            now: self.host.context.timestamp(),
            is_new: true,
            may_lead: false,
        };
        let created =
            log_dirs.create_future(topic_partition, partition.topic_id, directory, settings);
        let future = created.map_err(|error| {
            tracing::warn!(%topic_partition, "the replica cannot be moved: {error}");
            ErrorCode::KafkaStorageError
        })?;
        self.start_move(partition, future, directory);
        Ok(())
    }

    /// Resumes the moves that a stop interrupted.
    pub fn resume_moves(self: &Arc<Self>) {
        let Some(log_dirs) = self.host.log_dirs() else {
            return;
        };
        for (topic_partition, topic_id, future) in log_dirs.take_waiting_futures() {
            let partition = self.partitions.find(&topic_partition);
            let partition = partition.filter(|partition| partition.topic_id == topic_id);
            let directory = log_dirs.future_directory_of(&topic_partition);
            match (partition, directory) {
                (Some(partition), Some(directory)) => {
                    tracing::info!(%topic_partition, "continuing the move to another directory");
                    self.start_move(partition, future, directory);
                }
                // The copy belongs to an older topic of the same name.
                _ => log_dirs.remove_future(&topic_partition),
            }
        }
    }

    fn start_move(
        self: &Arc<Self>,
        partition: Arc<Partition>,
        future: Log,
        directory: DirectoryId,
    ) {
        let replica_move = Move {
            moves: Arc::clone(self),
            host: Arc::clone(&self.host),
            original: self
                .host
                .log_dirs()
                .and_then(|dirs| dirs.directory_of(&partition.topic_partition)),
            reader: future.reader(),
            future: Some(future),
            partition,
            directory,
            is_told: false,
            is_hidden: false,
        };
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(ottla_sync::task::spawn(replica_move.run()));
    }
}

/// The move of one replica.
struct Move {
    moves: Arc<DirectoryMoves>,
    host: Arc<PartitionHost>,
    partition: Arc<Partition>,
    /// `None` while a blocking thread works on it, and after it has replaced the log.
    future: Option<Log>,
    /// The reader of the copy.
    reader: LogReader,
    directory: DirectoryId,
    original: Option<DirectoryId>,
    /// The controller may assume that the replica is in the new directory.
    is_told: bool,
    /// The copy has a name that a start deletes.
    is_hidden: bool,
}

/// How a move ended.
enum Outcome {
    Moved,
    GivenUp,
    /// Continues at the next start.
    Stopped,
}

impl Move {
    async fn run(mut self) {
        let topic_partition = self.partition.topic_partition.clone();
        let log_dirs = self.host.log_dirs().map(Arc::clone);
        let pause = {
            let topic_partition = topic_partition.clone();
            let pause = move || log_dirs.map(|dirs| dirs.cleaner().pause(&topic_partition));
            // Records that the cleaner removes from the log during the copy might already be in the
            // copy. The wait for the cleaner must not happen under the run token or the lock of the
            // partition map.
            ottla_sync::task::spawn_blocking(pause).await
        };
        let ended = self.go().await;
        match ended {
            Outcome::Moved => {
                tracing::info!(%topic_partition, "the replica was moved to another directory");
            }
            Outcome::GivenUp => self.revert(),
            Outcome::Stopped => self.rest().await,
        }
        drop(pause);
    }

    async fn go(&mut self) -> Outcome {
        loop {
            if !self.is_wanted() {
                return Outcome::GivenUp;
            }
            let host = Arc::clone(&self.host);
            let copied = match self.copy().await {
                Ok(copied) if copied.is_at_end => match self.exchange().await {
                    Ok(Exchange::Done) => return Outcome::Moved,
                    Ok(Exchange::Again(wait)) => Ok((copied, wait)),
                    Err(error) => Err(error),
                },
                Ok(copied) => Ok((copied, Duration::ZERO)),
                Err(error) => Err(error),
            };
            let wait = match copied {
                Ok((copied, wait)) => {
                    let rate = host
                        .context
                        .config()
                        .replica_alter_log_dirs_io_max_bytes_per_second;
                    wait.max(self.moves.throttle(copied.bytes, rate))
                }
                Err(error) if error.is_final() => {
                    let topic_partition = &self.partition.topic_partition;
                    tracing::error!(%topic_partition, "cannot move the replica; it stays in its directory: {error}");
                    self.remove().await;
                    return Outcome::GivenUp;
                }
                Err(error) => {
                    self.report(&error);
                    RETRY
                }
            };
            ottla_sync::select! {
                () = ottla_sync::time::sleep(wait) => {}
                () = host.context.stopping() => return Outcome::Stopped,
            }
        }
    }

    fn report(&self, error: &CopyError) {
        let topic_partition = &self.partition.topic_partition;
        tracing::warn!(%topic_partition, "the copy in the new directory waits: {error}");
        if let (Some(storage), Some(log_dirs)) = (error.storage(), self.host.log_dirs()) {
            let of = match error {
                CopyError::Read(_) => self.partition.reader().clone(),
                _ => self.reader.clone(),
            };
            log_dirs.on_partition_error(&of, storage);
        }
    }

    /// Whether the copy may still replace the log.
    fn is_wanted(&self) -> bool {
        let Some(log_dirs) = self.host.log_dirs() else {
            return false;
        };
        log_dirs.is_future(&self.reader) && self.is_log_online()
    }

    fn is_log_online(&self) -> bool {
        let log_dirs = self.host.log_dirs();
        log_dirs.is_some_and(|log_dirs| log_dirs.is_online(&self.partition.reader()))
    }

    /// Copies one round.
    async fn copy(&mut self) -> Result<Copied, CopyError> {
        let host = Arc::clone(&self.host);
        let space = host
            .log_dirs()
            .map(|log_dirs| log_dirs.space_of(&self.reader));
        if space.as_ref().is_some_and(|space| !space.is_open()) {
            return Err(CopyError::NoSpace);
        }
        let moves = Arc::clone(&self.moves);
        let turn = moves.take_turn().await;
        let rate = host
            .context
            .config()
            .replica_alter_log_dirs_io_max_bytes_per_second;
        let max_bytes = ROUND_BYTES.min(rate.max(1) as u64);
        let now = host.context.timestamp();
        let current = self.partition.reader().clone();
        let copied = self
            .on_copy(move |future| copy_round(future, &current, max_bytes, now))
            .await;
        drop(turn);
        if let (Some(space), Ok(copied)) = (space, &copied) {
            space.take(copied.bytes);
        }
        copied
    }

    /// Runs `work` on the copy, on a blocking thread.
    async fn on_copy<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> R {
        let mut future = self.future.take().expect("no other thread has it");
        let working = ottla_sync::task::spawn_blocking(move || {
            let result = work(&mut future);
            (future, result)
        });
        // After a panic the copy's state is unknown: the move ends.
        let (future, result) = working.await.expect("the copy is made without a panic");
        self.future = Some(future);
        result
    }

    /// Replaces the log by a copy that has nearly caught up.
    async fn exchange(&mut self) -> Result<Exchange, CopyError> {
        // Flushed in advance, so that appends are held only for the rest.
        self.on_copy(flush).await?;
        let partition = Arc::clone(&self.partition);
        let hold = partition.hold_appends(&self.host).await;
        let deadline = ottla_sync::time::now() + MAX_HOLD;
        let hold = match self.complete(hold, deadline).await? {
            Some(hold) => hold,
            None => return Ok(Exchange::Again(OUTRUN)),
        };
        let is_written_down = self.tell(deadline).await;
        // At stop, the controller's response cannot be awaited, but the copy is complete: the next
        // start reports the directory.
        let is_last_chance = self.host.context.is_stopping();
        let is_done = (is_written_down || is_last_chance) && self.take_place(is_written_down).await;
        if !is_done {
            self.hide().await;
        }
        let topic_partition = &self.partition.topic_partition;
        let held = hold.lasts();
        drop(hold);
        if is_done {
            tracing::info!(%topic_partition, ?held, "appends were held while the log was exchanged for its copy");
            return Ok(Exchange::Done);
        }
        tracing::warn!(
            %topic_partition, ?held, is_written_down,
            "appends were held and the log could not be exchanged for its copy; trying again"
        );
        self.take_back().await;
        Ok(Exchange::Again(match is_written_down {
            true => RETRY,
            false => UNANSWERED,
        }))
    }

    /// Copies and fsyncs the missing records. `None` if that took too long.
    async fn complete(
        &mut self,
        hold: AppendHold,
        deadline: std::time::Instant,
    ) -> Result<Option<AppendHold>, CopyError> {
        let current = self.partition.reader().clone();
        let now = self.host.context.timestamp();
        let space = self
            .host
            .log_dirs()
            .map(|log_dirs| log_dirs.space_of(&self.reader));
        let completing = self.on_copy(move |future| {
            let copied = copy_round(future, &current, ROUND_BYTES, now)?;
            flush(future)?;
            let is_complete = future.log_end_offset() == current.log_end_offset();
            Ok((copied, is_complete))
        });
        let mut completing = std::pin::pin!(completing);
        let mut hold = Some(hold);
        let completed: Result<_, CopyError> = ottla_sync::select! {
            completed = &mut completing => completed,
            () = ottla_sync::time::sleep_until(deadline) => {
                // The controller does not know the new directory yet, so appends need not be held.
                hold = None;
                completing.await
            }
        };
        let (copied, is_complete) = completed?;
        if let Some(space) = space {
            space.take(copied.bytes);
        }
        Ok(hold.filter(|_| is_complete))
    }

    /// Reports the new directory to the controller. Returns whether it was committed in time.
    async fn tell(&mut self, deadline: std::time::Instant) -> bool {
        self.show().await;
        self.is_told = true;
        let written_down = self.assign(self.directory);
        self.moves.dir_assignments.hurry();
        ottla_sync::select! {
            written_down = written_down => written_down.is_ok(),
            () = ottla_sync::time::sleep_until(deadline) => false,
            () = self.host.context.stopping() => false,
        }
    }

    fn assign(&self, directory: DirectoryId) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.moves.dir_assignments.assign(
            self.partition.topic_id,
            self.partition.topic_partition.partition,
            directory,
            // The receiver is gone if the move was cancelled.
            Some(Box::new(move || {
                let _ = sender.send(());
            })),
        );
        receiver
    }

    /// Renames the copy so that a start does not replace the log by it; appends to the log
    /// continue, unless its directory has failed.
    async fn hide(&mut self) {
        // If the partition is lost, there is no copy left.
        let Some(log_dirs) = self.host.log_dirs().filter(|_| self.future.is_some()) else {
            return;
        };
        let log_dirs = Arc::clone(log_dirs);
        let hidden = self.on_copy(move |future| log_dirs.hide_future(&future.reader()));
        if let Err(error) = hidden.await {
            self.report(&CopyError::Storage(error));
        } else {
            self.is_hidden = true;
        }
    }

    /// Renames the copy back, before the controller learns of it or once it knows the original
    /// directory again.
    async fn show(&mut self) {
        let Some(log_dirs) = self.host.log_dirs().filter(|_| self.is_hidden) else {
            return;
        };
        let log_dirs = Arc::clone(log_dirs);
        let shown = self.on_copy(move |future| log_dirs.show_future(&future.reader()));
        if let Err(error) = shown.await {
            self.report(&CopyError::Storage(error));
        } else {
            self.is_hidden = false;
        }
    }

    /// Reports the original directory to the controller, which may assume the new one. Appends
    /// continue and the copy stays hidden. Returns early if the copy is no longer wanted or the
    /// host stops.
    async fn take_back(&mut self) {
        // A lost log is not reported: the next start would take what is left of it instead of the
        // copy, and truncate the copy to it.
        let Some(original) = self.original.filter(|_| self.is_log_online()) else {
            return;
        };
        let mut written_down = self.assign(original);
        self.moves.dir_assignments.hurry();
        while self.is_wanted() {
            ottla_sync::select! {
                written_down = &mut written_down => {
                    self.is_told = written_down.is_err();
                    if !self.is_told {
                        self.show().await;
                    }
                    return;
                }
                () = ottla_sync::time::sleep(RETRY) => {}
                () = self.host.context.stopping() => return,
            }
        }
    }

    /// Replaces the log by the copy. Returns whether that succeeded.
    async fn take_place(&mut self, is_written_down: bool) -> bool {
        let future = self.future.take().expect("no other thread has it");
        let (sender, receiver) = oneshot::channel();
        let host = Arc::clone(&self.host);
        self.partition.replace_log(&self.host, move |current| {
            let mut future = future;
            let log_location = replace(&host, current, &mut future, is_written_down);
            // The rest is the old log, whose handles readers may hold, or the unchanged copy.
            drop(sender.send((future, log_location.is_some())));
            log_location
        });
        match receiver.await {
            Ok((_, true)) => true,
            Ok((future, false)) => {
                self.future = Some(future);
                false
            }
            // The partition is lost, and the copy was dropped with the event.
            Err(_) => {
                self.forget();
                false
            }
        }
    }

    /// Deletes the copy, unless another move has started.
    async fn remove(&mut self) {
        self.future = None;
        let log_dirs = self.host.log_dirs().map(Arc::clone);
        let (reader, topic_partition) =
            (self.reader.clone(), self.reader.topic_partition().clone());
        let removing = ottla_sync::task::spawn_blocking(move || {
            if let Some(log_dirs) = log_dirs.filter(|log_dirs| log_dirs.is_future(&reader)) {
                log_dirs.remove_future(&topic_partition);
            }
        });
        // A panic was reported where it happened.
        let _ = removing.await;
    }

    fn forget(&self) {
        if let Some(log_dirs) = self.host.log_dirs()
            && log_dirs.is_future(&self.reader)
        {
            log_dirs.forget_future(&self.partition.topic_partition);
        }
    }

    /// Reports the original directory again if the controller may assume the new one. For a lost
    /// log that is not needed.
    fn revert(&self) {
        let topic_partition = &self.partition.topic_partition;
        tracing::info!(%topic_partition, "the move to another directory was abandoned");
        let is_due = self.is_told && self.is_log_online();
        if let Some(original) = self.original.filter(|_| is_due) {
            self.moves.dir_assignments.assign(
                self.partition.topic_id,
                topic_partition.partition,
                original,
                None,
            );
        }
    }

    /// Closes the copy, so that the next start continues. If the controller may assume the new
    /// directory, first tries to complete the move: the next start might use the copy although it
    /// lacks records.
    async fn rest(mut self) {
        if self.is_told && self.is_wanted() {
            match self.exchange().await {
                Ok(Exchange::Done) => return,
                Ok(Exchange::Again(_)) => {}
                Err(error) => self.report(&error),
            }
        }
        let Some(mut future) = self.future.take() else {
            return;
        };
        let Some(log_dirs) = self.host.log_dirs() else {
            return;
        };
        let of_future = Arc::clone(log_dirs);
        let closing = ottla_sync::task::spawn_blocking(move || {
            let closed = future.close_job().run();
            closed.inspect_err(|error| of_future.note_failed_fsync(error))
        });
        if !matches!(closing.await, Ok(Ok(_))) {
            log_dirs.on_future_unclosed(&self.reader);
        }
    }
}

/// The result of an attempt to complete a move.
enum Exchange {
    Done,
    /// To be retried after this pause.
    Again(Duration),
}

/// Replaces the log by the copy, which must have all its records. `None` leaves both unchanged.
/// Runs between two steps of the partition, on a thread that may block.
fn replace(
    host: &Arc<PartitionHost>,
    current: &mut Log,
    future: &mut Log,
    is_written_down: bool,
) -> Option<LogLocation> {
    let log_dirs = host.log_dirs()?;
    let topic_partition = current.topic_partition().clone();
    let failed = |error: CopyError, of: LogReader| {
        tracing::warn!(%topic_partition, "the copy could not replace the log: {error}");
        if let Some(storage) = error.storage() {
            log_dirs.on_partition_error(&of, storage);
        }
    };
    let now = host.context.timestamp();
    // No records are missing, but the log start offset may have moved.
    if let Err(error) = copy_round(future, &current.reader(), MAX_LAST_BYTES, now) {
        failed(error, future.reader());
        return None;
    }
    if future.log_end_offset() != current.log_end_offset() {
        return None;
    }
    // The latest epoch may have no records yet.
    if let Some(latest) = current.leader_epochs().latest() {
        future.assign_leader_epoch(latest.epoch, latest.start_offset);
    }
    future.set_config(Arc::clone(current.config()));
    future.set_highest_remote_offset(current.reader().highest_remote_offset());
    future.continue_truncations_of(&current.reader());
    if let Err(error) = flush(future) {
        failed(error, future.reader());
        return None;
    }
    match log_dirs.promote(&future.reader(), is_written_down) {
        Ok(()) => {
            std::mem::swap(current, future);
            Some(LogLocation {
                dir: host.dir_resources(&current.reader()),
                reader: current.reader(),
            })
        }
        Err(PromoteError::GivenUp) => None,
        Err(PromoteError::Log(error)) => {
            failed(error.into(), current.reader());
            None
        }
        Err(PromoteError::Copy(error)) => {
            failed(error.into(), future.reader());
            None
        }
    }
}
