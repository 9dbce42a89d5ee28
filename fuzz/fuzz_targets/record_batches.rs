//! The records of a produce request: read, checked as a leader checks them (also with recompression),
//! and iterated with a bound on what they decompress to.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_records::{
    AppendOrigin, Compression, RecordBatch, ValidationBuffers, ValidationRules,
    read_produced_batch, validate,
};
use ottla_types::Timestamp;

/// What an input of a few kilobytes may decompress to.
const LIMIT: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let bytes = Bytes::copy_from_slice(input);
    for batch in RecordBatch::read_all(bytes.clone()) {
        let Ok(mut batch) = batch else { break };
        assert_eq!(batch.size_in_bytes(), batch.to_bytes().len());
        let _ = batch.verify_crc();
        if let Ok(records) = batch.records(LIMIT) {
            let bytes: usize = records
                .map_while(Result::ok)
                .map(|record| {
                    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
                    length(&record.key) + length(&record.value)
                })
                .sum();
            assert!(bytes <= LIMIT);
        }
        // An attacker can compute the checksum; the fuzzer cannot.
        batch.header.crc = batch.compute_crc();
        check(batch, None);
    }
    if let Ok(batch) = read_produced_batch(bytes) {
        check(batch, Some(Compression::Lz4 { level: 9 }));
    }
});

fn check(batch: RecordBatch, compression: Option<Compression>) {
    let rules = ValidationRules {
        compression,
        max_decompressed_bytes: LIMIT,
        ..ValidationRules::default()
    };
    let mut buffers = ValidationBuffers::default();
    let outcome = validate(
        batch,
        &rules,
        AppendOrigin::Client,
        &"fuzz-0",
        Timestamp(1_700_000_000_000),
        &mut buffers,
    );
    if let Ok(accepted) = outcome {
        let count = accepted.batch.header.record_count;
        let records = accepted.batch.records(LIMIT).expect("an accepted batch is readable");
        let readable = records.take_while(Result::is_ok).count();
        assert_eq!(readable as i32, count, "an accepted batch holds the records that it says");
    }
}
