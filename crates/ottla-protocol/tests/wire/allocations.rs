//! Allocations of decoding and encoding: none per field on the hot path, and at most a multiple of the
//! input size, whatever the input claims.

use allocation_counter::measure;
use bytes::Bytes;

use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, PartitionData,
};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::messages::{FetchRequest, MetadataRequest};
use ottla_protocol::sample::{AnyMessage, Sampler, Style, all_messages};
use ottla_protocol::{Encoder, Message, Reader};

fn produce_request(topics: usize, partitions: i32) -> ProduceRequest {
    let records = Bytes::from(vec![1u8; 100]);
    let partition_data = (0..partitions)
        .map(|index| PartitionProduceData {
            index,
            records: Some(records.clone().into()),
            ..Default::default()
        })
        .collect();
    let topic = TopicProduceData {
        name: "orders".into(),
        partition_data,
        ..Default::default()
    };
    ProduceRequest {
        transactional_id: Some("transaction".into()),
        topic_data: vec![topic; topics],
        ..Default::default()
    }
}

#[test]
fn a_produce_request_costs_one_allocation_an_array() {
    for (topics, partitions) in [(1, 1), (1, 64), (5, 6)] {
        let bytes = produce_request(topics, partitions)
            .encode_to_bytes(9)
            .unwrap();
        let decoded = measure(|| {
            let request = ProduceRequest::decode(&mut Reader::new(bytes.clone()), 9).unwrap();
            assert_eq!(request.topic_data.len(), topics);
        });
        // One for the topics array, one per topic for its partitions, and one for sharing the
        // buffer.
        assert!(
            decoded.count_total <= topics as u64 + 2,
            "{}",
            decoded.count_total
        );
    }
}

#[test]
fn a_fetch_response_copies_no_records() {
    let records = Bytes::from(vec![1u8; 1 << 20]);
    let partitions = (0..6)
        .map(|partition_index| PartitionData {
            partition_index,
            records: Some(records.clone().into()),
            ..Default::default()
        })
        .collect();
    let topic = FetchableTopicResponse {
        partitions,
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![topic],
        ..Default::default()
    };
    let encoded = measure(|| {
        let mut out = Encoder::new();
        response.encode(&mut out, 16).unwrap();
        assert!(out.finish().len() > 6 << 20);
    });
    assert!(encoded.bytes_total < 4096, "{} bytes", encoded.bytes_total);
    assert!(
        encoded.count_total <= 12,
        "{} allocations",
        encoded.count_total
    );
}

const HOSTILE_BYTES: usize = 8192;

/// Repeated bytes, and samples with counts that are false, or true for elements of almost no bytes.
fn hostile_inputs(message: &AnyMessage, version: i16) -> Vec<Vec<u8>> {
    let sampler = Sampler::new(1, Style::Full);
    let (sample, _) = (message.sample)(sampler, version).unwrap();
    let mut inputs: Vec<Vec<u8>> = [0x00, 0x01, 0x02, 0x7f, 0xff]
        .map(|fill| vec![fill; HOSTILE_BYTES])
        .into();
    for position in (0..sample.len()).step_by(sample.len() / 8 + 1) {
        for length in [
            &b"\x7f\xff\xff\xff"[..],
            b"\xff\xff\xff\xff\x07",
            b"\x00\x00\x1f\x00",
        ] {
            let mut bent = sample.to_vec();
            bent.resize(HOSTILE_BYTES, 0);
            bent[position..position + length.len()].copy_from_slice(length);
            inputs.push(bent);
        }
    }
    inputs
}

/// The maximum amplification is the ratio between the largest struct's size in memory, some hundred
/// bytes, and its minimum size on the wire, a few bytes. A false element count costs one
/// reservation of 64 KiB per level.
#[test]
fn no_input_makes_decoding_reserve_more_than_a_multiple_of_it() {
    let mut worst: (u64, &str) = (0, "");
    for message in all_messages() {
        for version in message.versions.clone() {
            for input in hostile_inputs(&message, version) {
                let length = input.len() as u64;
                let reserved = measure(|| {
                    (message.decode)(Reader::new(Bytes::from(input)), version);
                });
                worst = worst.max((reserved.bytes_max / length, message.name));
            }
        }
    }
    assert!(
        worst.0 <= 100,
        "{} reserves {} times its input",
        worst.1,
        worst.0
    );
    assert!(
        worst.0 >= 2,
        "nothing was reserved: the measurement does not work"
    );
}

/// Decoding bytes from a peer takes no more than its allowance, in any message and version.
#[test]
fn no_input_takes_more_than_its_allowance() {
    // Shared ownership of the buffer, and rounding of allocations.
    const BESIDE: u64 = 256;
    let mut refused = 0;
    for message in all_messages() {
        for version in message.versions.clone() {
            for input in hostile_inputs(&message, version) {
                for allowance in [0, 1000, 4 * HOSTILE_BYTES] {
                    let mut reader = Reader::new(Bytes::from(input.clone()));
                    reader.set_allowance(allowance);
                    let before = reader.clone();
                    let reserved = measure(|| {
                        (message.decode)(reader, version);
                    });
                    assert!(
                        reserved.bytes_max <= allowance as u64 + BESIDE,
                        "{} {version}: {} bytes of {allowance}",
                        message.name,
                        reserved.bytes_max
                    );
                    let is_message = (message.decode)(Reader::new(before.clone().rest()), version);
                    refused += u32::from(is_message && !(message.decode)(before, version));
                }
            }
        }
    }
    assert!(refused > 1_000, "only {refused} were refused");
}

/// Of each byte that a client sends: short names and nothing else are the most that one has reason to ask for.
#[test]
fn requests_of_clients_are_within_the_fair_allowance() {
    let names = (0..100_000).map(|number| MetadataRequestTopic {
        name: Some(format!("t{number}").into()),
        ..Default::default()
    });
    let metadata = MetadataRequest {
        topics: Some(names.collect()),
        ..Default::default()
    };
    let partitions = (0..100_000).map(|partition| FetchPartition {
        partition,
        ..Default::default()
    });
    let fetch = FetchRequest {
        topics: vec![FetchTopic {
            topic: "t".into(),
            partitions: partitions.collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    // Every partition has a batch of one empty record, and a topic to itself.
    let batch = Bytes::from_static(&[0; 68]);
    let topics = (0..100_000).map(|_| TopicProduceData {
        name: "t".into(),
        partition_data: vec![PartitionProduceData {
            records: Some(batch.clone().into()),
            ..Default::default()
        }],
        ..Default::default()
    });
    let produce = ProduceRequest {
        topic_data: topics.collect(),
        ..Default::default()
    };
    for (what, share) in [
        ("Metadata", used_of_a_byte(&metadata, 9)),
        ("Metadata with ids", used_of_a_byte(&metadata, 12)),
        ("Fetch", used_of_a_byte(&fetch, 12)),
    ] {
        assert!(share > 1.0 && share < 8.0, "{what}: {share}");
    }
    let share = used_of_a_byte(&produce, 9);
    assert!(share < 2.5, "Produce: {share}");
}

fn used_of_a_byte<M: Message>(message: &M, version: i16) -> f64 {
    let bytes = message.encode_to_bytes(version).unwrap();
    let length = bytes.len();
    let mut reader = Reader::untrusted(bytes);
    M::decode(&mut reader, version).unwrap();
    reader.allowance_used() as f64 / length as f64
}
