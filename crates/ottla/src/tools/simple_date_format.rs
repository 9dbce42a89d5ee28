//! Patterns of `java.text.SimpleDateFormat`, in English and in the time zone of the machine.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;

use super::local_time::broken_down;

/// What a pattern is made of.
#[derive(Debug)]
enum Part {
    Text(String),
    /// A letter, and how often it stands there.
    Field(char, usize),
}

#[derive(Debug)]
pub(super) struct SimpleDateFormat(Vec<Part>);

const FIELDS: &str = "yMdHhkKmsSaEDzZ";
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

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
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or(libc::time_t::MAX);
        self.shown(&broken_down(seconds), since.subsec_millis())
    }

    fn shown(&self, time: &libc::tm, millis: u32) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field(letter, count) => field(&mut text, *letter, *count, time, millis),
            }
        }
        text
    }
}

fn field(text: &mut String, letter: char, count: usize, time: &libc::tm, millis: u32) {
    let name = |names: &[&'static str], index: i32, is_long: bool| {
        let name = names.get(index as usize).copied().unwrap_or_default();
        if is_long {
            name
        } else {
            &name[..name.len().min(3)]
        }
    };
    let number = match letter {
        'y' if count == 2 => (time.tm_year + 1900) % 100,
        'y' => time.tm_year + 1900,
        'M' if count >= 3 => {
            text.push_str(name(&MONTHS, time.tm_mon, count > 3));
            return;
        }
        'M' => time.tm_mon + 1,
        'd' => time.tm_mday,
        'D' => time.tm_yday + 1,
        'H' => time.tm_hour,
        'k' => (time.tm_hour + 23) % 24 + 1,
        'K' => time.tm_hour % 12,
        'h' => (time.tm_hour + 11) % 12 + 1,
        'm' => time.tm_min,
        's' => time.tm_sec,
        'S' => millis as i32,
        'a' => {
            text.push_str(if time.tm_hour < 12 { "AM" } else { "PM" });
            return;
        }
        'E' => {
            text.push_str(name(&DAYS, time.tm_wday, count > 3));
            return;
        }
        // 'z' and 'Z', the letters of FIELDS that are left.
        _ => {
            let minutes = time.tm_gmtoff / 60;
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
    use super::*;

    #[test]
    fn patterns_are_javas() {
        let mut time = broken_down(0);
        (time.tm_year, time.tm_mon, time.tm_mday) = (126, 10, 2);
        (time.tm_hour, time.tm_min, time.tm_sec, time.tm_wday) = (15, 4, 5, 1);
        (time.tm_yday, time.tm_gmtoff) = (305, -5400);
        for (pattern, text) in [
            ("yyyy-MM-dd HH:mm:ss:SSS", "2026-11-02 15:04:05:006"),
            ("yy/M/d h:m:s a", "26/11/2 3:4:5 PM"),
            ("EEE, d MMM yyyy 'at' HH''mm", "Mon, 2 Nov 2026 at 15'04"),
            ("EEEE MMMM D", "Monday November 306"),
            ("Z z", "-0130 GMT-01:30"),
            ("k K", "15 3"),
        ] {
            let format = SimpleDateFormat::new(pattern).unwrap();
            assert_eq!(format.shown(&time, 6), text, "{pattern}");
        }
        time.tm_hour = 0;
        let format = SimpleDateFormat::new("k h K H").unwrap();
        assert_eq!(format.shown(&time, 6), "24 12 0 0");
    }

    #[test]
    fn what_is_no_pattern_is_refused_in_javas_words() {
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
