//! The benchmark programs, run on small models.

mod bench_precision;
mod bench_preprocess;
mod gpu_script;
