//! Patterns with braces, as shells expand them: `shard-{000000..000009}.tar`, `{train,val}/*.jpg`.

/// The most paths that one pattern stands for.
const MAX_PATHS: usize = 1_000_000;

/// The paths that a pattern stands for, in order; the pattern itself if it has no braces.
///
/// # Errors
/// A message if it stands for too many paths.
pub(crate) fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let mut expanded = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, inside, after)) = first_group(rest) {
        let choices = choices(inside).ok_or_else(too_many)?;
        if expanded.len().saturating_mul(choices.len()) > MAX_PATHS {
            return Err(too_many());
        }
        let join =
            |start: &String| choices.iter().map(move |choice| format!("{start}{before}{choice}")).collect();
        expanded = expanded.iter().flat_map(|start| -> Vec<String> { join(start) }).collect();
        rest = after;
    }
    expanded.iter_mut().for_each(|start| start.push_str(rest));
    Ok(expanded)
}

fn too_many() -> String {
    format!("the braces stand for more than {MAX_PATHS} paths")
}

/// The text before, in and after the first braces with a choice in them.
fn first_group(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find('{')?;
        let close = open + text[open..].find('}')?;
        let inside = &text[open + 1..close];
        if inside.contains(',') || range(inside).is_some() {
            return Some((&text[..open], inside, &text[close + 1..]));
        }
        from = open + 1;
    }
}

/// The two ends of `000000..000009`, and their digits.
fn range(inside: &str) -> Option<(u64, u64, usize)> {
    let (first, last) = inside.split_once("..")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return None;
    }
    let is_padded = |text: &str| text.len() > 1 && text.starts_with('0');
    let digits = if is_padded(first) || is_padded(last) { first.len().max(last.len()) } else { 0 };
    Some((first.parse().ok()?, last.parse().ok()?, digits))
}

fn choices(inside: &str) -> Option<Vec<String>> {
    let Some((first, last, digits)) = range(inside) else {
        return Some(inside.split(',').map(str::to_owned).collect());
    };
    if first.abs_diff(last) >= MAX_PATHS as u64 {
        return None;
    }
    let name = |number| format!("{number:0digits$}");
    Some(if first <= last {
        (first..=last).map(name).collect()
    } else {
        (last..=first).rev().map(name).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_expand_as_in_a_shell() {
        let cases: [(&str, &[&str]); 9] = [
            ("a.tar", &["a.tar"]),
            ("s-{08..11}.tar", &["s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"]),
            ("s-{9..11}", &["s-9", "s-10", "s-11"]),
            ("{2..0}", &["2", "1", "0"]),
            ("{a,b}/{0..1}", &["a/0", "a/1", "b/0", "b/1"]),
            ("x{a,}y", &["xay", "xy"]),
            ("{a}{b..c}", &["{a}{b..c}"]),
            ("{x", &["{x"]),
            ("{a}{1,2}", &["{a}1", "{a}2"]),
        ];
        for (pattern, expected) in cases {
            assert_eq!(expand(pattern).expect("few paths"), expected, "{pattern}");
        }
        for pattern in ["{0..99999999}", "{0..999}{0..999}{0..9}", "{0..18446744073709551615}"] {
            assert!(expand(pattern).is_err(), "{pattern}");
        }
    }
}
