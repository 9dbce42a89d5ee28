//! Sizes and ages for people.

/// `17 B`, `4.2 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `12 s`, `3 h 20 min`, `41 d 3 h`. A moment in the future has no age.
pub fn age_ms(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if minutes == 0 => format!("{seconds} s"),
        () if hours == 0 => format!("{minutes} min"),
        () if days == 0 => format!("{hours} h {} min", minutes % 60),
        () => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4_404_019), "4.2 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(age_ms(-5), "0 s");
        assert_eq!(age_ms(3_600_000 * 3 + 60_000 * 20), "3 h 20 min");
        assert_eq!(age_ms(86_400_000 * 41 + 3_600_000 * 3), "41 d 3 h");
    }
}
