//! Event streams (`text/event-stream`): a task that sends, and a response that ends it.
//!
//! The task is aborted when the browser closes the connection, when the user logs out, and after a
//! time for which no page stays open. The queue is bounded; a browser that reads nothing stops the
//! task.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::problem::Problem;
use crate::visit::Visit;

/// Events that wait to be sent, and their size. A larger event waits alone.
const WAITING: usize = 64;
pub(crate) const WAITING_BYTES: usize = 2 << 20;
/// A browser that reads no event for this time is gone without closing the connection.
const STALLED: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);

/// Sends the events or the bytes of one stream.
#[derive(Clone)]
pub(crate) struct Sender {
    waiting: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

/// Bytes, with their permit in the queue.
type Waiting = (Bytes, OwnedSemaphorePermit);

/// The stream's receiver is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Sender {
    pub(crate) async fn send(&self, event: &str, data: &impl Serialize) -> Result<(), Gone> {
        let mut text = format!("event: {event}\ndata: ").into_bytes();
        // The data has no line breaks, because JSON escapes them.
        serde_json::to_writer(&mut text, data).map_err(|_| Gone)?;
        text.extend_from_slice(b"\n\n");
        self.send_bytes(text.into()).await
    }

    pub(crate) async fn send_bytes(&self, bytes: Bytes) -> Result<(), Gone> {
        let size = bytes.len().min(WAITING_BYTES) as u32;
        let sending = async {
            let room = self.room.clone().acquire_many_owned(size).await;
            let room = room.map_err(|_| Gone)?;
            self.waiting.send((bytes, room)).await.map_err(|_| Gone)
        };
        tokio::time::timeout(STALLED, sending)
            .await
            .unwrap_or(Err(Gone))
    }

    fn new() -> (Sender, mpsc::Receiver<Waiting>) {
        let (waiting, receiver) = mpsc::channel(WAITING);
        let room = Arc::new(Semaphore::new(WAITING_BYTES));
        (Sender { waiting, room }, receiver)
    }
}

/// How the work of a stream fails: the reader is gone, or there is a problem to be shown.
pub(crate) enum Failure {
    Gone,
    Problem(Problem),
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Failure {
        Failure::Gone
    }
}

impl<E: Into<Problem>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Problem(error.into())
    }
}

/// A response whose events the work sends. Its last event is `problem` if the work fails.
pub(crate) fn events<F>(
    visit: Arc<Visit>,
    work: impl FnOnce(Sender) -> F,
) -> Result<Response, Problem>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let place = visit.stream()?;
    let (sender, receiver) = Sender::new();
    let last = sender.clone();
    let work = work(sender);
    let task = tokio::spawn(until_over(visit, async move {
        if let Err(Failure::Problem(problem)) = work.await {
            let _ = last.send("problem", &problem).await;
        }
    }));
    let kind = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // A proxy must not collect the events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((kind, body(receiver, task, place)).into_response())
}

/// A response whose bytes the work sends. If the work fails, the response breaks off, so that it is
/// not taken for complete.
pub(crate) fn download<F>(
    visit: Arc<Visit>,
    work: impl FnOnce(Sender) -> F,
) -> Result<Body, Problem>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let place = visit.stream()?;
    let (sender, receiver) = Sender::new();
    let (failed, has_failed) = tokio::sync::oneshot::channel();
    let work = work(sender);
    let task = tokio::spawn(until_over(visit, async move {
        match work.await {
            Ok(()) => drop(failed.send(None)),
            Err(Failure::Gone) => drop(failed.send(Some("the reader is gone".to_owned()))),
            Err(Failure::Problem(problem)) => {
                tracing::warn!("an export broke off: {}", problem.detail());
                drop(failed.send(Some(problem.detail().to_owned())));
            }
        }
    }));
    let stream = Stream {
        receiver,
        _task: AbortOnDrop(task),
        _place: place,
    };
    let parts = futures_util::stream::unfold(
        (stream, Some(has_failed)),
        |(mut stream, has_failed)| async move {
            if let Some((bytes, _room)) = stream.receiver.recv().await {
                return Some((Ok(bytes), (stream, has_failed)));
            }
            let failure = match has_failed?.await {
                Ok(failure) => failure?,
                Err(_) => "it was ended".to_owned(),
            };
            Some((Err(std::io::Error::other(failure)), (stream, None)))
        },
    );
    Ok(Body::from_stream(parts))
}

struct Stream {
    receiver: mpsc::Receiver<Waiting>,
    _task: AbortOnDrop,
    _place: OwnedSemaphorePermit,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn body(
    receiver: mpsc::Receiver<Waiting>,
    task: JoinHandle<()>,
    place: OwnedSemaphorePermit,
) -> Body {
    let stream = Stream {
        receiver,
        _task: AbortOnDrop(task),
        _place: place,
    };
    let parts = futures_util::stream::unfold(stream, |mut stream| async move {
        let (bytes, _room) = stream.receiver.recv().await?;
        Some((Ok::<_, Infallible>(bytes), stream))
    });
    Body::from_stream(parts)
}

/// The work, until the visit ends or it has taken too long.
async fn until_over(visit: Arc<Visit>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = visit.ended() => {}
        () = tokio::time::sleep(LONGEST) => {}
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use ottla_client::ClientConfig;

    use super::*;
    use crate::budget::Budget;
    use crate::sampling::Sampling;

    fn visit() -> Arc<Visit> {
        let config = ClientConfig::new("127.0.0.1:1").unwrap();
        let (budget, sampling) = (Budget::default(), Sampling::new(None));
        Arc::new(Visit::new(None, config, budget, sampling))
    }

    #[tokio::test]
    async fn the_work_ends_when_the_browser_goes() {
        let (alive, mut is_over) = mpsc::channel::<()>(1);
        let response = events(visit(), |sender| async move {
            let _alive = alive;
            loop {
                sender.send("progress", &1).await?;
            }
        });
        let mut body = response.ok().unwrap().into_body().into_data_stream();
        assert_eq!(
            body.next().await.unwrap().unwrap(),
            "event: progress\ndata: 1\n\n"
        );
        drop(body);
        assert!(is_over.recv().await.is_none());
    }

    #[tokio::test]
    async fn the_work_ends_with_the_visit_and_a_problem_is_the_last_event() {
        let visit = visit();
        let response = events(visit.clone(), |_sender| std::future::pending());
        let mut body = response.ok().unwrap().into_body().into_data_stream();
        visit.end();
        assert!(body.next().await.is_none());

        let response = events(self::visit(), |_sender| async {
            Err(Failure::Problem(Problem::not_found("gone")))
        });
        let mut body = response.ok().unwrap().into_body().into_data_stream();
        let last = body.next().await.unwrap().unwrap();
        assert!(last.starts_with(b"event: problem\ndata: {"));
        assert!(body.next().await.is_none());
    }

    #[tokio::test]
    async fn there_are_so_many_streams_and_no_more() {
        let visit = visit();
        let mut open = Vec::new();
        let refused = loop {
            match events(visit.clone(), |_sender| std::future::pending()) {
                Ok(response) => open.push(response),
                Err(problem) => break problem,
            }
            assert!(open.len() < 1000);
        };
        assert_eq!(refused.status(), 429);
        open.pop();
        assert!(events(visit, |_sender| std::future::pending()).is_ok());
    }

    #[tokio::test]
    async fn the_queue_to_the_browser_is_bounded_in_bytes() {
        let (sent, mut has_sent) = mpsc::unbounded_channel();
        let body = download(visit(), |sender| async move {
            for _ in 0..10 {
                let bytes = Bytes::from(vec![0; WAITING_BYTES / 2]);
                sender.send_bytes(bytes).await?;
                let _ = sent.send(());
            }
            Ok(())
        });
        let mut parts = body.ok().unwrap().into_data_stream();
        for _ in 0..2 {
            has_sent.recv().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(has_sent.try_recv().is_err(), "there is no room for a third");
        parts.next().await.unwrap().unwrap();
        has_sent.recv().await.unwrap();
    }

    #[tokio::test]
    async fn a_download_that_fails_breaks_off() {
        let body = download(visit(), |sender| async move {
            sender.send_bytes(Bytes::from_static(b"half")).await?;
            Err(Failure::Problem(Problem::not_found("gone")))
        });
        let mut parts = body.ok().unwrap().into_data_stream();
        assert_eq!(parts.next().await.unwrap().unwrap(), "half");
        assert!(parts.next().await.unwrap().is_err());
        assert!(parts.next().await.is_none());
    }
}
