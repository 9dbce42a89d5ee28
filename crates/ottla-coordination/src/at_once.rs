//! Bounded concurrency for a number of requests that a client chooses.

use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, StreamExt, stream};

/// Sends all questions, `limit` at a time, and returns the answers in their order; `None` for a
/// question that panicked, which is reported where it happened. Dropping the future cancels
/// unanswered questions.
pub async fn each_at_once<Q, T, F: Future<Output = T>>(
    limit: usize,
    questions: impl IntoIterator<Item = Q>,
    ask: impl Fn(Q) -> F,
) -> Vec<Option<T>> {
    assert!(limit > 0, "nothing would ever be asked");
    // State left by a panicked question is not used again, as if it had been a task.
    let asking = |(index, question)| {
        let asking = AssertUnwindSafe(ask(question)).catch_unwind();
        async move { (index, asking.await.ok()) }
    };
    let questions = stream::iter(questions.into_iter().enumerate());
    // Unordered, so that a slow question does not delay others; the answers are sorted at the end.
    let mut answers: Vec<_> = questions
        .map(asking)
        .buffer_unordered(limit)
        .collect()
        .await;
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn as_many_as_are_allowed_are_asked_side_by_side() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // None is answered before two are asked.
        let both = Arc::new(Semaphore::new(0));
        let answers = each_at_once(2, 0..6, |number| {
            let (running, most, both) = (running.clone(), most.clone(), both.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                if running.load(Relaxed) == 2 {
                    both.add_permits(2);
                }
                both.acquire().await.expect("it is open").forget();
                running.fetch_sub(1, Relaxed);
                number
            }
        });
        let answers: Vec<_> = answers.await.into_iter().flatten().collect();
        assert_eq!(answers, Vec::from_iter(0..6));
        assert_eq!(most.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn a_pending_request_does_not_delay_the_others() {
        // The first future completes only after the last one has started, and one more may run next
        // to it.
        let last_asked = Arc::new(Semaphore::new(0));
        let answers = each_at_once(2, 0..6, |number| {
            let last_asked = last_asked.clone();
            async move {
                match number {
                    0 => last_asked.acquire().await.expect("it is open").forget(),
                    5 => last_asked.add_permits(1),
                    _ => {}
                }
                number
            }
        });
        let answers = tokio::time::timeout(Duration::from_secs(60), answers).await;
        let answers: Vec<_> = answers
            .expect("all are answered")
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(answers, Vec::from_iter(0..6));
    }

    #[tokio::test]
    async fn a_future_that_panics_has_no_result() {
        let answers = each_at_once(1, [1, 2, 3], |number| async move {
            assert_ne!(number, 2);
            number
        });
        assert_eq!(answers.await, [Some(1), None, Some(3)]);
    }
}
