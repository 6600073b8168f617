//! From what the detector says of phrases to the things of classes.

use std::path::PathBuf;

use ocelli_tracking::BoundingBox;

use super::class_map::{ClassExemplar, ClassMap, ExamplePicture};
use super::record::Thing;
use super::settings::LabelSettings;
use ocelli::Detection;
use ocelli::{Prompt, Prompts};

/// The rules of a class.
#[derive(Clone, Copy, Debug)]
struct Rule {
    threshold: f32,
    nms: f32,
    min_area: f64,
}

/// What is looked for in one picture.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// None where there are only examples in files, which are encoded once for all pictures, or in other pictures.
    pub prompts: Option<Prompts>,
    /// The class of each prompt, and behind them of each that has examples in files.
    classes: Vec<usize>,
}

/// Turns detections into things: phrases into classes, suppression within a class and within groups, least areas.
#[derive(Clone, Debug)]
pub(super) struct Refiner {
    map: ClassMap,
    rules: Vec<Rule>,
}

impl Refiner {
    pub fn new(settings: &LabelSettings) -> Self {
        let rules = settings.classes.classes.iter().map(|class| Rule {
            threshold: class.threshold.unwrap_or(settings.confidence),
            nms: class.nms.unwrap_or(settings.nms),
            min_area: class.min_area.unwrap_or(settings.min_area),
        });
        Self { rules: rules.collect(), map: settings.classes.clone() }
    }

    /// What is looked for in the picture of this name: every phrase of every class, in order, with the examples that
    /// are in this picture, and behind them the classes that have examples in it and no phrases.
    pub fn search(&self, name: &str) -> ocelli::Result<Search> {
        let (mut prompts, mut classes) = (Vec::new(), Vec::new());
        let by_phrase = self.map.classes.iter().enumerate().flat_map(|(id, class)| {
            let prompt = |phrase: &String| Prompt::new(phrase).with_label(class.name.as_str());
            class.phrases.iter().map(move |phrase| (id, prompt(phrase)))
        });
        let by_example = self.map.classes.iter().enumerate().filter_map(|(id, class)| {
            let here = class.exemplars.iter().any(|exemplar| exemplar.is_in(name));
            (class.phrases.is_empty() && here).then(|| (id, Prompt::visual(class.name.as_str())))
        });
        for (id, mut prompt) in by_phrase.chain(by_example) {
            for exemplar in self.map.classes[id].exemplars.iter().filter(|exemplar| exemplar.is_in(name)) {
                prompt = prompt.with_exemplar(exemplar.bbox, exemplar.wanted);
            }
            prompts.push(prompt);
            classes.push(id);
        }
        classes.extend(self.kept().into_iter().map(|(_, class, _)| class));
        let prompts = if prompts.is_empty() { None } else { Some(Prompts::new(prompts)?) };
        Ok(Search { prompts, classes })
    }

    /// Examples in files, which are for every picture: the prompts that have them, by file, with their classes.
    fn kept(&self) -> Vec<(PathBuf, usize, Prompt)> {
        let mut kept: Vec<(PathBuf, usize, Prompt)> = Vec::new();
        for (id, class) in self.map.classes.iter().enumerate() {
            let words: Vec<Prompt> = match class.phrases.is_empty() {
                true => vec![Prompt::visual(class.name.as_str())],
                false => class.phrases.iter().map(Prompt::new).collect(),
            };
            let mut files: Vec<&PathBuf> = Vec::new();
            for exemplar in &class.exemplars {
                if let ExamplePicture::File(file) = &exemplar.picture
                    && !files.contains(&file)
                {
                    files.push(file);
                }
            }
            for file in files {
                let boxes = class.exemplars.iter();
                let boxes = boxes.filter(|e| e.picture == ExamplePicture::File(file.clone()));
                kept.extend(words.iter().map(|words| {
                    let prompt = words.clone().with_label(class.name.as_str());
                    let add = |prompt: Prompt, e: &ClassExemplar| prompt.with_exemplar(e.bbox, e.wanted);
                    (file.clone(), id, boxes.clone().fold(prompt, add))
                }));
            }
        }
        // One image is encoded once for all classes.
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        kept
    }

    /// The files with examples, and the prompts that have them, in the order in which [`Search`] has their classes.
    pub fn example_files(&self) -> ocelli::Result<Vec<(PathBuf, Prompts)>> {
        let kept = self.kept();
        let files = kept.chunk_by(|a, b| a.0 == b.0);
        files
            .map(|of_file| {
                let prompts = of_file.iter().map(|(_, _, prompt)| prompt.clone());
                Ok((of_file[0].0.clone(), Prompts::new(prompts)?))
            })
            .collect()
    }

    /// Whether every picture is searched for the same.
    pub fn is_uniform(&self) -> bool {
        let mut exemplars = self.map.classes.iter().flat_map(|class| &class.exemplars);
        exemplars.all(|exemplar| matches!(exemplar.picture, ExamplePicture::File(_)))
    }

    /// The things of a picture, the surest first. `detections` come as the detector has them, the surest first.
    pub fn things(&self, search: &Search, detections: Vec<Detection>) -> Vec<Thing> {
        let mut kept: Vec<(Thing, BoundingBox)> = Vec::with_capacity(detections.len());
        for detection in detections {
            let class = search.classes[detection.class_id];
            let rule = &self.rules[class];
            let bbox = detection.bbox;
            let is_double = |(better, box_of_better): &(Thing, BoundingBox)| {
                let limit = match better.class == class {
                    true => Some(rule.nms),
                    false => self.group_iou(better.class, class),
                };
                limit.is_some_and(|limit| box_of_better.iou(&bbox) > limit)
            };
            if detection.score <= rule.threshold || kept.iter().any(is_double) {
                continue;
            }
            let area = detection.mask.as_ref().map_or(f64::from(bbox.area()), |mask| mask.area() as f64);
            if area < rule.min_area {
                continue;
            }
            let mask = detection.mask.map(|mask| mask.counts().to_owned());
            kept.push((Thing { class, score: detection.score, bbox: bbox.to_xyxy(), mask }, bbox));
        }
        kept.into_iter().map(|(thing, _)| thing).collect()
    }

    /// The least IoU of the groups that two classes share.
    fn group_iou(&self, a: usize, b: usize) -> Option<f32> {
        let shared =
            self.map.merge.iter().filter(|group| group.classes.contains(&a) && group.classes.contains(&b));
        shared.map(|group| group.iou).min_by(f32::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Class, MergeGroup};

    #[test]
    fn phrases_become_classes_and_doubles_go() {
        let mut map = ClassMap::from_names(["car", "truck", "tree"]);
        map.classes[0].phrases.push("automobile".into());
        map.classes[2] = Class { threshold: Some(0.6), min_area: Some(300.0), ..map.classes[2].clone() };
        map.merge.push(MergeGroup { classes: vec![0, 1], iou: 0.5 });
        let refiner = Refiner::new(&LabelSettings { nms: 0.8, ..LabelSettings::new(map) });
        let search = refiner.search("a.png").expect("there are phrases");
        let detection = |class_id: usize, score: f32, left: f32| Detection {
            class_id,
            label: "".into(),
            score,
            bbox: BoundingBox::from_ltwh([left, 0.0, 20.0, 10.0]),
            mask: None,
        };
        // Prompts: 0 car, 1 automobile, 2 truck, 3 tree.
        let cases: [(&str, &[(usize, f32, f32)], &[(usize, f32)]); 7] = [
            ("two phrases of one class", &[(0, 0.9, 0.0), (1, 0.8, 0.0)], &[(0, 0.9)]),
            ("the surer phrase wins", &[(1, 0.9, 0.0), (0, 0.8, 1.0)], &[(0, 0.9)]),
            ("apart", &[(0, 0.9, 0.0), (1, 0.8, 5.0)], &[(0, 0.9), (0, 0.8)]),
            ("a group", &[(2, 0.9, 0.0), (0, 0.8, 5.0)], &[(1, 0.9)]),
            ("no group", &[(2, 0.9, 0.0), (3, 0.8, 0.0)], &[(1, 0.9)]),
            ("threshold of a class", &[(3, 0.65, 0.0), (3, 0.55, 90.0)], &[]),
            (
                "what went takes nothing with it",
                &[(0, 0.9, 0.0), (2, 0.8, 5.0), (2, 0.7, 11.0)],
                &[(0, 0.9), (1, 0.7)],
            ),
        ];
        let mut failures = Vec::new();
        for (name, detections, expected) in cases {
            let detections = detections.iter().map(|&(class, score, left)| detection(class, score, left));
            let found = refiner.things(&search, detections.collect());
            let found: Vec<_> = found.iter().map(|thing| (thing.class, thing.score)).collect();
            if found != expected {
                failures.push(format!("{name}: {found:?}, expected {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn examples_are_for_their_picture() {
        let text = "x1";
        let mut map = ClassMap::from_names(["cup", text]);
        let exemplar = |image: &str| ClassExemplar {
            picture: ExamplePicture::Image(image.into()),
            bbox: BoundingBox::new(1.0, 2.0, 3.0, 4.0),
            wanted: true,
        };
        map.classes[0].exemplars = vec![exemplar("a.png"), exemplar("b.png")];
        map.classes[0].phrases.clear();
        map.classes[1].exemplars = vec![exemplar("b.png")];
        let refiner = Refiner::new(&LabelSettings::new(map));
        for (name, expected) in
            [("a.png", vec![(1, 0), (0, 1)]), ("b.png", vec![(1, 1), (0, 1)]), ("c.png", vec![(1, 0)])]
        {
            let search = refiner.search(name).expect("it can be searched");
            let prompts = search.prompts.as_ref().map(|prompts| {
                prompts.iter().zip(&search.classes).map(|(p, class)| (*class, p.exemplars().len())).collect()
            });
            assert_eq!(prompts, Some(expected), "{name}");
        }
    }
}
