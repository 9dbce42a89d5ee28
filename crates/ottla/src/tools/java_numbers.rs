//! Numbers in Java's formats.

use ottla_config::java_double;

/// `Double.toString`.
pub(super) fn double_to_string(value: f64) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    java_double(value)
}

/// `String.format("%.2f", value)` with this many decimals. Java rounds the shortest decimal
/// representation half up, Rust the exact binary value: 1.005 becomes 1.01 in Java and 1.00 in
/// Rust.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    let text = format!("{:e}", value.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_digit).collect();
    // How many digits precede the rounded position.
    let kept = exponent + 1 + decimals as i32;
    let mut rounded: Vec<u8> = (0..kept.max(0) as usize)
        .map(|index| digits.get(index).copied().unwrap_or(b'0'))
        .collect();
    let next = usize::try_from(kept).ok().and_then(|kept| digits.get(kept));
    if next.is_some_and(|digit| *digit >= b'5') {
        match rounded.iter().rposition(|digit| *digit != b'9') {
            Some(place) => {
                rounded[place] += 1;
                rounded[place + 1..].fill(b'0');
            }
            None => {
                rounded.fill(b'0');
                rounded.insert(0, b'1');
            }
        }
    }
    while rounded.len() <= decimals {
        rounded.insert(0, b'0');
    }
    let point = rounded.len() - decimals;
    let text = String::from_utf8_lossy(&rounded);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    match decimals {
        0 => format!("{sign}{text}"),
        _ => format!("{sign}{}.{}", &text[..point], &text[point..]),
    }
}

fn not_finite(value: f64) -> String {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "NaN".into(),
        (false, true) => "Infinity".into(),
        (false, false) => "-Infinity".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_as_in_java() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.5, "-0.5"),
            (0.001, "0.001"),
            (0.00025, "2.5E-4"),
            (9_999_999.0, "9999999.0"),
            (10_000_000.0, "1.0E7"),
            (10_485_760.0, "1.048576E7"),
            (-1.5e300, "-1.5E300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(double_to_string(value), text);
        }
    }

    /// As printed by `String.format` of Java 17.
    #[test]
    fn decimals_are_rounded_as_in_java() {
        for (value, decimals, text) in [
            (0.0, 2, "0.00"),
            (0.125, 2, "0.13"),
            (1.005, 2, "1.01"),
            (0.5, 0, "1"),
            (99.999, 2, "100.00"),
            (9.99, 0, "10"),
            (0.004, 2, "0.00"),
            (0.005, 2, "0.01"),
            (0.0005, 2, "0.00"),
            (-2.345, 2, "-2.35"),
            (123_456.789, 1, "123456.8"),
            (1e10, 4, "10000000000.0000"),
            (821_557.123_456_7, 6, "821557.123457"),
            (f64::NAN, 2, "NaN"),
            (f64::NEG_INFINITY, 2, "-Infinity"),
        ] {
            assert_eq!(fixed(value, decimals), text, "{value}");
        }
    }
}
