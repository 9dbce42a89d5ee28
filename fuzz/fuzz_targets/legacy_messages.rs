//! What a segment of any age may hold: messages of magic 0 and 1, wrappers of compressed ones, batches.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_records::legacy::AnyBatch;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::copy_from_slice(input);
    while let Ok(batch) = AnyBatch::read(&mut bytes) {
        assert!(batch.size_in_bytes() > 0);
        let _ = (batch.magic(), batch.last_offset(), batch.max_timestamp());
        let _ = batch.verify_crc();
        let _ = batch.records(1 << 20);
    }
});
