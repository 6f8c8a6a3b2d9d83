//! Whom a schedule names as senders: all whose steps send, and nobody else.

use std::collections::BTreeSet;

use gridmpi_coll::{Blocks, Collective, Elements, Schedule, Shape, Tuning, algorithm, schedule};
use gridmpi_wire::{ClusterId, Rank};
use proptest::prelude::*;

/// Every kind of collective, in which everybody has something; `count` elements or bytes a block.
fn collectives(size: u32, root: Rank, count: u64, commutative: bool) -> Vec<Collective> {
    let (len, in_place) = (count, false);
    let elements = Elements { count: count * u64::from(size), size: 8, commutative };
    let blocks = || Blocks::equal(size, len);
    let reduced = Blocks::equal(size, 8 * count);
    vec![
        Collective::Barrier,
        Collective::Bcast { root, len: len * u64::from(size) },
        Collective::Gather { root, len, in_place },
        Collective::Gatherv { root, len, blocks: blocks(), in_place },
        Collective::Scatter { root, len, in_place },
        Collective::Scatterv { root, len, blocks: blocks(), in_place },
        Collective::Allgather { blocks: blocks(), in_place },
        Collective::Alltoall { send: blocks(), recv: blocks(), is_equal: true, in_place },
        Collective::Alltoall { send: blocks(), recv: blocks(), is_equal: false, in_place },
        Collective::Reduce { root, elements, in_place },
        Collective::Allreduce { elements, in_place },
        Collective::ReduceScatter { elements, blocks: reduced, in_place },
        Collective::Scan { elements, in_place },
        Collective::Exscan { elements, in_place },
    ]
}

fn shapes(clusters: &[u16]) -> Vec<Shape> {
    let ids: Vec<_> = clusters.iter().copied().map(ClusterId).collect();
    (0..clusters.len() as u32).map(|me| Shape::new(Rank(me), &ids)).collect()
}

fn sends(schedule: &Schedule) -> bool {
    schedule.sent().any(|(_, bytes)| bytes > 0)
}

/// Of each cluster those who send, and of each of them whom it names.
type Found = Vec<(BTreeSet<u32>, Vec<BTreeSet<u32>>)>;

fn found(shapes: &[Shape], call: impl Fn(&Shape) -> Collective, tuning: &Tuning) -> Found {
    let schedules: Vec<_> =
        shapes.iter().map(|shape| schedule(shape, &call(shape), tuning)).collect();
    let of = |cluster| {
        let members = shapes.iter().zip(&schedules).filter(|(s, _)| s.my_cluster() == cluster);
        let senders: Vec<_> = members.filter(|(_, schedule)| sends(schedule)).collect();
        let named = senders
            .iter()
            .map(|(shape, schedule)| schedule.senders(shape).iter().map(|rank| rank.0).collect());
        (senders.iter().map(|(shape, _)| shape.me().0).collect(), named.collect())
    };
    (0..shapes[0].clusters()).map(of).collect()
}

fn mappings() -> impl Strategy<Value = Vec<u16>> {
    let contiguous = prop::collection::vec(1usize..6, 2..5).prop_map(|sizes| {
        let ranks = sizes.iter().enumerate();
        ranks.flat_map(|(cluster, &size)| vec![cluster as u16; size]).collect::<Vec<_>>()
    });
    prop_oneof![contiguous.clone(), contiguous.prop_shuffle()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn those_whose_steps_send_and_nobody_else(
        clusters in mappings(),
        root: u32,
        count in 32u64..100,
        commutative: bool,
        lane_bytes in prop_oneof![Just(64u64), Just(1 << 20)],
        max_lanes in 1u32..5,
        through_leaders in prop_oneof![Just(0u64), Just(1 << 20)],
    ) {
        let (size, shapes) = (clusters.len() as u32, shapes(&clusters));
        let tuning = Tuning { lane_bytes, max_lanes, through_leaders };
        for collective in collectives(size, Rank(root % size), count, commutative) {
            let name = algorithm(&shapes[0], &collective, &tuning);
            for (senders, named) in found(&shapes, |_| collective.clone(), &tuning) {
                for named in named {
                    prop_assert_eq!(&named, &senders, "{}", name);
                }
            }
        }
    }

    #[test]
    fn where_only_each_knows_its_own_lengths_all_who_may(
        clusters in mappings(),
        lens in prop::collection::vec(prop_oneof![Just(0u64), 1u64..100], 20),
        root: u32,
    ) {
        let shapes = shapes(&clusters);
        let size = clusters.len() as u32;
        let root = Rank(root % size);
        let len = |rank: Rank| lens[rank.0 as usize];
        let gather = |shape: &Shape| {
            let blocks = Blocks::new((0..size).map(Rank).map(len));
            Collective::Gatherv { root, len: len(shape.me()), blocks, in_place: false }
        };
        for (senders, named) in found(&shapes, gather, &Tuning::default()) {
            for named in named {
                prop_assert!(named.is_superset(&senders), "{:?} {:?}", named, senders);
            }
        }
    }
}

#[test]
fn who_sends_is_not_sure_where_each_knows_its_own_lengths_alone() {
    let shapes = shapes(&[0, 0, 0, 0, 1, 1, 1, 1]);
    for collective in collectives(8, Rank(2), 1 << 16, true) {
        let is_sure = !matches!(
            collective,
            Collective::Gatherv { .. } | Collective::Alltoall { is_equal: false, .. }
        );
        for shape in &shapes {
            let schedule = schedule(shape, &collective, &Tuning::default());
            assert_eq!(schedule.is_sure_of_senders(), is_sure, "{collective:?}");
        }
    }
}

#[test]
fn each_sort_of_algorithm_names_its_own() {
    let shapes = shapes(&[0, 0, 0, 0, 1, 1, 1, 1]);
    let tuning = Tuning::default();
    let first = |collective: Collective| {
        let found = found(&shapes, |_| collective.clone(), &tuning);
        found[0].1.first().map(|named| named.iter().copied().collect::<Vec<_>>())
    };
    let root = Rank(2);
    assert_eq!(first(Collective::Bcast { root, len: 1000 }), Some(vec![2]));
    assert_eq!(first(Collective::Bcast { root, len: 600 << 10 }), Some(vec![0, 2]));
    assert_eq!(first(Collective::Bcast { root: Rank(5), len: 600 << 10 }), None);
    let elements = Elements { count: 100, size: 8, commutative: true };
    assert_eq!(first(Collective::Allreduce { elements, in_place: false }), Some(vec![0]));
    let blocks = || Blocks::equal(8, 1 << 16);
    for is_equal in [true, false] {
        let all =
            Collective::Alltoall { send: blocks(), recv: blocks(), is_equal, in_place: false };
        assert_eq!(first(all), Some(vec![0, 1, 2, 3]));
    }
    assert_eq!(first(Collective::Barrier), None);
}
