//! The benchmark program, run on small models.

mod bench_precision;
mod gpu_script;
