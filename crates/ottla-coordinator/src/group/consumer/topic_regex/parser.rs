//! Parses an expression by RE2/J's rules and translates it for the `regex` crate.
//!
//! The errors are RE2/J's messages. Its peculiarities are kept: a `{` that starts no repetition
//! count is a literal that cannot be repeated; an extra `)` is reported as an internal error.
//! Source: `com.google.re2j.Parser`, with the flags of `Pattern.compile`.

use std::collections::HashSet;

use super::ascii_set::AsciiSet;

type Error = &'static str;

const INVALID_CHAR_RANGE: Error = "invalid character class range";
const INVALID_ESCAPE: Error = "invalid escape sequence";
const INVALID_NAMED_CAPTURE: Error = "invalid named capture";
const DUPLICATE_NAMED_CAPTURE: Error = "duplicate capture group name";
const INVALID_PERL_OP: Error = "invalid or unsupported Perl syntax";
const INVALID_REPEAT_OP: Error = "invalid nested repetition operator";
const INVALID_REPEAT_SIZE: Error = "invalid repeat count";
const MISSING_BRACKET: Error = "missing closing ]";
const MISSING_PAREN: Error = "missing closing )";
const MISSING_REPEAT_ARGUMENT: Error = "missing argument to repetition operator";
const TRAILING_BACKSLASH: Error = "trailing backslash at end of expression";
const UNMATCHED_PAREN: Error = "regexp/syntax: internal error";

const MAX_REPEAT: u32 = 1000;

pub(super) fn parse(text: &str) -> Result<String, Error> {
    Parser::new(text).parse()
}

/// Flags that apply until the end of the group.
#[derive(Clone, Copy, Default)]
struct Flags {
    folds_case: bool,
    dot_matches_newline: bool,
}

/// A group that is being parsed.
#[derive(Default)]
struct Group {
    /// The completed alternatives, each followed by a bar.
    before: String,
    /// The sequence of atoms in the current alternative.
    atoms: Vec<String>,
    flags_outside: Flags,
}

struct Parser<'a> {
    rest: &'a str,
    flags: Flags,
    outer: Vec<Group>,
    group: Group,
    names: HashSet<&'a str>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Parser {
            rest: text,
            flags: Flags::default(),
            outer: Vec::new(),
            group: Group::default(),
            names: HashSet::new(),
        }
    }

    fn parse(mut self) -> Result<String, Error> {
        let mut follows_repeat = false;
        while let Some(letter) = self.peek() {
            let mut is_repeat = false;
            match letter {
                '(' if self.rest.starts_with("(?") => self.perl_group()?,
                '(' => {
                    self.pop();
                    self.open_group(self.flags);
                }
                ')' => {
                    self.pop();
                    self.close_group()?;
                }
                '|' => {
                    self.pop();
                    self.group.end_alternative();
                }
                '^' => self.atom_of_one_letter(r"\A"),
                '$' => self.atom_of_one_letter(r"\z"),
                '.' => {
                    self.pop();
                    let mut set = AsciiSet::default();
                    set.insert('\n');
                    let dot_matches_newline = self.flags.dot_matches_newline;
                    let set = if dot_matches_newline {
                        AsciiSet::ALL
                    } else {
                        set.negated_if(true)
                    };
                    self.push_set(set);
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.pop();
                    self.repeat(&letter.to_string(), follows_repeat)?;
                    is_repeat = true;
                }
                '{' => {
                    match self.repeat_count()? {
                        Some(count) => self.repeat(&count, follows_repeat)?,
                        None => {
                            self.pop();
                            self.push_literal('{');
                        }
                    }
                    is_repeat = true;
                }
                '\\' => self.escape()?,
                _ => {
                    self.pop();
                    self.push_literal(letter);
                }
            }
            follows_repeat = is_repeat;
        }
        if !self.outer.is_empty() {
            return Err(MISSING_PAREN);
        }
        Ok(self.group.finish())
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn pop(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let letter = letters.next();
        self.rest = letters.as_str();
        letter
    }

    fn skip(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn push(&mut self, atom: impl Into<String>) {
        self.group.atoms.push(atom.into());
    }

    fn push_set(&mut self, set: AsciiSet) {
        self.push(set.pattern());
    }

    fn push_literal(&mut self, letter: char) {
        let mut set = AsciiSet::default();
        set.insert_range(letter, letter, self.flags.folds_case);
        self.push_set(set);
    }

    fn atom_of_one_letter(&mut self, atom: &str) {
        self.pop();
        self.push(atom);
    }

    // Groups

    fn open_group(&mut self, flags_outside: Flags) {
        let opened = Group {
            flags_outside,
            ..Group::default()
        };
        self.outer.push(std::mem::replace(&mut self.group, opened));
    }

    fn close_group(&mut self) -> Result<(), Error> {
        let outer = self.outer.pop().ok_or(UNMATCHED_PAREN)?;
        let closed = std::mem::replace(&mut self.group, outer);
        self.flags = closed.flags_outside;
        let pattern = closed.finish();
        self.push(format!("(?:{pattern})"));
        Ok(())
    }

    /// A construct that starts with `(?`: a named group, flags, or a group with flags.
    fn perl_group(&mut self) -> Result<(), Error> {
        if self.skip("(?P<") || self.skip("(?<") {
            let (name, rest) = self.rest.split_once('>').ok_or(INVALID_NAMED_CAPTURE)?;
            let is_valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if name.is_empty() || !name.chars().all(is_valid) {
                return Err(INVALID_NAMED_CAPTURE);
            }
            if !self.names.insert(name) {
                return Err(DUPLICATE_NAMED_CAPTURE);
            }
            self.rest = rest;
            self.open_group(self.flags);
            return Ok(());
        }
        self.skip("(?");
        let flags_outside = self.flags;
        let mut flags = self.flags;
        let mut sets = true;
        let mut saw_flag = false;
        while let Some(letter) = self.pop() {
            match letter {
                'i' => flags.folds_case = sets,
                's' => flags.dot_matches_newline = sets,
                // Topic names have no line breaks, and greediness does not change whether there is
                // a match.
                'm' | 'U' => {}
                '-' if sets => {
                    sets = false;
                    saw_flag = false;
                    continue;
                }
                ':' | ')' if sets || saw_flag => {
                    self.flags = flags;
                    if letter == ':' {
                        self.open_group(flags_outside);
                    }
                    return Ok(());
                }
                _ => break,
            }
            saw_flag = true;
        }
        Err(INVALID_PERL_OP)
    }

    // Repetition

    fn repeat(&mut self, count: &str, follows_repeat: bool) -> Result<(), Error> {
        self.skip("?");
        if follows_repeat {
            return Err(INVALID_REPEAT_OP);
        }
        let atom = self.group.atoms.pop().ok_or(MISSING_REPEAT_ARGUMENT)?;
        self.push(format!("(?:{atom}){count}"));
        Ok(())
    }

    /// `{2}`, `{2,}` or `{2,3}`; `None` if it is none of them.
    fn repeat_count(&mut self) -> Result<Option<String>, Error> {
        let Some((inside, rest)) = self.rest[1..].split_once('}') else {
            return Ok(None);
        };
        let (min, max) = match inside.split_once(',') {
            None => (inside, inside),
            Some((min, "")) => (min, "0"),
            Some((min, max)) => (min, max),
        };
        let is_number = |text: &str| {
            let has_leading_zero = text.len() > 1 && text.starts_with('0');
            !text.is_empty() && !has_leading_zero && text.bytes().all(|it| it.is_ascii_digit())
        };
        if !is_number(min) || !is_number(max) {
            return Ok(None);
        }
        let in_bounds = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|count| *count <= MAX_REPEAT)
        };
        let is_open = inside.ends_with(',');
        match (in_bounds(min), in_bounds(max)) {
            (Some(min), Some(max)) if is_open || min <= max => {}
            _ => return Err(INVALID_REPEAT_SIZE),
        }
        self.rest = rest;
        Ok(Some(format!("{{{inside}}}")))
    }

    // Escapes

    fn escape(&mut self) -> Result<(), Error> {
        let mut ahead = self.rest[1..].chars();
        match ahead.next() {
            Some('A') => self.skip_and_push(2, r"\A"),
            Some('b') => self.skip_and_push(2, r"\b"),
            Some('B') => self.skip_and_push(2, r"\B"),
            Some('z') => self.skip_and_push(2, r"\z"),
            Some('C') => return Err(INVALID_ESCAPE),
            Some('Q') => {
                let quoted = &self.rest[2..];
                let (literal, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
                self.rest = rest;
                for letter in literal.chars() {
                    self.push_literal(letter);
                }
            }
            Some('p' | 'P') => {
                let set = self.unicode_class()?;
                self.push_set(set);
            }
            Some(letter) => match AsciiSet::perl_class(letter) {
                Some(set) => {
                    self.rest = ahead.as_str();
                    self.push_set(set);
                }
                None => {
                    let letter = self.escaped_letter()?;
                    self.push_literal(letter);
                }
            },
            None => return Err(TRAILING_BACKSLASH),
        }
        Ok(())
    }

    fn skip_and_push(&mut self, bytes: usize, atom: &str) {
        self.rest = &self.rest[bytes..];
        self.push(atom);
    }

    /// The set of `\p` or `\P` at the current position.
    fn unicode_class(&mut self) -> Result<AsciiSet, Error> {
        let is_upper = self.rest.starts_with(r"\P");
        let after = &self.rest[2..];
        let (name, rest) = match after.strip_prefix('{') {
            Some(inside) => inside.split_once('}').ok_or(INVALID_CHAR_RANGE)?,
            None => {
                let letter = after.chars().next().ok_or(INVALID_CHAR_RANGE)?;
                after.split_at(letter.len_utf8())
            }
        };
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, !is_upper),
            None => (name, is_upper),
        };
        let set = AsciiSet::unicode_class(name, self.flags.folds_case).ok_or(INVALID_CHAR_RANGE)?;
        self.rest = rest;
        Ok(set.negated_if(is_negated))
    }

    /// An escape for a single character.
    fn escaped_letter(&mut self) -> Result<char, Error> {
        self.pop();
        let letter = self.pop().ok_or(TRAILING_BACKSLASH)?;
        let is_octal = |letter: Option<char>| letter.is_some_and(|it| it.is_digit(8));
        match letter {
            '0' => Ok(self.octal(0)),
            '1'..='7' if is_octal(self.peek()) => {
                Ok(self.octal(u32::from(letter) - u32::from('0')))
            }
            'x' => self.hexadecimal(),
            'a' => Ok('\x07'),
            'f' => Ok('\x0c'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'v' => Ok('\x0b'),
            letter if letter.is_ascii_alphanumeric() => Err(INVALID_ESCAPE),
            letter => Ok(letter),
        }
    }

    fn octal(&mut self, first_digit: u32) -> char {
        let mut code = first_digit;
        for _ in 0..2 {
            match self.peek().and_then(|letter| letter.to_digit(8)) {
                Some(digit) => {
                    self.pop();
                    code = code * 8 + digit;
                }
                None => break,
            }
        }
        letter_of(code)
    }

    fn hexadecimal(&mut self) -> Result<char, Error> {
        let digit = |letter: Option<char>| letter.and_then(|it| it.to_digit(16));
        if !self.skip("{") {
            let high = digit(self.pop()).ok_or(INVALID_ESCAPE)?;
            let low = digit(self.pop()).ok_or(INVALID_ESCAPE)?;
            return Ok(letter_of(high * 16 + low));
        }
        let (digits, rest) = self.rest.split_once('}').ok_or(INVALID_ESCAPE)?;
        let mut code = 0;
        for letter in digits.chars() {
            code = code * 16 + digit(Some(letter)).ok_or(INVALID_ESCAPE)?;
            if code > u32::from(char::MAX) {
                return Err(INVALID_ESCAPE);
            }
        }
        if digits.is_empty() {
            return Err(INVALID_ESCAPE);
        }
        self.rest = rest;
        Ok(letter_of(code))
    }

    // Classes

    fn class(&mut self) -> Result<(), Error> {
        self.pop();
        let is_negated = self.skip("^");
        let mut set = AsciiSet::default();
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            if self.rest.starts_with("[:")
                && let Some((name, rest)) = self.rest[2..].split_once(":]")
            {
                let class = AsciiSet::posix_class(name).ok_or(INVALID_CHAR_RANGE)?;
                let folds_case = self.flags.folds_case
                    && matches!(name, "lower" | "upper" | "^lower" | "^upper");
                let class = if folds_case {
                    AsciiSet::posix_class("alpha")
                        .unwrap_or_default()
                        .negated_if(name.starts_with('^'))
                } else {
                    class
                };
                set = set.union(class);
                self.rest = rest;
                continue;
            }
            if self.rest.starts_with(r"\p") || self.rest.starts_with(r"\P") {
                set = set.union(self.unicode_class()?);
                continue;
            }
            if let Some(after) = self.rest.strip_prefix('\\')
                && let Some(class) = after.chars().next().and_then(AsciiSet::perl_class)
            {
                set = set.union(class);
                self.rest = &after[1..];
                continue;
            }
            let low = self.class_letter()?;
            let mut high = low;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.pop();
                high = self.class_letter()?;
                if high < low {
                    return Err(INVALID_CHAR_RANGE);
                }
            }
            set.insert_range(low, high, self.flags.folds_case);
        }
        self.pop();
        self.push_set(set.negated_if(is_negated));
        Ok(())
    }

    fn class_letter(&mut self) -> Result<char, Error> {
        match self.peek() {
            None => Err(MISSING_BRACKET),
            Some('\\') => self.escaped_letter(),
            Some(letter) => {
                self.pop();
                Ok(letter)
            }
        }
    }
}

impl Group {
    fn end_alternative(&mut self) {
        self.before.extend(self.atoms.drain(..));
        self.before.push('|');
    }

    fn finish(mut self) -> String {
        self.before.extend(self.atoms);
        self.before
    }
}

/// A lone surrogate is not a character, and is in no topic name.
fn letter_of(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}
