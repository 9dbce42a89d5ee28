//! Bytes and times as people read them.

const UNITS: [(&str, u64); 5] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("bytes", 1),
];

/// The unit in which the largest of these values has at least one digit before the point.
pub(super) fn unit_of(values: impl Iterator<Item = u64>) -> (&'static str, u64) {
    let most = values.max().unwrap_or(0);
    let unit = UNITS.iter().find(|(_, factor)| most >= *factor);
    *unit.unwrap_or(&UNITS[UNITS.len() - 1])
}

/// In a unit, with one decimal below 100.
pub(super) fn in_unit(value: u64, factor: u64) -> String {
    let scaled = value as f64 / factor as f64;
    match factor {
        1 => value.to_string(),
        _ if scaled < 99.95 => format!("{scaled:.1}"),
        _ => format!("{scaled:.0}"),
    }
}

/// Such as `4.1 GB`.
pub(super) fn bytes(value: u64) -> String {
    let (unit, factor) = unit_of(std::iter::once(value));
    format!("{} {unit}", in_unit(value, factor))
}

/// Such as `1 min 20 s`.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_rounded() {
        for (value, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (4_120_000_000, "4.1 GB"),
            (99_960_000, "100 MB"),
            (812_000_000_000, "812 GB"),
            (2_500_000_000_000, "2.5 TB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (seconds, text) in [
            (0, "0 s"),
            (80, "1 min 20 s"),
            (3_700, "1 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
