//! Java's way of naming a user: `sasl.jaas.config`.

/// User name and password out of `sasl.jaas.config`.
pub(super) fn credentials(jaas: &str) -> Option<(String, String)> {
    let module = jaas.split_whitespace().next()?;
    let known = [
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
    ];
    if !known.contains(&module) || !jaas.trim_end().ends_with(';') {
        return None;
    }
    Some((option(jaas, "username")?, option(jaas, "password")?))
}

/// The value of an option, in quotes with backslashes, or plain up to a space or semicolon.
fn option(jaas: &str, name: &str) -> Option<String> {
    let start = jaas
        .match_indices(name)
        .find(|(at, _)| {
            let is_word = jaas[..*at].ends_with(char::is_whitespace);
            is_word && jaas[at + name.len()..].trim_start().starts_with('=')
        })?
        .0;
    let value = jaas[start + name.len()..]
        .trim_start()
        .strip_prefix('=')?
        .trim_start();
    let Some(quoted) = value.strip_prefix('"') else {
        let end = value.find(|it: char| it.is_whitespace() || it == ';')?;
        return Some(value[..end].to_owned());
    };
    let mut found = String::new();
    let mut letters = quoted.chars();
    loop {
        match letters.next()? {
            '"' => return Some(found),
            '\\' => found.push(letters.next()?),
            letter => found.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found() {
        let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                     username=\"al ice\" password=\"a\\\"b;c\";";
        assert_eq!(credentials(plain), Some(("al ice".into(), "a\"b;c".into())));
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required username=bob password=x;";
        assert_eq!(credentials(scram), Some(("bob".into(), "x".into())));
        assert_eq!(
            credentials("com.example.Module required username=a password=b;"),
            None
        );
    }
}
