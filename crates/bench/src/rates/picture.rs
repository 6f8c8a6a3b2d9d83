//! Pictures of single bursts, millisecond by millisecond, as the papers on pacing have them.

use super::mode::Mode;
use super::patterns::Burst;
use crate::error::BenchError;
use crate::place::Site;
use crate::samples::median;
use crate::watched::Recording;
use gridmpi_lab::save;
use gridmpi_lab::spec::Spec;
use std::fs;
use std::path::Path;

/// What a picture shows before its burst and behind it, seconds.
const MARGIN: f64 = 0.01;

/// What is drawn: which burst, where and how.
pub(super) struct Scene<'a> {
    pub(super) burst: &'a Burst,
    pub(super) site: &'a Site,
    pub(super) mode: Mode,
}

impl Scene<'_> {
    /// The picture's file.
    fn file(&self) -> String {
        let Site { delay_ms, link_mbit, buffer_kib, .. } = self.site;
        // Bursts of one pattern differ in size and place.
        let (burst, mode) = (slug(self.burst.name), slug(self.mode.name()));
        format!("{burst}-{link_mbit}mbit-{buffer_kib}kib-{delay_ms}ms-{mode}.svg")
    }

    fn title(&self, (begin, end): (f64, f64)) -> String {
        let Site { delay_ms, link_mbit, buffer_kib, .. } = self.site;
        format!(
            "{}, {}: {:.0} ms at {delay_ms} ms, {link_mbit} Mbit/s, buffer {buffer_kib} KiB",
            self.burst.name,
            self.mode.name(),
            1e3 * (end - begin)
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
        let picture = save::titled_picture(spec, &rows, self.title((begin, end)));
        let file = directory.join(self.file());
        fs::write(&file, picture).map_err(|error| {
            let what = format!("cannot write the picture {}", file.display());
            BenchError::File { what, error }
        })
    }
}

/// A name that is part of a file's: `static, B/8N` has a slash.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let words = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
    words.collect::<Vec<_>>().join("-")
}

/// The one whose length is nearest to the median.
fn typical(spans: &[(f64, f64)]) -> Option<(f64, f64)> {
    let length = |span: &(f64, f64)| span.1 - span.0;
    let middle = median(&spans.iter().map(length).collect::<Vec<_>>());
    let off = |span: &(f64, f64)| (length(span) - middle).abs();
    spans.iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::mode::SWEEP;
    use crate::rates::patterns::PAIRS;
    use crate::rates::sites::SITE;

    #[test]
    fn a_typical_burst_is_drawn() {
        assert_eq!(typical(&[(0.0, 9.0), (10.0, 11.0), (20.0, 22.0)]), Some((20.0, 22.0)));
        assert_eq!(typical(&[]), None);
        let scene = Scene { burst: &PAIRS, site: &SITE, mode: Mode::Auto };
        assert_eq!(scene.file(), "8-pairs-256-kib-each-160mbit-64kib-10ms-auto.svg");
        let swept = Scene { mode: SWEEP[2], ..scene };
        assert_eq!(swept.file(), "8-pairs-256-kib-each-160mbit-64kib-10ms-static-0.31-b-n.svg");
        let scene = Scene { mode: Mode::Auto, ..swept };
        assert!(scene.title((1.0, 1.123)).contains("auto: 123 ms at 10 ms"));
    }
}
