//! The requirements of a model on its engine.

use ocelli_export::contract::{Manifest, Precision, Target};

use crate::model::ModelSource;

/// The format of a model that an engine has to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelFormat {
    /// The requested number format.
    pub(crate) requested: Precision,
    /// The number format and the operators of an exported folder; a checkpoint is exported for the engine.
    pub(crate) exported: Option<(Precision, Target)>,
    /// Set for the built-in model, which is small.
    pub(crate) is_builtin: bool,
}

impl ModelFormat {
    /// Any model: the operators that the fewest engines have.
    pub(super) const ANY: Self = Self {
        requested: Precision::Fp32,
        exported: Some((Precision::Fp32, Target::OnnxRuntime)),
        is_builtin: false,
    };

    /// `true` for a checkpoint that is to be exported in 8 bits.
    pub(super) fn is_to_be_int8(self) -> bool {
        self.exported.is_none() && self.requested == Precision::Int8
    }

    /// The format of a model that is not open yet.
    pub(crate) fn of(source: &ModelSource, requested: Precision) -> Self {
        let manifest = match source {
            // A folder that cannot be read is an error when the model is opened.
            ModelSource::Folder(folder) => Manifest::read(folder).ok(),
            ModelSource::Builtin | ModelSource::Hub(_) => None,
        };
        Self {
            requested,
            exported: manifest.map(|manifest| (manifest.precision, manifest.target)),
            is_builtin: *source == ModelSource::Builtin,
        }
    }
}
