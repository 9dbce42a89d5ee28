//! Quantities with units: sizes, times, counts.
//!
//! KB, MB and GB are powers of 1024, as in Kafka's tools and in the published figures; `KiB` and so
//! on are synonyms.

use std::fmt;
use std::time::Duration;

/// Parses `512`, `64KB`, `2GB`.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1_048_576.0,
        "g" | "gb" | "gib" => 1_073_741_824.0,
        "t" | "tb" | "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    Some((number * factor).round() as u64)
}

/// Parses `500ms`, `30s`, `10min`, `1h`. A bare number is rejected because its unit would be
/// unclear.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| (number, text[end..].trim()))
}

/// Record sizes: one, or uniformly distributed between two, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeRange {
    pub smallest: u64,
    pub largest: u64,
}

impl SizeRange {
    /// Parses `100` or `0-1800`.
    pub fn parse(text: &str) -> Option<SizeRange> {
        let (smallest, largest) = match text.split_once('-') {
            Some((smallest, largest)) => (bytes(smallest)?, bytes(largest)?),
            None => (bytes(text)?, bytes(text)?),
        };
        (smallest <= largest).then_some(SizeRange { smallest, largest })
    }

    pub fn mean(self) -> f64 {
        (self.smallest + self.largest) as f64 / 2.0
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.smallest == self.largest {
            write!(f, "{}", self.smallest)
        } else {
            write!(f, "{}-{}", self.smallest, self.largest)
        }
    }
}

/// A number of bytes with the unit that leaves one to four digits before the decimal point.
pub fn shown_bytes(bytes: f64) -> String {
    let units = ["bytes", "KB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} {}", units[0]),
        _ if value >= 100.0 => format!("{value:.0} {}", units[unit]),
        _ => format!("{value:.1} {}", units[unit]),
    }
}

/// A count with its digits grouped by three.
pub fn shown_count(count: f64) -> String {
    let digits = format!("{:.0}", count.abs());
    let mut shown = String::new();
    if count < 0.0 {
        shown.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Hours, minutes and seconds; the two largest non-zero units.
pub fn shown_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(bytes("100"), Some(100));
        assert_eq!(bytes("2GB"), Some(2 << 30));
        assert_eq!(bytes("1.5 KB"), Some(1536));
        assert_eq!(bytes("50_000"), Some(50_000));
        for bad in ["", "x", "5 parsecs", "-1"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("10min"), Some(Duration::from_secs(600)));
        assert_eq!(duration("10"), None);
        assert_eq!(duration("s"), None);
    }

    #[test]
    fn record_sizes_are_a_number_or_a_range() {
        let range = SizeRange::parse("0-1800").unwrap();
        assert_eq!((range.mean(), range.to_string()), (900.0, "0-1800".into()));
        assert_eq!(SizeRange::parse("100").unwrap().to_string(), "100");
        assert_eq!(SizeRange::parse("9-1"), None);
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!(shown_count(2_024_032.4), "2,024,032");
        assert_eq!(shown_count(-999.0), "-999");
        assert_eq!(shown_bytes(0.0), "0 bytes");
        assert_eq!(shown_bytes(3.5 * 1_048_576.0), "3.5 MB");
        assert_eq!(shown_duration(Duration::from_secs(61)), "1 min 01 s");
        assert_eq!(shown_duration(Duration::from_secs(7200)), "2 h 00 min");
    }
}
