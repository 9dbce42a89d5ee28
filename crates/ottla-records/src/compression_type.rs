//! The codecs of record batches, by their ids.

use std::fmt;

use ottla_types::named_enum;

named_enum! {
    /// How the records of a batch are compressed. The numbers are those in the attribute bits,
    /// the names those of `compression.type`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[repr(u8)]
    pub enum CompressionType {
        #[default]
        None = 0 => "none",
        Gzip = 1 => "gzip",
        Snappy = 2 => "snappy",
        Lz4 = 3 => "lz4",
        Zstd = 4 => "zstd",
    }
}

impl CompressionType {
    /// The codec with this number; `None` for the three unassigned numbers.
    pub const fn from_id(id: u8) -> Option<CompressionType> {
        match id {
            0 => Some(CompressionType::None),
            1 => Some(CompressionType::Gzip),
            2 => Some(CompressionType::Snappy),
            3 => Some(CompressionType::Lz4),
            4 => Some(CompressionType::Zstd),
            _ => None,
        }
    }

    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The codec of this name, written as Kafka writes it (lower case only).
    pub fn from_name(name: &str) -> Option<CompressionType> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
