//! Converts Kafka's names to Rust's.

/// `TopicId` -> `topic_id`, `ISRNodes` -> `isr_nodes`, `KRaftVersion` -> `kraft_version`.
pub fn snake_case(name: &str) -> String {
    let name = name.replace("KRaft", "Kraft");
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (index, &c) in chars.iter().enumerate() {
        let after_lower = index > 0 && !chars[index - 1].is_uppercase();
        let before_lower = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && index > 0 && (after_lower || before_lower) {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// A field name: snake case, with Rust's keywords as raw identifiers.
pub fn field(name: &str) -> String {
    let snake = snake_case(name);
    match snake.as_str() {
        "type" | "match" | "as" | "use" | "ref" | "move" | "in" | "final" | "fn" | "mod"
        | "self" => {
            format!("r#{snake}")
        }
        _ => snake,
    }
}

#[cfg(test)]
mod tests {
    use super::{field, snake_case};

    #[test]
    fn runs_of_capitals_are_one_word() {
        assert_eq!(snake_case("TopicId"), "topic_id");
        assert_eq!(snake_case("LastKnownELR"), "last_known_elr");
        assert_eq!(snake_case("ISRNodes"), "isr_nodes");
        assert_eq!(snake_case("KRaftVersionRecord"), "kraft_version_record");
        assert_eq!(snake_case("Int32Value"), "int32_value");
    }

    #[test]
    fn keywords_become_raw() {
        assert_eq!(field("Type"), "r#type");
        assert_eq!(field("Types"), "types");
    }
}
