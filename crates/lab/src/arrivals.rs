//! The record of single frames, if the lab file asks for it: when each came to a link's bottleneck, as CSV, written and read.

use crate::error::{Doing as _, LabError};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::Path;

/// Name of the record in a lab's directory and where results are saved.
pub const FILE: &str = "arrivals.csv";

/// The columns.
pub const HEADER: &str = "ns,from,to,bytes,packets";

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The kernel's time stamp, ns since 1970: no clock of the emulator's comes in.
    pub stamp: u64,
    /// Bytes of all its packets, with Ethernet's headers.
    pub bytes: u64,
    /// Packets that it stands for: 1, or those of a super-packet.
    pub packets: u64,
}

/// One row: a frame and the clusters that it came from and went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it came from.
    pub from: String,
    /// Where it went.
    pub to: String,
    /// The frame.
    pub arrival: Arrival,
}

/// Writes one row.
///
/// # Errors
/// When the file cannot be written.
pub fn write_row(
    out: &mut impl Write,
    from: &str,
    to: &str,
    arrival: &Arrival,
) -> std::io::Result<()> {
    let Arrival { stamp, bytes, packets } = arrival;
    writeln!(out, "{stamp},{from},{to},{bytes},{packets}")
}

/// Reads a record. Rows of one direction are in order of time.
///
/// # Errors
/// When the file cannot be read or is not such a record.
pub fn read(path: &Path) -> Result<Vec<Row>, LabError> {
    let what = || format!("cannot read the record of frames {}", path.display());
    let file = File::open(path).doing(what())?;
    let mut rows = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.doing(what())?;
        let wrong = |message: &str| LabError::Recording {
            file: path.to_owned(),
            line: index + 1,
            message: message.to_owned(),
        };
        match index {
            0 if line == HEADER => {}
            0 => return Err(wrong("this is not the header of a lab's record of frames")),
            _ => rows.push(parse_row(&line).ok_or_else(|| wrong("this is not a row of it"))?),
        }
    }
    Ok(rows)
}

fn parse_row(line: &str) -> Option<Row> {
    let mut fields = line.split(',');
    let stamp = fields.next()?.parse().ok()?;
    let (from, to) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let mut number = || fields.next()?.parse::<u64>().ok();
    let arrival = Arrival { stamp, bytes: number()?, packets: number()? };
    fields.next().is_none().then_some(Row { from, to, arrival })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive() {
        let arrival = Arrival { stamp: 1_795_315_000_123_456_789, bytes: 1514, packets: 1 };
        let mut text = Vec::new();
        write_row(&mut text, "a", "b", &arrival).unwrap();
        let row = Row { from: "a".into(), to: "b".into(), arrival };
        assert_eq!(parse_row(String::from_utf8(text).unwrap().trim_end()), Some(row));
        for wrong in ["", "1,a,b,2", "1,a,b,2,3,4", "x,a,b,2,3"] {
            assert_eq!(parse_row(wrong), None, "{wrong}");
        }
    }
}
