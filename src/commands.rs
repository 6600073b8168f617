//! The program's commands.

pub mod doctor;
pub mod embed;
pub mod export;
pub mod track;
