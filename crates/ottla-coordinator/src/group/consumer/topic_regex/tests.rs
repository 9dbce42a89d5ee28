//! Expressions with RE2/J's results, as recorded in `re2j.txt`.

use super::TopicRegex;

const TOPICS: [&str; 20] = [
    "a", "b", "ab", "A", "K", "k", "s", "a.b", "a-b", "a{", "aa", "aaa", "_", "-", ".", "1", "12",
    "topic-42", "my-topic", "Ab",
];

#[test]
fn expressions_mean_what_they_mean_to_re2j() {
    let mut count = 0;
    for line in include_str!("re2j.txt").lines().skip(1) {
        let (regex, expected) = line.split_once('\t').expect("an expression and a result");
        let result = match TopicRegex::compile(regex) {
            Ok(compiled) => {
                let matched: Vec<&str> = TOPICS
                    .into_iter()
                    .filter(|topic| compiled.matches(topic))
                    .collect();
                format!("= {}", matched.join(" "))
            }
            Err(error) => format!("! {error}"),
        };
        assert_eq!(result.trim_end(), expected, "`{regex}`");
        count += 1;
    }
    assert_eq!(count, 175);
}

#[test]
fn expressions_that_would_be_too_large_are_refused() {
    let nested = "(".repeat(5_000) + "a" + &")".repeat(5_000);
    assert!(TopicRegex::compile(&nested).is_err());
    assert!(TopicRegex::compile("(((a{1000}){1000}){1000}){1000}").is_err());
}
