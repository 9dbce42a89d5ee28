//! The batches and records of a segment or snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use ottla_records::control::{ControlRecordType, EndTxnMarker};
use ottla_records::legacy::AnyBatch;
use ottla_records::{RecordBatch, TimestampType};

use super::decoder::Decoder;

/// Size of the base offset and length fields, which the length does not include.
const LOG_OVERHEAD: u64 = 12;
/// Minimum size of a batch of any version, without the overhead.
const MIN_BATCH: i32 = 14;
/// Maximum size of a batch after decompression.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Iterates over the batches of a file without reading all of it at once.
pub(super) struct Batches {
    file: File,
    name: String,
    position: u64,
    end: u64,
}

impl Batches {
    /// The batches from a position to the end of the file, or to this many bytes into it.
    pub(super) fn open(
        path: &Path,
        position: u64,
        max_bytes: Option<u64>,
    ) -> anyhow::Result<Batches> {
        let file =
            File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let length = file.metadata()?.len();
        Ok(Batches {
            name: path.display().to_string(),
            file,
            position,
            end: length.min(max_bytes.unwrap_or(u64::MAX)),
        })
    }

    /// The next batch with its position; `None` if the rest is not a complete batch.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<(u64, AnyBatch)>> {
        if self.position + LOG_OVERHEAD > self.end {
            return Ok(None);
        }
        let mut overhead = [0; LOG_OVERHEAD as usize];
        self.file.read_exact_at(&mut overhead, self.position)?;
        let length = i32::from_be_bytes([overhead[8], overhead[9], overhead[10], overhead[11]]);
        if length < MIN_BATCH {
            bail!(
                "Found record size {length} smaller than minimum record overhead ({MIN_BATCH}) in file {}.",
                self.name
            );
        }
        let size = LOG_OVERHEAD + length as u64;
        if self.position + size > self.end {
            return Ok(None);
        }
        let mut bytes = BytesMut::zeroed(size as usize);
        self.file.read_exact_at(&mut bytes, self.position)?;
        let position = self.position;
        let batch = AnyBatch::read(&mut bytes.freeze())
            .with_context(|| format!("{} at position {position}", self.name))?;
        self.position += size;
        Ok(Some((position, batch)))
    }
}

pub(super) fn dump(
    path: &Path,
    options: &SegmentOptions,
    complaints: &mut Vec<String>,
) -> anyhow::Result<()> {
    print_title(path)?;
    let mut batches = Batches::open(path, 0, options.max_bytes)?;
    let mut gaps = BTreeMap::new();
    let mut last_offset = -1;
    while let Some((position, batch)) = batches.next()? {
        print_batch(position, &batch);
        if options.is_deep {
            dump_records(path, &batch, options, &mut last_offset, &mut gaps)?;
        }
    }
    let trailing = batches.end - batches.position;
    if trailing > 0 && options.max_bytes.is_none() {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        println!("Found {trailing} invalid bytes at the end of {name}");
    }
    if !gaps.is_empty() {
        complaints.push(format!("Non-consecutive offsets in {}", absolute(path)));
        complaints.extend(
            gaps.iter()
                .map(|(from, to)| format!("  {from} is followed by {to}")),
        );
    }
    Ok(())
}

pub(super) fn absolute(path: &Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

fn print_title(path: &Path) -> anyhow::Result<()> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let Some(stem) = name.strip_suffix(".checkpoint") else {
        println!("Log starting offset: {}", base_offset(path)?);
        return Ok(());
    };
    if stem == "bootstrap" {
        println!("KRaft bootstrap snapshot");
        return Ok(());
    }
    let numbers = stem.split_once('-').and_then(|(offset, epoch)| {
        Some((offset.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?))
    });
    let Some((offset, epoch)) = numbers else {
        bail!("{name} is not named after an offset and an epoch, as snapshots are");
    };
    println!("Snapshot end offset: {offset}, epoch: {epoch}");
    Ok(())
}

fn print_batch(position: u64, batch: &AnyBatch) {
    let is_valid = batch.verify_crc().is_ok();
    match batch {
        AnyBatch::Current(RecordBatch { header, .. }) => {
            let horizon = match header.delete_horizon() {
                Some(horizon) => format!("OptionalLong[{horizon}]"),
                None => "OptionalLong.empty".to_owned(),
            };
            println!(
                "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} \
                 producerId: {} producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} \
                 isControl: {} deleteHorizonMs: {horizon} position: {position} {}: {} size: {} \
                 magic: {} compresscodec: {} crc: {} isvalid: {is_valid}",
                header.base_offset,
                header.last_offset(),
                header.record_count,
                header.base_sequence,
                header.last_sequence(),
                header.producer_id,
                header.producer_epoch,
                header.partition_leader_epoch,
                header.is_transactional(),
                header.is_control(),
                header.attributes.timestamp_type().name(),
                header.max_timestamp,
                header.size_in_bytes(),
                header.magic,
                header
                    .compression_type()
                    .map_or("unknown", |codec| codec.name()),
                header.crc,
            );
        }
        AnyBatch::Legacy(message) => println!(
            "offset: {} position: {position} {}: {} size: {} magic: {} compresscodec: {} crc: {} \
             isvalid: {is_valid}",
            message.offset,
            message
                .timestamp_type()
                .map_or("NoTimestampType", TimestampType::name),
            message.timestamp,
            message.size_in_bytes(),
            message.magic,
            message
                .compression_type()
                .map_or("unknown", |codec| codec.name()),
            message.crc,
        ),
    }
}

fn dump_records(
    path: &Path,
    batch: &AnyBatch,
    options: &SegmentOptions,
    last_offset: &mut i64,
    gaps: &mut BTreeMap<i64, i64>,
) -> anyhow::Result<()> {
    let records = batch
        .records(MAX_BATCH_BYTES)
        .with_context(|| format!("{} at offset {}", path.display(), batch.last_offset()))?;
    let (timestamp_type, is_control, base_sequence, base_offset) = match batch {
        AnyBatch::Current(RecordBatch { header, .. }) => (
            header.attributes.timestamp_type().name(),
            header.is_control(),
            Some(header.base_sequence.value()),
            header.base_offset.value(),
        ),
        AnyBatch::Legacy(message) => {
            let name = message
                .timestamp_type()
                .map_or("NoTimestampType", TimestampType::name);
            (name, false, None, 0)
        }
    };
    for record in records {
        let offset = record.offset.value();
        if offset != *last_offset + 1 {
            gaps.insert(*last_offset, offset);
        }
        *last_offset = offset;
        let mut line = String::new();
        if !options.skips_metadata {
            let size =
                |bytes: &Option<Bytes>| bytes.as_ref().map_or(-1, |bytes| bytes.len() as i64);
            line = format!(
                "| offset: {offset} {timestamp_type}: {} keySize: {} valueSize: {}",
                record.timestamp,
                size(&record.key),
                size(&record.value),
            );
            if let Some(base_sequence) = base_sequence {
                let sequence = sequence(base_sequence, offset - base_offset);
                let keys: Vec<_> = record
                    .headers
                    .iter()
                    .map(|header| header.key_str())
                    .collect();
                line += &format!(" sequence: {sequence} headerKeys: [{}]", keys.join(","));
            }
            if is_control {
                line += &control_record(&record.key, &record.value)?;
            }
        }
        if options.prints_contents && !is_control {
            let (key, value) = options.decoder.decode(&record);
            let mut prefix = if options.skips_metadata { "| " } else { " " };
            if let Some(key) = key {
                line += &format!("{prefix}key: {key}");
                prefix = " ";
            }
            if let Some(value) = value {
                line += &format!("{prefix}payload: {value}");
            }
        }
        println!("{line}");
    }
    Ok(())
}

/// The sequence number of a record, which wraps after the maximum.
fn sequence(base: i32, delta: i64) -> i32 {
    match base {
        -1 => -1,
        base => ((i64::from(base) + delta) & 0x7fff_ffff) as i32,
    }
}

fn control_record(key: &Option<Bytes>, value: &Option<Bytes>) -> anyhow::Result<String> {
    let key = key.clone().unwrap_or_default();
    let value = value.clone().unwrap_or_default();
    let kind = ControlRecordType::parse_key(&key)?;
    let type_id = key
        .get(2..4)
        .map_or(-1, |bytes| i16::from_be_bytes([bytes[0], bytes[1]]));
    Ok(match kind {
        Some(kind @ (ControlRecordType::Abort | ControlRecordType::Commit)) => {
            let marker = EndTxnMarker::parse(&value)?;
            format!(
                " endTxnMarker: {} coordinatorEpoch: {}",
                kind.name(),
                marker.coordinator_epoch
            )
        }
        Some(kind) => match super::decoder::kraft_control_record(kind, &value) {
            Some(text) => text,
            None => format!(" controlType: {}({type_id})", kind.name()),
        },
        None => format!(" controlType: UNKNOWN({type_id})"),
    })
}

/// The output options.
pub(super) struct SegmentOptions {
    pub(super) is_deep: bool,
    pub(super) prints_contents: bool,
    pub(super) skips_metadata: bool,
    pub(super) max_bytes: Option<u64>,
    pub(super) decoder: Decoder,
}

/// The offset in the name of a segment file.
pub(super) fn base_offset(file: &Path) -> anyhow::Result<i64> {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let number = name.split('.').next().unwrap_or_default();
    number.parse().map_err(|_| {
        anyhow::anyhow!(
            "{} is not named after an offset, as the files of a segment are",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::sequence;

    #[test]
    fn sequence_numbers_wrap_around() {
        assert_eq!(sequence(-1, 5), -1);
        assert_eq!(sequence(7, 2), 9);
        assert_eq!(sequence(i32::MAX, 1), 0);
    }
}
