//! Normalises the output of Kafka's tools and Ottla's: removes what differs between runs, and
//! replaces the names of each tool's own objects with a common word.

/// Suffixes of the objects that Kafka's tool and Ottla's use.
pub const SUBJECTS: [&str; 2] = ["theirs", "ours"];

/// Prefixes of text that differs between runs: the word after each of these, or the whole line, is
/// removed.
const VARYING: [&str; 4] = [
    "TopicId: ",
    "HighWatermark:          ",
    "Epoch: ",
    "\"size\":",
];
const VARYING_LINES: [&str; 1] = ["\tLeader\t"];

/// How output is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    Lines,
    /// Each distinct line shape once, with one `#` for the integer part of a number and one for
    /// each decimal.
    Shapes,
}

impl Compared {
    /// The comparable lines of a tool's output.
    pub fn lines(self, printed: &str, subject: &str) -> Vec<String> {
        let mut lines = normalised(printed, subject);
        if self == Compared::Shapes {
            lines = lines.iter().map(|line| shape(line, subject)).collect();
            lines.sort();
            lines.dedup();
        }
        lines
    }
}

/// The normalised lines, sorted, because Kafka's tools print in the iteration order of hash maps.
fn normalised(printed: &str, subject: &str) -> Vec<String> {
    let mut lines: Vec<String> = printed
        .replace(&format!("-{subject}"), "-SUBJECT")
        .lines()
        .filter(|line| !line.trim().is_empty())
        // Lists may contain the other tool's topics and groups. This tool's own are `…-SUBJECT` at
        // this point.
        .filter(|line| !SUBJECTS.iter().any(|other| is_row_of(line, other)))
        .map(|line| {
            let line = VARYING
                .iter()
                .fold(line.to_owned(), |line, before| masked(&line, before));
            if VARYING_LINES.iter().any(|part| line.contains(part)) {
                "VARIES".to_owned()
            } else {
                line
            }
        })
        // Column widths depend on the lengths of the two subjects' names.
        .map(|line| line.split_whitespace().collect::<Vec<&str>>().join(" "))
        .collect();
    lines.sort();
    lines
}

/// Whether a line of a list or table is about an object of this subject: a name with the subject's
/// suffix at the start of the line or after `Topic:`.
fn is_row_of(line: &str, subject: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("Topic: ").unwrap_or(line);
    let rest = line
        .trim_start_matches(|next: char| next.is_ascii_lowercase())
        .strip_prefix('-')
        .and_then(|rest| rest.strip_prefix(subject));
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
}

/// The line with its numbers masked: `12.34` becomes `#.##`, `2026` becomes `#`. A number without a
/// fixed number of decimals, at the end of a line of two words, becomes `#.#`.
fn shape(line: &str, subject: &str) -> String {
    let line = line.replace(&format!("-{subject}."), "-SUBJECT.");
    let has_double = line.split_whitespace().count() == 2
        && line
            .split_whitespace()
            .all(|word| word.parse::<f64>().is_ok());
    if has_double {
        return "# #.#".into();
    }
    let mut shape = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if !character.is_ascii_digit() {
            shape.push(character);
            continue;
        }
        shape.push('#');
        while characters.next_if(char::is_ascii_digit).is_some() {}
        let mut behind = characters.clone();
        if behind.next() == Some('.') && behind.peek().is_some_and(char::is_ascii_digit) {
            shape.push('.');
            characters.next();
            while characters.next_if(char::is_ascii_digit).is_some() {
                shape.push('#');
            }
        }
    }
    // A metric without samples is NaN or infinite.
    shape.replace("NaN", "#.##")
}

/// The line with the word after each occurrence of `before` replaced.
fn masked(line: &str, before: &str) -> String {
    let mut parts = line.split(before);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|character: char| !character.is_alphanumeric() && !"-_".contains(character))
            .unwrap_or(part.len());
        whole += before;
        whole += "VARIES";
        whole += &part[end..];
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_left_out_and_the_rest_is_kept() {
        assert_eq!(
            normalised("Topic: pairs-ours\tTopicId: abc-1_x\tAt: h\n\nB\n", "ours"),
            ["B", "Topic: pairs-SUBJECT TopicId: VARIES At: h"]
        );
        assert_eq!(masked("x", "TopicId: "), "x");
        assert_eq!(
            masked(r#""size":12,"size":3}"#, "\"size\":"),
            r#""size":VARIES,"size":VARIES}"#
        );
    }

    #[test]
    fn rows_of_the_own_subject_stay_and_those_of_the_other_go() {
        let printed = "pairs-ours:0:4\npairs-theirs:0:4\npairs-oursome\n";
        assert_eq!(
            normalised(printed, "ours"),
            ["pairs-SUBJECT:0:4", "pairs-SUBJECTome"]
        );
        assert_eq!(
            normalised(printed, "theirs"),
            ["pairs-SUBJECT:0:4", "pairs-oursome"]
        );
        for line in [
            "\tTopic: moves-ours\tPartition: 0",
            "moves-ours-0: replicas: 1",
        ] {
            assert!(is_row_of(line, "ours"), "{line}");
        }
        assert!(!is_row_of("partitions moves-ours-0", "ours"));
    }

    #[test]
    fn a_shape_keeps_how_numbers_are_printed() {
        assert_eq!(
            shape("10 records, 1.50 ms, 99.9th.", "ours"),
            shape("200 records, 31.75 ms, 99.9th.", "ours")
        );
        assert_eq!(
            shape("10 sent, 1.50 ms 99.9th.", "ours"),
            "# sent, #.## ms #.#th."
        );
        assert_ne!(shape("a 1.5", "ours"), shape("a 1.50", "ours"));
        assert_ne!(shape("a 1", "ours"), shape("a 1.0", "ours"));
        assert_eq!(shape("0 10.2981", "ours"), shape("1000 0.667125", "ours"));
    }
}
