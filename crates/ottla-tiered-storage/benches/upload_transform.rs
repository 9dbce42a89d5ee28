//! Processor time of what happens to a segment between its file and the store, without the store:
//! `cargo bench -p ottla-tiered-storage`.
//!
//! A segment of 256 MiB with records of text that zstd makes three times smaller, chunks of 4 MiB, five
//! rounds in turn; prints CPU seconds per GB (10⁹ bytes) of the segment: minimum, median, maximum.
//! `read` is the segment read in the same pieces and thrown away, so the rest is the transformation.

use std::io::Cursor;
use std::time::Duration;

use ottla_tiered_storage::{ChunkTransform, DataKey};

const SEGMENT: usize = 256 << 20;
const CHUNK: u32 = 4 << 20;
const ROUNDS: usize = 5;

fn main() {
    // Clippy and tests start benches too, and want no figures.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let segment = segment();
    let forms: [(&str, bool, bool); 4] = [
        ("read", false, false),
        ("zstd", true, false),
        ("AES-GCM", false, true),
        ("zstd, AES-GCM", true, true),
    ];
    let mut figures = vec![Vec::new(); forms.len()];
    let mut sizes = vec![0; forms.len()];
    for _ in 0..ROUNDS {
        for (at, (_, compresses, encrypts)) in forms.into_iter().enumerate() {
            let key = encrypts.then(DataKey::generate);
            let mut transform = ChunkTransform::new(CHUNK, compresses, key);
            let mut source = Cursor::new(&segment);
            let began = cpu_time();
            let mut size = 0;
            while let Some(chunk) = transform.next(&mut source).expect("memory is read") {
                size += chunk.len();
            }
            let took = cpu_time() - began;
            figures[at].push(took.as_secs_f64() / (SEGMENT as f64 / 1e9));
            sizes[at] = size;
        }
    }
    println!("form            CPU s/GB: min   median  max     size");
    for ((name, ..), (figures, size)) in forms.iter().zip(figures.iter_mut().zip(sizes)) {
        figures.sort_by(f64::total_cmp);
        println!(
            "{name:<16}         {:.3}  {:.3}  {:.3}   {:.2}",
            figures[0],
            figures[ROUNDS / 2],
            figures[ROUNDS - 1],
            size as f64 / SEGMENT as f64
        );
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Records like those of an event log: the same words in changing order, and numbers.
fn segment() -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "order",
        "customer",
        "shipped",
        "cancelled",
        "invoice",
        "warehouse",
        "payment",
        "return",
    ];
    let mut state = 1u64;
    let mut segment = Vec::with_capacity(SEGMENT + 200);
    while segment.len() < SEGMENT {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = state >> 20;
        let word = |shift: u64| WORDS[(state >> shift) as usize % WORDS.len()];
        let record = format!(
            "{{\"id\":{number},\"event\":\"{}-{}\",\"place\":\"{}\",\"amount\":{}}}\n",
            word(33),
            word(40),
            word(50),
            number % 100_000
        );
        segment.extend_from_slice(record.as_bytes());
    }
    segment.truncate(SEGMENT);
    segment
}
