//! Properties of one direction: counters add up, samples add up, order and delay are kept.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn link(bandwidth: Option<u64>, buffer: u64, loss: f64) -> Link {
    let delay = Duration::from_millis(10);
    let coalesce = Duration::ZERO;
    Link { between: (0, 1), bandwidth, delay, buffer, loss, coalesce, emulate: true }
}

proptest! {
    #[test]
    fn every_byte_is_accounted_for(
        frames in proptest::collection::vec((0..2_000_000u64, 60..1515u64), 1..300),
        rate in proptest::option::of(1_000_000..1_000_000_000u64),
        buffer in 1514..60_000u64,
        loss in prop_oneof![Just(0.0), 0.0..1.0f64],
    ) {
        let mut flow = Flow::new(&link(rate, buffer, loss), 1, 0, 1_000);
        let (mut samples, mut delivered) = (Vec::new(), Volume::default());
        let (mut now, mut last_release, mut arrived) = (1_000, 0, Volume::default());
        for (gap, bytes) in frames {
            now += gap;
            let frame = Volume { bytes, packets: 1 };
            arrived.add(frame);
            if let Some(release) = flow.arrive(now, frame, &mut |s| samples.push(s)) {
                prop_assert!(release >= last_release && release >= now + 10_000_000);
                last_release = release;
                delivered.add(frame);
            }
            let total = flow.total();
            prop_assert_eq!(total.arrived, arrived);
            prop_assert_eq!(
                total.arrived.bytes, total.left.bytes + total.dropped.bytes + flow.queued()
            );
            if rate.is_some() {
                prop_assert!(total.queue_peak <= buffer);
            }
        }
        let end = now.max(last_release) + 20_000_000_000;
        flow.settle(end, &mut |s| samples.push(s));
        prop_assert!(!flow.is_unsettled());
        let total = flow.total();
        prop_assert_eq!(total.left.packets, delivered.packets + total.lost.packets);
        prop_assert_eq!(total.left.bytes, delivered.bytes + total.lost.bytes);
        prop_assert_eq!(total.arrived.packets, total.left.packets + total.dropped.packets);
        // The samples are the total, and lie in order.
        let mut sum = Traffic::default();
        samples.iter().for_each(|sample| sum.add(&sample.traffic));
        prop_assert_eq!(sum, total);
        prop_assert!(samples.windows(2).all(|pair| pair[0].millisecond < pair[1].millisecond));
    }

    #[test]
    fn late_reading_changes_nothing(
        gaps in proptest::collection::vec(0..200_000u64, 1..200), late in 1..50usize
    ) {
        // Frames handed in one by one, or in batches long after they came: same fates.
        let fates = |batch: usize| {
            let mut flow = Flow::new(&link(Some(50_000_000), 20_000, 0.1), 3, 1, 0);
            let mut now = 0;
            let mut fates = Vec::new();
            for (index, gap) in gaps.iter().enumerate() {
                now += gap;
                fates.push(flow.arrive(now, Volume { bytes: 1514, packets: 1 }, &mut |_| ()));
                if index % batch == 0 {
                    flow.settle(now, &mut |_| ());
                }
            }
            fates
        };
        prop_assert_eq!(fates(1), fates(late));
    }
}

#[test]
fn a_stamp_from_the_past_counts_as_now() {
    let mut flow = Flow::new(&link(None, 0, 0.0), 1, 0, 0);
    let frame = Volume { bytes: 100, packets: 1 };
    assert_eq!(flow.arrive(5_000, frame, &mut |_| ()), Some(10_005_000));
    assert_eq!(flow.arrive(4_000, frame, &mut |_| ()), Some(10_005_000));
}
