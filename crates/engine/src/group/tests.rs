use proptest::prelude::*;

use super::*;

fn group(procs: &[u32]) -> Group {
    Group::new(procs.iter().copied().map(ProcId))
}

fn range(first: i32, last: i32, stride: i32) -> RankRange {
    RankRange { first, last, stride }
}

/// Ten processes a..j of MPI 4.1 §7.3.2, examples of range_incl.
fn ten() -> Group {
    group(&[10, 11, 12, 13, 14, 15, 16, 17, 18, 19])
}

#[test]
fn set_operations_keep_the_first_groups_order() {
    let (a, b) = (group(&[5, 1, 3]), group(&[3, 2, 5]));
    assert_eq!(a.union(&b), group(&[5, 1, 3, 2]));
    assert_eq!(b.union(&a), group(&[3, 2, 5, 1]));
    assert_eq!(a.intersection(&b), group(&[5, 3]));
    assert_eq!(b.intersection(&a), group(&[3, 5]));
    assert_eq!(a.difference(&b), group(&[1]));
    assert!(a.difference(&a).is_empty());
}

#[test]
fn comparison() {
    let a = group(&[5, 1, 3]);
    assert_eq!(a.compare(&group(&[5, 1, 3])), Comparison::Identical);
    assert_eq!(a.compare(&group(&[1, 5, 3])), Comparison::Similar);
    assert_eq!(a.compare(&group(&[1, 5])), Comparison::Unequal);
    assert_eq!(a.compare(&group(&[1, 5, 4])), Comparison::Unequal);
    assert_eq!(Group::default().compare(&group(&[])), Comparison::Identical);
}

#[test]
fn ranks_of_members_and_translation() {
    let (a, b) = (group(&[5, 1, 3]), group(&[3, 2, 5]));
    assert_eq!((a.rank(ProcId(1)), a.rank(ProcId(2))), (Some(Rank(1)), None));
    assert_eq!(a.rank(ProcId(3)), Some(Rank(2)));
    assert_eq!(
        a.translate(&[2, 1, 0, 2], &b).unwrap(),
        [Some(Rank(0)), None, Some(Rank(2)), Some(Rank(0))]
    );
    assert_eq!(a.translate(&[3], &b), Err(GroupError::Rank { rank: 3, size: 3 }));
}

#[test]
fn inclusion_orders_and_exclusion_keeps_order() {
    // MPI 4.1 §7.3.2: incl/excl examples.
    assert_eq!(group(&[1, 2, 3]).incl(&[2, 0]).unwrap(), group(&[3, 1]));
    assert_eq!(group(&[1, 2, 3]).excl(&[2, 0]).unwrap(), group(&[2]));
    assert_eq!(group(&[1, 2]).incl(&[]).unwrap(), Group::default());
    assert_eq!(group(&[1, 2]).excl(&[]).unwrap(), group(&[1, 2]));
    assert_eq!(group(&[1, 2]).incl(&[1, 1]), Err(GroupError::Duplicate(Rank(1))));
    assert_eq!(group(&[1, 2]).excl(&[0, 0]), Err(GroupError::Duplicate(Rank(0))));
    assert_eq!(group(&[1, 2]).incl(&[-1]), Err(GroupError::Rank { rank: -1, size: 2 }));
    assert_eq!(group(&[1, 2]).excl(&[2]), Err(GroupError::Rank { rank: 2, size: 2 }));
}

#[test]
fn ranges_go_up_and_down() {
    let triples = [range(6, 7, 1), range(1, 6, 2), range(0, 9, 4)];
    let apart = ten().range_incl(&triples[..2]).unwrap();
    assert_eq!(apart, group(&[16, 17, 11, 13, 15]));
    assert_eq!(ten().range_excl(&triples[..2]).unwrap(), group(&[10, 12, 14, 18, 19]));
    assert_eq!(ten().range_incl(&[range(8, 3, -2)]).unwrap(), group(&[18, 16, 14]));
    assert_eq!(ten().range_incl(&[range(4, 4, -7)]).unwrap(), group(&[14]));
    assert_eq!(ten().range_incl(&[]).unwrap(), Group::default());
}

#[test]
fn wrong_ranges_are_refused() {
    assert_eq!(ten().range_incl(&[range(0, 1, 0)]), Err(GroupError::ZeroStride(0)));
    assert_eq!(ten().range_incl(&[range(0, 1, 1), range(5, 2, 1)]), Err(GroupError::WrongWay(1)));
    assert_eq!(
        ten().range_excl(&[range(1, 3, 1), range(3, 3, 1)]),
        Err(GroupError::Duplicate(Rank(3)))
    );
    let outside = ten().range_incl(&[range(0, i32::MAX, 1)]);
    assert_eq!(outside, Err(GroupError::Rank { rank: i64::from(i32::MAX), size: 10 }));
    assert!(
        ten().range_incl(&[range(0, 11, 6)]).is_ok(),
        "a last rank that is not met need not exist"
    );
    assert!(ten().range_incl(&[range(i32::MAX, i32::MIN, -1)]).is_err());
}

proptest! {
    #[test]
    fn groups_behave_as_sets(a in prop::collection::hash_set(0u32..20, 0..12), b in prop::collection::hash_set(0u32..20, 0..12)) {
        let one = Group::new(a.iter().copied().map(ProcId));
        let two = Group::new(b.iter().copied().map(ProcId));
        for proc in 0..20 {
            let has = |group: &Group| group.rank(ProcId(proc)).is_some();
            prop_assert_eq!(has(&one.union(&two)), a.contains(&proc) || b.contains(&proc));
            prop_assert_eq!(has(&one.intersection(&two)), a.contains(&proc) && b.contains(&proc));
            prop_assert_eq!(has(&one.difference(&two)), a.contains(&proc) && !b.contains(&proc));
        }
        prop_assert_eq!(one.compare(&two) == Comparison::Unequal, a != b);
    }

    #[test]
    fn including_and_excluding_are_complements(size in 1u32..12, picks in prop::collection::vec(any::<bool>(), 12)) {
        let group = Group::new((0..size).rev().map(ProcId));
        let chosen: Vec<i32> = (0..size as i32).filter(|&rank| picks[rank as usize]).collect();
        let (inside, outside) = (group.incl(&chosen).unwrap(), group.excl(&chosen).unwrap());
        prop_assert_eq!(group.difference(&inside), outside.clone());
        prop_assert_eq!(inside.size() + outside.size(), size);
        let ranks: Vec<i32> = (0..inside.size() as i32).collect();
        let back = inside.translate(&ranks, &group).unwrap();
        prop_assert_eq!(back, chosen.iter().map(|&rank| Some(Rank(rank as u32))).collect::<Vec<_>>());
    }
}
