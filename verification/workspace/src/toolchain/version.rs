//! Parses a program's version from its output.

use std::fmt;

/// Major, minor, patch; missing parts are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

impl Version {
    /// The first number in the text, with up to three parts. A leading escape sequence is skipped,
    /// because Debian's Maven prints one even without a terminal.
    pub fn first_in(text: &str) -> Option<Version> {
        let mut text = text;
        while let Some(sequence) = text.strip_prefix("\x1b[") {
            let end = sequence.find(|character: char| character.is_ascii_alphabetic())?;
            text = &sequence[end + 1..];
        }
        let start = text.find(|character: char| character.is_ascii_digit())?;
        let text = &text[start..];
        let end = text
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(text.len());
        let mut parts = [0; 3];
        for (part, digits) in parts.iter_mut().zip(text[..end].split('.')) {
            // The full stop of a sentence is not followed by digits.
            if !digits.is_empty() {
                *part = digits.parse().ok()?;
            }
        }
        Some(Version(parts))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version([major, minor, patch]) = self;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_from_the_output_of_programs() {
        for (printed, version) in [
            ("go version go1.26.8 linux/amd64", [1, 26, 8]),
            ("go version go1.27rc1 linux/amd64", [1, 27, 0]),
            ("v18.20.4\n", [18, 20, 4]),
            ("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime", [17, 0, 15]),
            ("openjdk 21 2023-09-19", [21, 0, 0]),
            ("javac 17.0.15", [17, 0, 15]),
            ("Apache Maven 3.8.7\nMaven home: /usr", [3, 8, 7]),
            ("cc (Debian 12.2.0-14) 12.2.0", [12, 2, 0]),
            ("3.11.2", [3, 11, 2]),
            ("\u{1b}[0m\u{1b}[1mApache Maven 3.8.7\u{1b}[m", [3, 8, 7]),
            ("ip utility, iproute2-6.1.0", [2, 0, 0]),
            ("this is 4.", [4, 0, 0]),
        ] {
            assert_eq!(
                Version::first_in(printed),
                Some(Version(version)),
                "{printed}"
            );
        }
        assert_eq!(Version::first_in("none at all"), None);
        assert_eq!(Version::first_in("99999999999"), None);
    }

    #[test]
    fn versions_are_ordered_numerically() {
        assert!(Version([1, 9, 0]) < Version([1, 10, 0]));
        assert!(Version([18, 0, 0]) > Version([9, 99, 99]));
    }
}
