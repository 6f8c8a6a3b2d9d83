//! Properties of the virtual queue, against the definition of a drop-tail queue.

use super::*;
use proptest::prelude::*;

fn frame(bytes: u64) -> Volume {
    Volume { bytes, packets: 1 }
}

/// Frames as gaps between arrivals (ns) and lengths (bytes).
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![Just(0), 0..5_000u64, 0..3_000_000u64];
    proptest::collection::vec((gap, 60..1515u64), 1..300)
}

proptest! {
    #[test]
    fn the_buffer_is_never_exceeded_and_bytes_are_conserved(
        frames in arrivals(), rate in 1_000_000..2_000_000_000u64, buffer in 1514..100_000u64
    ) {
        let mut queue = Queue::new(Some(rate), buffer);
        let (mut now, mut came, mut left, mut dropped) = (0, 0, 0, 0);
        for (gap, bytes) in frames {
            now += gap;
            while let Some(departure) = queue.depart(now) {
                left += departure.frame.bytes;
            }
            let before = queue.queued();
            came += bytes;
            if queue.arrive(now, frame(bytes), false, bytes + 24) == Verdict::Dropped {
                // Drop-tail: only what does not fit is dropped.
                prop_assert!(before + bytes > buffer);
                prop_assert_eq!(queue.queued(), before);
                dropped += bytes;
            }
            prop_assert!(queue.queued() <= buffer);
            prop_assert_eq!(came, left + dropped + queue.queued());
        }
        while let Some(departure) = queue.depart(u64::MAX) {
            left += departure.frame.bytes;
        }
        prop_assert_eq!((came, queue.queued()), (left + dropped, 0));
    }

    #[test]
    fn frames_leave_in_the_order_they_came(
        frames in arrivals(), rate in 1_000_000..2_000_000_000u64
    ) {
        let mut queue = Queue::new(Some(rate), u64::MAX);
        let (mut now, mut last) = (0, 0);
        let mut expected = Vec::new();
        for (gap, bytes) in frames {
            now += gap;
            while queue.depart(now).is_some() {}
            let Verdict::Departs(at) = queue.arrive(now, frame(bytes), false, bytes) else { unreachable!() };
            prop_assert!(at >= last && at >= now + bytes * 8 * 1_000_000_000 / rate);
            last = at;
            expected.push(Departure { at, frame: frame(bytes), lost: false });
        }
        let mut rest = Vec::new();
        while let Some(departure) = queue.depart(u64::MAX) {
            rest.push(departure);
        }
        prop_assert_eq!(&expected[expected.len() - rest.len()..], &rest[..]);
    }

    #[test]
    fn the_rate_of_a_busy_period_is_exact(
        lengths in proptest::collection::vec(60..1515u64, 1..500), rate in 1_000_000..2_000_000_000u64
    ) {
        let mut queue = Queue::new(Some(rate), u64::MAX);
        let mut wire = 0u128;
        for bytes in lengths {
            let Verdict::Departs(at) = queue.arrive(5, frame(bytes), false, bytes + 24) else { unreachable!() };
            wire += u128::from(bytes + 24);
            // The whole period, rounded once, not once a frame.
            prop_assert_eq!(u128::from(at - 5), wire * 8 * NANOSECONDS / u128::from(rate));
        }
    }

    #[test]
    fn each_departure_equals_the_plain_definition(
        frames in arrivals(), rate in 1_000_000..2_000_000_000u64, buffer in 1514..50_000u64
    ) {
        // Lindley's recursion in exact fractions: start = max(arrival, previous end).
        let mut queue = Queue::new(Some(rate), buffer);
        let scale = u128::from(rate);
        let (mut now, mut end) = (0u64, 0u128);
        for (gap, bytes) in frames {
            now += gap;
            while queue.depart(now).is_some() {}
            if let Verdict::Departs(at) = queue.arrive(now, frame(bytes), false, bytes) {
                // A remainder below 1 ns is forgotten when the queue runs empty.
                let start = if end / scale < u128::from(now) { u128::from(now) * scale } else { end };
                end = start + u128::from(bytes) * 8 * NANOSECONDS;
                prop_assert_eq!(u128::from(at), end / scale);
            }
        }
    }
}

#[test]
fn without_a_rate_everything_passes_at_once() {
    let mut queue = Queue::new(None, 0);
    for now in [3, 3, 9] {
        while queue.depart(now).is_some() {}
        assert_eq!(queue.arrive(now, frame(1514), false, 1538), Verdict::Departs(now));
    }
}

#[test]
fn a_full_buffer_has_room_again_when_a_frame_has_left() {
    // 1,000 bytes at 8 Mbit/s take 1 ms.
    let mut queue = Queue::new(Some(8_000_000), 2_000);
    assert_eq!(queue.arrive(0, frame(1_000), false, 1_000), Verdict::Departs(1_000_000));
    assert_eq!(queue.arrive(0, frame(1_000), false, 1_000), Verdict::Departs(2_000_000));
    assert_eq!(queue.arrive(999_999, frame(1_000), false, 1_000), Verdict::Dropped);
    assert_eq!(queue.depart(999_999), None);
    assert_eq!(queue.depart(1_000_000).map(|d| d.at), Some(1_000_000));
    assert_eq!(queue.arrive(1_000_000, frame(1_000), false, 1_000), Verdict::Departs(3_000_000));
}
