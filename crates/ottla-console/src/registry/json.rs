//! The JSON that records are decoded to: of bounded size and depth, because a record of a few bytes
//! can decode to an array of any length, or to values nested without limit.
//!
//! Numbers that JSON does not have are texts, and so are bytes, in base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The size of the JSON of a key or a value.
pub(super) const MOST_BYTES: usize = 4 << 20;
/// JSON is parsed down to 128 levels.
const MOST_DEPTH: usize = 100;

#[derive(Default)]
pub(super) struct JsonText {
    text: String,
    depth: usize,
}

impl JsonText {
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn check(&self) -> Result<(), String> {
        match self.text.len() <= MOST_BYTES {
            true => Ok(()),
            false => Err(too_long()),
        }
    }

    pub(super) fn raw(&mut self, text: &str) -> Result<(), String> {
        self.text.push_str(text);
        self.check()
    }

    /// Opens an object or an array.
    pub(super) fn open(&mut self, bracket: char) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("it is nested more than {MOST_DEPTH} levels deep"));
        }
        self.text.push(bracket);
        self.check()
    }

    pub(super) fn close(&mut self, bracket: char) {
        self.depth -= 1;
        self.text.push(bracket);
    }

    /// The comma before all items of an object or array except the first.
    pub(super) fn separate(&mut self) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
    }

    pub(super) fn name(&mut self, name: &str) -> Result<(), String> {
        self.separate();
        self.string(name)?;
        self.raw(":")
    }

    pub(super) fn string(&mut self, text: &str) -> Result<(), String> {
        // Before it is quoted: control characters take six bytes each.
        if text.len() > MOST_BYTES || self.text.len() + quoted_size(text) > MOST_BYTES {
            return Err(too_long());
        }
        let quoted = serde_json::to_string(text).map_err(|error| error.to_string())?;
        self.raw(&quoted)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() > MOST_BYTES {
            return Err(too_long());
        }
        self.string(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn double(&mut self, number: f64) -> Result<(), String> {
        match serde_json::Number::from_f64(number) {
            Some(number) => self.raw(&number.to_string()),
            None => self.not_finite(number),
        }
    }

    /// In as many digits as a number of 32 bits needs.
    pub(super) fn float(&mut self, number: f32) -> Result<(), String> {
        match serde_json::to_string(&number) {
            Ok(text) if number.is_finite() => self.raw(&text),
            _ => self.not_finite(number.into()),
        }
    }

    fn not_finite(&mut self, number: f64) -> Result<(), String> {
        self.raw(match number {
            _ if number.is_nan() => "\"NaN\"",
            _ if number > 0.0 => "\"Infinity\"",
            _ => "\"-Infinity\"",
        })
    }
}

fn quoted_size(text: &str) -> usize {
    let sizes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2_usize,
        0..0x20 => 6,
        _ => 1,
    });
    2 + sizes.sum::<usize>()
}

pub(super) fn too_long() -> String {
    format!("it has more than {} MiB as JSON", MOST_BYTES >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_quoted_text_is_known_before() {
        let all: String = (0..0x100_u32).filter_map(char::from_u32).collect();
        let quoted = serde_json::to_string(&all).unwrap();
        assert_eq!(quoted_size(&all), quoted.len());
    }

    #[test]
    fn a_text_that_grows_is_refused_before_it_is_quoted() {
        let mut json = JsonText::default();
        json.string(&"\u{1}".repeat(1 << 20)).unwrap_err();
        assert_eq!(json.text.capacity(), 0);
        json.string("a\n").unwrap();
        assert_eq!(json.finish(), "\"a\\n\"");
    }
}
