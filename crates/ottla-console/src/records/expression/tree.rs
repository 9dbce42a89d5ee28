//! The syntax tree of an expression.
//!
//! Pure.

use std::cmp::Ordering;
use std::fmt;

use regex::bytes::Regex;

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Number(Number),
    Bool(bool),
    Null,
    List(Vec<Node>),
    Path(Root, Vec<Step>),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Compare(Operator, Box<Node>, Box<Node>),
    In(Box<Node>, Box<Node>),
    Method(Method, Box<Node>, String),
    Matches(Box<Node>, Regex),
    Size(Box<Node>),
    Has(Box<Node>),
}

impl Node {
    /// The levels of nodes, which is how deep an evaluation recurses.
    pub(super) fn levels(&self) -> usize {
        let inner = match self {
            Node::Not(inner) | Node::Size(inner) | Node::Has(inner) => inner.levels(),
            Node::Method(_, receiver, _) | Node::Matches(receiver, _) => receiver.levels(),
            Node::And(all) | Node::Or(all) | Node::List(all) => {
                all.iter().map(Node::levels).max().unwrap_or(0)
            }
            Node::Compare(_, one, other) | Node::In(one, other) => one.levels().max(other.levels()),
            Node::Text(_) | Node::Number(_) | Node::Bool(_) | Node::Null | Node::Path(..) => 0,
        };
        inner + 1
    }
}

/// Whole numbers are exact: identifiers are often larger than the 53 bits of a floating-point number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    pub(super) fn parse(text: &str) -> Option<Number> {
        let whole = text.parse().map(Number::Whole);
        whole.or_else(|_| text.parse().map(Number::Real)).ok()
    }

    pub(super) fn negative(self) -> Number {
        match self {
            Number::Whole(whole) => Number::Whole(whole.saturating_neg()),
            Number::Real(real) => Number::Real(-real),
        }
    }

    /// Rounded, as a place in a list.
    pub(super) fn index(self) -> i64 {
        match self {
            Number::Whole(whole) => i64::try_from(whole).unwrap_or(i64::MAX),
            Number::Real(real) => real as i64,
        }
    }

    fn real(self) -> f64 {
        match self {
            Number::Whole(whole) => whole as f64,
            Number::Real(real) => real,
        }
    }

    pub(super) fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Whole(one), Number::Whole(two)) => Some(one.cmp(&two)),
            _ => self.real().partial_cmp(&other.real()),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Whole(whole) => write!(f, "{whole}"),
            Number::Real(real) => write!(f, "{real}"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Root {
    Key,
    Value,
    Headers,
    Topic,
    Partition,
    Offset,
    Timestamp,
}

#[derive(PartialEq, Debug)]
pub(super) enum Step {
    Name(String),
    /// From the end if negative.
    Index(i64),
    /// All children.
    Any,
    /// The members of this name at any depth.
    Anywhere(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Contains,
    StartsWith,
    EndsWith,
}
