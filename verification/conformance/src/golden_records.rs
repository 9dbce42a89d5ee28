//! `cargo xtask golden-records`: exchanges record batches with Kafka's Java classes in both
//! directions.
//!
//! Three rounds with `conformance/java/records`: Ottla reads every message format, codec and level
//! that Kafka writes, with the same meaning; Kafka reads the batches that Ottla writes; and valid
//! and invalid batches get the same verdict as from Kafka's `LogValidator`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::legacy::AnyBatch;
use ottla_records::{
    AppendOrigin, BatchHeader, Compression, CompressionType, Record, RecordBatch,
    RecordBatchBuilder, RecordHeader, TimestampType, ValidationBuffers, ValidationRules, validate,
};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use ottla_peers::{Peer, java, reference};
use ottla_workspace::{process, toolchain, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// Keep the files that the two sides exchange in this directory.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// The validation time on the Java side.
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const LIMIT: usize = 64 << 20;

pub fn run(options: &Options) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = options.dir.as_deref().unwrap_or(temporary.path());
    let kafka = Peer::load(reference::KAFKA)?.install()?;
    let jars = kafka.class_path().context("Kafka has no class path")?;
    let classes = java::classes(&kafka, "records")?;
    let class_path = format!("{jars}:{}", classes.display());
    let logging = workspace::root().join("peers/log4j2-tools.properties");
    let java = |command: &str, file: &Path| {
        process::output_of(
            Command::new("java")
                .args(toolchain::SHORT_JVM)
                .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
                .args(["-cp", &class_path, "RecordBatches", command])
                .arg(file),
        )
    };

    let written_by_kafka = dir.join("kafka.txt");
    java("write", &written_by_kafka)?;
    let read = for_each_line(&written_by_kafka, read_what_kafka_wrote)?;
    println!("{read} batches that Kafka wrote mean the same here");

    let written_here = dir.join("ottla.txt");
    std::fs::write(&written_here, write_batches())?;
    print!("{}", java("check", &written_here)?);

    let judged = dir.join("validated.txt");
    java("validate", &judged)?;
    let validated = for_each_line(&judged, judge_as_kafka_did)?;
    println!("{validated} batches are judged as Kafka's LogValidator judges them");
    Ok(())
}

fn for_each_line(file: &Path, check: fn(&[&str]) -> Result<()>) -> Result<usize> {
    let text = std::fs::read_to_string(file)?;
    let mut wrong = Vec::new();
    let mut lines = 0;
    for line in text.lines() {
        lines += 1;
        let parts: Vec<&str> = line.split(' ').collect();
        if let Err(error) = check(&parts) {
            wrong.push(format!("{}: {error:#}", parts[0]));
        }
    }
    ensure!(
        lines > 0,
        "the Java side wrote no lines into {}",
        file.display()
    );
    if !wrong.is_empty() {
        bail!(
            "{} of {lines} batches differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
    Ok(lines)
}

fn read_what_kafka_wrote(parts: &[&str]) -> Result<()> {
    let [_, hex, expected] = parts else {
        bail!("the line has {} parts", parts.len());
    };
    let bytes = from_hex(hex)?;
    let text = text_of(&bytes)?;
    ensure!(
        text == *expected,
        "\n  expected {expected}\n  read     {text}"
    );
    for batch in RecordBatch::read_all(bytes.clone()) {
        let Ok(batch) = batch else {
            return Ok(());
        };
        ensure!(
            batch.to_bytes() == bytes,
            "the batch is not written back byte for byte"
        );
        if !batch.header.attributes.is_compressed() {
            ensure!(
                rebuilt(&batch)? == bytes,
                "the builder makes other bytes of the same records"
            );
        }
    }
    Ok(())
}

/// Rebuilds the batch with the builder. Without compression there is only one encoding.
fn rebuilt(batch: &RecordBatch) -> Result<Bytes> {
    let header = &batch.header;
    let mut builder = RecordBatchBuilder::new(Compression::None)
        .base_offset(header.base_offset)
        .partition_leader_epoch(header.partition_leader_epoch)
        .producer(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
        .transactional(header.is_transactional())
        .control(header.is_control());
    let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    if append_time {
        builder = builder.log_append_time(header.max_timestamp);
    }
    // With LogAppendTime, records keep the producer's timestamps on disk, but readers never see
    // them.
    let mut own_times = batch.clone();
    own_times.header.attributes = header
        .attributes
        .with_timestamp_type(TimestampType::CreateTime);
    for record in own_times.records(LIMIT)? {
        let record = record?;
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.append(record.timestamp, key, value, &record.headers);
    }
    Ok(builder.build().to_bytes())
}

fn judge_as_kafka_did(parts: &[&str]) -> Result<()> {
    let [_, rules, hex, verdict, rest @ ..] = parts else {
        bail!("the line has {} parts", parts.len());
    };
    let rules = parse_rules(rules)?;
    let batch = RecordBatch::read(&mut from_hex(hex)?)?;
    let mut buffers = ValidationBuffers::default();
    let origin = AppendOrigin::Client;
    let ours = match validate(batch, &rules, origin, &"topic-0", NOW, &mut buffers) {
        Ok(validated) => {
            let mut batch = validated.batch;
            batch.assign_offset(Offset(1000), LeaderEpoch(5));
            format!("ok {}", text_of(&batch.to_bytes())?)
        }
        Err(rejection) => {
            let indexes: Vec<String> = rejection
                .record_errors
                .iter()
                .map(|error| error.batch_index.to_string())
                .collect();
            let indexes = if indexes.is_empty() {
                "-".to_owned()
            } else {
                indexes.join(",")
            };
            format!("refused {} {indexes}", rejection.error_code)
        }
    };
    let theirs = format!("{verdict} {}", rest.join(" "));
    // Where Kafka fails with an unexpected exception, any rejection counts as the same.
    let unforeseen = format!("refused {} -", ErrorCode::UnknownServerError);
    let alike = ours == theirs || theirs == unforeseen && ours.starts_with("refused");
    ensure!(alike, "{rules:?}\n  Kafka {theirs}\n  here  {ours}");
    Ok(())
}

fn parse_rules(text: &str) -> Result<ValidationRules> {
    let parts: Vec<&str> = text.split(',').collect();
    let [compacted, timestamp_type, before, after, codec] = parts[..] else {
        bail!("the rules have {} parts", parts.len());
    };
    Ok(ValidationRules {
        compacted: compacted.parse()?,
        max_message_bytes: LIMIT,
        message_timestamp_type: match timestamp_type {
            "CreateTime" => TimestampType::CreateTime,
            "LogAppendTime" => TimestampType::LogAppendTime,
            other => bail!("unknown timestamp type {other}"),
        },
        message_timestamp_before_max_ms: before.parse()?,
        message_timestamp_after_max_ms: after.parse()?,
        compression: match codec {
            "producer" => None,
            name => Some(
                CompressionType::from_name(name)
                    .context("unknown codec")?
                    .into(),
            ),
        },
        max_decompressed_bytes: LIMIT,
        max_decompressed_record_bytes: LIMIT,
    })
}

/// Batches for Kafka to read: every codec and level, and every header field value.
fn write_batches() -> String {
    let mut out = String::new();
    let mut line = |name: String, batch: RecordBatch| {
        let bytes = batch.to_bytes();
        let text = text_of(&bytes).expect("a batch built here is readable");
        writeln!(out, "{name} {} {text}", to_hex(&bytes)).expect("a string takes all");
    };
    for compression in compressions() {
        for (shape, records) in shapes() {
            for append_time in [None, Some(NOW)] {
                let mut builder = RecordBatchBuilder::new(compression)
                    .base_offset(Offset(1 << 33))
                    .partition_leader_epoch(LeaderEpoch(5));
                if let Some(now) = append_time {
                    builder = builder.log_append_time(now);
                }
                for record in &records {
                    let (key, value) = (record.key.as_deref(), record.value.as_deref());
                    builder.append(record.timestamp, key, value, &record.headers);
                }
                line(
                    format!("{compression:?},{shape}").replace(' ', ""),
                    builder.build(),
                );
            }
        }
    }
    for transactional in [false, true] {
        let mut builder = RecordBatchBuilder::new(Compression::None)
            .producer(ProducerId(4711), ProducerEpoch(3), Sequence(17))
            .transactional(transactional);
        builder.append(NOW, None, Some(b"value"), &[]);
        line(format!("transactional={transactional}"), builder.build());
    }
    for control_type in [ControlRecordType::Abort, ControlRecordType::Commit] {
        let marker = EndTxnMarker {
            coordinator_epoch: 12,
        };
        let (id, epoch) = (ProducerId(4711), ProducerEpoch(3));
        line(
            "end-txn".to_owned(),
            end_txn_batch(id, epoch, control_type, marker, NOW),
        );
    }
    let mut gaps = RecordBatchBuilder::new(Compression::from(CompressionType::Zstd));
    for delta in [3, 4, 1000, i32::MAX] {
        gaps.append_at(delta, NOW, Some(b"key"), Some(b"kept by compaction"), &[]);
    }
    line("gaps".to_owned(), gaps.build());
    out
}

fn compressions() -> Vec<Compression> {
    let mut all: Vec<Compression> = CompressionType::ALL.map(Compression::from).to_vec();
    for codec in CompressionType::ALL {
        let Some(levels) = codec.levels() else {
            continue;
        };
        let some = [levels.min, -1, 1, 5, 10, levels.max];
        all.extend(
            some.into_iter()
                .filter_map(|level| Compression::with_level(codec, level).ok()),
        );
    }
    all
}

fn shapes() -> Vec<(&'static str, Vec<Record>)> {
    let record = |timestamp: i64, key: Option<Bytes>, value: Option<Bytes>| Record {
        offset: Offset::ZERO,
        timestamp: Timestamp(timestamp),
        key,
        value,
        headers: Vec::new(),
    };
    let with_headers = |headers| Record {
        headers,
        ..record(NOW.0, None, None)
    };
    let text = |length: usize| Bytes::from_iter((0..length).map(|i| b"ottla"[i * i % 7 % 5]));
    let noise = |length: u64| {
        let bytes = (0..length).map(|i| ((i + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8);
        Bytes::from_iter(bytes)
    };
    let many = (0..700).map(|i| {
        let key = (i % 3 > 0).then(|| text(i % 30));
        record(
            NOW.0 + i as i64 * 37 % 1000,
            key,
            Some(noise(i as u64 % 250)),
        )
    });
    vec![
        ("one", vec![record(NOW.0, Some(text(3)), Some(text(9)))]),
        (
            "nulls",
            vec![
                record(NOW.0, None, None),
                record(NOW.0 - 5, Some(text(0)), Some(text(0))),
            ],
        ),
        ("timeless", vec![record(-1, None, Some(text(1)))]),
        ("many", many.collect()),
        (
            "large",
            vec![
                record(NOW.0, None, Some(text(200_001))),
                record(NOW.0, None, Some(noise(70_000))),
            ],
        ),
        (
            "headers",
            vec![with_headers(vec![
                RecordHeader::new("größe", Some(text(99))),
                RecordHeader::new("", None),
                RecordHeader::new("größe", Some(Bytes::new())),
            ])],
        ),
    ]
}

/// The meaning of batches as text, in the format of the Java side.
fn text_of(bytes: &Bytes) -> Result<String> {
    let mut out = String::new();
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        let batch = AnyBatch::read(&mut rest)?;
        batch.verify_crc()?;
        let control = describe(&batch, &mut out)?;
        for record in batch.records(LIMIT)? {
            describe_record(&record, control, &mut out)?;
        }
    }
    Ok(out)
}

/// Writes the batch's own fields. Returns whether it is a control batch.
fn describe(batch: &AnyBatch, out: &mut String) -> Result<bool> {
    let (timestamp_type, codec, header) = match batch {
        AnyBatch::Current(batch) => {
            let header = batch.header;
            let timestamp_type = Some(header.attributes.timestamp_type());
            (timestamp_type, header.compression_type()?, Some(header))
        }
        AnyBatch::Legacy(message) => (message.timestamp_type(), message.compression_type()?, None),
    };
    let timestamp_type = timestamp_type.map_or("NoTimestampType", TimestampType::name);
    let (magic, last_offset) = (batch.magic(), batch.last_offset());
    let max_timestamp = batch.max_timestamp();
    write!(
        out,
        "batch({magic},{last_offset},{timestamp_type},{max_timestamp},{codec},"
    )?;
    match header {
        None => write!(out, "-1,-1,-1,-1,false,false)")?,
        Some(BatchHeader {
            partition_leader_epoch,
            producer_id,
            producer_epoch,
            base_sequence,
            ..
        }) => write!(
            out,
            "{partition_leader_epoch},{producer_id},{producer_epoch},{base_sequence},{},{})",
            header.is_some_and(|header| header.is_transactional()),
            header.is_some_and(|header| header.is_control()),
        )?,
    }
    Ok(header.is_some_and(|header| header.is_control()))
}

fn describe_record(record: &Record, control: bool, out: &mut String) -> Result<()> {
    let (key, value) = (shown(record.key.as_ref()), shown(record.value.as_ref()));
    write!(out, "{}:{}:{key}:{value}", record.offset, record.timestamp)?;
    for header in &record.headers {
        write!(
            out,
            ":{}={}",
            shown(Some(&header.key)),
            shown(header.value.as_ref())
        )?;
    }
    if control {
        let key = record.key.as_deref().unwrap_or_default();
        let control_type = ControlRecordType::parse_key(key)?.context("unknown control record")?;
        write!(out, ":{}", control_type.name())?;
    }
    out.push(';');
    Ok(())
}

fn shown(bytes: Option<&Bytes>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some(bytes) if bytes.len() <= 16 => format!("0x{}", to_hex(bytes)),
        Some(bytes) => {
            let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
            format!("{}#{checksum}", bytes.len())
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn from_hex(text: &str) -> Result<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).context("not hexadecimal");
    let bytes = text.as_bytes().chunks_exact(2);
    bytes
        .map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}
