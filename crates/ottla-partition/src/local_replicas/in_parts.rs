//! Work on very many items by several threads, as at a start.

use ottla_sync::task::Handle;

/// As many items are worth a thread.
const ITEMS_PER_THREAD: usize = 250;

/// Calls `work` with parts of `items`, each on its own thread, and returns the results in the order
/// of the parts. Few items, as of nearly every change, are one part for this thread. The threads may
/// spawn tasks if this one may.
pub(super) fn in_parts<'a, T: Sync, R: Send>(
    items: &'a [T],
    threads: usize,
    work: impl Fn(&'a [T]) -> R + Sync,
) -> Vec<R> {
    let at_once = items.len().div_ceil(threads.max(1)).max(ITEMS_PER_THREAD);
    if items.len() <= at_once {
        return vec![work(items)];
    }
    let runtime = Handle::try_current().ok();
    let (work, runtime) = (&work, &runtime);
    ottla_sync::thread::scope(|scope| {
        let parts = items.chunks(at_once);
        let threads: Vec<_> = parts
            .map(|part| {
                scope.spawn(move || {
                    let _runtime = runtime.as_ref().map(|runtime| runtime.enter());
                    work(part)
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_one_part_and_the_results_are_in_order() {
        for count in [0, 1, ITEMS_PER_THREAD, ITEMS_PER_THREAD + 1, 5_500] {
            let items: Vec<usize> = (0..count).collect();
            for threads in [1, 2, 3, 16] {
                let parts = in_parts(&items, threads, |part| {
                    (std::thread::current().id(), part.to_vec())
                });
                let is_split = threads > 1 && count > ITEMS_PER_THREAD;
                assert_eq!(parts.len() > 1, is_split, "{count} on {threads}");
                assert!(parts.len() <= threads);
                for (thread, _) in &parts {
                    let is_here = *thread == std::thread::current().id();
                    assert_eq!(is_here, !is_split, "{count} on {threads}");
                }
                let all: Vec<usize> = parts.into_iter().flat_map(|(_, part)| part).collect();
                assert_eq!(all, items, "{count} on {threads}");
            }
        }
    }
}
