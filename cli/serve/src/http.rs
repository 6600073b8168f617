//! All routes stand on the same ground: connections, the body of a request, its place among others, its limits, and its refusal.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod limits;
pub(crate) mod places;
pub(crate) mod problem;
