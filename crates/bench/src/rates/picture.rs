//! Pictures of bursts and of programs' runs, millisecond by millisecond, as the papers on pacing have them.

use super::mode::Mode;
use crate::error::BenchError;
use crate::place::Site;
use crate::samples::median;
use crate::watched::Recording;
use gridmpi_lab::save;
use gridmpi_lab::spec::Spec;
use gridmpi_lab::traffic::Row;
use std::fs;
use std::path::Path;

/// What a picture shows before its burst and behind it, seconds.
const MARGIN: f64 = 0.01;
/// Of a run so much is drawn millisecond by millisecond, ms.
const DETAIL_MS: u64 = 1000;

/// What is drawn: which burst or program, where and how.
pub(super) struct Scene<'a> {
    pub(super) name: &'a str,
    pub(super) site: &'a Site,
    pub(super) mode: Mode,
}

impl Scene<'_> {
    /// The picture's file; `part` tells those of one run apart.
    fn file(&self, part: &str) -> String {
        let Site { delay_ms, link_mbit, buffer_kib, .. } = self.site;
        // Bursts of one pattern differ in size and place.
        let (name, mode) = (slug(self.name), slug(self.mode.name()));
        format!("{name}-{link_mbit}mbit-{buffer_kib}kib-{delay_ms}ms-{mode}{part}.svg")
    }

    fn title(&self, what: &str) -> String {
        let Site { delay_ms, link_mbit, buffer_kib, .. } = self.site;
        format!(
            "{}, {}: {what} at {delay_ms} ms, {link_mbit} Mbit/s, buffer {buffer_kib} KiB",
            self.name,
            self.mode.name(),
        )
    }

    /// Draws the burst of these that took as long as most.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub(super) fn draw(
        &self,
        directory: &Path,
        spec: &Spec,
        recording: &Recording,
        spans: &[(f64, f64)],
    ) -> Result<(), BenchError> {
        let Some((begin, end)) = typical(spans) else { return Ok(()) };
        let rows = recording.between(begin - MARGIN, end + MARGIN);
        let title = self.title(&format!("{:.0} ms", 1e3 * (end - begin)));
        write(&directory.join(self.file("")), spec, &rows, title)
    }

    /// Draws a run of a program, of whose job these are all rows: the second in which most crossed, and if there is more the whole, of
    /// which a picture has a thousand columns at most.
    ///
    /// # Errors
    /// A picture cannot be written.
    pub(super) fn draw_run(
        &self,
        directory: &Path,
        spec: &Spec,
        rows: &[Row],
    ) -> Result<(), BenchError> {
        let Some((first, last)) = span(rows) else { return Ok(()) };
        let (whole_ms, file) = (last - first + 1, directory.join(self.file("")));
        if whole_ms <= DETAIL_MS {
            let title = self.title(&format!("a whole run, {whole_ms} ms"));
            return write(&file, spec, rows, title);
        }
        let begin = busiest(rows).unwrap_or(first);
        let seconds = |ms: u64| ms as f64 / 1e3;
        let (from, whole) = (seconds(begin - first), seconds(whole_ms));
        let title = self.title(&format!("{DETAIL_MS} ms from {from:.3} s of {whole:.3} s on"));
        let is_within = |row: &&Row| (begin..begin + DETAIL_MS).contains(&row.sample.millisecond);
        let busy: Vec<Row> = rows.iter().filter(is_within).cloned().collect();
        write(&file, spec, &busy, title)?;
        let what = format!("a whole run, {whole:.3} s, the highest ms of each column,");
        write(&directory.join(self.file("-whole")), spec, rows, self.title(&what))
    }
}

fn write(file: &Path, spec: &Spec, rows: &[Row], title: String) -> Result<(), BenchError> {
    fs::write(file, save::titled_picture(spec, rows, title)).map_err(|error| {
        let what = format!("cannot write the picture {}", file.display());
        BenchError::File { what, error }
    })
}

/// The first millisecond and the last.
fn span(rows: &[Row]) -> Option<(u64, u64)> {
    let all = || rows.iter().map(|row| row.sample.millisecond);
    Some((all().min()?, all().max()?))
}

/// Where the [`DETAIL_MS`] begin in which most bytes left the bottlenecks.
fn busiest(rows: &[Row]) -> Option<u64> {
    let of = |row: &Row| (row.sample.millisecond, row.sample.traffic.left.bytes);
    let mut left: Vec<(u64, u64)> = rows.iter().map(of).collect();
    left.sort_unstable();
    let (mut first, mut sum, mut best) = (0, 0, None);
    for &(at, bytes) in &left {
        sum += bytes;
        while left[first].0 + DETAIL_MS <= at {
            sum -= left[first].1;
            first += 1;
        }
        if best.is_none_or(|(most, _)| sum > most) {
            best = Some((sum, left[first].0));
        }
    }
    best.map(|(_, begin)| begin)
}

/// A name that is part of a file's: `static, B/8N` has a slash.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let words = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
    words.collect::<Vec<_>>().join("-")
}

/// The one whose length is nearest to the median.
fn typical(spans: &[(f64, f64)]) -> Option<(f64, f64)> {
    let lengths: Vec<f64> = spans.iter().map(|span| span.1 - span.0).collect();
    nearest_to_median(&lengths).map(|place| spans[place])
}

/// Which of these is nearest to their median.
pub(super) fn nearest_to_median(values: &[f64]) -> Option<usize> {
    let middle = median(values);
    let off = |place: &usize| (values[*place] - middle).abs();
    (0..values.len()).min_by(|a, b| off(a).total_cmp(&off(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Route;
    use crate::rates::mode::SWEEP;
    use crate::rates::patterns::PAIRS;
    use crate::rates::sites::SITE;
    use gridmpi_lab::flow::{Sample, Traffic, Volume};

    const SCENE: Scene<'_> = Scene { name: PAIRS.name, site: &SITE, mode: Mode::Auto };

    #[test]
    fn a_typical_burst_is_drawn() {
        assert_eq!(typical(&[(0.0, 9.0), (10.0, 11.0), (20.0, 22.0)]), Some((20.0, 22.0)));
        assert_eq!(typical(&[]), None);
        assert_eq!(SCENE.file(""), "8-pairs-256-kib-each-160mbit-64kib-10ms-auto.svg");
        let swept = Scene { mode: SWEEP[2], ..SCENE };
        assert_eq!(
            swept.file("-x"),
            "8-pairs-256-kib-each-160mbit-64kib-10ms-static-0.31-b-n-x.svg"
        );
        assert!(SCENE.title("123 ms").contains("auto: 123 ms at 10 ms"));
    }

    /// A packet of the link from `a` each millisecond of these, of so many bytes.
    fn rows(milliseconds: std::ops::Range<u64>, bytes: u64) -> Vec<Row> {
        let traffic = Traffic { left: Volume { bytes, packets: 1 }, ..Traffic::default() };
        let row = |millisecond| Row {
            from: "a".to_owned(),
            to: "b".to_owned(),
            sample: Sample { millisecond, traffic },
        };
        milliseconds.map(row).collect()
    }

    #[test]
    fn the_busiest_second_is_found() {
        let quiet = rows(100..5000, 10);
        // One large packet is less than many that are not small.
        let all = [quiet.clone(), rows(3000..3400, 99), rows(4500..4501, 30_000)].concat();
        // The first that has all of them.
        assert_eq!(busiest(&all), Some(2400));
        assert_eq!((busiest(&quiet), busiest(&[])), (Some(100), None));
        assert_eq!(span(&all), Some((100, 4999)));
    }

    #[test]
    fn a_long_run_has_two_pictures_of_bounded_size() {
        let name = format!("gridmpi-picture-test-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let spec = Route::Site(SITE).spec("t").unwrap();
        let text = |part: &str| fs::read_to_string(directory.join(SCENE.file(part)));
        SCENE.draw_run(&directory, &spec, &[]).unwrap();
        assert!(text("").is_err());
        SCENE.draw_run(&directory, &spec, &rows(7..307, 1514)).unwrap();
        assert!(text("").unwrap().contains("a whole run, 300 ms") && text("-whole").is_err());
        SCENE.draw_run(&directory, &spec, &rows(7..60_007, 1514)).unwrap();
        assert!(text("").unwrap().contains("1000 ms from 0.000 s of 60.000 s on"));
        let whole = text("-whole").unwrap();
        assert!(whole.contains("a whole run, 60.000 s"));
        assert!(whole.len() < 300_000, "{}", whole.len());
        fs::remove_dir_all(&directory).unwrap();
    }
}
