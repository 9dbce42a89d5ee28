//! The time of the machine, and as printed by Kafka's tools: in the machine's time zone.

use jiff::{Timestamp, ZonedDateTime};

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Now, as `2026-01-31 23:59:59,999`.
pub(super) fn now() -> String {
    shown(&ZonedDateTime::now())
}

fn shown(moment: &ZonedDateTime) -> String {
    moment.strftime("%Y-%m-%d %H:%M:%S,%3f").to_string()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn moments_have_a_fixed_width() {
        let moment = date(2026, 1, 2).at(3, 4, 5, 6_000_000);
        let moment = moment.to_zoned_datetime(TimeZone::UTC).unwrap();
        assert_eq!(shown(&moment), "2026-01-02 03:04:05,006");
        assert!(now().starts_with('2'), "{}", now());
    }
}
