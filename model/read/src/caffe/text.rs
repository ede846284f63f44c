//! Protocol buffers' text format, as far as Caffe's files use it.

use std::iter::Peekable;
use std::str::CharIndices;

/// No file nests deeper.
const MOST_LEVELS: usize = 32;

/// Fields of a message, in order; a repeated field occurs repeatedly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    fields: Vec<(String, Value)>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    /// A number, a word of an enumeration, true or false.
    Word(String),
    Text(String),
    Message(Message),
}

impl Message {
    /// Reads a file.
    ///
    /// # Errors
    /// One line with the line of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, rest: text.char_indices().peekable(), line: 1 };
        let message = parser.message(None, 0);
        message.map_err(|why| format!("line {}: {why}", parser.line))
    }

    fn values<'m>(&'m self, name: &str) -> impl Iterator<Item = &'m Value> {
        self.fields.iter().filter(move |(n, _)| n == name).map(|(_, value)| value)
    }

    /// The messages of a repeated field.
    pub fn messages<'m>(&'m self, name: &str) -> impl Iterator<Item = &'m Message> {
        self.values(name).filter_map(|value| match value {
            Value::Message(message) => Some(message),
            _ => None,
        })
    }

    /// The last message of that name; an empty one where there is none.
    pub fn message<'m>(&'m self, name: &str) -> &'m Message {
        static EMPTY: Message = Message { fields: Vec::new() };
        self.messages(name).last().unwrap_or(&EMPTY)
    }

    /// Texts and words of a repeated field.
    pub fn texts<'m>(&'m self, name: &str) -> impl Iterator<Item = &'m str> {
        self.values(name).filter_map(|value| match value {
            Value::Text(text) | Value::Word(text) => Some(&text[..]),
            Value::Message(_) => None,
        })
    }

    /// A text or a word.
    pub fn text<'m>(&'m self, name: &str) -> Option<&'m str> {
        self.texts(name).last()
    }

    /// Whole numbers of a repeated field.
    ///
    /// # Errors
    /// When one is something else.
    pub fn numbers(&self, name: &str) -> Result<Vec<u64>, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("{name} is not a whole number"));
        self.texts(name).map(number).collect()
    }

    /// A whole number.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        Ok(self.numbers(name)?.last().copied())
    }

    /// A truth value; `None` where it is left out.
    pub fn truth(&self, name: &str) -> Option<bool> {
        self.text(name).map(|word| matches!(word, "true" | "1" | "t" | "True"))
    }

    /// A real number; `None` where it is left out or something else.
    pub fn real(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }
}

struct Parser<'t> {
    text: &'t str,
    rest: Peekable<CharIndices<'t>>,
    line: usize,
}

impl Parser<'_> {
    /// The next character that is neither space nor comment.
    fn peek(&mut self) -> Option<char> {
        while let Some(&(_, c)) = self.rest.peek() {
            match c {
                '\n' => self.line += 1,
                '#' => {
                    while self.rest.next_if(|(_, c)| *c != '\n').is_some() {}
                    continue;
                }
                c if c.is_whitespace() => {}
                c => return Some(c),
            }
            self.rest.next();
        }
        None
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest.next();
        }
        found
    }

    /// Fields up to the end of the message.
    fn message(&mut self, end: Option<char>, level: usize) -> Result<Message, String> {
        if level > MOST_LEVELS {
            return Err(format!("messages within messages, more than {MOST_LEVELS} deep"));
        }
        let mut message = Message::default();
        loop {
            while self.take(',') || self.take(';') {}
            match (self.peek(), end) {
                (None, None) => return Ok(message),
                (None, Some(end)) => return Err(format!("the file ends before a {end}")),
                (Some(c), Some(end)) if c == end => {
                    self.rest.next();
                    return Ok(message);
                }
                _ => {}
            }
            let name = self.word().ok_or("a field without a name")?;
            let colon = self.take(':');
            if self.take('[') {
                while !self.take(']') {
                    let value = self.value(true, level)?;
                    message.fields.push((name.clone(), value));
                    self.take(',');
                }
            } else {
                let value = self.value(colon, level)?;
                message.fields.push((name, value));
            }
        }
    }

    fn value(&mut self, scalar: bool, level: usize) -> Result<Value, String> {
        match self.peek() {
            Some('{') => {
                self.rest.next();
                self.message(Some('}'), level + 1).map(Value::Message)
            }
            Some('<') => {
                self.rest.next();
                self.message(Some('>'), level + 1).map(Value::Message)
            }
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(Value::Text),
            _ if scalar => self.word().map(Value::Word).ok_or("a field without a value".into()),
            _ => Err("a field without a value".into()),
        }
    }

    fn word(&mut self) -> Option<String> {
        self.peek()?;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
        let start = self.rest.peek()?.0;
        while self.rest.next_if(|(_, c)| legal(*c)).is_some() {}
        let end = self.rest.peek().map_or(self.text.len(), |(i, _)| *i);
        (end > start).then(|| self.text[start..end].to_string())
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        self.rest.next();
        let mut text = String::new();
        while let Some((_, c)) = self.rest.next() {
            match c {
                c if c == quote => return Ok(text),
                '\n' => return Err("a text without an end".into()),
                '\\' => text.extend(self.rest.next().map(|(_, c)| c)),
                c => text.push(c),
            }
        }
        Err("a text without an end".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lists_texts_and_comments_are_read() {
        let text = "name: \"a\\\"b\" # comment {\nlayer { type: 'x' dim: 1 dim: 2 } layer: < dim: [3, 4]; on: true >";
        let file = Message::parse(text).expect("valid");
        assert_eq!(file.text("name"), Some("a\"b"));
        let dims: Vec<_> = file.messages("layer").map(|l| l.numbers("dim").expect("numbers")).collect();
        assert_eq!(dims, [[1, 2], [3, 4]]);
        assert_eq!(file.message("layer").truth("on"), Some(true));
        assert_eq!(file.message("absent").text("x"), None);
    }

    #[test]
    fn mistakes_are_on_a_line() {
        for (text, expected) in [
            ("a: 1\nlayer {\n b: 2\n", "line 4"),
            ("a\n: ", "without a value"),
            ("a: \"x\n", "without an end"),
            ("{}", "without a name"),
            ("a 1", "without a value"),
            (&"m{".repeat(100), "deep"),
        ] {
            let error = Message::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(Message::parse("a: x").expect("valid").numbers("a").is_err());
    }
}
