//! Finding a text in bytes, whatever its case.
//!
//! Pure. Most bytes do not contain the text. A search for a part of it with vector instructions skips them: many times
//! faster than a regular expression that ignores case, and over a whole batch of records at once.

use memchr::{memchr2, memmem};
use regex::bytes::{Regex, RegexBuilder};

/// The memory for finding a text.
const REGEX_BYTES: usize = 1 << 20;
/// Parts of fewer bytes are nearly everywhere.
const SHORTEST: usize = 2;
/// A part without letters of this many bytes is rarer than a longer one with letters.
const RARE: usize = 4;
/// Each place where a part could begin is compared with all of it.
const LONGEST: usize = 32;
/// The most frequent bytes in texts and JSON first; other bytes are rarer.
const FREQUENT: &[u8] = b" e\"tao:i,nrlcdhum0p1_f2g-yb/.w3v{}45678\\9x";

pub(crate) struct Text {
    /// Bytes without the part are without the text.
    part: Option<Part>,
    /// `None` if the part is the whole text.
    regex: Option<Regex>,
}

enum Part {
    /// Without letters.
    Exact(Box<memmem::Finder<'static>>),
    Folded(Folded),
}

/// ASCII characters whose only other forms are ASCII.
struct Folded {
    lower: Vec<u8>,
    /// The index of the rarest one, and its two forms.
    at: usize,
    forms: (u8, u8),
}

impl Text {
    pub(crate) fn new(text: &str) -> Result<Text, regex::Error> {
        // Texts that are refused are refused whether or not the expression is used.
        let regex = RegexBuilder::new(&regex::escape(text))
            .case_insensitive(true)
            .size_limit(REGEX_BYTES)
            .build()?;
        let without_letters = longest(text, |it| it.is_ascii() && !it.is_ascii_alphabetic());
        let folded = longest(text, is_foldable);
        let (part, length) = if without_letters.len() >= RARE.min(text.len()) && !text.is_empty() {
            let finder = memmem::Finder::new(without_letters).into_owned();
            (Some(Part::Exact(Box::new(finder))), without_letters.len())
        } else if folded.len() >= SHORTEST {
            let folded = &folded[..folded.len().min(LONGEST)];
            (Some(Part::Folded(Folded::new(folded))), folded.len())
        } else {
            (None, 0)
        };
        let is_all = part.is_some() && length == text.len();
        Ok(Text {
            part,
            regex: (!is_all).then_some(regex),
        })
    }

    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        let has_part = self.part.as_ref().is_none_or(|it| it.is_in(bytes));
        has_part && self.regex.as_ref().is_none_or(|it| it.is_match(bytes))
    }

    /// Whether the bytes, or a part of them, can have the text. Faster than [`Text::is_in`].
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        match &self.part {
            Some(part) => part.is_in(bytes),
            None => self.is_in(bytes),
        }
    }
}

impl Part {
    fn is_in(&self, bytes: &[u8]) -> bool {
        match self {
            Part::Exact(finder) => finder.find(bytes).is_some(),
            Part::Folded(folded) => folded.is_in(bytes),
        }
    }
}

impl Folded {
    fn new(part: &[u8]) -> Folded {
        let lower = part.to_ascii_lowercase();
        let rarity = |byte: &u8| {
            let place = FREQUENT.iter().position(|it| it == byte);
            place.unwrap_or(FREQUENT.len())
        };
        let places = lower.iter().enumerate();
        let rarest = places.max_by_key(|(_, byte)| rarity(byte));
        let (at, byte) = rarest.map_or((0, 0), |(at, byte)| (at, *byte));
        Folded {
            lower,
            at,
            forms: (byte, byte.to_ascii_uppercase()),
        }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        // Where the rarest character can be next.
        let mut from = self.at;
        while let Some(rest) = bytes.get(from..) {
            let Some(found) = memchr2(self.forms.0, self.forms.1, rest) else {
                return false;
            };
            let start = from + found - self.at;
            match bytes.get(start..start + self.lower.len()) {
                Some(place) if place.eq_ignore_ascii_case(&self.lower) => return true,
                Some(_) => from += found + 1,
                None => return false,
            }
        }
        false
    }
}

/// Without case, `k` is the Kelvin sign as well, and `s` the long s.
fn is_foldable(byte: u8) -> bool {
    byte.is_ascii() && !matches!(byte, b'k' | b'K' | b's' | b'S')
}

/// The longest part of a text whose bytes are all so.
fn longest(text: &str, is_so: impl Fn(u8) -> bool) -> &[u8] {
    let parts = text.as_bytes().split(|byte| !is_so(*byte));
    parts.max_by_key(|it| it.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: &[&str] = &[
        "error",
        "ERROR",
        "Grüße",
        "GRÜSSE",
        "kiss",
        "order-4711",
        "4711",
        "a",
        "1",
        "-",
        "\"id\": 12345",
        "Straße 12 345",
        "日本",
        "xyz",
        "aab",
        "timeout after 30000 ms while waiting for the lock of a partition",
    ];

    fn expected(text: &str, bytes: &[u8]) -> bool {
        let mut regex = RegexBuilder::new(&regex::escape(text));
        regex.case_insensitive(true);
        regex.build().unwrap().is_match(bytes)
    }

    #[test]
    fn a_search_equals_a_regular_expression() {
        let mut haystacks: Vec<Vec<u8>> = vec![
            b"".to_vec(),
            b"\xff\xfe\0".to_vec(),
            "an Error in grüssE and GRÜSSE".as_bytes().to_vec(),
            // The Kelvin sign and the long s.
            "\u{212a}i\u{17f}s".as_bytes().to_vec(),
            b"aaaaaaaaaaaAB".to_vec(),
            b"order-471".to_vec(),
            b"xORDER-4711".to_vec(),
            "STRAßE 12 345".as_bytes().to_vec(),
            b"\xffeRrOr\xff".to_vec(),
        ];
        for text in TEXTS {
            for form in [text.to_string(), text.to_uppercase(), text.to_lowercase()] {
                haystacks.push(form.clone().into_bytes());
                haystacks.push(format!("before {form} behind").into_bytes());
                haystacks.push(form.into_bytes().split_last().unwrap().1.to_vec());
            }
        }
        let mut found = 0;
        for text in TEXTS {
            let finder = Text::new(text).unwrap();
            for bytes in &haystacks {
                let is_in = finder.is_in(bytes);
                assert_eq!(is_in, expected(text, bytes), "{text} in {bytes:?}");
                assert!(finder.may_be_in(bytes) || !is_in, "{text} in {bytes:?}");
                found += usize::from(is_in);
            }
        }
        assert!(found > TEXTS.len());
    }

    #[test]
    fn a_text_that_is_its_own_part_needs_no_regular_expression() {
        for (text, is_all) in [
            ("error", true),
            ("4711", true),
            ("order-4711", false),
            ("kiss", false),
            ("Grüße", false),
        ] {
            let finder = Text::new(text).unwrap();
            assert_eq!(finder.regex.is_none(), is_all, "{text}");
        }
        let finder = Text::new("order-4711").unwrap();
        assert!(finder.may_be_in(b"x-4711") && !finder.may_be_in(b"order-471"));
    }

    #[test]
    fn a_text_that_is_too_long_is_refused() {
        assert!(Text::new(&"ab".repeat(100_000)).is_err());
    }
}
