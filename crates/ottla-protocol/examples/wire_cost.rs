//! Measures decoding a produce request and encoding a fetch response, in nanoseconds.
//!
//! `cargo run --release --package ottla-protocol --example wire_cost`. Rounds are interleaved, and
//! the median is printed with the minimum and maximum, because other work on the machine disturbs
//! them.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use ottla_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, PartitionData,
};
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::{Encoder, Message, Reader};

const ROUNDS: usize = 21;

fn produce_request(topics: usize, partitions: i32) -> Bytes {
    let records = Bytes::from(vec![1u8; 8192]);
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
    let request = ProduceRequest {
        topic_data: vec![topic; topics],
        ..Default::default()
    };
    request.encode_to_bytes(12).expect("version 12 has names")
}

fn fetch_response(topics: usize, partitions: i32) -> FetchResponse {
    let records = Bytes::from(vec![1u8; 65536]);
    let partitions = (0..partitions)
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
    FetchResponse {
        responses: vec![topic; topics],
        ..Default::default()
    }
}

fn decode(request: &Bytes) {
    let request = ProduceRequest::decode(&mut Reader::new(request.clone()), 12);
    black_box(request.expect("a request that was encoded"));
}

fn encode(response: &FetchResponse) {
    let mut out = Encoder::new();
    response
        .encode(&mut out, 17)
        .expect("version 17 has topic ids");
    black_box(out.finish());
}

/// Nanoseconds per call, averaged over enough calls to take several milliseconds.
fn time(work: &dyn Fn()) -> f64 {
    let calls = 2000;
    let start = Instant::now();
    (0..calls).for_each(|_| work());
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn main() {
    let (small, large) = (produce_request(1, 1), produce_request(10, 10));
    let (one, hundred) = (fetch_response(1, 1), fetch_response(10, 10));
    let cases: [(&str, &dyn Fn()); 4] = [
        ("decode Produce, 1 partition", &|| decode(&small)),
        ("decode Produce, 10 topics of 10 partitions", &|| {
            decode(&large)
        }),
        ("encode Fetch, 1 partition", &|| encode(&one)),
        ("encode Fetch, 10 topics of 10 partitions", &|| {
            encode(&hundred)
        }),
    ];
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (index, (_, work)) in cases.iter().enumerate() {
            times[index].push(time(work));
        }
    }
    for ((name, _), mut times) in cases.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (fastest, median, slowest) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{name:45} {median:8.0} ns  ({fastest:.0} to {slowest:.0})");
    }
}
