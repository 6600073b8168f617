//! The known name that is most like an unknown one.

/// The name with the fewest changed letters, if it is at most a third of its length away.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let limit = name.len() / 3;
    let rated = known.filter(|other| other.len().abs_diff(name.len()) <= limit);
    let rated = rated.map(|other| (strsim::levenshtein(name, other), other));
    rated.min().filter(|(distance, _)| *distance <= limit).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let known = ["layers.0.norm1.weight", "layers.0.norm2.weight", "head.bias"];
        for (name, expected) in [
            ("layers.0.norm1.weigth", Some("layers.0.norm1.weight")),
            ("layers.0.norm2.weight", Some("layers.0.norm2.weight")),
            ("head.bia", Some("head.bias")),
            ("optimizer", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), expected, "{name}");
        }
    }
}
