//! Which classes an argument means.

use super::{LogArgs, say};
use ocelli::{Error, ErrorKind, Prompt, Result};

/// The classes that `--classes` names: `person "red apple"` and `person,red apple` mean the same, as a comma separates
/// classes like a space between arguments does. A class that was named before counts once, and that is said.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where a class is blank.
pub fn class_names(arguments: &[String], log: &LogArgs) -> Result<Vec<String>> {
    let (names, repeated) = distinct(arguments)?;
    if !repeated.is_empty() {
        say(log, &format!("named more than once, searched for once: {}", repeated.join(", ")));
    }
    Ok(names)
}

/// Classes in order, and those of them that came again. Words that differ in case alone are one class to the model.
fn distinct(arguments: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let (mut names, mut repeated) = (Vec::<String>::new(), Vec::new());
    for (number, piece) in arguments.iter().flat_map(|argument| argument.split(',')).enumerate() {
        let name = Prompt::new(piece).phrase().to_owned();
        if name.is_empty() {
            let message =
                format!("--classes, class {}: it is blank; give it a word or a short phrase", number + 1);
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
    fn commas_separate_and_repetitions_count_once() {
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
