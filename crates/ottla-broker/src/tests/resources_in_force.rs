//! Settings about the machine's resources, observed from outside: the page cache.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use ottla_metrics::Metric;
use ottla_protocol::Records;
use ottla_types::Offset;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use super::produce_and_fetch::{batch, produce_to};
use super::{TestBroker, share_groups};

const BATCHES: usize = 16;
const BATCH_BYTES: usize = 900_000;

/// In the build directory, because the directory for temporary files may not be on a disk.
fn data_on_a_disk() -> tempfile::TempDir {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::fs::create_dir_all(&beside).expect("a directory");
    tempfile::tempdir_in(beside).expect("a directory")
}

/// The segments of a partition.
fn segments(partition_dir: &Path) -> impl Iterator<Item = File> {
    let entries = std::fs::read_dir(partition_dir).expect("the partition is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.map(|path| File::open(path).expect("a segment"))
}

/// The number of bytes of a partition's log in the page cache.
fn cached_bytes(partition_dir: &Path) -> usize {
    segments(partition_dir)
        .map(|file| cached_pages(&file) * page_size())
        .sum()
}

/// Asks `mincore`. A read with `RWF_NOWAIT` would change the result: for a missing page it starts
/// read-ahead, so that a probe of every page brings the whole file back into the cache.
fn cached_pages(file: &File) -> usize {
    let len = file.metadata().expect("its size").len() as usize;
    if len == 0 {
        return 0;
    }
    let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: the kernel chooses the address, and nothing reads the mapping.
    let address = unsafe { mmap(std::ptr::null_mut(), len, read, shared, file, 0) };
    let address = address.expect("a mapping");
    let mut pages = vec![0_u8; len.div_ceil(page_size())];
    // SAFETY: the mapping has `len` bytes, and `pages` has a byte for each of its pages.
    let result = unsafe { libc::mincore(address, len, pages.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was mapped above, and nothing refers to it.
    unsafe { munmap(address, len) }.expect("it is mapped");
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

#[tokio::test]
async fn ottla_page_cache_max_bytes_and_ottla_writeback_bytes() {
    let mib = "1048576";
    for (writeback_bytes, max_bytes, is_dropped) in [
        (mib, mib, true),
        (mib, "-1", false),
        (mib, "-2", false),
        ("0", mib, false),
    ] {
        let (cached, size) = cached_of_written(writeback_bytes, max_bytes, is_dropped).await;
        let is_as_set = match is_dropped {
            true => cached < size / 2,
            false => cached > size / 4 * 3,
        };
        let what = format!("{writeback_bytes}, {max_bytes}: cached {cached} of {size} bytes");
        assert!(is_as_set, "{what}");
    }
}

/// Writes records, and returns how many of their bytes are in the page cache, and the total. If
/// pages are to be dropped, it continues until they are, for ten seconds.
async fn cached_of_written(
    writeback_bytes: &str,
    max_bytes: &str,
    is_dropped: bool,
) -> (usize, usize) {
    let data = data_on_a_disk();
    let broker = TestBroker::start_with(&[
        ("ottla.writeback.bytes", writeback_bytes),
        ("ottla.page.cache.max.bytes", max_bytes),
        (
            "log.dirs",
            data.path().to_str().expect("a path of characters"),
        ),
    ])
    .await;
    // The timestamps of the records are old.
    let settings = [("retention.ms", "-1")];
    broker.create_topic("orders", 1, &settings).await;
    let mut client = broker.connect().await;
    let value = "x".repeat(BATCH_BYTES);
    let dir = broker.partition("orders", 0).reader().dir();
    let started = Instant::now();
    loop {
        for _ in 0..BATCHES {
            let request = produce_to("orders", 0, 1, batch(&[&value]));
            client.ask(9, &request).await;
            // A page that was not written to disk yet is not dropped, and no disk is fast enough
            // for a test that runs in parallel with other tests.
            if is_dropped {
                segments(&dir).for_each(|file| file.sync_data().expect("a disk"));
            }
        }
        let size = broker.partition("orders", 0).reader().size() as usize;
        let cached = cached_bytes(&dir);
        let is_over = started.elapsed() > Duration::from_secs(60);
        if !is_dropped || cached < size / 2 || is_over {
            return (cached, size);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Otherwise it would drop pages that their members are about to read, and not notice that they
/// read them from disk.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_cache_knows_the_reads_of_share_groups() {
    let (broker, mut client) = share_groups::broker(&[]).await;
    share_groups::produce(&mut client, &["a", "b"]).await;
    let partition = broker.partition("t", 0);
    let slowest = || partition.readers.slowest(broker.broker().now_ms());
    let reread = || broker.broker().context.metrics.get(Metric::PageCacheReread);
    assert_eq!((slowest(), reread()), (None, 0));
    partition.readers.note_dropped(Offset(1));
    let request = share_groups::fetching("m1", 0, &[]);
    let fetched = share_groups::fetch(&mut client, &request).await;
    let sent = fetched.records.as_ref().map_or(0, Records::len);
    assert!(sent > 0);
    assert_eq!((slowest(), reread()), (Some(Offset(0)), sent));
}
