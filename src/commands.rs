//! The program's commands.

pub mod doctor;
pub mod embed;
pub mod eval;
pub mod export;
pub mod label;
pub mod track;
