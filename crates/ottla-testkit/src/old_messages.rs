//! Messages in the formats before record batches (magic 0 and 1).

/// Encodes a message of magic 0 or 1, with its checksum.
pub fn old_message(magic: u8, attributes: u8, offset: i64, value: &[u8]) -> Vec<u8> {
    let mut content = vec![magic, attributes];
    if magic == 1 {
        content.extend(1_000_000_i64.to_be_bytes());
    }
    content.extend((-1i32).to_be_bytes());
    content.extend((value.len() as i32).to_be_bytes());
    content.extend(value);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &content) as u32;
    let mut message = offset.to_be_bytes().to_vec();
    message.extend((content.len() as i32 + 4).to_be_bytes());
    message.extend(crc.to_be_bytes());
    message.extend(content);
    message
}
