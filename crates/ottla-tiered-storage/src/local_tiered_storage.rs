//! Remote segments as files in a directory, in the layout of Kafka's own test store.
//!
//! `<dir>/kafka-tiered-storage/<topic>-<partition>-<topic ID>/<20 digits>-<segment ID>.<suffix>`
//! with the suffixes `log`, `index`, `timeindex`, `txnindex`, `leader_epoch_checkpoint` and
//! `snapshot`. For tests and file systems that several brokers mount.
//!
//! Kafka: `LocalTieredStorage`, `RemoteLogSegmentFileset` in the test jar of `kafka-storage`.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use ottla_sync::fs;
use ottla_tiered::{CustomMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentState};

use crate::blocking::{Permit, blocking};
use crate::error::{RemoteStorageError, RemoteStorageErrorKind};
use crate::remote_storage::{
    IndexType, LogSegmentData, RemoteStorageManager, SegmentStream, StoredObject, check_log_size,
};
use crate::settings::LocalSettings;

/// The directory that the store makes below the configured one.
const ROOT: &str = "kafka-tiered-storage";
/// How much of a log is read at a time.
const READ_BYTES: usize = 1 << 20;

const LOG_SUFFIX: &str = "log";

const fn suffix(index: IndexType) -> &'static str {
    match index {
        IndexType::Offset => "index",
        IndexType::Timestamp => "timeindex",
        IndexType::Transaction => "txnindex",
        IndexType::LeaderEpoch => "leader_epoch_checkpoint",
        IndexType::ProducerSnapshot => "snapshot",
    }
}

/// A store in a directory.
#[derive(Clone)]
pub struct LocalTieredStorage {
    root: PathBuf,
    /// `delete.enable`: whether deletion deletes.
    deletes: bool,
    /// `delete.on.close`.
    is_emptied_on_close: bool,
    /// Of the work that it is used for.
    permit: Permit,
}

impl LocalTieredStorage {
    /// Opens the store, and makes its directory if there is none.
    pub fn open(settings: &LocalSettings) -> Result<LocalTieredStorage, RemoteStorageError> {
        let root = settings.dir.join(ROOT);
        fs::create_dir_all(&root)
            .map_err(|error| RemoteStorageError::local(&root, "create", &error))?;
        Ok(LocalTieredStorage::at(root, settings))
    }

    /// Opens the store of others to read: makes no directory, and deletes nothing when it is closed.
    pub fn open_existing(
        settings: &LocalSettings,
    ) -> Result<LocalTieredStorage, RemoteStorageError> {
        let root = settings.dir.join(ROOT);
        fs::read_dir(&root).map_err(|error| failed(&root, "read", &error))?;
        Ok(LocalTieredStorage {
            is_emptied_on_close: false,
            ..LocalTieredStorage::at(root, settings)
        })
    }

    fn at(root: PathBuf, settings: &LocalSettings) -> LocalTieredStorage {
        LocalTieredStorage {
            root,
            deletes: settings.delete_enable,
            is_emptied_on_close: settings.delete_on_close,
            permit: Permit::default(),
        }
    }

    fn directory(&self, metadata: &RemoteLogSegmentMetadata) -> PathBuf {
        let partition = &metadata.partition;
        self.root.join(format!(
            "{}-{}-{}",
            partition.topic, partition.partition, partition.topic_id
        ))
    }

    fn file(&self, metadata: &RemoteLogSegmentMetadata, suffix: &str) -> PathBuf {
        let segment = &metadata.segment;
        let name = format!("{:020}-{}.{suffix}", segment.start_offset, segment.id);
        self.directory(metadata).join(name)
    }

    fn files(&self, metadata: &RemoteLogSegmentMetadata) -> Vec<PathBuf> {
        let indexes = IndexType::ALL.map(suffix);
        [LOG_SUFFIX]
            .into_iter()
            .chain(indexes)
            .map(|suffix| self.file(metadata, suffix))
            .collect()
    }
}

#[async_trait]
impl RemoteStorageManager for LocalTieredStorage {
    fn with_permit(self: Arc<Self>, permit: Permit) -> Arc<dyn RemoteStorageManager> {
        let mut store = Arc::unwrap_or_clone(self);
        store.permit = permit;
        Arc::new(store)
    }

    async fn copy_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        data: &LogSegmentData,
    ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
        let target = |index| self.file(metadata, suffix(index));
        let mut copies = vec![
            (data.log_segment.clone(), self.file(metadata, LOG_SUFFIX)),
            (data.offset_index.clone(), target(IndexType::Offset)),
            (data.time_index.clone(), target(IndexType::Timestamp)),
        ];
        if let Some(index) = &data.transaction_index {
            copies.push((index.clone(), target(IndexType::Transaction)));
        }
        let snapshot = data.producer_snapshot_index.clone();
        copies.push((snapshot, target(IndexType::ProducerSnapshot)));
        let epochs = (
            target(IndexType::LeaderEpoch),
            data.leader_epoch_index.clone(),
        );
        let all = self.files(metadata);
        // Dropped with this future. The thread continues to copy; this marker tells it to delete
        // its files at the end.
        let caller = Arc::new(());
        let is_awaited = Arc::downgrade(&caller);
        let root = self.root.clone();
        let copied = blocking(self.permit.clone(), move || {
            let copied =
                check_mounted(&root, "copy a segment to").and_then(|()| copy_all(&copies, &epochs));
            if copied.is_err() || is_awaited.strong_count() == 0 {
                for file in &all {
                    if let Err(error) = remove(file) {
                        tracing::warn!("{error}");
                    }
                }
            }
            copied
        })
        .await;
        drop(caller);
        copied.map(|()| None)
    }

    async fn fetch_log_segment(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        start_position: u32,
        end_position: Option<u32>,
    ) -> Result<SegmentStream, RemoteStorageError> {
        let path = self.file(metadata, LOG_SUFFIX);
        let (file, size) = blocking(self.permit.clone(), {
            let path = path.clone();
            move || {
                let mut file = open(&path)?;
                let local =
                    |error: std::io::Error| RemoteStorageError::local(&path, "read", &error);
                let size = file.metadata().map_err(local)?.len();
                file.seek(SeekFrom::Start(start_position.into()))
                    .map_err(local)?;
                Ok((file, size))
            }
        })
        .await?;
        check_log_size(&path.display().to_string(), size, metadata)?;
        let end = end_position.map_or(size, |end| size.min(u64::from(end) + 1));
        let remaining = end.saturating_sub(start_position.into());
        let permit = self.permit.clone();
        let parts = stream::try_unfold((file, remaining), move |(mut file, remaining)| {
            let (path, permit) = (path.clone(), permit.clone());
            async move {
                if remaining == 0 {
                    return Ok(None);
                }
                let (part, file) = blocking(permit, move || {
                    let wanted = remaining.min(READ_BYTES as u64);
                    let mut part = Vec::with_capacity(wanted as usize);
                    std::io::Read::by_ref(&mut file)
                        .take(wanted)
                        .read_to_end(&mut part)
                        .map_err(|error| RemoteStorageError::local(&path, "read", &error))?;
                    if part.is_empty() {
                        let name = path.display().to_string();
                        return Err(RemoteStorageError::damaged(&name, "it became shorter"));
                    }
                    Ok((Bytes::from(part), file))
                })
                .await?;
                let remaining = remaining - part.len() as u64;
                Ok(Some((part, (file, remaining))))
            }
        });
        Ok(parts.boxed())
    }

    async fn fetch_index(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Result<Bytes, RemoteStorageError> {
        let path = self.file(metadata, suffix(index));
        let log = self.file(metadata, LOG_SUFFIX);
        blocking(self.permit.clone(), move || {
            read_file(&path).map_err(|mut error| {
                // Kafka writes no file for an index that the segment does not have. Deletions begin
                // with the log.
                if error.kind == RemoteStorageErrorKind::NotFound && fs::metadata(&log).is_ok() {
                    error.kind = RemoteStorageErrorKind::NoIndex;
                }
                error
            })
        })
        .await
    }

    async fn delete_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        if !self.deletes {
            return Ok(());
        }
        let files = self.files(metadata);
        let mut directories = vec![self.root.clone()];
        // The first upload of a partition may have failed before it made the directory.
        if metadata.segment.state != RemoteLogSegmentState::CopySegmentStarted {
            directories.push(self.directory(metadata));
        }
        blocking(self.permit.clone(), move || {
            let mut directories = directories.iter();
            directories.try_for_each(|it| check_mounted(it, "delete files in"))?;
            files.iter().try_for_each(|file| remove(file))
        })
        .await
    }

    async fn stored_objects(&self, metadata: &RemoteLogSegmentMetadata) -> Vec<StoredObject> {
        let log_size = u64::try_from(metadata.segment.segment_size_bytes).ok();
        let log = self.file(metadata, LOG_SUFFIX);
        let mut files = vec![(log, log_size)];
        for index in IndexType::ALL {
            let path = self.file(metadata, suffix(index));
            // Kafka writes no file for an index that is empty or that the segment does not have.
            let is_optional = matches!(index, IndexType::Transaction | IndexType::ProducerSnapshot);
            if is_optional && fs::metadata(&path).is_err() {
                continue;
            }
            files.push((path, None));
        }
        files
            .into_iter()
            .map(|(path, expected_size_bytes)| StoredObject {
                name: path.display().to_string(),
                size_bytes: fs::metadata(&path)
                    .map(|metadata| metadata.len())
                    .map_err(|error| failed(&path, "read", &error)),
                expected_size_bytes,
            })
            .collect()
    }

    async fn close(&self) -> Result<(), RemoteStorageError> {
        if !self.is_emptied_on_close {
            return Ok(());
        }
        let root = self.root.clone();
        blocking(self.permit.clone(), move || empty(&root)).await
    }

    fn location(&self) -> String {
        self.root.display().to_string()
    }
}

/// Removes the directories of all partitions.
fn empty(root: &Path) -> Result<(), RemoteStorageError> {
    for entry in fs::read_dir(root).map_err(|error| failed(root, "read", &error))? {
        let entry = entry.map_err(|error| failed(root, "read", &error))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            fs::remove_dir_all(&path).map_err(|error| failed(&path, "delete", &error))?;
        }
    }
    Ok(())
}

/// Kafka refuses to replace a file; a segment ID is new for every upload.
fn copy_all(
    copies: &[(PathBuf, PathBuf)],
    (epochs_file, epochs): &(PathBuf, Bytes),
) -> Result<(), RemoteStorageError> {
    let directory = epochs_file.parent().unwrap_or(epochs_file);
    // Only this one, as in Kafka: the directory of the store is made when it is opened.
    if let Err(error) = fs::create_dir(directory)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(RemoteStorageError::local(directory, "create", &error));
    }
    for (from, to) in copies {
        let mut source = match open(from) {
            Ok(source) => source,
            Err(error) if error.kind == RemoteStorageErrorKind::NotFound => {
                if to.extension().is_some_and(|suffix| suffix == LOG_SUFFIX) {
                    return Err(error);
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut target = create(to)?;
        std::io::copy(&mut source, &mut target)
            .and_then(|_| target.sync_all())
            .map_err(|error| RemoteStorageError::local(to, "write", &error))?;
    }
    let mut target = create(epochs_file)?;
    target
        .write_all(epochs)
        .and_then(|()| target.sync_all())
        .map_err(|error| RemoteStorageError::local(epochs_file, "write", &error))?;
    // The local segment goes once this has returned, so the names must be on disk too.
    let root = directory.parent().unwrap_or(directory);
    for directory in [directory, root] {
        fs::Dir::open(directory)
            .and_then(|opened| opened.sync())
            .map_err(|error| RemoteStorageError::local(directory, "write", &error))?;
    }
    Ok(())
}

fn create(path: &Path) -> Result<fs::File, RemoteStorageError> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| RemoteStorageError::local(path, "create", &error))
}

fn open(path: &Path) -> Result<fs::File, RemoteStorageError> {
    fs::File::open(path).map_err(|error| failed(path, "read", &error))
}

fn read_file(path: &Path) -> Result<Bytes, RemoteStorageError> {
    fs::read(path)
        .map(Bytes::from)
        .map_err(|error| failed(path, "read", &error))
}

/// No deletion removes the directory of the store or of a partition. If it is missing, the file
/// system is not mounted: files that counted as deleted would stay forever, and segments copied now
/// would be lost.
fn check_mounted(directory: &Path, action: &str) -> Result<(), RemoteStorageError> {
    match fs::metadata(directory) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(RemoteStorageError::new(
            RemoteStorageErrorKind::LocalFile,
            format!("{action} {}", directory.display()),
            "the directory is not there; mount the file system of rsm.config.dir, or create the \
             directory if it was removed on purpose",
        )),
        Err(error) => Err(failed(directory, "read", &error)),
    }
}

fn remove(path: &Path) -> Result<(), RemoteStorageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(path, "delete", &error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, verb: &str, error: &std::io::Error) -> RemoteStorageError {
    let mut failure = RemoteStorageError::local(path, verb, error);
    if error.kind() == ErrorKind::NotFound {
        failure.kind = RemoteStorageErrorKind::NotFound;
    }
    failure
}
