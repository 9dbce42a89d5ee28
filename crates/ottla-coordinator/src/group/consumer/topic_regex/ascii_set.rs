//! Sets of ASCII characters, to which the character classes of an expression are reduced.

use std::fmt::Write as _;

/// One bit for each character.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct AsciiSet(u128);

/// Unicode categories and scripts of RE2/J that contain no character of a valid topic name.
const NOT_ASCII: &str = "\
    C Cc Cf Co Cs Lm Lo Lt M Mc Me Mn Nl No Pe Pf Pi Ps S Sc Sk Sm So Z Zl Zp Zs Arabic Armenian
    Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid
    Canadian_Aboriginal Carian Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret
    Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi
    Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
    Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha
    Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar
    New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya
    Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese
    Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai
    Tibetan Tifinagh Ugaritic Unknown Vai Yi";

impl AsciiSet {
    pub(super) const ALL: AsciiSet = AsciiSet(u128::MAX);

    fn of(matches: impl Fn(char) -> bool) -> Self {
        let mut set = AsciiSet::default();
        for letter in (0..128u8).map(char::from).filter(|letter| matches(*letter)) {
            set.insert(letter);
        }
        set
    }

    /// `\d`, `\s` or `\w`, without the backslash.
    pub(super) fn perl_class(name: char) -> Option<Self> {
        let is_space = |letter| matches!(letter, '\t' | '\n' | '\x0c' | '\r' | ' ');
        let set = match name.to_ascii_lowercase() {
            'd' => AsciiSet::of(|it| it.is_ascii_digit()),
            's' => AsciiSet::of(is_space),
            'w' => AsciiSet::of(|it| it.is_ascii_alphanumeric() || it == '_'),
            _ => return None,
        };
        Some(set.negated_if(name.is_ascii_uppercase()))
    }

    /// `alpha` of `[:alpha:]`.
    pub(super) fn posix_class(name: &str) -> Option<Self> {
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let set = match name {
            "alnum" => AsciiSet::of(|it| it.is_ascii_alphanumeric()),
            "alpha" => AsciiSet::of(|it| it.is_ascii_alphabetic()),
            "ascii" => AsciiSet::ALL,
            "blank" => AsciiSet::of(|it| matches!(it, '\t' | ' ')),
            "cntrl" => AsciiSet::of(|it| it.is_ascii_control()),
            "digit" => AsciiSet::of(|it| it.is_ascii_digit()),
            "graph" => AsciiSet::of(|it| it.is_ascii_graphic()),
            "lower" => AsciiSet::of(|it| it.is_ascii_lowercase()),
            "print" => AsciiSet::of(|it| it.is_ascii_graphic() || it == ' '),
            "punct" => AsciiSet::of(|it| it.is_ascii_punctuation()),
            "space" => AsciiSet::of(|it| it.is_ascii_whitespace() || it == '\x0b'),
            "upper" => AsciiSet::of(|it| it.is_ascii_uppercase()),
            "word" => AsciiSet::of(|it| it.is_ascii_alphanumeric() || it == '_'),
            "xdigit" => AsciiSet::of(|it| it.is_ascii_hexdigit()),
            _ => return None,
        };
        Some(set.negated_if(is_negated))
    }

    /// The set for `Lu` of `\p{Lu}`, limited to the characters of topic names: letters, digits,
    /// `.`, `_` and `-`.
    pub(super) fn unicode_class(name: &str, folds_case: bool) -> Option<Self> {
        Some(match name {
            "Any" => AsciiSet::ALL,
            "L" | "Latin" => AsciiSet::of(|it| it.is_ascii_alphabetic()),
            "Lu" | "Ll" if folds_case => AsciiSet::of(|it| it.is_ascii_alphabetic()),
            "Lu" => AsciiSet::of(|it| it.is_ascii_uppercase()),
            "Ll" => AsciiSet::of(|it| it.is_ascii_lowercase()),
            "N" | "Nd" => AsciiSet::of(|it| it.is_ascii_digit()),
            "P" => AsciiSet::of(|it| matches!(it, '.' | '_' | '-')),
            "Pc" => AsciiSet::of(|it| it == '_'),
            "Pd" => AsciiSet::of(|it| it == '-'),
            "Po" => AsciiSet::of(|it| it == '.'),
            "Common" => AsciiSet::of(|it| !it.is_ascii_alphabetic()),
            name if NOT_ASCII.split_whitespace().any(|it| it == name) => AsciiSet::default(),
            _ => return None,
        })
    }

    pub(super) fn insert(&mut self, letter: char) {
        if letter.is_ascii() {
            self.0 |= 1 << u32::from(letter);
        }
    }

    /// Adds the range and, with `folds_case`, all characters that differ only in case.
    pub(super) fn insert_range(&mut self, low: char, high: char, folds_case: bool) {
        for letter in (low..=high).take_while(char::is_ascii) {
            self.insert(letter);
            if folds_case {
                self.insert(letter.to_ascii_lowercase());
                self.insert(letter.to_ascii_uppercase());
            }
        }
        // The two characters beyond ASCII that fold to ASCII ones: the long s and the Kelvin sign.
        for (odd, plain) in [('\u{17f}', ['s', 'S']), ('\u{212a}', ['k', 'K'])] {
            if folds_case && (low..=high).contains(&odd) {
                for letter in plain {
                    self.insert(letter);
                }
            }
        }
    }

    pub(super) fn union(self, other: AsciiSet) -> Self {
        AsciiSet(self.0 | other.0)
    }

    pub(super) fn negated_if(self, is_negated: bool) -> Self {
        if is_negated { AsciiSet(!self.0) } else { self }
    }

    /// A character class that every engine reads the same.
    pub(super) fn pattern(self) -> String {
        if self.0 == 0 {
            // A class that matches nothing.
            return r"[^\x00-\xff]".to_owned();
        }
        let mut pattern = String::from("[");
        let mut next = 0u32;
        while next < 128 {
            if self.0 & (1 << next) == 0 {
                next += 1;
                continue;
            }
            let start = next;
            while next < 128 && self.0 & (1 << next) != 0 {
                next += 1;
            }
            let _ = write!(pattern, r"\x{start:02x}-\x{:02x}", next - 1);
        }
        pattern.push(']');
        pattern
    }
}
