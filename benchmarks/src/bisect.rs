//! Delta debugging: a minimal set of elements that is needed.

/// A minimal subset of `all` for which `passes` holds: without any one of its elements it does not. `None` if it does not
/// hold even for all of them, empty if none is needed.
///
/// This is ddmin (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002). It needs about
/// 2·log₂(n) trials if one element matters, and n² in the worst case. The order of elements is kept.
///
/// # Errors
/// Errors of a trial.
pub fn least_needed<T: Clone, E>(
    all: &[T],
    mut passes: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Option<Vec<T>>, E> {
    if passes(&[])? {
        return Ok(Some(Vec::new()));
    }
    if !passes(all)? {
        return Ok(None);
    }
    let (mut needed, mut parts) = (all.to_vec(), 2);
    while needed.len() > 1 {
        parts = parts.min(needed.len());
        let bounds: Vec<usize> = (0..=parts).map(|part| part * needed.len() / parts).collect();
        let ranges: Vec<_> = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let mut smaller = None;
        for range in &ranges {
            if passes(&needed[range.clone()])? {
                smaller = Some((needed[range.clone()].to_vec(), 2));
                break;
            }
        }
        // With two parts, the complement of one is the other, which was tried.
        for range in ranges.iter().filter(|_| parts > 2) {
            if smaller.is_some() {
                break;
            }
            let rest = [&needed[..range.start], &needed[range.end..]].concat();
            if passes(&rest)? {
                smaller = Some((rest, parts - 1));
            }
        }
        match smaller {
            Some(found) => (needed, parts) = found,
            None if parts == needed.len() => break,
            None => parts *= 2,
        }
    }
    Ok(Some(needed))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_minimal_set_is_found() {
        let cases: [(usize, &[usize], usize); 8] = [
            (1, &[0], 4),
            (2, &[1], 6),
            (50, &[17], 20),
            (50, &[0], 20),
            (50, &[49], 20),
            (50, &[3, 40], 120),
            (20, &[1, 2, 3, 18], 200),
            (6, &[0, 1, 2, 3, 4, 5], 60),
        ];
        let mut wrong = Vec::new();
        for (count, culprits, max_trials) in cases {
            let all: Vec<usize> = (0..count).collect();
            let mut trials = 0;
            let found = least_needed(&all, |kept| {
                trials += 1;
                Ok::<_, Infallible>(culprits.iter().all(|culprit| kept.contains(culprit)))
            });
            if found != Ok(Some(culprits.to_vec())) || trials > max_trials {
                wrong.push(format!("{culprits:?} of {count}: {found:?} after {trials} trials"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn an_empty_set_and_no_set() {
        let outcome = |answer: bool| least_needed(&[1, 2, 3], |_| Ok::<_, Infallible>(answer));
        assert_eq!(outcome(true), Ok(Some(vec![])));
        assert_eq!(outcome(false), Ok(None));
        assert_eq!(least_needed(&[1], |_| Err::<bool, _>("stop")), Err("stop"));
    }

    /// Either of two elements is enough.
    #[test]
    fn alternatives_are_not_both_kept() {
        let found =
            least_needed(&[0, 1, 2, 3], |kept| Ok::<_, Infallible>(kept.contains(&0) || kept.contains(&3)));
        assert_eq!(found.map(|found| found.map(|kept| kept.len())), Ok(Some(1)));
    }
}
