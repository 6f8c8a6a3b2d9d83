//! How evenly a sender's frames came, from the kernel's time stamps.

use crate::samples::{median, quantile};
use gridmpi_lab::arrivals::Arrival;
use gridmpi_lab::flow::WIRE_OVERHEAD;
use gridmpi_lab::spec::MTU_FRAME;

/// Of a stream's time, what is left out at its begin, where TCP opens its window, and at its end, seconds.
const BEGIN: f64 = 2.0;
const END: f64 = 0.3;

/// How evenly the frames of a stream came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evenness {
    /// What all frames take of the wire, preamble, checksum and gap included, Mbit/s.
    pub(super) mbit: f64,
    /// Between full frames, µs.
    pub(super) median_gap_us: f64,
    /// 99th percentile of the same.
    pub(super) high_gap_us: f64,
    /// Full frames that were looked at.
    pub(super) frames: usize,
}

/// What a full frame takes of a wire of `mbit` Mbit/s, µs.
pub(super) fn ideal_gap_us(mbit: f64) -> f64 {
    (MTU_FRAME + WIRE_OVERHEAD) as f64 * 8.0 / mbit
}

/// Of a stream's frames in order of time, its begin and end left out; `None` if it is too short.
pub(super) fn evenness(frames: &[Arrival]) -> Option<Evenness> {
    let is_full = |frame: &&Arrival| frame.bytes >= MTU_FRAME;
    let (first, last) = (frames.iter().find(is_full)?, frames.iter().rfind(is_full)?);
    let (from, to) =
        (first.stamp + (BEGIN * 1e9) as u64, last.stamp.checked_sub((END * 1e9) as u64)?);
    let middle: Vec<_> = frames.iter().filter(|frame| (from..to).contains(&frame.stamp)).collect();
    let (first, last) = (middle.first()?, middle.last()?);
    let seconds = last.stamp.checked_sub(first.stamp).filter(|span| *span > 0)? as f64 / 1e9;
    // The first frame begins the span, so its bytes were before it.
    let wire = |frame: &&Arrival| frame.bytes + frame.packets * WIRE_OVERHEAD;
    let bits = middle.iter().skip(1).map(wire).sum::<u64>() as f64 * 8.0;
    let stamps: Vec<_> = middle.into_iter().filter(|f| is_full(f)).map(|f| f.stamp).collect();
    let gap = |pair: &[u64]| pair[1].saturating_sub(pair[0]) as f64 / 1e3;
    let gaps: Vec<f64> = stamps.windows(2).map(gap).collect();
    Some(Evenness {
        mbit: bits / seconds / 1e6,
        median_gap_us: median(&gaps),
        high_gap_us: quantile(&gaps, 0.99),
        frames: stamps.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full frames with these gaps by turns, µs, for ten seconds.
    fn stream(gaps: &[u64]) -> Vec<Arrival> {
        let mut stamp = 1_000_000_000;
        let next = gaps.iter().cycle().map(|gap| {
            stamp += gap * 1000;
            Arrival { stamp, bytes: MTU_FRAME, packets: 1 }
        });
        next.take_while(|frame| frame.stamp < 11_000_000_000).collect()
    }

    #[test]
    fn an_even_stream_is_at_its_rate() {
        assert!((ideal_gap_us(20.0) - 615.2).abs() < 1e-9);
        let even = evenness(&stream(&[615, 615, 615, 615, 616])).unwrap();
        assert!((even.mbit - 20.0).abs() < 0.001, "{even:?}");
        assert!(even.median_gap_us == 615.0 && even.high_gap_us <= 616.0, "{even:?}");
        let uneven = evenness(&stream(&[100, 1130])).unwrap();
        assert!((uneven.mbit - 20.0).abs() < 0.02 && uneven.high_gap_us == 1130.0, "{uneven:?}");
    }

    #[test]
    fn a_short_stream_has_none() {
        assert_eq!(evenness(&[]), None);
        assert_eq!(evenness(&stream(&[615])[..100]), None);
    }
}
