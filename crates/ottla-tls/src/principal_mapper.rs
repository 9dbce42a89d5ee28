//! `ssl.principal.mapping.rules`: maps the distinguished name of a certificate to the name of a
//! principal.
//!
//! The setting is a list of `DEFAULT`, which keeps the name, and `RULE:pattern/replacement/[LU]`.
//! The first rule whose pattern matches the whole name applies. Patterns have Java's syntax,
//! including look-around and back-references. Kafka: `SslPrincipalMapper`.

use fancy_regex::{Captures, Regex};

use crate::TlsError;

#[derive(Debug)]
pub struct PrincipalMapper {
    rules: Vec<Rule>,
    text: String,
}

#[derive(Debug)]
enum Rule {
    Default,
    Rewrite(Box<Rewrite>),
}

#[derive(Debug)]
struct Rewrite {
    /// The pattern, anchored to match the whole name.
    whole: Regex,
    pattern: Regex,
    replacement: String,
    case: Case,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Kept,
    Lower,
    Upper,
}

impl PrincipalMapper {
    pub fn parse(text: &str) -> Result<PrincipalMapper, TlsError> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, after) = next_rule(rest)?;
            rules.extend(rule);
            rest = after.trim_start();
            if let Some(after) = rest.strip_prefix(',') {
                rest = after.trim_start();
            } else if !rest.is_empty() {
                return Err(TlsError::new(format!(
                    "Invalid rule: {text:?}: there is no comma before {rest:?}; give DEFAULT or \
                     RULE:pattern/replacement/ optionally followed by L or U, with commas between rules"
                )));
            }
        }
        let text = text.to_owned();
        Ok(PrincipalMapper { rules, text })
    }

    /// The name of the principal. Returns an error if no rule applies.
    pub fn name(&self, distinguished_name: &str) -> Result<String, TlsError> {
        for rule in &self.rules {
            // Not the next rule, which may name another principal.
            let applied = rule.apply(distinguished_name).map_err(|error| {
                TlsError::new(format!(
                    "A rule of {} cannot be applied to {distinguished_name}: {error}",
                    self.text
                ))
            })?;
            if let Some(name) = applied {
                return Ok(name);
            }
        }
        Err(TlsError::new(format!(
            "No rules apply to {distinguished_name}, rules {}",
            self.text
        )))
    }
}

/// The first rule, `None` if it is empty, and the rest of the text.
fn next_rule(text: &str) -> Result<(Option<Rule>, &str), TlsError> {
    if let Some(rest) = text.strip_prefix("DEFAULT") {
        return Ok((Some(Rule::Default), rest));
    }
    if text.starts_with(',') {
        return Ok((None, text));
    }
    let invalid = || {
        TlsError::new(format!(
            "Invalid rule: {text:?}; give DEFAULT, or RULE:pattern/replacement/, optionally followed by L or U"
        ))
    };
    let rest = text.strip_prefix("RULE:").ok_or_else(invalid)?;
    let (pattern, rest) = until_slash(rest).ok_or_else(invalid)?;
    let (replacement, rest) = until_slash(rest).ok_or_else(invalid)?;
    let (case, rest) = match rest.as_bytes().first() {
        Some(b'L') => (Case::Lower, &rest[1..]),
        Some(b'U') => (Case::Upper, &rest[1..]),
        _ => (Case::Kept, rest),
    };
    let compiled = |pattern: &str| {
        Regex::new(pattern).map_err(|error| {
            TlsError::new(format!(
                "Invalid rule: {pattern:?} is not a regular expression: {error}"
            ))
        })
    };
    let rule = Rewrite {
        whole: compiled(&format!(r"\A(?:{pattern})\z"))?,
        pattern: compiled(pattern)?,
        replacement: replacement.to_owned(),
        case,
    };
    Ok((Some(Rule::Rewrite(Box::new(rule))), rest))
}

/// Splits at the first slash that is not escaped by a backslash.
fn until_slash(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '/' => return Some((&text[..index], &text[index + 1..])),
            _ => {}
        }
    }
    None
}

impl Rule {
    /// `None` if the rule does not apply. The error is that matching exceeds the limits of the engine.
    fn apply(&self, name: &str) -> Result<Option<String>, fancy_regex::Error> {
        let Rule::Rewrite(rewrite) = self else {
            return Ok(Some(name.to_owned()));
        };
        let Rewrite {
            whole,
            pattern,
            replacement,
            case,
        } = &**rewrite;
        if !whole.is_match(name)? {
            return Ok(None);
        }
        let replaced = pattern.try_replacen(name, 0, |captures: &Captures<'_, str>| {
            expand(replacement, captures)
        })?;
        Ok(Some(match case {
            Case::Kept => replaced.into_owned(),
            Case::Lower => replaced.to_lowercase(),
            Case::Upper => replaced.to_uppercase(),
        }))
    }
}

/// Expands a replacement in Java's notation: `$1` is a group, with as many digits as there are
/// groups for; `\x` is `x`. The number of a missing group is kept as text.
fn expand(replacement: &str, captures: &Captures<'_, str>) -> String {
    let mut text = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.extend(chars.next()),
            '$' => {
                let mut number: Option<usize> = None;
                while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                    let longer = number.unwrap_or(0).saturating_mul(10) + digit as usize;
                    if longer >= captures.len() && number.is_some() {
                        break;
                    }
                    number = Some(longer);
                    chars.next();
                }
                match number {
                    Some(group) if group < captures.len() => {
                        text.push_str(captures.get(group).map_or("", |it| it.as_str()));
                    }
                    Some(digits) => text.push_str(&format!("${digits}")),
                    None => text.push('$'),
                }
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(rules: &str, name: &str) -> Result<String, String> {
        let mapper = PrincipalMapper::parse(rules).map_err(|error| error.0)?;
        mapper.name(name).map_err(|error| error.0)
    }

    /// The examples of Kafka's documentation.
    #[test]
    fn the_first_rule_that_fits_the_whole_name_applies() {
        let rules = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,\
                     RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,\
                     RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT";
        for (name, expected) in [
            ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
            ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
            ("cn=kafka1.Example,O=x", "kafka1.example"),
            (
                "OU=JavaSoft,O=Sun Microsystems",
                "OU=JavaSoft,O=Sun Microsystems",
            ),
        ] {
            assert_eq!(mapped(rules, name).as_deref(), Ok(expected), "{name}");
        }
    }

    #[test]
    fn groups_slashes_and_case_are_as_in_java() {
        let name = "CN=a,OU=b";
        assert_eq!(
            mapped("RULE:CN=(.*),OU=(.*)/$2\\/$1$3/U", name).as_deref(),
            Ok("B/A$3")
        );
        assert_eq!(mapped("RULE:CN=(.*),OU=.*/$12/", name).as_deref(), Ok("a2"));
        assert_eq!(
            mapped("RULE:(?=CN)(.)N=\\w,.*/$1/", name).as_deref(),
            Ok("C")
        );
        assert_eq!(mapped("  DEFAULT , RULE:x/y/ ", name).as_deref(), Ok(name));
    }

    /// The client chooses its name, but not by which rule it is mapped.
    #[test]
    fn a_rule_that_takes_too_long_is_no_reason_for_the_next_one() {
        let name = format!("CN={}", "ab".repeat(40));
        let error = mapped("RULE:CN=(a|b|ab)*(?>c)/x/,DEFAULT", &name).unwrap_err();
        assert!(error.starts_with("A rule of RULE:CN="), "{error}");
    }

    #[test]
    fn no_rule_and_no_sense_are_errors() {
        let missed = mapped("RULE:CN=(.*)/$1/", "O=x").unwrap_err();
        assert_eq!(missed, "No rules apply to O=x, rules RULE:CN=(.*)/$1/");
        for rules in [
            "default",
            "RULE:",
            "RULE:a/b",
            "RULE:(/b/",
            "DEFAULT RULE:a/b/",
        ] {
            assert!(PrincipalMapper::parse(rules).is_err(), "{rules}");
        }
    }
}
