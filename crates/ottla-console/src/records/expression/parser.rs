//! Reads the text of an expression.
//!
//! Pure.

use regex::bytes::RegexBuilder;

use super::tree::{Method, Node, Number, Operator, Root, Step};

const MAX_LENGTH: usize = 4096;
const MAX_DEPTH: usize = 64;
/// Of the parsed expression. Each pair of brackets can have a few, and methods follow each other without brackets.
const MAX_LEVELS: usize = 4 * MAX_DEPTH;
/// Of one expression, and the memory of each: a few characters can stand for many MiB.
pub(super) const MAX_REGEXES: usize = 8;
const REGEX_BYTES: usize = 256 << 10;

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Text(String),
    Number(Number),
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 22] = [
    "&&", "||", "==", "!=", "<=", ">=", "..", "<", ">", "!", "(", ")", "[", "]", ".", ",", "$",
    "*", "-", "@", "?", ":",
];

pub(super) struct Parser {
    /// With the position of each in the text.
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
    regexes: usize,
}

impl Parser {
    pub(super) fn parse(text: &str) -> Result<Node, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("it is longer than {MAX_LENGTH} bytes"));
        }
        let mut parser = Parser {
            tokens: tokens(text)?,
            next: 0,
            depth: 0,
            regexes: 0,
        };
        let node = parser.any_of()?;
        match parser.peek() {
            Token::End if node.levels() > MAX_LEVELS => Err(format!(
                "it has {} conditions and methods in each other; {MAX_LEVELS} are possible",
                node.levels()
            )),
            Token::End => Ok(node),
            other => Err(parser.unexpected(&other.clone())),
        }
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Sign(it) if *it == sign);
        if is_next {
            self.next += 1;
        }
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(format!(
                "{}; {sign} is missing",
                self.unexpected(&self.peek().clone())
            )),
        }
    }

    fn unexpected(&self, token: &Token) -> String {
        let at = self.tokens[self.next.min(self.tokens.len() - 1)].1 + 1;
        match token {
            Token::End => "it ends too early".to_owned(),
            Token::Word(word) => format!("unexpected {word} near character {at}"),
            Token::Text(text) => format!("unexpected {text:?} near character {at}"),
            Token::Number(number) => format!("unexpected {number} near character {at}"),
            Token::Sign(sign) => format!("unexpected {sign} near character {at}"),
        }
    }

    fn any_of(&mut self) -> Result<Node, String> {
        let first = self.all_of()?;
        let mut others = Vec::new();
        while self.takes("||") {
            others.push(self.all_of()?);
        }
        Ok(joined(first, others, Node::Or))
    }

    fn all_of(&mut self) -> Result<Node, String> {
        let first = self.negated()?;
        let mut others = Vec::new();
        while self.takes("&&") {
            others.push(self.negated()?);
        }
        Ok(joined(first, others, Node::And))
    }

    fn negated(&mut self) -> Result<Node, String> {
        let mut is_negated = false;
        while self.takes("!") {
            is_negated = !is_negated;
        }
        let node = self.comparison()?;
        Ok(match is_negated {
            true => Node::Not(Box::new(node)),
            false => node,
        })
    }

    fn comparison(&mut self) -> Result<Node, String> {
        let one = self.operand()?;
        if *self.peek() == Token::Word("in".into()) {
            self.next += 1;
            return Ok(Node::In(Box::new(one), Box::new(self.operand()?)));
        }
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        for (sign, operator) in operators {
            if self.takes(sign) {
                let other = self.operand()?;
                return Ok(Node::Compare(operator, Box::new(one), Box::new(other)));
            }
        }
        Ok(one)
    }

    fn operand(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        let node = self.simple_operand()?;
        self.depth -= 1;
        match node {
            list @ Node::List(_) => Ok(list),
            other => self.steps(other),
        }
    }

    fn simple_operand(&mut self) -> Result<Node, String> {
        Ok(match self.take() {
            Token::Text(text) => Node::Text(text),
            Token::Number(number) => Node::Number(number),
            Token::Sign("-") => match self.take() {
                Token::Number(number) => Node::Number(number.negative()),
                other => return Err(self.unexpected(&other)),
            },
            Token::Sign("(") => {
                let inner = self.any_of()?;
                self.expect(")")?;
                inner
            }
            Token::Sign("[") => {
                let mut items = Vec::new();
                while !self.takes("]") {
                    if !items.is_empty() {
                        self.expect(",")?;
                    }
                    items.push(self.operand()?);
                }
                Node::List(items)
            }
            Token::Sign("$") => Node::Path(Root::Value, Vec::new()),
            Token::Word(word) => match &*word {
                "true" => Node::Bool(true),
                "false" => Node::Bool(false),
                "null" => Node::Null,
                "key" => Node::Path(Root::Key, Vec::new()),
                "value" => Node::Path(Root::Value, Vec::new()),
                "headers" => Node::Path(Root::Headers, Vec::new()),
                "topic" => Node::Path(Root::Topic, Vec::new()),
                "partition" => Node::Path(Root::Partition, Vec::new()),
                "offset" => Node::Path(Root::Offset, Vec::new()),
                "timestamp" => Node::Path(Root::Timestamp, Vec::new()),
                "has" | "size" => {
                    self.expect("(")?;
                    let inner = self.operand()?;
                    self.expect(")")?;
                    match word == "has" {
                        true => Node::Has(Box::new(inner)),
                        false => Node::Size(Box::new(inner)),
                    }
                }
                other => {
                    return Err(format!(
                        "{other} is unknown; there are key, value, headers, topic, partition, offset and timestamp, \
                         and texts are in quotation marks"
                    ));
                }
            },
            other => {
                self.next -= usize::from(other != Token::End);
                return Err(self.unexpected(&other));
            }
        })
    }

    /// The steps and methods after an operand.
    fn steps(&mut self, mut node: Node) -> Result<Node, String> {
        loop {
            let step = if self.takes("..") {
                match self.take() {
                    Token::Word(name) | Token::Text(name) => Step::Anywhere(name),
                    other => return Err(self.unexpected(&other)),
                }
            } else if self.takes(".") {
                match self.take() {
                    Token::Sign("*") => Step::Any,
                    Token::Word(name) | Token::Text(name) => {
                        if self.takes("(") {
                            node = self.method(node, &name)?;
                            continue;
                        }
                        Step::Name(name)
                    }
                    other => return Err(self.unexpected(&other)),
                }
            } else if self.takes("[") {
                let step = match self.take() {
                    Token::Sign("*") => Step::Any,
                    Token::Text(name) => Step::Name(name),
                    Token::Number(index) => Step::Index(index.index()),
                    Token::Sign("-") => match self.take() {
                        Token::Number(index) => Step::Index(index.negative().index()),
                        other => return Err(self.unexpected(&other)),
                    },
                    other => return Err(self.unexpected(&other)),
                };
                self.expect("]")?;
                step
            } else {
                return Ok(node);
            };
            match &mut node {
                Node::Path(Root::Key | Root::Value | Root::Headers, steps) => steps.push(step),
                _ => return Err("only key, value and headers have parts".into()),
            }
        }
    }

    fn method(&mut self, receiver: Node, name: &str) -> Result<Node, String> {
        let receiver = Box::new(receiver);
        if name == "size" {
            self.expect(")")?;
            return Ok(Node::Size(receiver));
        }
        let argument = match self.take() {
            Token::Text(text) => text,
            other => return Err(format!("{}; {name} needs a text", self.unexpected(&other))),
        };
        self.expect(")")?;
        Ok(match name {
            "contains" => Node::Method(Method::Contains, receiver, argument),
            "startsWith" => Node::Method(Method::StartsWith, receiver, argument),
            "endsWith" => Node::Method(Method::EndsWith, receiver, argument),
            "matches" => {
                self.regexes += 1;
                if self.regexes > MAX_REGEXES {
                    return Err(format!(
                        "it has more than {MAX_REGEXES} regular expressions"
                    ));
                }
                let regex = RegexBuilder::new(&argument)
                    .size_limit(REGEX_BYTES)
                    .dfa_size_limit(REGEX_BYTES)
                    .build();
                Node::Matches(receiver, regex.map_err(|error| error.to_string())?)
            }
            other => {
                return Err(format!(
                    "{other} is unknown; there are contains, startsWith, endsWith, matches and size"
                ));
            }
        })
    }
}

/// One condition, or several that are joined.
fn joined(first: Node, others: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    match others.is_empty() {
        true => first,
        false => join([vec![first], others].into_iter().flatten().collect()),
    }
}

fn tokens(text: &str) -> Result<Vec<(Token, usize)>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_end();
    loop {
        rest = rest.trim_start();
        let at = text.trim_end().len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, at));
            return Ok(tokens);
        };
        let (token, length) = if first == '"' || first == '\'' {
            quoted(rest, first)?
        } else if first.is_ascii_digit() {
            number(rest)?
        } else if first.is_alphabetic() || first == '_' {
            let is_part = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
            let length = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
            (Token::Word(rest[..length].to_owned()), length)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            return Err(format!("unexpected {first} near character {}", at + 1));
        };
        tokens.push((token, at));
        rest = &rest[length..];
    }
}

/// A text in quotation marks, with the escapes of JSON's that matter: `\"`, `\\`, `\n`, `\t`.
fn quoted(rest: &str, mark: char) -> Result<(Token, usize), String> {
    let mut text = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                // As a regular expression needs it.
                Some((_, other)) if other != '\\' && other != mark => text.extend(['\\', other]),
                Some((_, other)) => text.push(other),
                None => break,
            },
            _ if character == mark => return Ok((Token::Text(text), at + mark.len_utf8())),
            _ => text.push(character),
        }
    }
    Err("a text is not closed; the quotation mark is missing".into())
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    let bytes = rest.as_bytes();
    let mut length = 0;
    while length < bytes.len() {
        let is_exponent_sign =
            matches!(bytes[length], b'+' | b'-') && matches!(bytes[length - 1], b'e' | b'E');
        let is_part = matches!(bytes[length], b'0'..=b'9' | b'e' | b'E') || is_exponent_sign;
        let is_fraction =
            bytes[length] == b'.' && bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
        if !is_part && !is_fraction {
            break;
        }
        length += 1;
    }
    let text = &rest[..length];
    let number = Number::parse(text).ok_or_else(|| format!("{text}: not a number"))?;
    Ok((Token::Number(number), length))
}
