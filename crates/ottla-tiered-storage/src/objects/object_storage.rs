//! Objects by their keys, in any of the stores that the `object_store` crate knows.
//!
//! Owns the connections to the store. Bounds every operation: attempts, time, and the memory of an
//! upload, which is two parts. Errors name the object and contain the store's message.
//!
//! `object_store` takes parts of some answers for granted, and panics at others: Azure's answer to a
//! deletion contains an index. Such an answer is an error of its operation and no more. Otherwise the
//! task of the partition that waits for the operation would wait forever.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload,
};
use ottla_sync::{task, time};

use super::store_error;
use crate::error::{RemoteStorageError, RemoteStorageErrorKind};

/// For the end of an upload whose caller is gone.
const ABORT_TIMEOUT: Duration = Duration::from_secs(60);

/// Attempts to create a file whose directories are deleted meanwhile.
const DIRECTORY_ATTEMPTS: usize = 20;

/// More than a connection reads at once. A response with fewer bytes may be a slice of the buffer
/// that its connection read into.
const LARGEST_READ: usize = 512 << 10;

/// Bytes that are uploaded, in order.
pub type UploadSource<'a> = BoxStream<'a, Result<Bytes, RemoteStorageError>>;

/// A bucket, container or directory.
pub struct ObjectStorage {
    store: Arc<dyn ObjectStore>,
    /// The prefix of keys in messages: `s3://bucket`.
    location: String,
    /// A prefix of keys that messages do not show.
    masked_prefix: Option<String>,
    part_size: usize,
    attributes: Attributes,
    /// For one operation with all its attempts; an upload counts part by part.
    operation_timeout: Option<Duration>,
}

impl ObjectStorage {
    pub fn new(store: Arc<dyn ObjectStore>, location: String, part_size: usize) -> ObjectStorage {
        ObjectStorage {
            store,
            location,
            masked_prefix: None,
            part_size,
            attributes: Attributes::new(),
            operation_timeout: None,
        }
    }

    /// Shows `<prefix>` instead of this prefix in messages (`key.prefix.mask`).
    pub fn mask_prefix(mut self, prefix: &str) -> ObjectStorage {
        self.masked_prefix = Some(prefix.to_owned());
        self
    }

    pub fn storage_class(mut self, class: &str) -> ObjectStorage {
        self.attributes
            .insert(Attribute::StorageClass, class.to_owned().into());
        self
    }

    pub fn operation_timeout(mut self, timeout: Option<Duration>) -> ObjectStorage {
        self.operation_timeout = timeout;
        self
    }

    pub fn location(&self) -> &str {
        &self.location
    }

    /// The object as messages name it.
    pub fn name(&self, key: &str) -> String {
        match &self.masked_prefix {
            Some(prefix) => {
                let rest = key.strip_prefix(prefix.as_str()).unwrap_or(key);
                format!("{}/<prefix>/{rest}", self.location)
            }
            None => format!("{}/{key}", self.location),
        }
    }

    /// A whole object. If it has more than `limit` bytes, it is damaged, and nothing of it is read:
    /// its size says how much memory that would take.
    pub async fn get(&self, key: &str, limit: u64) -> Result<Bytes, RemoteStorageError> {
        let path = self.path(key)?;
        let read = async {
            let found = self.store.get(&path).await?;
            let size = found.meta.size;
            if size > limit {
                return Ok::<_, object_store::Error>(Err(size));
            }
            Ok(Ok(found.bytes().await?))
        };
        let read = self.bounded("fetch", key, read).await?;
        read.map_err(|size| {
            let cause = format!("it has {size} bytes, more than {limit}");
            RemoteStorageError::damaged(&self.name(key), cause)
        })
    }

    /// Bytes of an object, in a buffer of their size: caches keep them. Fewer than requested if the
    /// object is shorter.
    pub async fn get_range(
        &self,
        key: &str,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, RemoteStorageError> {
        let path = self.path(key)?;
        let bytes = self
            .bounded("fetch", key, self.store.get_range(&path, range))
            .await?;
        if bytes.len() < LARGEST_READ {
            return Ok(Bytes::copy_from_slice(&bytes));
        }
        Ok(bytes)
    }

    pub async fn size(&self, key: &str) -> Result<u64, RemoteStorageError> {
        let path = self.path(key)?;
        let head = self.bounded("look up", key, self.store.head(&path)).await?;
        Ok(head.size)
    }

    /// Uploads an object and returns its size: in one request if it fits into a part, otherwise in
    /// parts of one size. One part is sent while the next one is filled. After an error, and if
    /// this is dropped, the store keeps no parts, as far as it can be reached.
    pub async fn upload(
        &self,
        key: &str,
        mut source: UploadSource<'_>,
    ) -> Result<u64, RemoteStorageError> {
        let path = self.path(key)?;
        let mut filled = Part::default();
        let mut total = 0;
        let mut parts: Option<Parts> = None;
        let result = async {
            while let Some(mut bytes) = source.try_next().await? {
                total += bytes.len() as u64;
                while filled.size + bytes.len() >= self.part_size {
                    let room = self.part_size - filled.size;
                    filled.push(bytes.split_to(room));
                    let parts = match &mut parts {
                        Some(parts) => parts,
                        none => none.insert(Parts {
                            upload: Some(self.start(key, &path).await?),
                            sending: task::JoinSet::new(),
                            name: self.name(key),
                        }),
                    };
                    self.send(key, parts, std::mem::take(&mut filled)).await?;
                }
                filled.push(bytes);
            }
            let Some(parts) = &mut parts else {
                let payload = std::mem::take(&mut filled).payload();
                let put = || {
                    let options = PutOptions {
                        attributes: self.attributes.clone(),
                        ..PutOptions::default()
                    };
                    self.store.put_opts(&path, payload.clone(), options)
                };
                self.creating("upload", key, put).await?;
                return Ok(());
            };
            if filled.size > 0 {
                self.send(key, parts, std::mem::take(&mut filled)).await?;
            }
            self.finish_sending(key, parts).await?;
            self.bounded("complete the upload of", key, parts.begun().complete())
                .await?;
            parts.upload = None;
            Ok(())
        }
        .await;
        if let (Err(_), Some(parts)) = (&result, &mut parts) {
            parts.sending.shutdown().await;
            let abort = self.bounded("abort the upload of", key, parts.begun().abort());
            if let Err(error) = abort.await {
                tracing::warn!("{error}; the store keeps the parts until it expires them");
            }
            parts.upload = None;
        }
        result.map(|()| total)
    }

    /// Deletes objects; missing objects count as deleted.
    pub async fn delete(&self, keys: &[String]) -> Result<(), RemoteStorageError> {
        let paths: Vec<Path> = keys
            .iter()
            .map(|key| self.path(key))
            .collect::<Result<_, _>>()?;
        // One by one: few objects make up a segment, and not every store has bulk deletion.
        let mut first_error = None;
        for (key, path) in keys.iter().zip(&paths) {
            match self.bounded("delete", key, self.store.delete(path)).await {
                Ok(()) => {}
                Err(error) if error.kind == RemoteStorageErrorKind::NotFound => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn start(
        &self,
        key: &str,
        path: &Path,
    ) -> Result<Box<dyn MultipartUpload>, RemoteStorageError> {
        let start = || {
            let options = PutMultipartOptions {
                attributes: self.attributes.clone(),
                ..PutMultipartOptions::default()
            };
            self.store.put_multipart_opts(path, options)
        };
        self.creating("start the upload of", key, start).await
    }

    /// Runs an operation that creates an object. In a directory, the operation first creates the
    /// directories of the file, and every deletion removes the directories that it empties: an
    /// upload and a deletion in the same place, also by different brokers, may meet between the two
    /// steps. The operation is then repeated.
    async fn creating<T, F>(
        &self,
        verb: &str,
        key: &str,
        operation: impl Fn() -> F,
    ) -> Result<T, RemoteStorageError>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        for _ in 1..DIRECTORY_ATTEMPTS {
            match self.within(key, operation()).await? {
                Err(error) if is_directory_missing(&error) => {}
                ended => return ended.map_err(|error| self.failed(verb, key, &error)),
            }
        }
        self.bounded(verb, key, operation()).await
    }

    /// Starts sending a part, after the one before it has been sent.
    async fn send(
        &self,
        key: &str,
        parts: &mut Parts,
        part: Part,
    ) -> Result<(), RemoteStorageError> {
        self.finish_sending(key, parts).await?;
        let sending = parts.begun().put_part(part.payload());
        parts.sending.spawn(sending);
        Ok(())
    }

    async fn finish_sending(&self, key: &str, parts: &mut Parts) -> Result<(), RemoteStorageError> {
        let Some(sent) = self.within(key, parts.sending.join_next()).await? else {
            return Ok(());
        };
        match sent {
            Ok(sent) => sent.map_err(|error| self.failed("upload", key, &error)),
            Err(error) if error.is_panic() => Err(self.panicked(key, &*error.into_panic())),
            Err(error) => {
                let what = format!("upload {}", self.name(key));
                Err(RemoteStorageError::cancelled(what, error))
            }
        }
    }

    async fn bounded<T>(
        &self,
        verb: &str,
        key: &str,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, RemoteStorageError> {
        self.within(key, operation)
            .await?
            .map_err(|error| self.failed(verb, key, &error))
    }

    async fn within<T>(
        &self,
        key: &str,
        operation: impl Future<Output = T>,
    ) -> Result<T, RemoteStorageError> {
        // The state of an operation that panicked is not used again.
        let operation = AssertUnwindSafe(operation).catch_unwind();
        let ended = match self.operation_timeout {
            None => operation.await,
            Some(timeout) => time::timeout(timeout, operation).await.map_err(|_| {
                let what = format!("wait for {}", self.name(key));
                store_error::no_answer(&self.location, what, timeout)
            })?,
        };
        ended.map_err(|panic| self.panicked(key, &*panic))
    }

    /// The panic itself was reported where it happened.
    fn panicked(&self, key: &str, panic: &(dyn Any + Send)) -> RemoteStorageError {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let cause = format!(
            "the client cannot handle what the store answered: {}",
            text.unwrap_or("it panicked")
        );
        let what = format!("access {}", self.name(key));
        RemoteStorageError::new(RemoteStorageErrorKind::Unavailable, what, cause)
    }

    fn path(&self, key: &str) -> Result<Path, RemoteStorageError> {
        let path = Path::parse(key).map_err(|error| error.to_string());
        match path {
            Ok(path) if path.as_ref() == key => Ok(path),
            Ok(_) => Err("a key has no slash at its beginning or end".to_owned()),
            Err(error) => Err(error),
        }
        .map_err(|error| {
            RemoteStorageError::new(RemoteStorageErrorKind::Settings, self.name(key), error)
        })
    }

    fn failed(&self, verb: &str, key: &str, error: &object_store::Error) -> RemoteStorageError {
        let what = format!("{verb} {}", self.name(key));
        store_error::failed(&self.location, what, error)
    }
}

/// The parts of an upload. Dropping it stops the one that is being sent, and has the store forget
/// the others: they take room there, and no listing of objects shows them.
struct Parts {
    /// Until it is complete or aborted.
    upload: Option<Box<dyn MultipartUpload>>,
    sending: task::JoinSet<object_store::Result<()>>,
    /// The object as messages name it.
    name: String,
}

impl Parts {
    fn begun(&mut self) -> &mut Box<dyn MultipartUpload> {
        let upload = self.upload.as_mut();
        upload.expect("it is neither complete nor aborted")
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Without a runtime the process ends.
        let (Some(mut upload), Ok(runtime)) = (self.upload.take(), task::Handle::try_current())
        else {
            return;
        };
        let mut sending = std::mem::take(&mut self.sending);
        let name = std::mem::take(&mut self.name);
        runtime.spawn(async move {
            sending.shutdown().await;
            let failed = match time::timeout(ABORT_TIMEOUT, upload.abort()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => store_error::cause(&error),
                Err(_) => "no answer".to_owned(),
            };
            tracing::warn!(
                "abort the upload of {name}: {failed}; the store keeps the parts until it expires \
                 them"
            );
        });
    }
}

/// A part that is being filled.
#[derive(Default)]
struct Part {
    pieces: Vec<Bytes>,
    size: usize,
}

impl Part {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.size += piece.len();
            self.pieces.push(piece);
        }
    }

    fn payload(self) -> PutPayload {
        self.pieces.into_iter().collect()
    }
}

/// A source with one piece.
pub fn once(bytes: impl Into<Bytes>) -> UploadSource<'static> {
    let bytes = bytes.into();
    stream::once(async move { Ok(bytes) }).boxed()
}

/// Whether the error of an upload comes from a file system that has no such directory. Errors of
/// servers contain no such error of the system.
fn is_directory_missing(error: &object_store::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let of_system = inner.downcast_ref::<std::io::Error>();
        if of_system.is_some_and(|it| it.kind() == std::io::ErrorKind::NotFound) {
            return true;
        }
        source = inner.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_operation_that_panics_is_an_error_that_names_the_object() {
        for timeout in [None, Some(Duration::from_secs(60))] {
            let store = Arc::new(object_store::memory::InMemory::new());
            let storage = ObjectStorage::new(store, "s3://bucket".to_owned(), 5 << 20);
            let storage = storage.operation_timeout(timeout);
            let (index, none) = (7, Vec::<u8>::new());
            let ended = storage.within("key", async { none[index] }).await;
            let error = ended.unwrap_err();
            assert_eq!(error.what, "access s3://bucket/key");
            assert!(error.cause.contains("index is 7"), "{error}");
            assert!(error.is_retriable());
        }
    }

    #[test]
    fn an_upload_is_an_error_if_the_threads_end_that_send_its_parts() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let store = Arc::new(object_store::memory::InMemory::new());
        let storage = ObjectStorage::new(store, "s3://bucket".to_owned(), 10);
        let pieces = [1_u8, 2].map(|byte| Ok::<_, RemoteStorageError>(Bytes::from(vec![byte; 10])));
        let mut upload = Box::pin(storage.upload("key", stream::iter(pieces).boxed()));
        {
            let _entered = runtime.enter();
            let ended = upload.as_mut().now_or_never();
            assert!(ended.is_none(), "the first part is not sent yet");
        }
        drop(runtime);
        let ended = upload.now_or_never().expect("it does not wait");
        let error = ended.unwrap_err();
        assert_eq!(
            error.to_string(),
            "upload s3://bucket/key: the broker stops"
        );
        assert!(error.is_retriable());
    }

    #[tokio::test]
    async fn a_file_is_created_again_if_its_directory_is_deleted_meanwhile() {
        use std::cell::Cell;
        use std::io::ErrorKind;
        let store = Arc::new(object_store::memory::InMemory::new());
        let storage = ObjectStorage::new(store, "file:///store".to_owned(), 5 << 20);
        for (kind, failures, attempts, succeeds) in [
            (ErrorKind::NotFound, 3, 4, true),
            (ErrorKind::NotFound, usize::MAX, DIRECTORY_ATTEMPTS, false),
            (ErrorKind::PermissionDenied, 1, 1, false),
        ] {
            let begun = Cell::new(0);
            let create = || {
                begun.set(begun.get() + 1);
                let fails = begun.get() <= failures;
                async move {
                    if !fails {
                        return Ok(());
                    }
                    Err(object_store::Error::Generic {
                        store: "LocalFileSystem",
                        source: Box::new(std::io::Error::from(kind)),
                    })
                }
            };
            let created = storage.creating("upload", "key", create).await;
            assert_eq!((begun.get(), created.is_ok()), (attempts, succeeds));
        }
    }
}
