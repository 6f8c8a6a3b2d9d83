//! Units, text tables and SVG pictures for what GridMPI measures, and how commands print it.
//!
//! * [`units`]: rates, durations and sizes as people write them (`160 Mbit/s`, `10 ms`, `64 KiB`), both ways;
//! * [`table`]: aligned text tables for terminals and documents;
//! * [`svg`]: a small writer of SVG elements;
//! * [`plot`]: time series in stacked panels over one time axis;
//! * [`terminal`]: what commands print.
#![forbid(unsafe_code)]

pub mod plot;
pub mod svg;
pub mod table;
pub mod terminal;
pub mod units;
