//! Kafka's 128-bit IDs, written as unpadded URL-safe base64 (`org.apache.kafka.common.Uuid`).

use std::fmt;
use std::str::FromStr;

/// A 128-bit ID. Kafka prints it as 22 characters of URL-safe base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

/// The ID of a topic (KIP-516).
pub type TopicId = Uuid;
/// The ID of a log directory (KIP-858).
pub type DirectoryId = Uuid;

/// The text is not 22 characters of URL-safe base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUuidError(pub String);

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not an id: give 22 characters of URL-safe base64",
            self.0
        )
    }
}

impl std::error::Error for ParseUuidError {}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// `Uuid.METADATA_TOPIC_ID`: the topic ID of `__cluster_metadata`.
    pub const METADATA_TOPIC: Uuid = Uuid::from_u128(1);
    /// `DirectoryId.MIGRATING`: a replica created before directories were assigned (KIP-858). It
    /// counts as online.
    pub const DIRECTORY_MIGRATING: Uuid = Uuid::from_u128(0);
    /// `DirectoryId.UNASSIGNED`: a replica whose broker has not yet chosen a directory. It counts
    /// as online.
    pub const DIRECTORY_UNASSIGNED: Uuid = Uuid::from_u128(1);
    /// `DirectoryId.LOST`: an unspecified offline directory.
    pub const DIRECTORY_LOST: Uuid = Uuid::from_u128(2);

    pub const fn from_u128(value: u128) -> Uuid {
        Uuid(value.to_be_bytes())
    }

    pub const fn is_zero(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// A version-4 UUID from 16 random bytes. `None` for values that Kafka rejects and draws again:
    /// a reserved low number, or a text form with a leading dash, which looks like a flag.
    pub fn from_random(mut bytes: [u8; 16]) -> Option<Uuid> {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = Uuid(bytes);
        (bytes[0] >> 2 != 62).then_some(id)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 22];
        // 128 bits in groups of six, the last group padded with four zero bits on the right.
        let value = u128::from_be_bytes(self.0);
        for (index, out) in text.iter_mut().enumerate() {
            let shift = 122 - 6 * index as i32;
            let group = if shift >= 0 {
                value >> shift
            } else {
                value << -shift
            } as usize
                & 63;
            *out = ALPHABET[group];
        }
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Uuid, ParseUuidError> {
        let error = || ParseUuidError(text.to_owned());
        let trimmed = text.trim_end_matches('=');
        if trimmed.len() != 22 {
            return Err(error());
        }
        let mut value: u128 = 0;
        for (index, byte) in trimmed.bytes().enumerate() {
            let group = ALPHABET.iter().position(|&c| c == byte).ok_or_else(error)? as u128;
            let shift = 122 - 6 * index as i32;
            if shift >= 0 {
                value |= group << shift;
            } else {
                value |= group >> -shift;
            }
        }
        Ok(Uuid::from_u128(value))
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn text_round_trips() {
        for value in [
            0,
            1,
            2,
            u128::MAX,
            0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
        ] {
            let id = Uuid::from_u128(value);
            assert_eq!(id.to_string().parse::<Uuid>(), Ok(id));
        }
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
    }

    /// As encoded for the replicas in metadata logs that Kafka writes.
    #[test]
    fn reserved_directories_are_those_of_kafka() {
        let text = |id: Uuid| id.to_string();
        assert_eq!(text(Uuid::DIRECTORY_MIGRATING), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(text(Uuid::DIRECTORY_UNASSIGNED), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(text(Uuid::DIRECTORY_LOST), "AAAAAAAAAAAAAAAAAAAAAg");
    }

    #[test]
    fn bad_text_is_refused() {
        assert!("".parse::<Uuid>().is_err());
        assert!("AAAAAAAAAAAAAAAAAAAAA!".parse::<Uuid>().is_err());
        assert!("AAAAAAAAAAAAAAAAAAAAAAAA".parse::<Uuid>().is_err());
    }

    #[test]
    fn ids_that_look_like_flags_are_drawn_again() {
        assert_eq!(Uuid::from_random([0xf8; 16]), None);
        assert!(Uuid::from_random([0x11; 16]).is_some());
    }
}
