//! Reads TOML files key by key, so that every complaint names the line, and a key that nobody asked for is a complaint with
//! the nearest known key.
#![forbid(unsafe_code)]

mod suggest;
mod table;

pub use suggest::nearest;
pub use table::{At, FileError, LONGEST, Source, Table};
