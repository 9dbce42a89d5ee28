//! Patterns of `java.text.SimpleDateFormat`, in English and in the machine's time zone.

use std::fmt::Write as _;
use std::time::SystemTime;

use anyhow::bail;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

/// A part of a pattern.
#[derive(Debug)]
enum Part {
    Text(String),
    /// A letter and its repetitions.
    Field(char, usize),
}

#[derive(Debug)]
pub(super) struct SimpleDateFormat(Vec<Part>);

const FIELDS: &str = "yMdHhkKmsSaEDzZ";

impl SimpleDateFormat {
    pub(super) fn new(pattern: &str) -> anyhow::Result<SimpleDateFormat> {
        let mut parts: Vec<Part> = Vec::new();
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\'' => {
                    let mut text = String::new();
                    loop {
                        match characters.next() {
                            // Two quotes stand for one.
                            Some('\'') if characters.peek() == Some(&'\'') => {
                                characters.next();
                                text.push('\'');
                            }
                            Some('\'') => break,
                            Some(other) => text.push(other),
                            None => bail!("Unterminated quote"),
                        }
                    }
                    if text.is_empty() {
                        text.push('\'');
                    }
                    parts.push(Part::Text(text));
                }
                letter if letter.is_ascii_alphabetic() => {
                    if !FIELDS.contains(letter) {
                        bail!("Illegal pattern character '{letter}'");
                    }
                    let mut count = 1;
                    while characters.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    parts.push(Part::Field(letter, count));
                }
                other => parts.push(Part::Text(other.to_string())),
            }
        }
        Ok(SimpleDateFormat(parts))
    }

    pub(super) fn of(&self, time: SystemTime) -> String {
        // Times after the calendar's last year are shown as its end.
        let moment = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
        self.shown(&moment.to_zoned_datetime(TimeZone::system()))
    }

    fn shown(&self, time: &ZonedDateTime) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field(letter, count) => field(&mut text, *letter, *count, time),
            }
        }
        text
    }
}

fn field(text: &mut String, letter: char, count: usize, time: &ZonedDateTime) {
    let name = match (letter, count) {
        ('M', 4..) => Some("%B"),
        ('M', 3) => Some("%b"),
        ('E', 4..) => Some("%A"),
        ('E', _) => Some("%a"),
        ('a', _) => Some("%p"),
        _ => None,
    };
    if let Some(name) = name {
        let _ = write!(text, "{}", time.strftime(name));
        return;
    }
    let number = match letter {
        'y' if count == 2 => time.year() % 100,
        'y' => time.year(),
        'M' => i16::from(time.month()),
        'd' => i16::from(time.day()),
        'D' => time.day_of_year(),
        'H' => i16::from(time.hour()),
        'k' => i16::from((time.hour() + 23) % 24 + 1),
        'K' => i16::from(time.hour() % 12),
        'h' => i16::from((time.hour() + 11) % 12 + 1),
        'm' => i16::from(time.minute()),
        's' => i16::from(time.second()),
        'S' => time.millisecond(),
        // 'z' and 'Z', the remaining letters of FIELDS.
        _ => {
            let minutes = time.offset().seconds() / 60;
            let sign = if minutes < 0 { '-' } else { '+' };
            let (hours, minutes) = (minutes.abs() / 60, minutes.abs() % 60);
            let _ = match (letter, hours, minutes) {
                ('z', 0, 0) => write!(text, "UTC"),
                ('z', ..) => write!(text, "GMT{sign}{hours:02}:{minutes:02}"),
                _ => write!(text, "{sign}{hours:02}{minutes:02}"),
            };
            return;
        }
    };
    let _ = write!(text, "{number:0count$}");
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use jiff::tz::Offset;

    use super::*;

    #[test]
    fn patterns_match_java() {
        let zone = TimeZone::fixed(Offset::from_seconds(-5400).unwrap());
        let day = date(2026, 11, 2);
        let time = day
            .at(15, 4, 5, 6_000_000)
            .to_zoned_datetime(zone.clone())
            .unwrap();
        for (pattern, text) in [
            ("yyyy-MM-dd HH:mm:ss:SSS", "2026-11-02 15:04:05:006"),
            ("yy/M/d h:m:s a", "26/11/2 3:4:5 PM"),
            ("EEE, d MMM yyyy 'at' HH''mm", "Mon, 2 Nov 2026 at 15'04"),
            ("EEEE MMMM D", "Monday November 306"),
            ("Z z", "-0130 GMT-01:30"),
            ("k K", "15 3"),
        ] {
            let format = SimpleDateFormat::new(pattern).unwrap();
            assert_eq!(format.shown(&time), text, "{pattern}");
        }
        let midnight = day.at(0, 0, 0, 0).to_zoned_datetime(zone).unwrap();
        let format = SimpleDateFormat::new("k h K H").unwrap();
        assert_eq!(format.shown(&midnight), "24 12 0 0");
    }

    #[test]
    fn invalid_patterns_have_the_messages_of_java() {
        for (pattern, text) in [
            ("yyyy b", "Illegal pattern character 'b'"),
            ("'open", "Unterminated quote"),
        ] {
            assert_eq!(
                SimpleDateFormat::new(pattern).unwrap_err().to_string(),
                text
            );
        }
    }
}
