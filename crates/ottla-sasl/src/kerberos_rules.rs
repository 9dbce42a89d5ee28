//! `sasl.kerberos.principal.to.local.rules`: maps the principal of a ticket to a user name.
//!
//! The setting is a list of `DEFAULT`, which keeps the first component of a principal of the default
//! realm, and of
//!
//! ```text
//! RULE:[n:string](regexp)s/pattern/replacement/g/L
//! ```
//!
//! A rule applies to principals of `n` components. `string` is made of the realm, `$0`, and the
//! components, `$1` and `$2`; it has to match `regexp` as a whole. Then the first match of `pattern`
//! is replaced, or with `g` all. `L` and `U` change the case. The first rule that applies counts.
//!
//! Kafka: `KerberosName`, `KerberosRule`, `KerberosShortNamer`.

use std::fmt;

use fancy_regex::{Captures, Regex};

/// The rules in their order.
#[derive(Clone, Debug)]
pub struct KerberosRules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
enum Rule {
    Default,
    Rewrite(Box<Rewrite>),
}

#[derive(Clone, Debug)]
struct Rewrite {
    /// As given, for messages.
    text: String,
    components: usize,
    format: String,
    /// Anchored to match the whole string.
    condition: Option<Regex>,
    substitution: Option<Substitution>,
    case: Case,
}

#[derive(Clone, Debug)]
struct Substitution {
    pattern: Regex,
    replacement: String,
    is_global: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Kept,
    Lower,
    Upper,
}

/// A principal: `service/host@REALM`. Host and realm may be missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KerberosName {
    pub service: String,
    pub host: Option<String>,
    pub realm: Option<String>,
}

impl KerberosName {
    pub fn parse(text: &str) -> Result<KerberosName, String> {
        let Some((name, realm)) = text.split_once('@') else {
            return Ok(KerberosName {
                service: text.to_owned(),
                host: None,
                realm: None,
            });
        };
        let (service, host) = match name.split_once('/') {
            Some((service, host)) => (service, Some(host)),
            None => (name, None),
        };
        let is_simple = |part: &str| !part.contains(['/', '@']);
        if !is_simple(realm) || !host.is_none_or(is_simple) {
            return Err(format!("Malformed Kerberos name: {text}"));
        }
        Ok(KerberosName {
            service: service.to_owned(),
            host: host.map(str::to_owned),
            realm: Some(realm.to_owned()),
        })
    }
}

impl fmt::Display for KerberosName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)?;
        if let Some(host) = &self.host {
            write!(f, "/{host}")?;
        }
        match &self.realm {
            Some(realm) => write!(f, "@{realm}"),
            None => Ok(()),
        }
    }
}

impl PartialEq for KerberosRules {
    fn eq(&self, other: &KerberosRules) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for KerberosRules {}

impl fmt::Display for KerberosRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.rules.iter().map(|rule| match rule {
            Rule::Default => "DEFAULT",
            Rule::Rewrite(rewrite) => &rewrite.text,
        });
        write!(f, "[{}]", texts.collect::<Vec<_>>().join(", "))
    }
}

impl KerberosRules {
    /// Parses the elements of the setting. The error is for people.
    pub fn parse<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<KerberosRules, String> {
        let rules = rules.into_iter().map(parse_rule).collect::<Result<_, _>>();
        Ok(KerberosRules { rules: rules? })
    }

    /// The user name of a principal. `default_realm` is that of this machine, empty if it has none.
    pub fn short_name(&self, principal: &str, default_realm: &str) -> Result<String, String> {
        let name = KerberosName::parse(principal)?;
        let Some(realm) = &name.realm else {
            return Ok(name.service);
        };
        let mut parts: Vec<&str> = vec![realm, &name.service];
        parts.extend(name.host.as_deref());
        for rule in &self.rules {
            if let Some(short) = rule.apply(&parts, default_realm)? {
                return Ok(short);
            }
        }
        Err(format!("No rules apply to {name}, rules {self}"))
    }
}

/// The text up to the next `end`, and what follows it.
fn until(text: &str, end: char) -> Option<(&str, &str)> {
    text.split_once(end)
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let invalid = || {
        format!(
            "Invalid rule: {text}; give DEFAULT, or RULE:[n:string](regexp)s/pattern/replacement/ with g, /L or /U \
             after it, like each of the list"
        )
    };
    if let Some(rest) = text.strip_prefix("DEFAULT") {
        return match rest {
            "" => Ok(Rule::Default),
            rest => Err(unmatched(text, rest)),
        };
    }
    let rest = text.strip_prefix("RULE:[").ok_or_else(invalid)?;
    let (number, rest) = until(rest, ':').ok_or_else(invalid)?;
    if !number.bytes().all(|it| it.is_ascii_digit()) {
        return Err(invalid());
    }
    let components = number.parse().map_err(|_| {
        format!("Invalid rule: {text}: {number:?} is not a number of components; give 1 or 2")
    })?;
    let (format, mut rest) = until(rest, ']').ok_or_else(invalid)?;
    let compiled = |pattern: &str, whole: &str| {
        Regex::new(whole).map_err(|error| {
            format!("Invalid rule: {text}: {pattern:?} is not a regular expression: {error}")
        })
    };
    let mut condition = None;
    if let Some((pattern, after)) = rest.strip_prefix('(').and_then(|it| until(it, ')')) {
        condition = Some(compiled(pattern, &format!(r"\A(?:{pattern})\z"))?);
        rest = after;
    }
    let mut substitution = None;
    let parts = rest.strip_prefix("s/").and_then(|it| until(it, '/'));
    let parts = parts.and_then(|(pattern, it)| Some((pattern, until(it, '/')?)));
    if let Some((pattern, (replacement, after))) = parts {
        let global = after.strip_prefix('g');
        substitution = Some(Substitution {
            pattern: compiled(pattern, pattern)?,
            replacement: replacement.to_owned(),
            is_global: global.is_some(),
        });
        rest = global.unwrap_or(after);
    }
    rest = rest.strip_prefix('/').unwrap_or(rest);
    let case = match rest.chars().next() {
        Some('L') => Case::Lower,
        Some('U') => Case::Upper,
        _ => Case::Kept,
    };
    if case != Case::Kept {
        rest = &rest[1..];
    }
    if !rest.is_empty() {
        return Err(unmatched(text, rest));
    }
    Ok(Rule::Rewrite(Box::new(Rewrite {
        text: text.to_owned(),
        components,
        format: format.to_owned(),
        condition,
        substitution,
        case,
    })))
}

fn unmatched(rule: &str, rest: &str) -> String {
    format!("Invalid rule: `{rule}`, unmatched substring: `{rest}`")
}

impl Rule {
    /// `parts` are the realm and the components. `None` if the rule does not apply.
    fn apply(&self, parts: &[&str], default_realm: &str) -> Result<Option<String>, String> {
        let rewrite = match self {
            Rule::Default => {
                let applies = parts[0] == default_realm;
                return Ok(applies.then(|| parts[1].to_owned()));
            }
            Rule::Rewrite(rewrite) => rewrite,
        };
        if parts.len() - 1 != rewrite.components {
            return Ok(None);
        }
        let base = fill(&rewrite.format, parts)?;
        if let Some(condition) = &rewrite.condition
            && !condition
                .is_match(&base)
                .map_err(|error| error.to_string())?
        {
            return Ok(None);
        }
        let name = match &rewrite.substitution {
            Some(substitution) => substitution.apply(&base)?,
            None => base,
        };
        if name.contains(['/', '@']) {
            let rule = &rewrite.text;
            return Err(format!(
                "Non-simple name {name} after auth_to_local rule {rule}"
            ));
        }
        Ok(Some(match rewrite.case {
            Case::Kept => name,
            Case::Lower => name.to_lowercase(),
            Case::Upper => name.to_uppercase(),
        }))
    }
}

/// Replaces `$0`, `$1` and so on in the string of a rule.
fn fill(format: &str, parts: &[&str]) -> Result<String, String> {
    let mut pieces = format.split('$');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let (number, text) = piece.split_at(digits);
        let index: usize = number
            .parse()
            .map_err(|_| format!("bad format in username mapping in {number}"))?;
        let part = parts.get(index).ok_or_else(|| {
            let last = parts.len() - 1;
            format!("index {index} from {format} is outside of the valid range 0 to {last}")
        })?;
        filled.push_str(part);
        filled.push_str(text);
    }
    Ok(filled)
}

impl Substitution {
    fn apply(&self, base: &str) -> Result<String, String> {
        let mut problem = None;
        let limit = usize::from(!self.is_global);
        let replaced = self
            .pattern
            .try_replacen(base, limit, |captures: &Captures<'_, str>| {
                expand(&self.replacement, captures).unwrap_or_else(|error| {
                    problem = Some(error);
                    String::new()
                })
            });
        let replaced = replaced.map_err(|error| error.to_string())?.into_owned();
        match problem {
            Some(problem) => Err(problem),
            None => Ok(replaced),
        }
    }
}

/// Expands a replacement in Java's notation: `$1` is a group, with as many digits as there are
/// groups for; `\x` is `x`.
fn expand(replacement: &str, captures: &Captures<'_, str>) -> Result<String, String> {
    let mut text = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(
                chars
                    .next()
                    .ok_or_else(|| "character to be escaped is missing".to_owned())?,
            ),
            '$' => {
                let mut group: Option<usize> = None;
                while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                    let longer = group.unwrap_or(0).saturating_mul(10) + digit as usize;
                    if group.is_some() && longer >= captures.len() {
                        break;
                    }
                    group = Some(longer);
                    chars.next();
                }
                let group = group.ok_or_else(|| "Illegal group reference".to_owned())?;
                if group >= captures.len() {
                    return Err(format!("No group {group}"));
                }
                text.push_str(captures.get(group).map_or("", |it| it.as_str()));
            }
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REALM: &str = "REALM.COM";

    fn named(rules: &[&str], principal: &str) -> Result<String, String> {
        KerberosRules::parse(rules.iter().copied())?.short_name(principal, REALM)
    }

    /// The examples of Kafka's documentation and of its tests.
    #[test]
    fn the_first_rule_that_applies_counts() {
        let rules = [
            "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
            "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
            "DEFAULT",
        ];
        for (principal, expected) in [
            ("App.service-name/example.com@REALM.COM", "service-name"),
            ("App.service-name@REALM.COM", "service-name"),
            ("user/host@REALM.COM", "user"),
            ("user@REALM.COM", "user"),
            // A name without a realm stays.
            ("user", "user"),
            ("user/host", "user/host"),
        ] {
            assert_eq!(named(&rules, principal).as_deref(), Ok(expected));
        }
        let other = named(&rules, "user@OTHER.COM").unwrap_err();
        assert!(
            other.starts_with("No rules apply to user@OTHER.COM, rules [RULE:[1:$1]"),
            "{other}"
        );
    }

    #[test]
    fn parts_substitutions_and_case_are_as_in_kafka() {
        for (rule, principal, expected) in [
            ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "alice@OTHER", "alice"),
            ("RULE:[2:$1-$2]", "a/b@X", "a-b"),
            ("RULE:[1:$1]/L", "Alice@X", "alice"),
            ("RULE:[1:$1]L", "Alice@X", "alice"),
            ("RULE:[2:$1]/U", "alice/x@X", "ALICE"),
            ("RULE:[1:$1]s/a/o/", "aba@X", "oba"),
            ("RULE:[1:$1]s/a/o/g", "aba@X", "obo"),
            ("RULE:[1:$1]s/A/o/g/L", "ABA@X", "obo"),
            ("RULE:[1:$1]s/(b)/$12\\$/", "aba@X", "ab2$a"),
            ("RULE:[1:x]", "aba@X", "x"),
        ] {
            assert_eq!(named(&[rule], principal).as_deref(), Ok(expected), "{rule}");
        }
    }

    #[test]
    fn unsupported_rules_are_errors() {
        for (rule, principal, says) in [
            ("RULE:[1:$1@$0]", "a@X", "Non-simple name a@X after"),
            (
                "RULE:[1:$2]",
                "a@X",
                "index 2 from $2 is outside of the valid range 0 to 1",
            ),
            ("RULE:[1:$x]", "a@X", "bad format in username mapping"),
            ("RULE:[1:$1]s/a/$1/", "a@X", "No group 1"),
            ("RULE:[1:$1]s/a/$/", "a@X", "Illegal group reference"),
            ("RULE:[2:$1]", "a@X", "No rules apply to a@X"),
            (
                "DEFAULT",
                "a/b/c@REALM.COM",
                "Malformed Kerberos name: a/b/c@REALM.COM",
            ),
            ("DEFAULT", "a@b@REALM.COM", "Malformed Kerberos name"),
        ] {
            let error = named(&[rule], principal).unwrap_err();
            assert!(error.contains(says), "{rule}: {error}");
        }
    }

    #[test]
    fn rules_that_are_none_are_refused() {
        for (rule, says) in [
            ("default", "Invalid rule: default"),
            ("DEFAULT/L", "unmatched substring: `/L`"),
            ("RULE:[1:$1]/g", "unmatched substring: `g`"),
            ("RULE:[1:$1](a", "unmatched substring: `(a`"),
            ("RULE:[1:$1]s/a/b", "unmatched substring: `s/a/b`"),
            ("RULE:[1:$1", "Invalid rule"),
            ("RULE:[n:$1]", "Invalid rule"),
            ("RULE:[:$1]", "not a number of components"),
            ("RULE:[1:$1](*)", "not a regular expression"),
            ("", "Invalid rule"),
        ] {
            let error = KerberosRules::parse([rule]).unwrap_err();
            assert!(error.contains(says), "{rule}: {error}");
        }
    }
}
