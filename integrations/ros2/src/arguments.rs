//! The arguments of a ROS 2 node: `--ros-args -r image:=/camera/image_raw -p "classes:=[person, dog]" --params-file FILE`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::Value;

const HELP: &str = "\
Detects objects of any classes in the images of a ROS 2 topic.

Usage: ocelli-ros2 [--ros-args [-r FROM:=TO]… [-p NAME:=VALUE]… [--params-file FILE]… [--log-level LEVEL]]

  -r, --remap FROM:=TO      another name for a topic, or __node:=NAME and __ns:=NAMESPACE
  -p, --param NAME:=VALUE   a parameter, its value in YAML
      --params-file FILE    parameters in YAML, as `ros2 param dump` writes them
      --log-level LEVEL     debug, info, warn or error
  -h, --help                this text
  -V, --version             the version

Topics     image, or image/compressed with image_transport:=compressed (sensor_msgs)
           detections (vision_msgs/Detection2DArray), vision_info, label_info; ~/annotated, ~/masks (sensor_msgs/Image)
Parameters classes, confidence, engine, model, threads, track, frame_rate, masks, image_transport
Guide      docs/robots.md
";

/// The request of a command line.
pub enum Request {
    Run(Box<Arguments>),
    /// The help text or the version.
    Print(String),
}

/// The arguments of the node.
#[derive(Debug, PartialEq)]
pub struct Arguments {
    pub node: String,
    /// `/`, or a namespace without a slash at its end.
    pub namespace: String,
    pub parameters: BTreeMap<String, Value>,
    pub log_level: Option<String>,
    remaps: Vec<(String, String)>,
}

impl Arguments {
    /// # Errors
    /// For an unknown argument, and for files that cannot be read.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> anyhow::Result<Request> {
        let mut parsed = Self {
            node: "ocelli".into(),
            namespace: "/".into(),
            parameters: BTreeMap::new(),
            log_level: None,
            remaps: Vec::new(),
        };
        let (mut files, mut given) = (Vec::new(), Vec::new());
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument}: expected a value"));
            match &*argument {
                "--ros-args" | "--" => {}
                "-h" | "--help" => return Ok(Request::Print(HELP.into())),
                "-V" | "--version" => {
                    return Ok(Request::Print(
                        concat!("ocelli-ros2 ", env!("CARGO_PKG_VERSION"), "\n").into(),
                    ));
                }
                "-r" | "--remap" => {
                    let (from, to) = rule(&value()?)?;
                    // A rule may be for one node: `node:from:=to`. There is one here.
                    let from = from.rsplit_once(':').map_or(&*from, |(_, from)| from).to_owned();
                    match &*from {
                        "__node" | "__name" => parsed.node = to,
                        "__ns" => parsed.namespace = format!("/{}", to.trim_matches('/')),
                        _ => parsed.remaps.push((from, to)),
                    }
                }
                "-p" | "--param" => given.push(rule(&value()?)?),
                "--params-file" => files.push(value()?),
                "--log-level" => {
                    let level = value()?;
                    // A level may be for one logger: `ocelli:=debug`.
                    let level = level.rsplit_once(":=").map_or(&*level, |(_, level)| level).to_lowercase();
                    parsed.log_level = Some(if level == "fatal" { "error".into() } else { level });
                }
                "-e" | "--enclave" | "--log-config-file" => drop(value()?),
                flag if flag.starts_with("--") && flag.contains("-log")
                    || flag.starts_with("--enable-")
                    || flag.starts_with("--disable-") => {}
                other => bail!("unknown argument {other}: see ocelli-ros2 --help"),
            }
        }
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            let found = parsed.parameters_in(&text).with_context(|| format!("cannot read {file}"))?;
            parsed.parameters.extend(found);
        }
        for (name, value) in given {
            // A parameter may be for one node, too.
            let name = name.rsplit_once(':').map_or(&*name, |(_, name)| name).to_owned();
            let value = yaml(&value).with_context(|| format!("parameter {name}"))?;
            parsed.parameters.insert(name, value);
        }
        Ok(Request::Run(Box::new(parsed)))
    }

    /// The full name of a topic: `image` is below the namespace, `~/masks` below the node, and remapping applies to both.
    pub fn topic(&self, name: &str) -> String {
        let full = self.expand(name);
        let remapped = self.remaps.iter().find(|(from, _)| self.expand(from) == full);
        remapped.map_or(full, |(_, to)| self.expand(to))
    }

    fn full_node_name(&self) -> String {
        format!("{}/{}", self.namespace.trim_end_matches('/'), self.node)
    }

    fn expand(&self, name: &str) -> String {
        let name = name.strip_prefix("rostopic://").unwrap_or(name);
        if name.starts_with('/') {
            name.to_owned()
        } else if let Some(private) = name.strip_prefix("~/") {
            format!("{}/{private}", self.full_node_name())
        } else {
            format!("{}/{name}", self.namespace.trim_end_matches('/'))
        }
    }

    /// The parameters that a file has for this node.
    fn parameters_in(&self, text: &str) -> anyhow::Result<BTreeMap<String, Value>> {
        let Value::Object(nodes) = yaml(text)? else {
            bail!("expected the names of nodes, each with ros__parameters")
        };
        let mut found = BTreeMap::new();
        for (node, content) in nodes {
            let ours =
                ["/**", "/*", "**"].contains(&&*node) || node == self.node || node == self.full_node_name();
            if let (true, Some(Value::Object(parameters))) = (ours, content.get("ros__parameters")) {
                found.extend(parameters.clone());
            }
        }
        Ok(found)
    }
}

fn rule(text: &str) -> anyhow::Result<(String, String)> {
    let (from, to) = text.split_once(":=").with_context(|| format!("{text}: expected NAME:=VALUE"))?;
    Ok((from.to_owned(), to.to_owned()))
}

fn yaml(text: &str) -> anyhow::Result<Value> {
    Ok(serde_saphyr::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Arguments {
        match Arguments::parse(arguments.iter().map(|&argument| argument.to_owned())) {
            Ok(Request::Run(arguments)) => *arguments,
            Ok(Request::Print(text)) => panic!("{arguments:?}: {text}"),
            Err(error) => panic!("{arguments:?}: {error:#}"),
        }
    }

    #[test]
    fn names_are_expanded_and_remapped_as_in_ros() {
        // arguments, name, its full name
        let cases: [(&[&str], &str, &str); 9] = [
            (&[], "image", "/image"),
            (&[], "~/masks", "/ocelli/masks"),
            (&["--ros-args", "-r", "image:=/camera/image_raw"], "image", "/camera/image_raw"),
            (&["-r", "/image:=left/image"], "image", "/left/image"),
            (&["-r", "__ns:=/robot", "-r", "__node:=eyes"], "image", "/robot/image"),
            (&["-r", "__ns:=/robot/", "-r", "__node:=eyes"], "~/masks", "/robot/eyes/masks"),
            (&["-r", "__ns:=robot", "-r", "image:=camera/image"], "image", "/robot/camera/image"),
            (&["-r", "~/masks:=/masks"], "~/masks", "/masks"),
            (&["-r", "ocelli:detections:=found"], "detections", "/found"),
        ];
        let mut failures = Vec::new();
        for (arguments, name, expected) in cases {
            let found = parse(arguments).topic(name);
            if found != expected {
                failures.push(format!("{arguments:?}, {name}: expected {expected}, found {found}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn parameters_come_from_files_and_then_from_arguments() {
        let text = "/**:\n  ros__parameters:\n    track: false\n    confidence: 0.25\n\
                    other:\n  ros__parameters:\n    track: true\n\
                    /robot/eyes:\n  ros__parameters:\n    classes: [red apple, \"no\"]\n";
        let mut arguments = parse(&["-r", "__ns:=/robot", "-r", "__node:=eyes"]);
        arguments.parameters = arguments.parameters_in(text).expect("valid YAML");
        let expected =
            serde_json::json!({"track": false, "confidence": 0.25, "classes": ["red apple", "no"]});
        assert_eq!(serde_json::to_value(&arguments.parameters).expect("JSON"), expected);
        let given =
            parse(&["-p", "classes:=[person, dog]", "-p", "confidence:=0.5", "-p", "eyes:engine:=cuda:1"]);
        let expected =
            serde_json::json!({"classes": ["person", "dog"], "confidence": 0.5, "engine": "cuda:1"});
        assert_eq!(serde_json::to_value(&given.parameters).expect("JSON"), expected);
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for (arguments, part) in [
            (&["--classes"][..], "--classes"),
            (&["-r"], "expected a value"),
            (&["-r", "image"], "NAME:=VALUE"),
            (&["-p", "classes:=[person"], "classes"),
            (&["--params-file", "/none/x.yaml"], "/none/x.yaml"),
        ] {
            let found = Arguments::parse(arguments.iter().map(|&argument| argument.to_owned()));
            let error = found.err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
