//! Normalises the output of Kafka's tools and Ottla's: removes values that differ between runs, and
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
    /// As shapes, with delegation tokens and their HMACs replaced.
    Tokens,
}

impl Compared {
    /// The comparable lines of a tool's output.
    pub fn lines(self, printed: &str, subject: &str) -> Vec<String> {
        let mut lines = normalised(printed, subject);
        if self == Compared::Tokens {
            lines = lines.iter().map(|line| without_tokens(line)).collect();
        }
        if self != Compared::Lines {
            lines = lines.iter().map(|line| shape(line, subject)).collect();
            lines.sort();
            lines.dedup();
        }
        lines
    }
}

/// The output before the first stack trace. Kafka's tools print one after their message; Ottla's
/// never do.
pub fn without_stack_traces(printed: &str) -> &str {
    let mut end = 0;
    for line in printed.split_inclusive('\n') {
        let class = line.split([':', '\n']).next().unwrap_or_default();
        let is_exception = class.ends_with("Exception") || class.ends_with("Error");
        if line.starts_with("\tat ") || (is_exception && class.contains('.')) {
            break;
        }
        end += line.len();
    }
    &printed[..end]
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
            let line = without_request(line);
            let line = VARYING
                .iter()
                .fold(line, |line, before| masked(&line, before));
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

/// The line with each word that is random bytes in Base64 replaced.
fn without_tokens(line: &str) -> String {
    const SHORTEST: usize = 22;
    let is_random = |word: &str| {
        let is_base64 = |it: char| it.is_ascii_alphanumeric() || "+/=-_".contains(it);
        word.len() >= SHORTEST
            && word.chars().all(is_base64)
            && word.contains(|it: char| it.is_ascii_uppercase())
            && word.contains(|it: char| it.is_ascii_lowercase())
    };
    let words = line
        .split(' ')
        .map(|word| if is_random(word) { "TOKEN" } else { word });
    words.collect::<Vec<&str>>().join(" ")
}

/// The line without Kafka's text for a denied request, which contains object addresses and a thread
/// number.
fn without_request(line: &str) -> String {
    const BEGIN: &str = "Request Request(";
    match line.split_once(BEGIN) {
        Some((before, request)) => match request.split_once(") needs ") {
            Some((_, right)) => format!("{before}Request needs {right}"),
            None => line.to_owned(),
        },
        None => line.to_owned(),
    }
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
    fn the_message_stays_and_the_stack_trace_goes() {
        let printed = "Error: no\norg.apache.kafka.tools.AdminCommandFailedException: no\n\tat a.b(C.java:1)\n";
        assert_eq!(without_stack_traces(printed), "Error: no\n");
        let printed = "Error: org.apache.kafka.common.errors.X: no\n";
        assert_eq!(without_stack_traces(printed), printed);
        assert_eq!(without_stack_traces("a: b\nc"), "a: b\nc");
    }

    #[test]
    fn the_missing_permission_of_a_denied_request_is_kept() {
        let denied = "no: Request Request(processor=6, session=a.B@1f, envelope=None) needs DESCRIBE permission.";
        let expected = "no: Request needs DESCRIBE permission.";
        assert_eq!(Compared::Lines.lines(denied, "ours"), [expected]);
        let ours =
            "no: Request DescribeAcls of User:carol from 127.0.0.1 needs DESCRIBE permission.";
        assert_eq!(Compared::Lines.lines(ours, "ours"), [ours]);
    }

    #[test]
    fn varying_values_are_removed_and_others_kept() {
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
    fn only_rows_of_the_own_subject_are_kept() {
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
    fn tokens_are_replaced_and_names_kept() {
        assert_eq!(
            without_tokens("vK3-p_QhSmaIeLgZ5ZlbDw 2VbX+/k0aWQxMjM0NTY3ODkwYWJjZA== User:alice"),
            "TOKEN TOKEN User:alice"
        );
        let message = "org.apache.kafka.common.errors.DelegationTokenDisabledException";
        assert_eq!(without_tokens(message), message);
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
