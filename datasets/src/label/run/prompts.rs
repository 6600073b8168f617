//! The prompts of each image, encoded: text prompts for all images, exemplars for the images that they belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ocelli::classes::{Class, ClassExemplar, ClassMap, ExemplarImage};
use ocelli::stages::{
    DecodeRequest, EmbeddedPrompts, ImageEncoder, ImageFeatures, PromptDecoder, TextEmbedder,
};
use ocelli::{Detection, Error, Prompt, Prompts, Result, StageTimes};

use crate::label::run::prefetch::Preparer;
use crate::label::{ImageFile, open_image};

/// Encodes the prompts of the current image and decodes with them.
#[derive(Clone, Default)]
pub(crate) struct LabelPrompts {
    map: ClassMap,
    /// The classes from this one on are looked for.
    first: usize,
    /// `true` if all images have the same prompts.
    is_uniform: bool,
    /// The class of each prompt of the image that was decoded last.
    pub classes: Vec<usize>,
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
        let mut prompts = Self { map: map.clone(), first, is_uniform, ..Self::default() };
        todo.iter().filter(|_| !is_uniform).try_for_each(|file| prompts.embed(text, &file.name))?;
        prompts.embed(text, "")?;
        let mut encoded = Vec::new();
        for (file, of_file) in prompts_by_file(map, first) {
            let of_file = Prompts::new(of_file.into_iter().map(|(_, prompt)| prompt))?;
            let mut features = ImageFeatures::default();
            preparer.encode(encoder, preparer.prepare_image(&open_image(file)?)?, &mut features)?;
            encoded.push((file, features, text.embed(&of_file)?));
        }
        if release {
            encoder.unload();
        }
        for (file, features, of_file) in encoded {
            let kept = decoder.keep_exemplars(&features, &of_file);
            prompts
                .from_files
                .push(kept.map_err(|e| Error::new(e.kind(), format!("{}: {e}", file.display())))?);
        }
        if release {
            decoder.unload();
        }
        prompts.add_exemplars_from_files();
        Ok(prompts)
    }

    /// Encodes the prompts of the image with this name.
    fn embed(&mut self, text: &mut TextEmbedder, name: &str) -> Result<()> {
        let (prompts, classes) = prompts_in(&self.map, self.first, name)?;
        self.classes = classes;
        self.embedded = prompts.map(|prompts| text.embed(&prompts)).transpose()?;
        self.add_exemplars_from_files();
        Ok(())
    }

    fn add_exemplars_from_files(&mut self) {
        for prompts in &self.from_files {
            match &mut self.embedded {
                Some(embedded) => embedded.extend(prompts),
                none => *none = Some(prompts.clone()),
            }
        }
    }

    /// Decodes an image with its prompts, with `masks` if the detector has them.
    pub fn decode(
        &mut self,
        text: &mut TextEmbedder,
        file: &ImageFile,
        features: &ImageFeatures,
        decoder: &mut PromptDecoder,
        masks: bool,
    ) -> Result<Vec<Detection>> {
        match self.of(text, file)? {
            Some(prompts) => {
                let request = DecodeRequest { masks, ..prompts.into() };
                decoder.decode(features, request, &mut StageTimes::default())
            }
            None => Ok(Vec::new()),
        }
    }

    /// The prompts of an image, which is the current one from now on; `None` if there is nothing to look for.
    pub fn of(&mut self, text: &mut TextEmbedder, file: &ImageFile) -> Result<Option<&EmbeddedPrompts>> {
        if !self.is_uniform {
            self.embed(text, &file.name)?;
        }
        Ok(self.embedded.as_ref())
    }
}

/// The prompts of the image with this name: every phrase of every class in order, with the exemplars in this image, and then
/// the classes that have no phrases but exemplars in this image; `None` if all classes have exemplars in files or in other images,
/// and no text prompts. The class of each prompt, followed by the classes of the prompts with exemplars in files.
fn prompts_in(map: &ClassMap, first: usize, name: &str) -> Result<(Option<Prompts>, Vec<usize>)> {
    let mut all: Vec<(usize, &Class)> = map.classes.iter().enumerate().skip(first).collect();
    all.sort_by_key(|(_, class)| class.phrases.is_empty());
    let (mut prompts, mut classes) = (Vec::new(), Vec::new());
    for (id, class) in all {
        let own = prompts_of(class, |exemplar| exemplar.is_in(name));
        classes.extend(own.iter().map(|_| id));
        prompts.extend(own);
    }
    classes.extend(prompts_by_file(map, first).values().flatten().map(|(id, _)| *id));
    let prompts = if prompts.is_empty() { None } else { Some(Prompts::new(prompts)?) };
    Ok((prompts, classes))
}

/// The prompts of a class with some of its exemplars: its phrases, or these exemplars alone.
fn prompts_of(class: &Class, is_wanted: impl Fn(&&ClassExemplar) -> bool) -> Vec<Prompt> {
    let exemplars: Vec<&ClassExemplar> = class.exemplars.iter().filter(is_wanted).collect();
    let mut prompts: Vec<Prompt> = class.phrases.iter().map(|phrase| Prompt::new(phrase.as_str())).collect();
    if prompts.is_empty() && !exemplars.is_empty() {
        prompts.push(Prompt::visual(class.name.as_str()));
    }
    let with_exemplars = |prompt: Prompt| {
        let prompt = prompt.with_label(class.name.as_str());
        exemplars.iter().fold(prompt, |prompt, exemplar| prompt.with_exemplar(exemplar.bbox, exemplar.wanted))
    };
    prompts.into_iter().map(with_exemplars).collect()
}

/// The classes and the prompts with exemplars in files, which apply to every image. Each file is encoded once, for all classes.
fn prompts_by_file(map: &ClassMap, first: usize) -> BTreeMap<&Path, Vec<(usize, Prompt)>> {
    let mut found: BTreeMap<&Path, Vec<(usize, Prompt)>> = BTreeMap::new();
    for (id, class) in map.classes.iter().enumerate().skip(first) {
        let files: BTreeSet<&Path> = class.exemplars.iter().filter_map(file_of).collect();
        for file in files {
            let prompts = prompts_of(class, |exemplar| file_of(exemplar) == Some(file));
            found.entry(file).or_default().extend(prompts.into_iter().map(|prompt| (id, prompt)));
        }
    }
    found
}

fn file_of(exemplar: &ClassExemplar) -> Option<&Path> {
    if let ExemplarImage::File(file) = &exemplar.image { Some(file) } else { None }
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
            let (prompts, classes) = prompts_in(&map, 0, name).expect("the prompts are valid");
            let prompts = prompts.map(|prompts| {
                prompts.iter().zip(&classes).map(|(p, class)| (*class, p.exemplars().len())).collect()
            });
            assert_eq!(prompts, Some(expected), "{name}");
        }
    }
}
