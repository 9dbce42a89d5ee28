use proptest::prelude::*;

use super::{Compression, decompress, decompress_magic_0, lz4};
use crate::{BatchError, CompressionType};

const LIMIT: usize = 64 << 20;

fn all() -> Vec<Compression> {
    let mut all: Vec<Compression> = CompressionType::ALL.map(Compression::from).to_vec();
    all.extend((1..=9).map(|level| Compression::Gzip { level }));
    all.extend([1, 2, 8, 10, 12, 17].map(|level| Compression::Lz4 { level }));
    all.extend([-131_072, -5, 1, 9].map(|level| Compression::Zstd { level }));
    all
}

fn text(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| b"ottla is a river "[i * i % 977 % 17])
        .collect()
}

/// Bytes that no codec can compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn every_codec_round_trips() {
    for compression in all() {
        for length in [0, 1, 100, 32 * 1024, 64 * 1024, 64 * 1024 + 1, 300_000] {
            for data in [text(length), noise(length)] {
                let compressed = compression.compress(&data);
                let back = decompress(compression.codec(), &compressed, LIMIT).unwrap();
                assert!(back == data, "{compression:?} of {length} bytes");
            }
        }
    }
}

#[test]
fn levels_are_kafkas() {
    for (codec, level, accepted) in [
        (CompressionType::Gzip, -1, true),
        (CompressionType::Gzip, 0, false),
        (CompressionType::Gzip, 1, true),
        (CompressionType::Gzip, 9, true),
        (CompressionType::Gzip, 10, false),
        (CompressionType::Lz4, 0, false),
        (CompressionType::Lz4, 17, true),
        (CompressionType::Lz4, 18, false),
        (CompressionType::Zstd, -131_072, true),
        (CompressionType::Zstd, -131_073, false),
        (CompressionType::Zstd, 22, true),
        (CompressionType::Zstd, 23, false),
        (CompressionType::Snappy, 1, false),
        (CompressionType::None, 0, false),
    ] {
        let result = Compression::with_level(codec, level);
        assert_eq!(result.is_ok(), accepted, "{codec} {level}");
        if let Ok(compression) = result {
            assert_eq!(compression.codec(), codec);
        }
    }
    let error = Compression::with_level(CompressionType::Gzip, 12).unwrap_err();
    assert_eq!(
        error.to_string(),
        "12 is not a level of gzip: give 1 to 9, or -1 for the default"
    );
}

#[test]
fn higher_levels_do_something() {
    let data = text(200_000);
    let size = |compression: Compression| compression.compress(&data).len();
    assert!(size(Compression::Gzip { level: 9 }) < size(Compression::Gzip { level: 1 }));
    assert!(size(Compression::Lz4 { level: 12 }) < size(Compression::Lz4 { level: 9 }));
    assert!(size(Compression::Zstd { level: 9 }) < size(Compression::Zstd { level: -100 }));
}

#[test]
fn bombs_stop_at_the_limit() {
    let zeros = vec![0; 16 << 20];
    for compression in all() {
        let bomb = compression.compress(&zeros);
        for limit in [0, 1000, 1 << 20] {
            let result = decompress(compression.codec(), &bomb, limit);
            let codec = compression.codec();
            assert_eq!(
                result,
                Err(BatchError::DecompressedTooLarge { codec, limit })
            );
        }
        assert_eq!(
            decompress(compression.codec(), &bomb, zeros.len())
                .unwrap()
                .len(),
            zeros.len()
        );
    }
}

#[test]
fn a_snappy_block_that_claims_too_much_gets_no_memory() {
    // A raw block that claims 4 GiB minus one byte, and contains two bytes.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x00];
    let result = decompress(CompressionType::Snappy, &claim, usize::MAX);
    assert!(
        matches!(result, Err(BatchError::Decompression { .. })),
        "{result:?}"
    );
}

#[test]
fn raw_snappy_and_streams_in_a_row_are_read() {
    let data = text(10_000);
    let raw = snap::raw::Encoder::new().compress_vec(&data).unwrap();
    assert!(decompress(CompressionType::Snappy, &raw, LIMIT).unwrap() == data);

    for codec in [
        CompressionType::Snappy,
        CompressionType::Gzip,
        CompressionType::Zstd,
    ] {
        let one = Compression::from(codec).compress(&data);
        let two = decompress(codec, &[one.clone(), one].concat(), LIMIT).unwrap();
        assert!(two == [data.clone(), data.clone()].concat(), "{codec}");
    }
}

#[test]
fn bytes_after_the_last_gzip_member_are_ignored() {
    let mut compressed = Compression::from(CompressionType::Gzip).compress(b"data");
    compressed.extend(b"trailer");
    assert_eq!(
        decompress(CompressionType::Gzip, &compressed, LIMIT).unwrap(),
        &b"data"[..]
    );
}

#[test]
fn the_wrong_header_checksum_of_old_lz4_is_only_ignored_for_magic_0() {
    let data = text(1000);
    let mut compressed = Compression::from(CompressionType::Lz4).compress(&data);
    // Clients before 0.10 included the frame's magic in the checksum.
    compressed[6] = (xxhash_rust::xxh32::xxh32(&compressed[..6], 0) >> 8) as u8;
    assert!(decompress(CompressionType::Lz4, &compressed, LIMIT).is_err());
    assert!(decompress_magic_0(CompressionType::Lz4, &compressed, LIMIT).unwrap() == data);
}

#[test]
fn lz4_frames_with_checksums_and_sizes_are_read() {
    let data = text(100_000);
    let mut encoder = ::lz4::EncoderBuilder::new()
        .block_mode(::lz4::BlockMode::Independent)
        .block_size(::lz4::BlockSize::Max256KB)
        .checksum(::lz4::ContentChecksum::ChecksumEnabled)
        .content_size(data.len() as u64)
        .block_checksum(::lz4::liblz4::BlockChecksum::BlockChecksumEnabled)
        .build(Vec::new())
        .unwrap();
    std::io::Write::write_all(&mut encoder, &data).unwrap();
    let (frame, result) = encoder.finish();
    result.unwrap();
    assert!(decompress(CompressionType::Lz4, &frame, LIMIT).unwrap() == data);

    let mut damaged = frame.clone();
    damaged[100] ^= 1;
    assert!(decompress(CompressionType::Lz4, &damaged, LIMIT).is_err());
}

#[test]
fn our_lz4_frames_are_read_by_the_reference_library() {
    let data = text(200_000);
    for level in [lz4::DEFAULT_LEVEL, 1, 12, 17] {
        let frame = Compression::Lz4 { level }.compress(&data);
        let mut decoder = ::lz4::Decoder::new(&frame[..]).unwrap();
        let mut back = Vec::new();
        std::io::Read::read_to_end(&mut decoder, &mut back).unwrap();
        assert!(back == data, "level {level}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(codec in 1u8..5, data: Vec<u8>) {
        let codec = CompressionType::from_id(codec).unwrap();
        let _ = decompress(codec, &data, 1 << 20);
    }

    #[test]
    fn flipped_bits_never_panic(codec in 1u8..5, length in 0usize..5000, flips: Vec<(usize, u8)>) {
        let codec = CompressionType::from_id(codec).unwrap();
        let mut data = Compression::from(codec).compress(&text(length));
        for (at, bit) in flips {
            let at = at % data.len();
            data[at] ^= 1 << (bit % 8);
        }
        let _ = decompress(codec, &data, 1 << 20);
        data.truncate(data.len() / 2);
        let _ = decompress(codec, &data, 1 << 20);
    }
}
