//! The place of the flags that name the cluster, in tools with subcommands.
//!
//! Kafka's tools define them before the subcommand, and `acls explain` and `acls unused` define them
//! after it. A user need not know which: they are accepted on both sides.

const FLAGS: [&str; 5] = [
    "--bootstrap-server",
    "--bootstrap-controller",
    "--command-config",
    "-b",
    "-C",
];

/// Moves the flags to the place where the definition of the tool has them. The first of the
/// arguments is the program, the second the tool.
pub fn moved_into_place(mut arguments: Vec<String>) -> Vec<String> {
    let tool = arguments.get(1).map_or("", String::as_str).to_owned();
    if !["acls", "features", "metadata-quorum"].contains(&tool.as_str()) {
        return arguments;
    }
    let (mut flags, mut others) = (Vec::new(), Vec::new());
    let mut words = arguments.split_off(2).into_iter();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !FLAGS.contains(&name) {
            others.push(word);
            continue;
        }
        let has_value = name.len() < word.len();
        flags.push(word);
        if !has_value {
            flags.extend(words.next());
        }
    }
    let subcommand = others.first().map_or("", String::as_str);
    let is_after = tool == "acls" && ["explain", "unused"].contains(&subcommand);
    let [first, second] = match is_after {
        true => [others, flags],
        false => [flags, others],
    };
    arguments.extend(first);
    arguments.extend(second);
    arguments
}

#[cfg(test)]
mod tests {
    use super::moved_into_place;

    #[test]
    fn the_flags_are_accepted_on_both_sides_of_a_subcommand() {
        for (given, expected) in [
            (
                "features describe --bootstrap-server h:1 --node-id 1",
                "features --bootstrap-server h:1 describe --node-id 1",
            ),
            (
                "metadata-quorum describe --status -b h:1 --command-config=f",
                "metadata-quorum -b h:1 --command-config=f describe --status",
            ),
            (
                "acls --bootstrap-server h:1 explain --cluster",
                "acls explain --cluster --bootstrap-server h:1",
            ),
            (
                "acls --list --bootstrap-server h:1 --topic explain",
                "acls --bootstrap-server h:1 --list --topic explain",
            ),
            ("features describe -b", "features -b describe"),
            ("topics --list -b h:1", "topics --list -b h:1"),
            ("", ""),
        ] {
            let words = |line: &str| -> Vec<String> {
                let words = line.split_whitespace().map(str::to_owned);
                std::iter::once("ottla".to_owned()).chain(words).collect()
            };
            assert_eq!(moved_into_place(words(given)), words(expected), "{given}");
        }
    }
}
