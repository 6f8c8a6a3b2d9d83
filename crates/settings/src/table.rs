//! Tables, from which keys are taken one by one. Every reader gives `None` for a key that is not there.

use crate::suggest::nearest;
use gridmpi_report::units::{format_duration, parse_duration, parse_rate, parse_size};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest time that makes sense anywhere; clocks count so far without overflow.
pub const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct FileError {
    file: String,
    line: usize,
    message: String,
}

/// A file under reading.
pub struct Source<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

/// One table of it, keys being taken out one by one.
pub struct Table<'a> {
    source: &'a Source<'a>,
    /// How the user sees it: `[[cluster]]`, or empty for the top.
    title: &'static str,
    /// Byte of the file at which it starts.
    pub start: usize,
    rest: BTreeMap<String, (usize, Spanned<DeValue<'a>>)>,
    known: Vec<&'static str>,
}

/// A value and the byte at which it stands.
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Byte of the file.
    pub at: usize,
}

impl<'a> Source<'a> {
    /// What is wrong at this byte.
    #[must_use]
    pub fn error(&self, at: usize, message: impl Into<String>) -> FileError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        FileError { file: self.name.to_owned(), line, message: message.into() }
    }

    /// The file's top table.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn parse(&'a self) -> Result<Table<'a>, FileError> {
        let parsed = DeTable::parse(self.text);
        let parsed = parsed.map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message().to_owned())
        })?;
        Ok(Table::new(self, "", 0, parsed.into_inner()))
    }
}

impl<'a> Table<'a> {
    fn new(source: &'a Source<'a>, title: &'static str, start: usize, all: DeTable<'a>) -> Self {
        let entry = |(key, value): (Spanned<std::borrow::Cow<'a, str>>, _)| {
            let at = key.span().start;
            (key.into_inner().into_owned(), (at, value))
        };
        Self { source, title, start, rest: all.into_iter().map(entry).collect(), known: vec![] }
    }

    /// What is wrong at this byte of the file.
    #[must_use]
    pub fn error(&self, at: usize, message: impl Into<String>) -> FileError {
        self.source.error(at, message)
    }

    fn take(&mut self, key: &'static str) -> Option<At<DeValue<'a>>> {
        self.known.push(key);
        let (_, value) = self.rest.remove(key)?;
        let at = value.span().start;
        Some(At { value: value.into_inner(), at })
    }

    fn wrong<T>(&self, key: &str, at: usize, expected: &str) -> Result<T, FileError> {
        Err(self.error(at, format!("`{key}` must be {expected}")))
    }

    /// A string.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&mut self, key: &'static str) -> Result<Option<At<String>>, FileError> {
        match self.take(key) {
            None => Ok(None),
            Some(At { value: DeValue::String(text), at }) => {
                Ok(Some(At { value: text.into_owned(), at }))
            }
            Some(other) => self.wrong(key, other.at, "a string"),
        }
    }

    /// A list of strings.
    ///
    /// # Errors
    /// It is something else.
    pub fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, FileError> {
        let all = self.texts_at(key)?;
        Ok(all.map(|all| all.value.into_iter().map(|text| text.value).collect()))
    }

    /// The same, and where it and each of them stand.
    ///
    /// # Errors
    /// It is something else.
    pub fn texts_at(
        &mut self,
        key: &'static str,
    ) -> Result<Option<At<Vec<At<String>>>>, FileError> {
        let Some(found) = self.take(key) else { return Ok(None) };
        let expected = "a list of strings";
        let DeValue::Array(items) = found.value else { return self.wrong(key, found.at, expected) };
        let mut all = Vec::new();
        for item in items {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::String(text) => all.push(At { value: text.into_owned(), at }),
                _ => return self.wrong(key, at, expected),
            }
        }
        Ok(Some(At { value: all, at: found.at }))
    }

    /// A whole number from 1 to 2^32 - 1.
    ///
    /// # Errors
    /// It is something else.
    pub fn count(&mut self, key: &'static str) -> Result<Option<u32>, FileError> {
        let Some(found) = self.take(key) else { return Ok(None) };
        let number = match &found.value {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match number.filter(|number| *number > 0) {
            Some(number) => Ok(Some(number)),
            None => self.wrong(key, found.at, "a whole number of at least 1"),
        }
    }

    /// A whole number from 1 to `most`.
    ///
    /// # Errors
    /// It is something else.
    pub fn count_to(&mut self, key: &'static str, most: u32) -> Result<Option<u32>, FileError> {
        let Some(found) = self.take(key) else { return Ok(None) };
        let number = match &found.value {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match number.filter(|number| (1..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => self.wrong(key, found.at, &format!("a whole number from 1 to {most}")),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// It is something else.
    pub fn truth(&mut self, key: &'static str) -> Result<Option<bool>, FileError> {
        match self.take(key) {
            None => Ok(None),
            Some(At { value: DeValue::Boolean(value), .. }) => Ok(Some(value)),
            Some(other) => self.wrong(key, other.at, "true or false"),
        }
    }

    /// Bytes: a text such as `"256 MB"`.
    ///
    /// # Errors
    /// It is something else.
    pub fn size(&mut self, key: &'static str) -> Result<Option<At<u64>>, FileError> {
        let Some(At { value, at }) = self.text(key)? else { return Ok(None) };
        let size = parse_size(&value).map_err(|error| self.error(at, format!("`{key}`: {error}")));
        Ok(Some(At { value: size?, at }))
    }

    /// Seconds as a number, or a text such as `"90 s"`; up to [`LONGEST`].
    ///
    /// # Errors
    /// It is something else.
    pub fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, FileError> {
        Ok(self.duration_at(key)?.map(|found| found.value))
    }

    /// The same, but more than 0.
    ///
    /// # Errors
    /// It is something else.
    pub fn time(&mut self, key: &'static str) -> Result<Option<Duration>, FileError> {
        match self.duration_at(key)? {
            Some(At { value: Duration::ZERO, at }) => {
                self.wrong(key, at, "more than 0; leave it out for the default")
            }
            found => Ok(found.map(|found| found.value)),
        }
    }

    /// The same, from `least` to `most`.
    ///
    /// # Errors
    /// It is something else.
    pub fn time_within(
        &mut self,
        key: &'static str,
        (least, most): (Duration, Duration),
    ) -> Result<Option<Duration>, FileError> {
        match self.duration_at(key)? {
            Some(At { value, at }) if !(least..=most).contains(&value) => {
                let [least, most] = [least, most].map(format_duration);
                self.wrong(key, at, &format!("from {least} to {most}"))
            }
            found => Ok(found.map(|found| found.value)),
        }
    }

    fn duration_at(&mut self, key: &'static str) -> Result<Option<At<Duration>>, FileError> {
        let Some(found) = self.take(key) else { return Ok(None) };
        let at = found.at;
        let value = match &found.value {
            DeValue::Integer(number) => {
                match u64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(seconds) => Duration::from_secs(seconds),
                    Err(_) => return self.wrong(key, at, "a number of seconds"),
                }
            }
            DeValue::String(text) => {
                let read = parse_duration(text);
                read.map_err(|error| self.error(at, format!("`{key}`: {error}")))?
            }
            _ => {
                return self.wrong(key, at, "a number of seconds or a text such as \"10 ms\"");
            }
        };
        if value > LONGEST {
            let most = format!("at most ten years, {} seconds", LONGEST.as_secs());
            return self.wrong(key, at, &most);
        }
        Ok(Some(At { value, at }))
    }

    /// A text with a unit: a bare number would be read as seconds by some, milliseconds by others.
    ///
    /// # Errors
    /// It is something else.
    pub fn delay(&mut self, key: &'static str) -> Result<Option<Duration>, FileError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let delay = parse_duration(&text.value);
        delay.map(Some).map_err(|error| self.error(text.at, format!("`{key}`: {error}")))
    }

    /// Bits per second: a text such as `"160 Mbit/s"`.
    ///
    /// # Errors
    /// It is something else.
    pub fn rate(&mut self, key: &'static str) -> Result<Option<At<u64>>, FileError> {
        let text = self.text(key)?;
        text.map(|text| self.read_rate(key, &text)).transpose()
    }

    /// The same, or a word in its place, which gives `Some(None)`.
    ///
    /// # Errors
    /// It is something else.
    pub fn rate_or(
        &mut self,
        key: &'static str,
        word: &str,
    ) -> Result<Option<Option<At<u64>>>, FileError> {
        match self.text(key)? {
            None => Ok(None),
            Some(text) if text.value == word => Ok(Some(None)),
            Some(text) => self.read_rate(key, &text).map(|rate| Some(Some(rate))),
        }
    }

    fn read_rate(&self, key: &str, text: &At<String>) -> Result<At<u64>, FileError> {
        match parse_rate(&text.value) {
            Ok(0) => Err(self.error(text.at, format!("`{key}` must be more than 0"))),
            Ok(value) => Ok(At { value, at: text.at }),
            Err(error) => Err(self.error(text.at, format!("`{key}`: {error}"))),
        }
    }

    /// A table of strings.
    ///
    /// # Errors
    /// It is something else.
    pub fn variables(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, FileError> {
        let Some(found) = self.take(key) else { return Ok(BTreeMap::new()) };
        let expected = "a table of strings, such as { OMP_NUM_THREADS = \"2\" }";
        let DeValue::Table(all) = found.value else { return self.wrong(key, found.at, expected) };
        let mut variables = BTreeMap::new();
        for (name, value) in all {
            let at = value.span().start;
            let value = match value.into_inner() {
                DeValue::String(text) => text.into_owned(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
                _ => return self.wrong(key, at, expected),
            };
            variables.insert(self.variable(name, at)?, value);
        }
        Ok(variables)
    }

    fn variable(
        &self,
        name: Spanned<std::borrow::Cow<'a, str>>,
        at: usize,
    ) -> Result<String, FileError> {
        let name = name.into_inner().into_owned();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(self.error(at, format!("{name:?} is no name of a variable")));
        }
        Ok(name)
    }

    /// The sub-table `[key]`; an empty one where there is none.
    ///
    /// # Errors
    /// It is something else.
    pub fn table(
        &mut self,
        key: &'static str,
        title: &'static str,
    ) -> Result<Table<'a>, FileError> {
        match self.take(key) {
            None => Ok(Table::new(self.source, title, 0, DeTable::new())),
            Some(At { value: DeValue::Table(table), at }) => {
                Ok(Table::new(self.source, title, at, table))
            }
            Some(other) => self.wrong(key, other.at, &format!("a table, written {title}")),
        }
    }

    /// Every `[[key]]`.
    ///
    /// # Errors
    /// It is something else.
    pub fn tables(
        &mut self,
        key: &'static str,
        title: &'static str,
    ) -> Result<Vec<Table<'a>>, FileError> {
        let expected = format!("a list of tables, each written {title}");
        let Some(found) = self.take(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = found.value else {
            return self.wrong(key, found.at, &expected);
        };
        let mut all = Vec::new();
        for item in items {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::Table(table) => all.push(Table::new(self.source, title, at, table)),
                _ => return self.wrong(key, at, &expected),
            }
        }
        Ok(all)
    }

    /// To be called last: a key that nobody took is a mistake.
    ///
    /// # Errors
    /// Names the key, and the nearest that is known.
    pub fn finish(self) -> Result<(), FileError> {
        let Some((key, (at, _))) = self.rest.iter().min_by_key(|(_, (at, _))| *at) else {
            return Ok(());
        };
        let place =
            if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
        let help = match nearest(key, &self.known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known keys: {}", self.known.join(", ")),
        };
        Err(self.error(*at, format!("unknown key `{key}`{place}; {help}")))
    }
}
