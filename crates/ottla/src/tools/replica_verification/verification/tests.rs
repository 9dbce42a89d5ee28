//! Rounds with constructed responses.

use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp};

use super::*;

fn partition() -> Partition {
    ("t".to_owned(), 0)
}

/// Batches of one record each, at these offsets.
fn batches(records: &[(i64, &[u8])]) -> Bytes {
    let mut bytes = Vec::new();
    for (offset, value) in records {
        let mut batch = RecordBatchBuilder::new(Compression::None).base_offset(Offset(*offset));
        batch.append(Timestamp(1), None, Some(value), &[]);
        bytes.extend_from_slice(&batch.build().to_bytes());
    }
    bytes.into()
}

fn replica(high_watermark: i64, records: &[(i64, &[u8])]) -> Vec<FetchedReplica> {
    vec![FetchedReplica {
        partition: partition(),
        high_watermark,
        records: batches(records),
    }]
}

fn of(replicas: usize) -> Verification {
    Verification::new(
        BTreeMap::from([(partition(), replicas)]),
        BTreeMap::from([(partition(), 0)]),
    )
}

#[test]
fn a_single_replica_is_read_to_its_high_watermark() {
    let mut verification = of(1);
    let answers = vec![(1, replica(2, &[(0, b"a"), (1, b"b"), (2, b"c")]))];
    let outcome = verification.on_round(answers).unwrap();
    assert_eq!(
        outcome.report,
        "max lag is 0 for partition t-0 at offset 2 among 1 partitions"
    );
    assert_eq!(verification.offset(&partition()), 2);
}

#[test]
fn a_lagging_replica_delays_the_verified_offset() {
    let mut verification = of(2);
    let answers = vec![
        (1, replica(2, &[(0, b"a"), (1, b"b")])),
        (2, replica(1, &[(0, b"a")])),
    ];
    let outcome = verification.on_round(answers).unwrap();
    assert_eq!(
        outcome.report,
        "max lag is 1 for partition t-0 at offset 1 among 1 partitions"
    );
    assert!(outcome.differences.is_empty());
    // The second broker returns nothing, so the offset does not advance.
    let answers = vec![(1, replica(2, &[(1, b"b")]))];
    assert!(
        verification
            .on_round(answers)
            .unwrap()
            .report
            .contains("max lag is 1 ")
    );
    assert_eq!(verification.offset(&partition()), 1);
}

#[test]
fn differing_replicas_are_reported() {
    let answers = vec![
        (1, replica(2, &[(0, b"a"), (1, b"b")])),
        (2, replica(2, &[(0, b"x"), (1, b"b")])),
    ];
    let outcome = of(2).on_round(answers).unwrap();
    assert_eq!(outcome.differences.len(), 1);
    assert!(
        outcome.differences[0]
            .starts_with("partition t-0 has unmatched checksum at offset 0; replica 1's checksum "),
        "{:?}",
        outcome.differences
    );
    assert!(!outcome.has_diverged && outcome.report.contains("max lag is 0 "));

    let answers = vec![(1, replica(3, &[(0, b"a")])), (2, replica(3, &[(1, b"a")]))];
    let outcome = of(2).on_round(answers).unwrap();
    assert!(outcome.has_diverged);
    assert_eq!(
        outcome.differences,
        ["partition t-0: replica 1's offset 0 doesn't match replica 2's offset 1"]
    );
}

#[test]
fn truncated_batches_are_read_again_and_damaged_ones_are_errors() {
    let mut verification = of(1);
    let mut answer = replica(2, &[(0, b"a"), (1, b"b")]);
    let records = &mut answer[0].records;
    records.truncate(records.len() - 1);
    verification.on_round(vec![(1, answer)]).unwrap();
    assert_eq!(verification.offset(&partition()), 1);

    let broken = FetchedReplica {
        partition: partition(),
        high_watermark: 2,
        records: Bytes::from_static(&[0xff; 80]),
    };
    assert!(verification.on_round(vec![(1, vec![broken])]).is_err());
}
