//! The program's commands.

pub mod build_engine;
pub mod doctor;
pub mod embed;
pub mod eval;
pub mod export;
pub mod label;
pub mod track;
pub mod verify;
