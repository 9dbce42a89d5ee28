//! Counters, and the output lines of Kafka's tool (`ShareConsumerPerformance`).

use std::time::{Duration, SystemTime};

use crate::tools::java_numbers::fixed;
use crate::tools::simple_date_format::SimpleDateFormat;

const BYTES_PER_MB: f64 = 1024.0 * 1024.0;

pub(super) const HEADER: &str = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, \
                                 fetch.time.ms";

/// Counters of one member or of all.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Consumed {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// A time span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) begun: SystemTime,
    pub(super) ended: SystemTime,
}

impl Span {
    fn length(&self) -> Duration {
        self.ended.duration_since(self.begun).unwrap_or_default()
    }
}

impl Consumed {
    pub(super) fn line(&self, span: &Span, format: &SimpleDateFormat) -> String {
        line(*self, *self, span, format)
    }
}

/// The total, and the rates of a part of it.
fn line(sum: Consumed, part: Consumed, span: &Span, format: &SimpleDateFormat) -> String {
    let milliseconds = span.length().as_millis();
    let seconds = milliseconds as f64 / 1000.0;
    format!(
        "{}, {}, {}, {}, {}, {}, {milliseconds}",
        format.of(span.begun),
        format.of(span.ended),
        fixed(sum.bytes as f64 / BYTES_PER_MB, 4),
        fixed(part.bytes as f64 / BYTES_PER_MB / seconds, 4),
        fixed(part.records as f64 / seconds, 4),
        sum.records,
    )
}

/// When one member last reported its progress.
pub(super) struct MemberProgress {
    interval: Duration,
    at: SystemTime,
    reported: Consumed,
}

impl MemberProgress {
    pub(super) fn begin(interval: Duration) -> MemberProgress {
        MemberProgress {
            interval,
            at: SystemTime::now(),
            reported: Consumed::default(),
        }
    }

    pub(super) fn line_if_due(
        &mut self,
        consumed: Consumed,
        format: &SimpleDateFormat,
    ) -> Option<String> {
        self.line_if_due_at(SystemTime::now(), consumed, format)
    }

    fn line_if_due_at(
        &mut self,
        now: SystemTime,
        consumed: Consumed,
        format: &SimpleDateFormat,
    ) -> Option<String> {
        let span = Span {
            begun: self.at,
            ended: now,
        };
        if span.length() < self.interval {
            return None;
        }
        let part = Consumed {
            records: consumed.records - self.reported.records,
            bytes: consumed.bytes - self.reported.bytes,
        };
        self.at = now;
        self.reported = consumed;
        Some(line(consumed, part, &span, format))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(milliseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_000_000 + milliseconds)
    }

    #[test]
    fn lines_have_the_format_of_kafka() {
        let format = SimpleDateFormat::new("ss:SSS").unwrap();
        let mut progress = MemberProgress {
            interval: Duration::from_secs(1),
            at: at(0),
            reported: Consumed::default(),
        };
        let mut consumed = Consumed {
            records: 10,
            bytes: 1 << 20,
        };
        assert_eq!(progress.line_if_due_at(at(900), consumed, &format), None);
        consumed.records = 30;
        consumed.bytes = 3 << 20;
        assert_eq!(
            progress
                .line_if_due_at(at(1500), consumed, &format)
                .unwrap(),
            "40:000, 41:500, 3.0000, 2.0000, 20.0000, 30, 1500"
        );
        consumed.records = 32;
        assert_eq!(
            progress
                .line_if_due_at(at(3500), consumed, &format)
                .unwrap(),
            "41:500, 43:500, 3.0000, 0.0000, 1.0000, 32, 2000"
        );
        let span = Span {
            begun: at(0),
            ended: at(4000),
        };
        assert_eq!(
            consumed.line(&span, &format),
            "40:000, 44:000, 3.0000, 0.7500, 8.0000, 32, 4000"
        );
    }
}
