//! What is looked for in each picture, with words and examples encoded.

use super::pictures::PictureFile;
use super::prepare::Preparer;
use super::refine::{Refiner, Search};
use ocelli::Detection;
use ocelli::Prompts;
use ocelli::{Backbone, EmbeddedPrompts, ImageFeatures, PromptDecoder, StageTimes, TextEmbedder};
use ocelli::{Error, Result};

/// What is looked for in the picture at hand.
pub(super) struct Searches {
    is_uniform: bool,
    current: Search,
    /// Phrases, and examples in the picture itself.
    embedded: Option<EmbeddedPrompts>,
    /// Examples from other files, which are looked for in every picture.
    kept: Vec<EmbeddedPrompts>,
}

impl Searches {
    /// Encodes every phrase that any of the pictures needs, and the examples in files. With `release`, backbone and
    /// decoder are not in memory together, and neither is afterwards.
    pub fn new(
        refiner: &Refiner,
        todo: &[PictureFile],
        preparer: &Preparer,
        (text, backbone, decoder): (&mut TextEmbedder, &mut Backbone, &mut PromptDecoder),
        release: bool,
    ) -> Result<Self> {
        let is_uniform = refiner.is_uniform();
        if !is_uniform {
            for file in todo {
                embed(text, refiner.search(&file.name)?.prompts.as_ref())?;
            }
        }
        let current = refiner.search("")?;
        let embedded = embed(text, current.prompts.as_ref())?;
        let mut examples = Vec::new();
        for (file, prompts) in refiner.example_files()? {
            let mut features = ImageFeatures::default();
            let prepared = preparer.prepare(&file)?;
            backbone.run_into(&prepared.pixels, prepared.size, &mut features, &mut StageTimes::default())?;
            preparer.recycle(prepared);
            examples.push((file, features, text.embed(&prompts)?));
        }
        if release {
            backbone.unload();
        }
        let mut kept = Vec::new();
        for (file, features, prompts) in examples {
            let encoded = decoder.keep_exemplars(&features, &prompts);
            kept.push(encoded.map_err(|e| Error::new(e.kind(), format!("{}: {e}", file.display())))?);
        }
        if release {
            decoder.unload();
        }
        let mut searches = Self { is_uniform, current, embedded, kept };
        searches.join_kept();
        Ok(searches)
    }

    fn join_kept(&mut self) {
        for kept in &self.kept {
            match &mut self.embedded {
                Some(embedded) => embedded.extend(kept),
                none => *none = Some(kept.clone()),
            }
        }
    }

    /// What was looked for in the picture at hand.
    pub fn current(&self) -> &Search {
        &self.current
    }

    /// Looks for what this picture is searched for.
    pub fn decode(
        &mut self,
        refiner: &Refiner,
        text: &mut TextEmbedder,
        file: &PictureFile,
        features: &ImageFeatures,
        decoder: &mut PromptDecoder,
    ) -> Result<Vec<Detection>> {
        if !self.is_uniform {
            self.current = refiner.search(&file.name)?;
            self.embedded = embed(text, self.current.prompts.as_ref())?;
            self.join_kept();
        }
        match &self.embedded {
            Some(prompts) => decoder.decode(features, prompts, &mut StageTimes::default()),
            None => Ok(Vec::new()),
        }
    }
}

fn embed(text: &mut TextEmbedder, prompts: Option<&Prompts>) -> Result<Option<EmbeddedPrompts>> {
    prompts.map(|prompts| text.embed(prompts)).transpose()
}
