//! Words for shells: those that we have run something, and those of people who paste what we print.

/// One word for a POSIX shell, in one line: nobody's path has line ends in it.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\n', "?").replace('\'', "'\\''"))
}

/// The same for people: as it stands, if every shell takes it so.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => quote(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_quoted() {
        assert_eq!(quote("a'b c"), "'a'\\''b c'");
    }

    #[test]
    fn only_what_shells_take_otherwise_is_quoted() {
        for plain in ["token", "/a/b-c_1.2", "me@host", "10.0.0.1:1,10.0.0.2:1"] {
            assert_eq!(word(plain), plain);
        }
        for (text, quoted) in
            [("a b", "'a b'"), ("[fd00::1]:1", "'[fd00::1]:1'"), ("", "''"), ("~/x", "'~/x'")]
        {
            assert_eq!(word(text), quoted);
        }
    }
}
