//! The parameters of a node and the settings that they stand for.

use ocelli::{Error, ErrorKind, ModelSource, Result};
use serde_json::Value;

use crate::Settings;

/// A parameter's value, of the types that nodes have.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Double(f64),
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
}

/// The parameters of [`Settings`] with their values. `confidence` is what holds if the settings leave it to the model.
pub fn of(settings: &Settings, confidence: f32) -> Vec<(&'static str, Parameter)> {
    let model = match &settings.model {
        ModelSource::Folder(folder) => folder.display().to_string(),
        ModelSource::Hub(name) => name.clone(),
        _ => ModelSource::BUILT_IN.into(),
    };
    // The shortest number that is this one in 32 bits: 0.3, not 0.30000001.
    let confidence = confidence.to_string().parse().unwrap_or(f64::from(confidence));
    vec![
        ("classes", Parameter::Texts(settings.classes.clone())),
        ("confidence", Parameter::Double(confidence)),
        ("engine", Parameter::Text(settings.engine.to_string())),
        ("frame_rate", Parameter::Double(settings.frame_rate.unwrap_or(0.0))),
        ("masks", Parameter::Bool(settings.masks)),
        ("model", Parameter::Text(model)),
        ("threads", Parameter::Integer(settings.threads.map_or(0, |threads| threads as i64))),
        ("track", Parameter::Bool(settings.track)),
    ]
}

/// Sets a parameter.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unknown parameter, another type, and values that [`Settings::check`] refuses.
pub fn set(settings: &mut Settings, name: &str, value: &Parameter) -> Result<()> {
    let mut changed = settings.clone();
    match (name, value) {
        ("classes", Parameter::Texts(classes)) => changed.classes.clone_from(classes),
        // One class, and what is written without brackets.
        ("classes", Parameter::Text(classes)) => changed.classes = Settings::classes_from(classes),
        ("confidence", Parameter::Double(confidence)) => changed.confidence = Some(*confidence as f32),
        ("confidence", Parameter::Integer(confidence)) => changed.confidence = Some(*confidence as f32),
        ("engine", Parameter::Text(engine)) => changed.engine = engine.parse()?,
        ("frame_rate", Parameter::Double(rate)) => {
            changed.frame_rate = Some(*rate).filter(|rate| *rate != 0.0);
        }
        ("frame_rate", Parameter::Integer(rate)) => {
            changed.frame_rate = Some(*rate as f64).filter(|rate| *rate != 0.0);
        }
        ("masks", Parameter::Bool(masks)) => changed.masks = *masks,
        ("model", Parameter::Text(model)) => changed.model = ModelSource::named(model),
        ("threads", Parameter::Integer(threads)) => match usize::try_from(*threads) {
            Ok(threads) => changed.threads = Some(threads).filter(|threads| *threads > 0),
            Err(_) => {
                return invalid(format!("threads is {threads}: expected a number of threads, or 0 for all"));
            }
        },
        ("track", Parameter::Bool(track)) => changed.track = *track,
        (name, value) => match of(settings, 0.0).iter().find(|(known, _)| *known == name) {
            Some((_, expected)) => {
                return invalid(format!("{name} is {value:?}: expected a value like {expected:?}"));
            }
            None => return invalid(format!("there is no parameter {name}")),
        },
    }
    changed.check()?;
    *settings = changed;
    Ok(())
}

/// A parameter's value from JSON or YAML.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for values that no parameter has.
pub fn from_json(name: &str, value: &Value) -> Result<Parameter> {
    Ok(match value {
        Value::Bool(value) => Parameter::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Parameter::Integer(integer),
            None => Parameter::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Parameter::Text(text.clone()),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            Parameter::Texts(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        other => {
            return invalid(format!(
                "{name} is {other}: expected a text, a list of texts, a number, true or false"
            ));
        }
    })
}

/// A parameter's value from a text, such as that of an environment variable: `person, red apple`, `0.5`, `true`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unknown parameter and a text that is not a value of it.
pub fn from_text(name: &str, text: &str) -> Result<Parameter> {
    let text = text.trim();
    let known = of(&Settings::default(), 0.0);
    let Some((_, kind)) = known.iter().find(|(known, _)| *known == name) else {
        return invalid(format!("there is no parameter {name}"));
    };
    let (parsed, expected) = match kind {
        Parameter::Bool(_) => (text.to_lowercase().parse().map(Parameter::Bool).ok(), "true or false"),
        Parameter::Integer(_) => (text.parse().map(Parameter::Integer).ok(), "a whole number"),
        Parameter::Double(_) => (text.parse().map(Parameter::Double).ok(), "a number"),
        Parameter::Text(_) | Parameter::Texts(_) => (Some(Parameter::Text(text.to_owned())), "a text"),
    };
    parsed.map_or_else(|| invalid(format!("{name} is {text:?}: expected {expected}")), Ok)
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_set() {
        let mut settings = Settings::default();
        let values = [
            ("classes", Parameter::Texts(vec!["red apple".into(), "dog".into()])),
            ("confidence", Parameter::Double(0.3)),
            ("engine", Parameter::Text("embedded".into())),
            ("frame_rate", Parameter::Double(30.0)),
            ("masks", Parameter::Bool(true)),
            ("model", Parameter::Text("/models/sam3".into())),
            ("threads", Parameter::Integer(2)),
            ("track", Parameter::Bool(false)),
        ];
        for (name, value) in &values {
            set(&mut settings, name, value).expect("a valid value");
        }
        let confidence = settings.confidence.expect("it was set");
        assert_eq!(of(&settings, confidence), values);
    }

    #[test]
    fn invalid_values_change_nothing_and_are_named() {
        let mut settings = Settings::default();
        let cases = [
            ("classes", Parameter::Texts(Vec::new()), "classes"),
            ("classes", Parameter::Bool(true), "classes is Bool(true)"),
            ("confidence", Parameter::Double(1.5), "confidence is 1.5"),
            ("confidence", Parameter::Double(f64::NAN), "confidence is NaN"),
            ("engine", Parameter::Text("steam".into()), "steam"),
            ("frame_rate", Parameter::Double(-1.0), "frame_rate is -1"),
            ("threads", Parameter::Integer(-1), "threads is -1"),
            ("speed", Parameter::Integer(1), "no parameter speed"),
        ];
        let mut failures = Vec::new();
        for (name, value, part) in cases {
            match set(&mut settings, name, &value) {
                Err(error) if error.to_string().contains(part) => {}
                found => failures.push(format!("{name} = {value:?}: {found:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn texts_become_values_of_the_type_of_the_parameter() {
        let cases = [
            ("classes", "person, red apple", Ok(Parameter::Text("person, red apple".into()))),
            ("confidence", " 0.25 ", Ok(Parameter::Double(0.25))),
            ("confidence", "1", Ok(Parameter::Double(1.0))),
            ("threads", "2", Ok(Parameter::Integer(2))),
            ("track", "False", Ok(Parameter::Bool(false))),
            ("engine", "1", Ok(Parameter::Text("1".into()))),
            ("threads", "two", Err("threads is \"two\": expected a whole number")),
            ("masks", "maybe", Err("masks is \"maybe\": expected true or false")),
            ("speed", "1", Err("there is no parameter speed")),
        ];
        let mut failures = Vec::new();
        for (name, text, expected) in cases {
            let found = from_text(name, text).map_err(|error| error.to_string());
            if found.as_ref().map_err(String::as_str) != expected.as_ref().map_err(|error| *error) {
                failures.push(format!("{name} = {text:?}: {found:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
