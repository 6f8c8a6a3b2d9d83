//! The recording of a lab: one row for each direction and millisecond in which something
//! passed, as CSV, written and read.

use crate::error::{Doing as _, LabError};
use crate::flow::{Sample, Traffic, Volume};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::Path;

/// Name of the recording in a lab's directory and where results are saved.
pub const FILE: &str = "traffic.csv";

/// The columns. Bytes are of frames, with the Ethernet header, without preamble, checksum and
/// gap. `in = out + drop + change of the queue`; `lost` (at random) is a part of `out`.
pub const HEADER: &str = "ms,from,to,in_bytes,in_packets,out_bytes,out_packets,\
                          drop_bytes,drop_packets,lost_bytes,lost_packets,queue_peak_bytes";

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The cluster that the frames came from.
    pub from: String,
    /// The cluster that they went to.
    pub to: String,
    /// What passed, and when.
    pub sample: Sample,
}

/// Writes one row.
///
/// # Errors
/// When the file cannot be written.
pub fn write_row(
    out: &mut impl Write,
    from: &str,
    to: &str,
    sample: &Sample,
) -> std::io::Result<()> {
    let Traffic { arrived, left, dropped, lost, queue_peak } = &sample.traffic;
    write!(out, "{},{from},{to}", sample.millisecond)?;
    for volume in [arrived, left, dropped, lost] {
        write!(out, ",{},{}", volume.bytes, volume.packets)?;
    }
    writeln!(out, ",{queue_peak}")
}

/// Reads a recording.
///
/// # Errors
/// When the file cannot be read or is not a recording.
pub fn read(path: &Path) -> Result<Vec<Row>, LabError> {
    let what = || format!("cannot read the recording {}", path.display());
    let file = File::open(path).doing(what())?;
    let mut rows = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.doing(what())?;
        let wrong = |message: &str| LabError::Recording {
            file: path.to_owned(),
            line: index + 1,
            message: message.to_owned(),
        };
        if index == 0 {
            if line != HEADER {
                return Err(wrong("this is not the header of a lab's recording"));
            }
        } else {
            rows.push(parse_row(&line).ok_or_else(|| wrong("this is not a row of a recording"))?);
        }
    }
    Ok(rows)
}

fn parse_row(line: &str) -> Option<Row> {
    let mut fields = line.split(',');
    let millisecond = fields.next()?.parse().ok()?;
    let (from, to) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let mut number = || fields.next()?.parse::<u64>().ok();
    let mut volume = || Some(Volume { bytes: number()?, packets: number()? });
    let (arrived, left, dropped, lost) = (volume()?, volume()?, volume()?, volume()?);
    let queue_peak = number()?;
    if fields.next().is_some() {
        return None;
    }
    let traffic = Traffic { arrived, left, dropped, lost, queue_peak };
    Some(Row { from, to, sample: Sample { millisecond, traffic } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn volume() -> impl Strategy<Value = Volume> {
        (any::<u64>(), any::<u64>()).prop_map(|(bytes, packets)| Volume { bytes, packets })
    }

    proptest! {
        #[test]
        fn rows_survive(
            millisecond: u64, arrived in volume(), left in volume(), dropped in volume(),
            lost in volume(), queue_peak: u64
        ) {
            let traffic = Traffic { arrived, left, dropped, lost, queue_peak };
            let sample = Sample { millisecond, traffic };
            let mut text = Vec::new();
            write_row(&mut text, "a", "b", &sample).unwrap();
            let line = String::from_utf8(text).unwrap();
            prop_assert_eq!(line.trim_end().split(',').count(), HEADER.split(',').count());
            let row = Row { from: "a".into(), to: "b".into(), sample };
            prop_assert_eq!(parse_row(line.trim_end()), Some(row));
        }

        #[test]
        fn reading_is_total(line in "[0-9a-z,.-]{0,60}") {
            let _ = parse_row(&line);
        }
    }
}
