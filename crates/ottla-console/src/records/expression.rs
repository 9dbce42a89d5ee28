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
//! Pure. An expression has a bounded length and depth, and a record a bounded depth: a stack that
//! overflows would end the broker beside which a console runs. Judging a record takes a bounded
//! number of steps: names at any depth, and comparisons of several places with several others, could
//! otherwise take years for one small record. It takes bounded memory as well: a batch of 1 MB can be
//! one record of 64 MB, whose JSON takes gigabytes.

mod needs;

mod parser;

mod tree;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;

use memchr::memmem;
pub(crate) use needs::Need;
use ottla_records::RecordView;
use parser::Parser;
use serde_json::Value;
use tree::{Method, Node, Number, Operator, Root, Step};

/// The steps of judging one record: places that are visited, comparisons, and bytes of texts.
const STEPS: usize = 1_000_000;
const BYTES_PER_STEP: usize = 256;
/// The memory that the JSON of a key or a value may take.
const JSON_BYTES: usize = 128 << 20;
/// A text of this size takes less, whatever is in it.
const SMALL_JSON: usize = 128 << 10;

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Expression(Node);

/// A record to be judged. The JSON of its key and value is parsed when it is needed first.
pub(crate) struct Subject<'a> {
    topic: &'a str,
    partition: i32,
    record: &'a RecordView<'a>,
    key: OnceCell<Option<Value>>,
    value: OnceCell<Option<Value>>,
    steps_left: Cell<usize>,
    /// Whether the key and the value could not be read.
    unread: (bool, bool),
}

impl<'a> Subject<'a> {
    pub(crate) fn new(topic: &'a str, partition: i32, record: &'a RecordView<'a>) -> Subject<'a> {
        Subject {
            topic,
            partition,
            record,
            key: OnceCell::new(),
            value: OnceCell::new(),
            steps_left: Cell::new(STEPS),
            unread: (false, false),
        }
    }

    /// Expressions about a key or a value that is not known are given up.
    pub(crate) fn with_unread(mut self, key: bool, value: bool) -> Subject<'a> {
        self.unread = (key, value);
        self
    }

    /// Takes the steps of a place or a comparison with texts of `bytes` bytes. False if there are
    /// none left.
    fn takes_steps(&self, bytes: usize) -> bool {
        let left = self
            .steps_left
            .get()
            .checked_sub(1 + bytes / BYTES_PER_STEP);
        self.steps_left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Nothing holds.
    fn give_up(&self) -> bool {
        self.steps_left.set(0);
        false
    }

    /// Whether all steps are used up, so that the result for the record is invalid.
    pub(crate) fn is_given_up(&self) -> bool {
        self.steps_left.get() == 0
    }

    fn json(&self, root: Root) -> Option<&Value> {
        let (cell, bytes) = match root {
            Root::Key => (&self.key, self.record.key),
            _ => (&self.value, self.record.value),
        };
        let parsed = cell.get_or_init(|| {
            let bytes = bytes?;
            if json_memory(bytes) > JSON_BYTES {
                self.steps_left.set(0);
                return None;
            }
            serde_json::from_slice(bytes).ok()
        });
        parsed.as_ref()
    }
}

/// An approximate upper bound of the memory of a text's JSON: the initial memory of an object and
/// an array, and the memory of each further item while both the old and the new list exist.
fn json_memory(text: &[u8]) -> usize {
    if text.len() <= SMALL_JSON || text.trim_ascii_start().starts_with(b"\"") {
        return text.len();
    }
    let sizes = text.iter().map(|byte| match byte {
        b'{' => 500,
        b'[' => 300,
        b',' => 220,
        b':' => 100,
        _ => 1,
    });
    sizes.sum()
}

/// The value of an operand for one record.
enum Operand<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    /// A whole key or value: its bytes, which are parsed only if their JSON matters.
    Whole(&'a [u8], &'a Subject<'a>, Root),
    Json(&'a Value),
}

impl Expression {
    /// Parses an expression. The error names the mistake and its position.
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

    /// The texts that the bytes of every matching record contain.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        self.0.collect_needs(&mut needs);
        needs
    }
}

impl Node {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        match self {
            Node::Not(inner) => !inner.holds(subject),
            Node::And(all) => all.iter().all(|it| it.holds(subject)),
            Node::Or(all) => all.iter().any(|it| it.holds(subject)),
            Node::Compare(Operator::NotEqual, one, other) => {
                !compare(Operator::Equal, one, other, subject)
            }
            Node::Compare(operator, one, other) => compare(*operator, one, other, subject),
            Node::In(one, other) => is_in(one, other, subject),
            Node::Method(method, receiver, argument) => receiver.any(subject, |operand| {
                let holds = |bytes: Cow<'_, [u8]>| method.holds(&bytes, argument.as_bytes());
                subject.takes_steps(operand.length()) && operand.bytes().is_some_and(holds)
            }),
            Node::Matches(receiver, regex) => receiver.any(subject, |operand| {
                let holds = |bytes: Cow<'_, [u8]>| regex.is_match(&bytes);
                subject.takes_steps(operand.length()) && operand.bytes().is_some_and(holds)
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
                if !subject.takes_steps(operand.length()) {
                    return false;
                }
                operand
                    .size()
                    .is_some_and(|size| test(&Operand::Number(Number::Whole(size as i128))))
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
        Root::Partition => test(&Operand::whole(subject.partition)),
        Root::Offset => test(&Operand::whole(record.offset.0)),
        Root::Timestamp => test(&Operand::whole(record.timestamp.0)),
        Root::Headers => match steps.first() {
            Some(Step::Name(name)) => {
                let mut values = record
                    .headers
                    .iter()
                    .filter(|(key, _)| subject.takes_steps(0) && *key == name.as_bytes());
                values.any(|(_, value)| match value {
                    Some(value) => header(value, subject, test),
                    None => test(&Operand::Null),
                })
            }
            _ => record
                .headers
                .iter()
                .any(|(_, value)| header(value.unwrap_or_default(), subject, test)),
        },
        Root::Key if subject.unread.0 => subject.give_up(),
        Root::Value if subject.unread.1 => subject.give_up(),
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
            Some(json) => {
                let mut test = |value: &Value| test(&Operand::Json(value));
                select(json, steps, subject, &mut test)
            }
            None => false,
        },
    }
}

fn header(value: &[u8], subject: &Subject<'_>, test: &mut dyn FnMut(&Operand<'_>) -> bool) -> bool {
    subject.takes_steps(value.len()) && test(&Operand::Text(String::from_utf8_lossy(value)))
}

/// Whether the test holds for one of the selected places.
fn select(
    value: &Value,
    steps: &[Step],
    subject: &Subject<'_>,
    test: &mut dyn FnMut(&Value) -> bool,
) -> bool {
    if !subject.takes_steps(0) {
        return false;
    }
    let Some((step, rest)) = steps.split_first() else {
        return test(value);
    };
    match step {
        Step::Name(name) => value
            .get(name)
            .is_some_and(|it| select(it, rest, subject, test)),
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
                .is_some_and(|it| select(it, rest, subject, test))
        }
        Step::Any => match value {
            Value::Array(items) => items.iter().any(|it| select(it, rest, subject, test)),
            Value::Object(members) => {
                let mut members = members.values();
                members.any(|it| select(it, rest, subject, test))
            }
            _ => false,
        },
        Step::Anywhere(name) => {
            let here = value.get(name);
            here.is_some_and(|it| select(it, rest, subject, test))
                || match value {
                    Value::Array(items) => items.iter().any(|it| select(it, steps, subject, test)),
                    Value::Object(members) => {
                        let mut members = members.values();
                        members.any(|it| select(it, steps, subject, test))
                    }
                    _ => false,
                }
        }
    }
}

fn compare(operator: Operator, one: &Node, other: &Node, subject: &Subject<'_>) -> bool {
    one.any(subject, |left| {
        other.any(subject, |right| {
            let Some(order) = left.compare_within(right, subject) else {
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
                .any(|item| left.equals_within(&Operand::Json(item), subject)),
            _ => false,
        })
    })
}

impl Operand<'_> {
    fn whole(number: impl Into<i128>) -> Self {
        Operand::Number(Number::Whole(number.into()))
    }

    /// As [`Operand::compare`], which takes steps. `None` without any left.
    fn compare_within(&self, other: &Operand<'_>, subject: &Subject<'_>) -> Option<Ordering> {
        let (one, two) = (self.length(), other.length());
        let bytes = match (self, other) {
            // Then it is copied.
            (Operand::Whole(..), Operand::Json(_) | Operand::Whole(..))
            | (Operand::Json(_), Operand::Whole(..)) => one.max(two),
            _ => one.min(two),
        };
        match subject.takes_steps(bytes) {
            true => self.compare(other),
            false => None,
        }
    }

    fn equals_within(&self, other: &Operand<'_>, subject: &Subject<'_>) -> bool {
        self.compare_within(other, subject) == Some(Ordering::Equal)
    }

    /// The bytes of a text.
    fn length(&self) -> usize {
        match self {
            Operand::Whole(bytes, ..) => bytes.len(),
            Operand::Text(text) => text.len(),
            Operand::Json(Value::String(text)) => text.len(),
            _ => 0,
        }
    }

    /// `None` if the two cannot be compared.
    fn compare(&self, other: &Operand<'_>) -> Option<Ordering> {
        use Operand::Text;
        // A text compared with a whole key or value: compared as bytes, whatever their JSON.
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
            return one.compare(other);
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

    fn number(&self) -> Option<Number> {
        match self {
            Operand::Number(number) => Some(*number),
            other => {
                let number = other.json()?.as_number()?;
                let whole = number.as_i128().map(Number::Whole);
                whole.or_else(|| number.as_f64().map(Number::Real))
            }
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
            Method::Contains => memmem::find(bytes, argument).is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
