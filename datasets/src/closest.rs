//! The name that was meant.

/// The known name that an unknown phrase most likely means, if any: one that is spelled almost like it; else one whose words
/// are in it ("red car" is a car), of several the longest and last; else one that is spelled like it.
pub fn closest<'k>(phrase: &str, known: &[&'k str]) -> Option<&'k str> {
    /// Of two letters in three that agree: `dgo` is `dog` with one exchange.
    const LEAST: f64 = 0.65;
    /// So few letters differ that it is a misspelling, such as `tedy bear`.
    const ALMOST: f64 = 0.9;
    let phrase = phrase.to_lowercase();
    let likeness = |name: &str| {
        strsim::normalized_damerau_levenshtein(&phrase, name).max(strsim::jaro(&phrase, name) - 0.05)
    };
    let scored = known.iter().map(|name| (likeness(name), *name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    if best.0 >= ALMOST {
        return Some(best.1);
    }
    let words: Vec<&str> = phrase.split_whitespace().collect();
    let ends = |name: &str| {
        let name: Vec<&str> = name.split_whitespace().collect();
        let at = words.windows(name.len().max(1)).rposition(|part| part == name)?;
        Some((name.len(), at))
    };
    let named = known.iter().filter_map(|name| Some((ends(name)?, *name))).max();
    named.map(|(_, name)| name).or((best.0 >= LEAST).then_some(best.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_recognised_by_words_and_then_by_letters() {
        let known = ["dog", "elephant", "traffic light", "car", "cat", "teddy bear", "light", "bear"];
        let cases = [
            ("red car", Some("car")),
            ("Red Car", Some("car")),
            ("traffic light at night", Some("traffic light")),
            ("dog beside a car", Some("car")),
            ("dgo", Some("dog")),
            ("Elefant", Some("elephant")),
            ("trafic light", Some("traffic light")),
            ("tedy bear", Some("teddy bear")),
            ("xylophone", None),
            ("person", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(closest(name, &known), expected, "{name}");
        }
    }
}
