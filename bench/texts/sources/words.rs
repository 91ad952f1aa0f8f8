//! Counts the words of a text, and finds those that appear near each other.

use std::collections::{BTreeMap, HashMap};

/// A word, and how often it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    pub word: String,
    pub n: usize,
}

fn normalise(word: &str) -> String {
    word.chars()
        .filter(|letter| letter.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(normalise)
        .filter(|word| !word.is_empty())
        .collect()
}

/// Returns the words that appear most often, ties in alphabetical order.
pub fn most_frequent(text: &str, n_max: usize) -> Vec<Count> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for word in words(text) {
        *counts.entry(word).or_insert(0) += 1;
    }
    let mut sorted: Vec<Count> = counts
        .into_iter()
        .map(|(word, n)| Count { word, n })
        .collect();
    sorted.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.word.cmp(&b.word)));
    sorted.truncate(n_max);
    sorted
}

/// Returns the pairs of words with at most `distance` others between them, and how often each was seen.
pub fn neighbours(text: &str, distance: usize) -> BTreeMap<(String, String), usize> {
    let words = words(text);
    let mut pairs = BTreeMap::new();
    for (i, first) in words.iter().enumerate() {
        for second in words.iter().skip(i + 1).take(distance + 1) {
            let pair = if first <= second {
                (first.clone(), second.clone())
            } else {
                (second.clone(), first.clone())
            };
            *pairs.entry(pair).or_insert(0) += 1;
        }
    }
    pairs
}

/// Returns the length of the longest word, in letters.
pub fn longest(text: &str) -> usize {
    words(text)
        .iter()
        .map(|word| word.chars().count())
        .max()
        .unwrap_or(0)
}
