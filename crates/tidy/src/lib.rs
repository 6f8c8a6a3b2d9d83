//! Holds the shape of the project; all of it is in `tests/`.
#![forbid(unsafe_code)]
