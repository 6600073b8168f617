//! All routes stand on the same ground: connections, the guard of every request, its body, its place among others, and its
//! refusal.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod limits;
pub(crate) mod places;
pub(crate) mod problem;
