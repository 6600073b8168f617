//! What crosses crates: parity with the reference, from an image to detections, the pipeline.

mod end_to_end;
mod exemplars;
mod half_precision;
mod masks;
mod model_json;
mod operators;
mod parity;
mod pipeline;
mod precision;
mod preprocess_golden;
mod scenes;
mod tokenizer_golden;
mod verify;
