//! Rates, durations and sizes as people write them, read and written.
//!
//! Reading is strict: a number needs its unit, except where a plain number can mean only one
//! thing (bytes). Prefixes of rates and of `KB`, `MB`, `GB` are decimal, `KiB` and so on binary.

use std::fmt::Write as _;
use std::time::Duration;

/// Why a quantity could not be read; says what was written and what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}: write it as {example}")]
pub struct UnitError {
    text: String,
    kind: &'static str,
    example: &'static str,
}

/// The units of one kind of quantity and how to explain them.
struct Scale {
    kind: &'static str,
    example: &'static str,
    units: &'static [(&'static str, f64)],
}

/// Bits per second.
const RATE: Scale = Scale {
    kind: "a rate",
    example: "\"160 Mbit/s\" or \"1 Gbit/s\"",
    units: &[
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("mbit/s", 1e6),
        ("gbit/s", 1e9),
        ("bps", 1.0),
        ("kbps", 1e3),
        ("mbps", 1e6),
        ("gbps", 1e9),
        ("kbit", 1e3),
        ("mbit", 1e6),
        ("gbit", 1e9),
    ],
};

/// Nanoseconds.
const DURATION: Scale = Scale {
    kind: "a duration",
    example: "\"10 ms\" or \"250 us\"",
    units: &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)],
};

/// Bytes.
const SIZE: Scale = Scale {
    kind: "a size",
    example: "\"64 KiB\" or \"64 KB\"",
    units: &[
        ("", 1.0),
        ("b", 1.0),
        ("kb", 1e3),
        ("mb", 1e6),
        ("gb", 1e9),
        ("kib", 1024.0),
        ("mib", 1024.0 * 1024.0),
        ("gib", 1024.0 * 1024.0 * 1024.0),
    ],
};

/// A fraction of one.
const FRACTION: Scale =
    Scale { kind: "a fraction", example: "\"0.1 %\" or 0.001", units: &[("", 1.0), ("%", 0.01)] };

impl Scale {
    fn error(&self, text: &str) -> UnitError {
        UnitError { text: text.to_owned(), kind: self.kind, example: self.example }
    }

    /// The value of `text` in the base unit: finite and not negative.
    fn parse(&self, text: &str) -> Result<f64, UnitError> {
        let trimmed = text.trim();
        let end = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let number: f64 = number.replace('_', "").parse().map_err(|_| self.error(text))?;
        let unit = unit.trim().to_lowercase();
        let factor = self.units.iter().find(|(name, _)| *name == unit);
        let value = factor.map(|(_, factor)| number * factor).ok_or_else(|| self.error(text))?;
        // Beyond 2^53 a float no longer holds every whole number; nothing real is so large.
        if value.is_finite() && value <= 9.0e15 { Ok(value) } else { Err(self.error(text)) }
    }
}

/// Reads a rate in bits per second, as `160 Mbit/s`.
///
/// # Errors
/// When the text is not a number with a unit of rate.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    Ok(RATE.parse(text)?.round() as u64)
}

/// Reads a duration, as `10 ms`; a plain `0` needs no unit.
///
/// # Errors
/// When the text is not a number with a unit of time.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    Ok(Duration::from_nanos(DURATION.parse(text)?.round() as u64))
}

/// Reads a size in bytes, as `64 KiB`; a plain number is bytes.
///
/// # Errors
/// When the text is not a number with a unit of size.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    Ok(SIZE.parse(text)?.round() as u64)
}

/// Reads a fraction between 0 and 1, as `0.1 %` or `0.001`.
///
/// # Errors
/// When the text is not such a number.
pub fn parse_fraction(text: &str) -> Result<f64, UnitError> {
    let value = FRACTION.parse(text)?;
    if value <= 1.0 { Ok(value) } else { Err(FRACTION.error(text)) }
}

/// At most three digits after the point, none that say nothing.
fn trimmed(value: f64) -> String {
    let mut text = String::new();
    let digits = if value >= 100.0 { 1 } else { 3 };
    let _ = write!(text, "{value:.digits$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let (unit, factor) =
        units.iter().rev().find(|(_, factor)| value >= *factor).unwrap_or(&units[0]);
    format!("{} {unit}", trimmed(value / factor))
}

/// Writes bits per second: `160 Mbit/s`.
#[must_use]
pub fn format_rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)])
}

/// Writes a duration: `10 ms`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos() as f64;
    if nanoseconds == 0.0 {
        return "0".to_owned();
    }
    scaled(nanoseconds, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// Writes a number of bytes in decimal units: `65.536 KB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    scaled(bytes as f64, &[("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_rate("160 Mbit/s"), Ok(160_000_000));
        assert_eq!(parse_rate("1Gbit/s"), Ok(1_000_000_000));
        assert_eq!(parse_rate("2.5 gbps"), Ok(2_500_000_000));
        assert_eq!(parse_duration("10 ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("250 us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_size("64 KiB"), Ok(65_536));
        assert_eq!(parse_size("64 KB"), Ok(64_000));
        assert_eq!(parse_size("1_500"), Ok(1_500));
        assert_eq!(parse_fraction("0.1 %"), Ok(0.001));
    }

    #[test]
    fn refuses_what_is_ambiguous_or_absurd() {
        for text in ["", "10", "ms", "-1 ms", "1e3 ms", "10 Mbit", "1 . ms", "99999999999 s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_rate("160").is_err());
        assert!(parse_fraction("2").is_err());
        let error = parse_rate("fast").unwrap_err().to_string();
        assert!(error.contains("`fast`") && error.contains("160 Mbit/s"), "{error}");
    }

    #[test]
    fn writes_what_it_reads() {
        assert_eq!(format_rate(160e6), "160 Mbit/s");
        assert_eq!(format_rate(0.0), "0 bit/s");
        assert_eq!(format_duration(Duration::from_micros(1500)), "1.5 ms");
        assert_eq!(format_size(65_536), "65.536 KB");
        assert_eq!(format_size(100), "100 B");
        assert_eq!(format_size(0), "0 B");
    }

    proptest! {
        #[test]
        fn parsing_is_total(text in "\\PC{0,20}") {
            let _ = (parse_rate(&text), parse_duration(&text), parse_size(&text), parse_fraction(&text));
        }

        #[test]
        fn durations_survive(micros in 0u64..1_000_000) {
            let duration = Duration::from_micros(micros);
            let back = parse_duration(&format_duration(duration)).unwrap();
            let error = back.as_nanos().abs_diff(duration.as_nanos());
            // Four to six significant digits are written.
            prop_assert!(error <= duration.as_nanos() / 1000);
        }
    }
}
