//! The texts that the bytes of a record must contain for an expression to hold: names of members and headers, and texts
//! in comparisons. A record without them need not be parsed.
//!
//! Pure.

use memchr::{memchr, memmem};
use ottla_records::RecordView;

use super::tree::{Node, Operator, Root, Step};

/// Lossy text of a header has it where the header has other bytes.
const REPLACEMENT: char = '\u{fffd}';

/// Bytes without which an expression does not hold.
#[derive(Debug)]
pub(crate) struct Need {
    of: Root,
    bytes: memmem::Finder<'static>,
}

impl Need {
    /// Whether these bytes, of one record or of many, can have it. JSON has a text as it is, or with escapes.
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        let may_be_escaped = || self.of != Root::Headers && memchr(b'\\', bytes).is_some();
        self.bytes.find(bytes).is_some() || may_be_escaped()
    }

    pub(crate) fn may_be_of(&self, record: &RecordView<'_>) -> bool {
        let may_be_in = |bytes: Option<&[u8]>| bytes.is_some_and(|it| self.may_be_in(it));
        match self.of {
            Root::Key => may_be_in(record.key),
            Root::Value => may_be_in(record.value),
            _ => {
                let mut headers = record.headers.iter();
                headers.any(|(name, value)| may_be_in(Some(name)) || may_be_in(value))
            }
        }
    }
}

impl Node {
    /// Collects the texts needed for this condition to hold.
    pub(super) fn collect_needs(&self, needs: &mut Vec<Need>) {
        match self {
            Node::And(all) => all.iter().for_each(|it| it.collect_needs(needs)),
            Node::Compare(Operator::NotEqual, ..) => {}
            Node::Compare(operator, one, other) => {
                one.collect_selected(needs);
                other.collect_selected(needs);
                if *operator == Operator::Equal
                    && let (Node::Path(root, _), Node::Text(text))
                    | (Node::Text(text), Node::Path(root, _)) = (&**one, &**other)
                {
                    add(*root, text, needs);
                }
            }
            Node::In(one, other) => {
                one.collect_selected(needs);
                other.collect_selected(needs);
            }
            Node::Method(_, receiver, argument) => {
                receiver.collect_selected(needs);
                if let Node::Path(root, steps) = &**receiver {
                    let is_in_json = !steps.is_empty() && *root != Root::Headers;
                    if !is_in_json || !is_of_number(argument) {
                        add(*root, argument, needs);
                    }
                }
            }
            Node::Matches(receiver, _) => receiver.collect_selected(needs),
            Node::Has(path) => path.collect_selected(needs),
            Node::Path(..) => self.collect_selected(needs),
            _ => {}
        }
    }

    /// Collects the texts needed for this operand to select a place.
    fn collect_selected(&self, needs: &mut Vec<Need>) {
        match self {
            Node::Size(inner) => inner.collect_selected(needs),
            Node::Path(root @ (Root::Key | Root::Value), steps) => {
                for step in steps {
                    if let Step::Name(name) | Step::Anywhere(name) = step {
                        add(*root, name, needs);
                    }
                }
            }
            Node::Path(Root::Headers, steps) => {
                if let Some(Step::Name(name)) = steps.first() {
                    add(Root::Headers, name, needs);
                }
            }
            _ => {}
        }
    }
}

/// Whether a number can have the text although its JSON has other characters: `1e2` is 100.
fn is_of_number(text: &str) -> bool {
    let is_part = |it: u8| it.is_ascii_digit() || matches!(it, b'+' | b'-' | b'.' | b'e' | b'E');
    text.bytes().all(is_part)
}

fn add(of: Root, text: &str, needs: &mut Vec<Need>) {
    let is_in_record = matches!(of, Root::Key | Root::Value | Root::Headers);
    if is_in_record && !text.is_empty() && !text.contains(REPLACEMENT) {
        let bytes = memmem::Finder::new(text).into_owned();
        needs.push(Need { of, bytes });
    }
}
