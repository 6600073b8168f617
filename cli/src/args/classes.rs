//! `--classes`.

use ocelli::{Error, ErrorKind, Prompt, Result};

use crate::{LogArgs, status};

/// The classes in the values of `--classes`, which commas separate as well: `person "red apple"` and `person,red apple`
/// mean the same. Duplicates are dropped with a line on stderr.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if a class is blank.
pub fn class_names(arguments: &[String], log: &LogArgs) -> Result<Vec<String>> {
    let (names, repeated) = distinct(arguments)?;
    if !repeated.is_empty() {
        status(log, &format!("duplicate classes ignored: {}", repeated.join(", ")));
    }
    Ok(names)
}

/// The classes in order, and the duplicates. The model does not distinguish case.
fn distinct(arguments: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let (mut names, mut repeated) = (Vec::<String>::new(), Vec::new());
    for (number, piece) in arguments.iter().flat_map(|argument| argument.split(',')).enumerate() {
        let name = Prompt::new(piece).phrase().to_owned();
        if name.is_empty() {
            let message =
                format!("--classes, class {}: blank; expected a word or a short phrase", number + 1);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if !names.iter().any(|known| known.to_lowercase() == name.to_lowercase()) {
            names.push(name);
        } else if !repeated.contains(&name) {
            repeated.push(name);
        }
    }
    Ok((names, repeated))
}

#[cfg(test)]
mod tests {
    use super::distinct;

    #[test]
    fn commas_separate_classes_and_duplicates_are_dropped() {
        let cases: [(&[&str], Result<(&[&str], &[&str]), &str>); 8] = [
            (&["dog"], Ok((&["dog"], &[]))),
            (&["dog", "red apple"], Ok((&["dog", "red apple"], &[]))),
            (&["dog,red apple", "cat"], Ok((&["dog", "red apple", "cat"], &[]))),
            (&["dog, red  apple "], Ok((&["dog", "red apple"], &[]))),
            (&["dog", "cat", "Dog", "dog", "dog"], Ok((&["dog", "cat"], &["Dog", "dog"]))),
            (&["dog", " \t"], Err("class 2")),
            (&[""], Err("class 1")),
            (&["dog,,cat"], Err("class 2")),
        ];
        for (arguments, expected) in cases {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            match (distinct(&arguments), expected) {
                (Ok((names, repeated)), Ok(expected)) => {
                    assert_eq!(names, expected.0, "{arguments:?}");
                    assert_eq!(repeated, expected.1, "{arguments:?}");
                }
                (Err(e), Err(word)) => assert!(e.to_string().contains(word), "{arguments:?}: {e}"),
                (found, expected) => panic!("{arguments:?}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
