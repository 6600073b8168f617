//! The stages of a detection, for programs that call them one by one: [`Stages`] holds all of them for one model, the others
//! are its parts.

pub use crate::detector::{
    Backbone, DecodeRequest, EmbeddedPrompts, ImageEncoder, ImageFeatures, ImagePreprocessor,
    ObjectSegmenter, PromptDecoder, ScreenCalibration, Screening, SearchStages, Stages, TextCacheFile,
    TextEmbedder, TiledSearch, Wanted,
};
pub use crate::timing::STAGE_TARGET;
