//! Durations as `java.time.Duration` writes them.

/// The milliseconds of `PnDTnHnMn.nS`, in upper or lower case. Each number can have a sign.
/// Fractions of a millisecond are dropped.
pub fn iso_duration_ms(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let rest = text.strip_prefix('p')?;
    let (days, mut time) = match rest.split_once('t') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (rest, ""),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut total_ms = 0_i64;
    let mut add = |number: &str, unit_ms: i64| {
        let is_number = is_digits(number.strip_prefix(['+', '-']).unwrap_or(number));
        let number: i64 = number.parse().ok().filter(|_| is_number)?;
        total_ms = total_ms.checked_add(number.checked_mul(unit_ms)?)?;
        Some(())
    };
    let mut is_any_given = !days.is_empty();
    if !days.is_empty() {
        add(days.strip_suffix('d')?, 86_400_000)?;
    }
    for (unit, unit_ms) in [('h', 3_600_000), ('m', 60_000), ('s', 1000)] {
        let Some((number, rest)) = time.split_once(unit) else {
            continue;
        };
        is_any_given = true;
        time = rest;
        match number.split_once('.') {
            Some((whole, fraction)) if unit == 's' && is_digits(fraction) => {
                add(whole, unit_ms)?;
                let sign = if whole.starts_with('-') { -1 } else { 1 };
                add(&format!("{fraction:0<3}")[..3], sign)?;
            }
            _ => add(number, unit_ms)?,
        }
    }
    (time.is_empty() && is_any_given).then_some(total_ms)
}

#[cfg(test)]
mod tests {
    use super::iso_duration_ms;

    #[test]
    fn durations_are_parsed_as_in_java() {
        for (text, ms) in [
            ("pt2h", Some(7_200_000)),
            ("p1dt1h1m1.5s", Some(90_061_500)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("p3d", Some(259_200_000)),
            ("pt0s", Some(0)),
            ("pt-1h", Some(-3_600_000)),
            ("PT-0.5S", Some(-500)),
            ("p", None),
            ("pt", None),
            ("p1h", None),
            ("pt1m1h", None),
            ("pt1.5h", None),
            ("pt1.-5s", None),
            ("PT1X", None),
            ("2h", None),
            ("", None),
        ] {
            assert_eq!(iso_duration_ms(text), ms, "{text}");
        }
    }
}
