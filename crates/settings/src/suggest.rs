//! "Did you mean": the nearest of several known words.

/// The known word that `word` most likely was meant to be, if any is near.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = word.chars().count().max(3) / 3 + 1;
    let ranked = known.iter().map(|candidate| (distance(word, candidate), *candidate));
    ranked.min().filter(|(distance, _)| *distance <= limit).map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["launcher", "launcher_args", "hosts", "ranks"];
        assert_eq!(nearest("lancher", &known), Some("launcher"));
        assert_eq!(nearest("rank", &known), Some("ranks"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("", &[]), None);
    }

    #[test]
    fn distances_are_counted() {
        for (a, b, expected) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(distance(a, b), expected);
        }
    }
}
