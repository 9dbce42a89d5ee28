//! Compares the replicas of a partition as bytes: once all have caught up, their logs must be the
//! same, batch by batch.

use std::path::Path;

use anyhow::{Context, Result};

use super::Member;

/// Compares the logs of a partition on all brokers that have a replica; reports where one differs
/// from the first.
pub fn compare(brokers: &[Member], partition: &str) -> Result<(u64, Vec<String>)> {
    let mut replicas = Vec::new();
    for broker in brokers {
        if let Some(folder) = broker.partition_dir(partition) {
            replicas.push((broker.name(), log_of(&folder)?));
        }
    }
    Ok(compare_logs(&replicas, partition))
}

/// Like [`compare`], and reports another number of replicas than this: one alone differs from none.
pub fn compare_each(
    brokers: &[Member],
    partition: &str,
    replicas: usize,
) -> Result<(u64, Vec<String>)> {
    let (bytes, mut wrong) = compare(brokers, partition)?;
    let has_replica = |broker: &&Member| broker.partition_dir(partition).is_some();
    let found = brokers.iter().filter(has_replica).count();
    if found != replicas {
        wrong.push(format!("{partition} has {found} replicas, not {replicas}"));
    }
    Ok((bytes, wrong))
}

/// Like [`compare`], for logs that may start and end at different offsets: compares only their
/// common range. A metadata log replica that started with a snapshot lacks all earlier batches.
pub fn compare_common(members: &[Member], partition: &str) -> Result<(u64, Vec<String>)> {
    let mut replicas = Vec::new();
    for member in members {
        let folder = member.partition_dir(partition);
        let folder = folder.with_context(|| format!("{} has no {partition}", member.name()))?;
        replicas.push((member.name(), log_of(&folder)?));
    }
    keep_common(&mut replicas);
    let (bytes, mut parted) = compare_logs(&replicas, partition);
    if bytes == 0 {
        parted.push(format!(
            "the replicas of {partition} have nothing in common"
        ));
    }
    Ok((bytes, parted))
}

fn keep_common(replicas: &mut [(String, Vec<u8>)]) {
    let starts = replicas.iter().filter_map(|(_, log)| first_batch(log));
    let start = starts.map(|(base_offset, _)| base_offset).max();
    for (_, log) in &mut *replicas {
        let mut skipped = 0;
        while let Some((base_offset, size)) = first_batch(&log[skipped..])
            && Some(base_offset) < start
        {
            skipped += size;
        }
        log.drain(..skipped);
    }
    let shortest = replicas.iter().map(|(_, log)| log.len()).min();
    for (_, log) in replicas {
        log.truncate(shortest.unwrap_or(0));
    }
}

/// The base offset and the size in bytes of the first batch of a log.
fn first_batch(log: &[u8]) -> Option<(u64, usize)> {
    let (base_offset, rest) = log.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    Some((
        u64::from_be_bytes(*base_offset),
        12 + length.min(rest.len()),
    ))
}

fn compare_logs(replicas: &[(String, Vec<u8>)], partition: &str) -> (u64, Vec<String>) {
    let Some(((of_first, expected), others)) = replicas.split_first() else {
        return (0, vec![format!("{partition}: no broker has a replica")]);
    };
    let mut wrong = Vec::new();
    for (name, log) in others {
        let differs = expected.iter().zip(log).position(|(a, b)| a != b);
        let is_shorter = expected.len() != log.len();
        let at = differs.or(is_shorter.then_some(expected.len().min(log.len())));
        if let Some(at) = at {
            wrong.push(format!(
                "{partition}: the replica of {name} ({} bytes) and that of {of_first} ({} bytes) part at byte {at}",
                log.len(),
                expected.len(),
            ));
        }
    }
    (expected.len() as u64, wrong)
}

/// The concatenated segments of a log; where segments roll differs between brokers.
fn log_of(partition_dir: &Path) -> Result<Vec<u8>> {
    let entries = std::fs::read_dir(partition_dir)
        .with_context(|| format!("{} is not there", partition_dir.display()))?;
    let mut segments = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push(path);
        }
    }
    segments.sort();
    let mut log = Vec::new();
    for segment in segments {
        log.extend(std::fs::read(segment)?);
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_compared_independent_of_their_segments() {
        let dir = tempfile::tempdir().unwrap();
        let write = |broker: &str, segment: &str, bytes: &[u8]| {
            let partition = dir.path().join(broker).join("t-0");
            std::fs::create_dir_all(&partition).unwrap();
            std::fs::write(partition.join(segment), bytes).unwrap();
        };
        write("a", "00.log", b"0123");
        write("a", "04.log", b"4567");
        write("a", "04.index", b"not compared");
        write("b", "00.log", b"01234567");
        write("c", "00.log", b"01x34567");
        write("d", "00.log", b"012345");
        let of = |names: &[&str]| {
            let replicas: Vec<(String, Vec<u8>)> = names
                .iter()
                .map(|name| {
                    let folder = dir.path().join(name).join("t-0");
                    ((*name).to_owned(), log_of(&folder).unwrap())
                })
                .collect();
            compare_logs(&replicas, "t-0")
        };
        assert_eq!(of(&["a", "b"]), (8, Vec::new()));
        assert!(of(&["a", "c"]).1[0].ends_with("part at byte 2"));
        assert!(of(&["a", "d"]).1[0].ends_with("part at byte 6"));
        assert!(of(&[]).1[0].ends_with("no broker has a replica"));
    }

    #[test]
    fn only_common_offsets_are_compared() {
        let batch = |base_offset: u64, content: &[u8]| {
            let mut batch = base_offset.to_be_bytes().to_vec();
            batch.extend((content.len() as u32).to_be_bytes());
            batch.extend(content);
            batch
        };
        let log = |batches: &[Vec<u8>]| ("node".to_owned(), batches.concat());
        let (first, second, third) = (batch(0, b"abc"), batch(3, b"d"), batch(4, b"ef"));
        let whole = log(&[first.clone(), second.clone(), third.clone()]);
        let mut alike = [
            whole.clone(),
            log(&[second.clone(), third]),
            log(&[first, second]),
        ];
        keep_common(&mut alike);
        assert_eq!(compare_logs(&alike, "t-0"), (13, Vec::new()));
        let mut other = [whole, log(&[batch(3, b"x")])];
        keep_common(&mut other);
        assert!(compare_logs(&other, "t-0").1[0].ends_with("part at byte 12"));
    }
}
