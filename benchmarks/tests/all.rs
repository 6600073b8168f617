//! The benchmark program, run on small models.

mod bench_dart;
mod bench_precision;
mod gpu_script;
