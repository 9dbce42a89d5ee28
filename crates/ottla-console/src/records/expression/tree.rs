//! What an expression is made of.
//!
//! Pure.

use regex::bytes::Regex;

#[derive(Debug)]
pub(super) enum Node {
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
