//! Sample values of every struct in a version, and a canonical text of any value.
//!
//! The golden tests need both: values that this side writes and the Java side must read, and a text
//! that is the same on both sides, so that swapped fields of the same type are detected. Only tests
//! and tools compile this (feature `samples`).

mod any_message;

use std::fmt::Write as _;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_types::Uuid;

use crate::{RawTaggedField, Records, UnknownTaggedFields};

pub use any_message::{
    AnyMessage, ReadMessage, all_messages, check_any_bytes, request_and_response,
};

/// A type with sample values and a canonical text.
pub trait Sample: Sized {
    /// A value that `version` can express.
    fn sample(sampler: &mut Sampler, version: i16) -> Self;

    /// Appends the canonical text: numbers in decimal, everything else in hexadecimal after a
    /// letter for its type, structs with their fields in alphabetical order. Unknown tagged fields
    /// are omitted.
    fn dump(&self, out: &mut String);
}

/// The second half of [`Sample`], object-safe, for a list of fields with different types.
pub trait DumpSample {
    fn dump_to(&self, out: &mut String);
}

impl<T: Sample> DumpSample for T {
    fn dump_to(&self, out: &mut String) {
        self.dump(out);
    }
}

/// The canonical text of a value.
pub fn dump<T: Sample>(value: &T) -> String {
    let mut out = String::new();
    value.dump(&mut out);
    out
}

pub(crate) fn dump_struct(out: &mut String, fields: &[(&str, &dyn DumpSample)]) {
    out.push('{');
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{name}:");
        value.dump_to(out);
    }
    out.push('}');
}

fn dump_hex(out: &mut String, letter: char, bytes: &[u8]) {
    out.push(letter);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
}

/// Generates sample values, reproducibly for a seed.
#[derive(Clone, Debug)]
pub struct Sampler {
    state: u64,
    style: Style,
    /// How many arrays are around the value that is made up.
    depth: u32,
}

/// The style of sample values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A mix of the other styles.
    Mixed,
    /// Null wherever possible; empty arrays, strings and bytes.
    Bare,
    /// No nulls, two elements in every array.
    Full,
    /// The lowest and highest numbers, and strings and bytes whose length takes two bytes.
    Extreme,
    /// Plausible client values: small numbers, and a few recurring names.
    Plausible,
    /// Much work from few bytes: arrays of many small elements within many arrays of one element.
    /// The elements are all equal or all different.
    Many {
        count: usize,
        within: u32,
        same: bool,
    },
}

/// The strings of [`Style::Plausible`], which no other user of a shared test broker uses.
const PLAUSIBLE: [&str; 8] = [
    "wire-a",
    "wire-b",
    "wire-group",
    "",
    "range",
    "consumer",
    "retention.ms",
    "3600000",
];

impl Sampler {
    pub fn new(seed: u64, style: Style) -> Sampler {
        Sampler {
            state: seed,
            style,
            depth: 0,
        }
    }

    /// The SplitMix64 generator.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number whose bits are random, all zero, all one, all one but the highest, or zero but the
    /// highest, or a number below 256.
    fn number(&mut self, bits: u32) -> u64 {
        let extreme = match self.style {
            Style::Plausible => return [0, 0, 1, 1, 2, 3, 5, u64::MAX][self.below(8) as usize],
            Style::Many { same: true, .. } => return 0,
            Style::Many { .. } => {
                self.state += 1;
                return self.state;
            }
            Style::Extreme => self.below(4),
            Style::Mixed => self.below(12),
            Style::Bare | Style::Full => 11,
        };
        let high = 1 << (bits - 1);
        match extreme {
            0 => 0,
            1 => high,
            2 => high - 1,
            3 => u64::MAX,
            4 => self.below(256),
            _ => self.next(),
        }
    }

    fn length(&mut self) -> usize {
        match self.style {
            Style::Bare | Style::Many { .. } => 0,
            Style::Full => 1 + self.below(12) as usize,
            Style::Extreme => [0, 126, 127, 128, 300][self.below(5) as usize],
            Style::Mixed => self.below(9) as usize,
            Style::Plausible => self.below(2) as usize,
        }
    }

    fn count(&mut self) -> usize {
        match self.style {
            Style::Bare => 0,
            Style::Many { count, within, .. } if within == self.depth => count,
            Style::Many { .. } => 1,
            Style::Full => 2,
            Style::Extreme => 1,
            Style::Mixed => self.below(4) as usize,
            Style::Plausible => [0, 1, 1, 2][self.below(4) as usize],
        }
    }

    fn octets(&mut self) -> Bytes {
        let length = self.length();
        (0..length)
            .map(|_| self.next() as u8)
            .collect::<Vec<u8>>()
            .into()
    }

    pub(crate) fn nullable<T: Sample>(&mut self, version: i16) -> Option<T> {
        let null = match self.style {
            Style::Bare => true,
            Style::Full | Style::Many { .. } => false,
            Style::Mixed | Style::Extreme => self.below(3) == 0,
            Style::Plausible => self.below(4) == 0,
        };
        (!null).then(|| T::sample(self, version))
    }

    /// Tagged fields whose tags no schema defines.
    pub(crate) fn unknown_tagged_fields(&mut self) -> UnknownTaggedFields {
        let count = match self.style {
            Style::Bare | Style::Full | Style::Plausible | Style::Many { .. } => 0,
            Style::Mixed => self.below(3) as u32,
            Style::Extreme => 1,
        };
        (0..count)
            .map(|index| RawTaggedField {
                tag: 100 + 100 * index,
                data: self.octets(),
            })
            .collect()
    }
}

macro_rules! numbers {
    ($($type:ident),*) => {
        $( impl Sample for $type {
            fn sample(sampler: &mut Sampler, _version: i16) -> $type {
                sampler.number($type::BITS) as $type
            }

            fn dump(&self, out: &mut String) {
                let _ = write!(out, "{self}");
            }
        } )*
    };
}
numbers!(i8, i16, u16, i32, u32, i64);

impl Sample for bool {
    fn sample(sampler: &mut Sampler, _version: i16) -> bool {
        sampler.below(2) == 1
    }

    fn dump(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

impl Sample for f64 {
    fn sample(sampler: &mut Sampler, _version: i16) -> f64 {
        // Halves are exact. NaN is excluded, because it is not equal to itself.
        sampler.number(32) as i32 as f64 / 2.0
    }

    fn dump(&self, out: &mut String) {
        dump_hex(out, 'f', &self.to_be_bytes());
    }
}

impl Sample for Uuid {
    fn sample(sampler: &mut Sampler, _version: i16) -> Uuid {
        if sampler.style == Style::Plausible {
            return Uuid::from_u128([0, 77][sampler.below(2) as usize]);
        }
        Uuid::from_u128(u128::from(sampler.next()) << 64 | u128::from(sampler.next()))
    }

    fn dump(&self, out: &mut String) {
        dump_hex(out, 'u', &self.0);
    }
}

impl Sample for ByteString {
    fn sample(sampler: &mut Sampler, _version: i16) -> ByteString {
        const LETTERS: [char; 12] = [
            'a', 'Z', '0', '.', '_', ' ', '"', '\u{0}', 'é', 'ß', '語', '🦀',
        ];
        if let Style::Many { same, .. } = sampler.style {
            sampler.state += u64::from(!same);
            return format!("x{}", sampler.state).into();
        }
        if sampler.style == Style::Plausible {
            return PLAUSIBLE[sampler.below(PLAUSIBLE.len() as u64) as usize].into();
        }
        let length = sampler.length();
        let text: String = (0..length)
            .map(|_| LETTERS[sampler.below(12) as usize])
            .collect();
        text.into()
    }

    fn dump(&self, out: &mut String) {
        dump_hex(out, 's', self.as_bytes());
    }
}

impl Sample for Bytes {
    fn sample(sampler: &mut Sampler, _version: i16) -> Bytes {
        sampler.octets()
    }

    fn dump(&self, out: &mut String) {
        dump_hex(out, 'b', self);
    }
}

impl Sample for Records {
    fn sample(sampler: &mut Sampler, _version: i16) -> Records {
        Records::Bytes(sampler.octets())
    }

    fn dump(&self, out: &mut String) {
        match self {
            Records::Bytes(bytes) => dump_hex(out, 'r', bytes),
            Records::File(region) => {
                let _ = write!(out, "file {}+{}", region.position, region.len);
            }
        }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(sampler: &mut Sampler, version: i16) -> Option<T> {
        sampler.nullable(version)
    }

    fn dump(&self, out: &mut String) {
        match self {
            Some(value) => value.dump(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(sampler: &mut Sampler, version: i16) -> Vec<T> {
        let count = sampler.count();
        sampler.depth += 1;
        let elements = (0..count).map(|_| T::sample(sampler, version)).collect();
        sampler.depth -= 1;
        elements
    }

    fn dump(&self, out: &mut String) {
        out.push('[');
        for (index, value) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            value.dump(out);
        }
        out.push(']');
    }
}
