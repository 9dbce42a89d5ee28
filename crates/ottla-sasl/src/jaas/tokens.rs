//! Splits a text into tokens like Java's `StreamTokenizer`.

/// A token and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    /// In characters.
    pub at: usize,
    /// Exclusive.
    pub end: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word(String),
    /// Quoted text without the quotes. `is_closed` is false if the line ended first.
    Quoted {
        text: String,
        is_closed: bool,
    },
    /// A number in Java, and therefore not text.
    Number,
    /// Any other character.
    Mark(char),
    End,
}

impl Kind {
    /// The text of a word or of a quoted string: `StreamTokenizer.sval`.
    pub fn text(&self) -> Option<&str> {
        match self {
            Kind::Word(text) | Kind::Quoted { text, .. } => Some(text),
            Kind::Number | Kind::Mark(_) | Kind::End => None,
        }
    }

    pub fn is_mark(&self, mark: char) -> bool {
        *self == Kind::Mark(mark)
    }
}

pub(super) struct Tokens<'a> {
    text: &'a [char],
    at: usize,
    /// Additional characters in words: the file permits `*`.
    word_marks: &'a [char],
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a [char], word_marks: &'a [char]) -> Tokens<'a> {
        Tokens {
            text,
            at: 0,
            word_marks,
        }
    }

    pub fn next(&mut self) -> Token {
        self.skip_blanks_and_comments();
        let at = self.at;
        let kind = match self.peek() {
            None => Kind::End,
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(first) if self.begins_number(first) => self.number(),
            Some(first) if self.is_alphabetic(first) => self.word(),
            Some(mark) => {
                self.at += 1;
                Kind::Mark(mark)
            }
        };
        Token {
            kind,
            at,
            end: self.at,
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn after(&self) -> Option<char> {
        self.text.get(self.at + 1).copied()
    }

    fn skip_blanks_and_comments(&mut self) {
        while let Some(next) = self.peek() {
            match (next, self.after()) {
                ('\0'..=' ', _) => self.at += 1,
                ('/', Some('*')) => {
                    self.at += 2;
                    while self.at < self.text.len()
                        && !(self.peek() == Some('*') && self.after() == Some('/'))
                    {
                        self.at += 1;
                    }
                    self.at = (self.at + 2).min(self.text.len());
                }
                // A single slash starts a comment.
                ('/', _) => {
                    while self.peek().is_some_and(|it| !matches!(it, '\n' | '\r')) {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn is_alphabetic(&self, character: char) -> bool {
        character.is_ascii_alphabetic()
            || matches!(character, '-' | '_' | '$')
            || character >= '\u{a0}'
            || self.word_marks.contains(&character)
    }

    /// A hyphen starts a number only before a digit or a dot.
    fn begins_number(&self, first: char) -> bool {
        match first {
            '0'..='9' | '.' => true,
            '-' => self
                .after()
                .is_some_and(|it| it.is_ascii_digit() || it == '.'),
            _ => false,
        }
    }

    fn number(&mut self) -> Kind {
        self.at += 1;
        while self
            .peek()
            .is_some_and(|it| it.is_ascii_digit() || it == '.')
        {
            self.at += 1;
        }
        Kind::Number
    }

    fn word(&mut self) -> Kind {
        // Java treats a hyphen that does not start a number as a mark.
        if self.peek() == Some('-') {
            self.at += 1;
            return Kind::Mark('-');
        }
        let start = self.at;
        while self
            .peek()
            .is_some_and(|it| self.is_alphabetic(it) || it.is_ascii_digit() || it == '.')
        {
            self.at += 1;
        }
        Kind::Word(self.text[start..self.at].iter().collect())
    }

    fn quoted(&mut self, quote: char) -> Kind {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n' | '\r') => {
                    return Kind::Quoted {
                        text,
                        is_closed: false,
                    };
                }
                Some(end) if end == quote => {
                    self.at += 1;
                    return Kind::Quoted {
                        text,
                        is_closed: true,
                    };
                }
                Some('\\') => {
                    self.at += 1;
                    text.extend(self.escape());
                }
                Some(other) => {
                    self.at += 1;
                    text.push(other);
                }
            }
        }
    }

    /// Parses the characters after a backslash.
    fn escape(&mut self) -> Option<char> {
        let first = self.peek()?;
        if let Some(mut code) = first.to_digit(8) {
            self.at += 1;
            // Up to \377.
            let digits = if first <= '3' { 2 } else { 1 };
            for _ in 0..digits {
                let Some(digit) = self.peek().and_then(|it| it.to_digit(8)) else {
                    break;
                };
                code = code * 8 + digit;
                self.at += 1;
            }
            return char::from_u32(code);
        }
        self.at += 1;
        Some(match first {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            other => other,
        })
    }
}
