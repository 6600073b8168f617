//! The prompts of each image, encoded: text prompts for all images, exemplars for the images that they belong to.

use std::path::PathBuf;

use ocelli::{
    Detection, Error, Prompt, Prompts, Result, StageTimes,
    stages::{EmbeddedPrompts, ImageEncoder, ImageFeatures, PromptDecoder, TextEmbedder},
};

use crate::label::images::ImageFile;
use crate::label::run::prefetch::Preparer;
use ocelli::classes::{ClassExemplar, ClassMap, ExemplarImage};

/// Prompts, not encoded yet.
#[derive(Clone, Debug)]
pub(crate) struct ImagePrompts {
    /// `None` if all classes have exemplars in files or in other images, and no text prompts.
    prompts: Option<Prompts>,
    /// The class of each prompt, followed by the classes of the prompts with exemplars in files.
    pub classes: Vec<usize>,
}

/// Encodes the prompts of the current image and decodes with them.
#[derive(Clone)]
pub(crate) struct LabelPrompts {
    map: ClassMap,
    /// The classes from this one on are looked for.
    first: usize,
    /// Whether all images have the same prompts.
    is_uniform: bool,
    /// Those of the image that was decoded last.
    pub current: ImagePrompts,
    /// The text prompts, and the exemplars in the image itself.
    embedded: Option<EmbeddedPrompts>,
    /// Exemplars in files, which apply to every image.
    from_files: Vec<EmbeddedPrompts>,
}

impl LabelPrompts {
    /// Encodes the text prompts of the classes from `first` on, of all images, and the exemplars in files. With `release`, backbone and decoder are not in
    /// memory together, and neither is in memory afterwards.
    pub fn new(
        map: &ClassMap,
        first: usize,
        todo: &[ImageFile],
        preparer: &Preparer,
        (text, encoder, decoder): (&mut TextEmbedder, &mut ImageEncoder, &mut PromptDecoder),
        release: bool,
    ) -> Result<Self> {
        let mut exemplars = map.classes.iter().skip(first).flat_map(|class| &class.exemplars);
        let is_uniform = exemplars.all(|exemplar| matches!(exemplar.image, ExemplarImage::File(_)));
        if !is_uniform {
            for file in todo {
                embed(text, &ImagePrompts::of(map, first, &file.name)?)?;
            }
        }
        let current = ImagePrompts::of(map, first, "")?;
        let embedded = embed(text, &current)?;
        let mut encoded = Vec::new();
        for (file, prompts) in exemplar_files(map, first)? {
            let mut features = ImageFeatures::default();
            preparer.encode(encoder, preparer.prepare(&file)?, &mut features)?;
            encoded.push((file, features, text.embed(&prompts)?));
        }
        if release {
            encoder.unload();
        }
        let mut from_files = Vec::new();
        for (file, features, prompts) in encoded {
            let kept = decoder.keep_exemplars(&features, &prompts);
            from_files.push(kept.map_err(|e| Error::new(e.kind(), format!("{}: {e}", file.display())))?);
        }
        if release {
            decoder.unload();
        }
        let mut prompts = Self { map: map.clone(), first, is_uniform, current, embedded, from_files };
        prompts.add_exemplars_from_files();
        Ok(prompts)
    }

    fn add_exemplars_from_files(&mut self) {
        for prompts in &self.from_files {
            match &mut self.embedded {
                Some(embedded) => embedded.extend(prompts),
                none => *none = Some(prompts.clone()),
            }
        }
    }

    /// Decodes an image with its prompts.
    pub fn decode(
        &mut self,
        text: &mut TextEmbedder,
        file: &ImageFile,
        features: &ImageFeatures,
        decoder: &mut PromptDecoder,
    ) -> Result<Vec<Detection>> {
        match self.of(text, file)? {
            Some(prompts) => decoder.decode(features, prompts, &mut StageTimes::default()),
            None => Ok(Vec::new()),
        }
    }

    /// The prompts of an image, which is the current one from now on; `None` if there is nothing to look for.
    pub fn of(&mut self, text: &mut TextEmbedder, file: &ImageFile) -> Result<Option<&EmbeddedPrompts>> {
        if !self.is_uniform {
            self.current = ImagePrompts::of(&self.map, self.first, &file.name)?;
            self.embedded = embed(text, &self.current)?;
            self.add_exemplars_from_files();
        }
        Ok(self.embedded.as_ref())
    }
}

fn embed(text: &mut TextEmbedder, image: &ImagePrompts) -> Result<Option<EmbeddedPrompts>> {
    image.prompts.as_ref().map(|prompts| text.embed(prompts)).transpose()
}

impl ImagePrompts {
    /// The prompts of the image with this name: every phrase of every class in order, with the exemplars in this image, and
    /// then the classes that have no phrases but exemplars in this image.
    fn of(map: &ClassMap, first: usize, name: &str) -> Result<Self> {
        let (mut prompts, mut classes) = (Vec::new(), Vec::new());
        let by_phrase = map.classes.iter().enumerate().skip(first).flat_map(|(id, class)| {
            let prompt = |phrase: &String| Prompt::new(phrase.as_str()).with_label(class.name.as_str());
            class.phrases.iter().map(move |phrase| (id, prompt(phrase)))
        });
        let by_exemplar = map.classes.iter().enumerate().skip(first).filter_map(|(id, class)| {
            let is_here = class.exemplars.iter().any(|exemplar| exemplar.is_in(name));
            (class.phrases.is_empty() && is_here).then(|| (id, Prompt::visual(class.name.as_str())))
        });
        for (id, prompt) in by_phrase.chain(by_exemplar) {
            let exemplars = map.classes[id].exemplars.iter().filter(|exemplar| exemplar.is_in(name));
            prompts.push(exemplars.fold(prompt, with_exemplar));
            classes.push(id);
        }
        classes.extend(prompts_with_files(map, first).into_iter().map(|(_, class, _)| class));
        let prompts = if prompts.is_empty() { None } else { Some(Prompts::new(prompts)?) };
        Ok(Self { prompts, classes })
    }
}

fn with_exemplar(prompt: Prompt, exemplar: &ClassExemplar) -> Prompt {
    prompt.with_exemplar(exemplar.bbox, exemplar.wanted)
}

/// The prompts with exemplars in files, which apply to every image, with the file and the class; ordered by file.
fn prompts_with_files(map: &ClassMap, first: usize) -> Vec<(PathBuf, usize, Prompt)> {
    let mut found: Vec<(PathBuf, usize, Prompt)> = Vec::new();
    for (id, class) in map.classes.iter().enumerate().skip(first) {
        let prompts: Vec<Prompt> = if class.phrases.is_empty() {
            vec![Prompt::visual(class.name.as_str())]
        } else {
            class.phrases.iter().map(|phrase| Prompt::new(phrase.as_str())).collect()
        };
        let mut files: Vec<&PathBuf> = Vec::new();
        for exemplar in &class.exemplars {
            if let ExemplarImage::File(file) = &exemplar.image
                && !files.contains(&file)
            {
                files.push(file);
            }
        }
        for file in files {
            let exemplars = class.exemplars.iter();
            let exemplars = exemplars.filter(|e| e.image == ExemplarImage::File(file.clone()));
            found.extend(prompts.iter().map(|prompt| {
                let prompt = prompt.clone().with_label(class.name.as_str());
                (file.clone(), id, exemplars.clone().fold(prompt, with_exemplar))
            }));
        }
    }
    // Each file is encoded once, for all classes.
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The files with exemplars, and the prompts that have them, in the order of [`ImagePrompts::classes`].
fn exemplar_files(map: &ClassMap, first: usize) -> Result<Vec<(PathBuf, Prompts)>> {
    let found = prompts_with_files(map, first);
    let files = found.chunk_by(|a, b| a.0 == b.0);
    files
        .map(|of_file| {
            let prompts = of_file.iter().map(|(_, _, prompt)| prompt.clone());
            Ok((of_file[0].0.clone(), Prompts::new(prompts)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ocelli::BoundingBox;

    use super::*;

    #[test]
    fn exemplars_apply_to_their_image() {
        let mut map = ClassMap::from_names(["cup", "x1"]);
        let exemplar = |image: &str| ClassExemplar {
            image: ExemplarImage::Image(image.into()),
            bbox: BoundingBox::new(1.0, 2.0, 3.0, 4.0),
            wanted: true,
        };
        map.classes[0].exemplars = vec![exemplar("a.png"), exemplar("b.png")];
        map.classes[0].phrases.clear();
        map.classes[1].exemplars = vec![exemplar("b.png")];
        for (name, expected) in
            [("a.png", vec![(1, 0), (0, 1)]), ("b.png", vec![(1, 1), (0, 1)]), ("c.png", vec![(1, 0)])]
        {
            let image = ImagePrompts::of(&map, 0, name).expect("the prompts are valid");
            let prompts = image.prompts.as_ref().map(|prompts| {
                prompts.iter().zip(&image.classes).map(|(p, class)| (*class, p.exemplars().len())).collect()
            });
            assert_eq!(prompts, Some(expected), "{name}");
        }
    }
}
