//! Expressions over a record: a part of CEL, with JSONPath for values.
//!
//! ```text
//! value.amount > 100 && headers.source == "web"
//! key.startsWith("user-") || value.items[*].id == 7
//! !has(value.error) && partition in [0, 2] && value.name.matches("^A.*z$")
//! $..price >= 9.99
//! ```
//!
//! Operands are `key`, `value` (also written `$`), `headers`, `topic`, `partition`, `offset`,
//! `timestamp`, and literals. A path may select several places (`[*]`, `..name`); a comparison holds
//! if it holds for one of them. A path that selects nothing equals nothing. A key or a value
//! compared as a whole with a text is compared as text, with a number as a number.
//!
//! Pure. An expression has a bounded length and depth, and a record a bounded depth.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;

use ottla_records::RecordView;
use regex::bytes::Regex;
use serde_json::Value;

const MAX_LENGTH: usize = 4096;
const MAX_DEPTH: usize = 64;

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Expression(Node);

#[derive(Debug)]
enum Node {
    Text(String),
    Number(f64),
    Bool(bool),
    Null,
    List(Vec<Node>),
    Path(Root, Vec<Step>),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Compare(Operator, Box<Node>, Box<Node>),
    In(Box<Node>, Box<Node>),
    Method(Method, Box<Node>, String),
    Matches(Box<Node>, Regex),
    Size(Box<Node>),
    Has(Box<Node>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Root {
    Key,
    Value,
    Headers,
    Topic,
    Partition,
    Offset,
    Timestamp,
}

#[derive(PartialEq, Debug)]
enum Step {
    Name(String),
    /// From the end if negative.
    Index(i64),
    /// All children.
    Any,
    /// The members of this name at any depth.
    Anywhere(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Contains,
    StartsWith,
    EndsWith,
}

/// A record to be judged. The JSON of its key and value is parsed when it is needed first.
pub(crate) struct Subject<'a> {
    topic: &'a str,
    partition: i32,
    record: &'a RecordView<'a>,
    key: OnceCell<Option<Value>>,
    value: OnceCell<Option<Value>>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(topic: &'a str, partition: i32, record: &'a RecordView<'a>) -> Subject<'a> {
        Subject {
            topic,
            partition,
            record,
            key: OnceCell::new(),
            value: OnceCell::new(),
        }
    }

    fn json(&self, root: Root) -> Option<&Value> {
        let (cell, bytes) = match root {
            Root::Key => (&self.key, self.record.key),
            _ => (&self.value, self.record.value),
        };
        cell.get_or_init(|| serde_json::from_slice(bytes?).ok())
            .as_ref()
    }
}

/// What an operand is for one record.
enum Operand<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    /// A whole key or value: its bytes, which are parsed only if their JSON matters.
    Whole(&'a [u8], &'a Subject<'a>, Root),
    Json(&'a Value),
}

impl Expression {
    /// Parses an expression. The error says where and what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Expression, String> {
        Ok(Expression(Parser::parse(text)?))
    }

    /// Parses a JSONPath of the value, alone or in a comparison. Alone, it holds if it selects
    /// something.
    pub(crate) fn parse_path(text: &str) -> Result<Expression, String> {
        if !text.trim_start().starts_with('$') {
            return Err("a path starts with $, as in $.customer.id".into());
        }
        Ok(match Parser::parse(text)? {
            path @ Node::Path(..) => Expression(Node::Has(Box::new(path))),
            other => Expression(other),
        })
    }

    pub(crate) fn holds(&self, subject: &Subject<'_>) -> bool {
        self.0.holds(subject)
    }
}

impl Node {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        match self {
            Node::Not(inner) => !inner.holds(subject),
            Node::And(one, other) => one.holds(subject) && other.holds(subject),
            Node::Or(one, other) => one.holds(subject) || other.holds(subject),
            Node::Compare(Operator::NotEqual, one, other) => {
                !compare(Operator::Equal, one, other, subject)
            }
            Node::Compare(operator, one, other) => compare(*operator, one, other, subject),
            Node::In(one, other) => is_in(one, other, subject),
            Node::Method(method, receiver, argument) => receiver.any(subject, |operand| {
                operand
                    .bytes()
                    .is_some_and(|bytes| method.holds(&bytes, argument.as_bytes()))
            }),
            Node::Matches(receiver, regex) => receiver.any(subject, |operand| {
                operand.bytes().is_some_and(|bytes| regex.is_match(&bytes))
            }),
            Node::Has(path) => path.any(subject, |_| true),
            // An operand alone: anything but nothing, null and false.
            operand => operand.any(subject, |operand| {
                !matches!(
                    operand,
                    Operand::Null
                        | Operand::Bool(false)
                        | Operand::Json(Value::Null | Value::Bool(false))
                )
            }),
        }
    }

    /// Whether the test holds for one of the places that the operand selects.
    fn any(&self, subject: &Subject<'_>, mut test: impl FnMut(&Operand<'_>) -> bool) -> bool {
        self.any_of(subject, &mut test)
    }

    fn any_of(&self, subject: &Subject<'_>, test: &mut dyn FnMut(&Operand<'_>) -> bool) -> bool {
        match self {
            Node::Path(root, steps) => any_place(*root, steps, subject, test),
            Node::Text(text) => test(&Operand::Text(text.into())),
            Node::Number(number) => test(&Operand::Number(*number)),
            Node::Bool(value) => test(&Operand::Bool(*value)),
            Node::Null => test(&Operand::Null),
            Node::Size(inner) => inner.any_of(subject, &mut |operand| {
                let size = operand.size();
                size.is_some_and(|size| test(&Operand::Number(size as f64)))
            }),
            condition => test(&Operand::Bool(condition.holds(subject))),
        }
    }
}

fn any_place(
    root: Root,
    steps: &[Step],
    subject: &Subject<'_>,
    test: &mut dyn FnMut(&Operand<'_>) -> bool,
) -> bool {
    let record = subject.record;
    match root {
        Root::Topic => test(&Operand::Text(subject.topic.into())),
        Root::Partition => test(&Operand::Number(f64::from(subject.partition))),
        Root::Offset => test(&Operand::Number(record.offset.0 as f64)),
        Root::Timestamp => test(&Operand::Number(record.timestamp.0 as f64)),
        Root::Headers => match steps.first() {
            Some(Step::Name(name)) => {
                let mut values = record
                    .headers
                    .iter()
                    .filter(|(key, _)| *key == name.as_bytes());
                values.any(|(_, value)| match value {
                    Some(value) => test(&Operand::Text(String::from_utf8_lossy(value))),
                    None => test(&Operand::Null),
                })
            }
            _ => record.headers.iter().any(|(_, value)| {
                let value = value.unwrap_or_default();
                test(&Operand::Text(String::from_utf8_lossy(value)))
            }),
        },
        Root::Key | Root::Value if steps.is_empty() => {
            let bytes = if root == Root::Key {
                record.key
            } else {
                record.value
            };
            match bytes {
                Some(bytes) => test(&Operand::Whole(bytes, subject, root)),
                None => test(&Operand::Null),
            }
        }
        Root::Key | Root::Value => match subject.json(root) {
            Some(json) => select(json, steps, &mut |value| test(&Operand::Json(value))),
            None => false,
        },
    }
}

/// Whether the test holds for one of the selected places.
fn select(value: &Value, steps: &[Step], test: &mut dyn FnMut(&Value) -> bool) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return test(value);
    };
    match step {
        Step::Name(name) => value.get(name).is_some_and(|it| select(it, rest, test)),
        Step::Index(index) => {
            let Value::Array(items) = value else {
                return false;
            };
            let index = match usize::try_from(*index) {
                Ok(index) => Some(index),
                Err(_) => items.len().checked_add_signed(*index as isize),
            };
            index
                .and_then(|it| items.get(it))
                .is_some_and(|it| select(it, rest, test))
        }
        Step::Any => match value {
            Value::Array(items) => items.iter().any(|it| select(it, rest, test)),
            Value::Object(members) => members.values().any(|it| select(it, rest, test)),
            _ => false,
        },
        Step::Anywhere(name) => {
            value.get(name).is_some_and(|it| select(it, rest, test))
                || match value {
                    Value::Array(items) => items.iter().any(|it| select(it, steps, test)),
                    Value::Object(members) => members.values().any(|it| select(it, steps, test)),
                    _ => false,
                }
        }
    }
}

fn compare(operator: Operator, one: &Node, other: &Node, subject: &Subject<'_>) -> bool {
    one.any(subject, |left| {
        other.any(subject, |right| {
            let Some(order) = left.compare(right) else {
                return false;
            };
            match operator {
                Operator::Equal => order == Ordering::Equal,
                Operator::NotEqual => order != Ordering::Equal,
                Operator::Less => order == Ordering::Less,
                Operator::LessOrEqual => order != Ordering::Greater,
                Operator::Greater => order == Ordering::Greater,
                Operator::GreaterOrEqual => order != Ordering::Less,
            }
        })
    })
}

fn is_in(one: &Node, other: &Node, subject: &Subject<'_>) -> bool {
    if let Node::List(items) = other {
        return items
            .iter()
            .any(|item| compare(Operator::Equal, one, item, subject));
    }
    one.any(subject, |left| {
        other.any(subject, |right| match right.json() {
            Some(Value::Array(items)) => items
                .iter()
                .any(|item| left.compare(&Operand::Json(item)) == Some(Ordering::Equal)),
            _ => false,
        })
    })
}

impl Operand<'_> {
    /// `None` if the two cannot be compared.
    fn compare(&self, other: &Operand<'_>) -> Option<Ordering> {
        use Operand::Text;
        // A text beside a whole key or value: as bytes, whatever these are as JSON.
        match (self, other) {
            (Operand::Whole(bytes, ..), Text(text)) => return self.compare_whole(bytes, text),
            (Text(text), Operand::Whole(bytes, ..)) => {
                return other.compare_whole(bytes, text).map(Ordering::reverse);
            }
            _ => {}
        }
        if self.is_null() || other.is_null() {
            return (self.is_null() && other.is_null()).then_some(Ordering::Equal);
        }
        if let (Some(one), Some(other)) = (self.boolean(), other.boolean()) {
            return Some(one.cmp(&other));
        }
        if let (Some(one), Some(other)) = (self.number(), other.number()) {
            return one.partial_cmp(&other);
        }
        match (self.text(), other.text()) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => None,
        }
    }

    fn json(&self) -> Option<&Value> {
        match self {
            Operand::Json(value) => Some(value),
            Operand::Whole(_, subject, root) => subject.json(*root),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Operand::Null) || matches!(self.json(), Some(Value::Null))
    }

    fn boolean(&self) -> Option<bool> {
        match self {
            Operand::Bool(value) => Some(*value),
            other => other.json()?.as_bool(),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Operand::Number(number) => Some(*number),
            other => other.json()?.as_f64(),
        }
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Operand::Text(text) => Some(Cow::Borrowed(text)),
            Operand::Whole(bytes, ..) => match self.json() {
                Some(Value::String(text)) => Some(Cow::Borrowed(text)),
                Some(_) => None,
                None => Some(String::from_utf8_lossy(bytes)),
            },
            other => other.json()?.as_str().map(Cow::Borrowed),
        }
    }

    fn compare_whole(&self, bytes: &[u8], text: &str) -> Option<Ordering> {
        // A JSON string has quotation marks around its text.
        let is_same = bytes.starts_with(b"\"")
            && matches!(self.json(), Some(Value::String(inner)) if inner == text);
        match is_same {
            true => Some(Ordering::Equal),
            false => Some(bytes.cmp(text.as_bytes())),
        }
    }

    /// What methods of texts search.
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Operand::Whole(bytes, ..) => Some(Cow::Borrowed(bytes)),
            Operand::Text(text) => Some(Cow::Borrowed(text.as_bytes())),
            Operand::Json(Value::String(text)) => Some(Cow::Borrowed(text.as_bytes())),
            Operand::Json(Value::Number(number)) => {
                Some(Cow::Owned(number.to_string().into_bytes()))
            }
            Operand::Number(number) => Some(Cow::Owned(number.to_string().into_bytes())),
            _ => None,
        }
    }

    /// Bytes of a whole key or value, characters of a text, items of a list.
    fn size(&self) -> Option<usize> {
        match self {
            Operand::Whole(bytes, ..) => Some(bytes.len()),
            Operand::Text(text) => Some(text.chars().count()),
            Operand::Json(Value::String(text)) => Some(text.chars().count()),
            Operand::Json(Value::Array(items)) => Some(items.len()),
            Operand::Json(Value::Object(members)) => Some(members.len()),
            _ => None,
        }
    }
}

impl Method {
    fn holds(self, bytes: &[u8], argument: &[u8]) -> bool {
        match self {
            Method::StartsWith => bytes.starts_with(argument),
            Method::EndsWith => bytes.ends_with(argument),
            Method::Contains => {
                argument.is_empty() || bytes.windows(argument.len()).any(|it| it == argument)
            }
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Text(String),
    Number(f64),
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 22] = [
    "&&", "||", "==", "!=", "<=", ">=", "..", "<", ">", "!", "(", ")", "[", "]", ".", ",", "$",
    "*", "-", "@", "?", ":",
];

struct Parser {
    /// With the position of each in the text.
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn parse(text: &str) -> Result<Node, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("it is longer than {MAX_LENGTH} bytes"));
        }
        let mut parser = Parser {
            tokens: tokens(text)?,
            next: 0,
            depth: 0,
        };
        let node = parser.any_of()?;
        match parser.peek() {
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
        let mut node = self.all_of()?;
        while self.takes("||") {
            node = Node::Or(Box::new(node), Box::new(self.all_of()?));
        }
        Ok(node)
    }

    fn all_of(&mut self) -> Result<Node, String> {
        let mut node = self.negated()?;
        while self.takes("&&") {
            node = Node::And(Box::new(node), Box::new(self.negated()?));
        }
        Ok(node)
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
                Token::Number(number) => Node::Number(-number),
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
                    Token::Number(index) => Step::Index(index as i64),
                    Token::Sign("-") => match self.take() {
                        Token::Number(index) => Step::Index(-(index as i64)),
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
                let regex = Regex::new(&argument);
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
    let number = text.parse().map_err(|_| format!("{text}: not a number"))?;
    Ok((Token::Number(number), length))
}

#[cfg(test)]
mod tests;
