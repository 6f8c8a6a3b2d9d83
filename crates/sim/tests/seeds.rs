//! Some thousands of seeds without a difference, and every deliberate fault found.

use gridmpi_sim::{Mutation, Stats, run};

#[test]
fn no_seed_differs_from_the_rules() {
    let mut all = Stats::default();
    for seed in 0..3000 {
        match run(seed, Mutation::None, false) {
            Ok((stats, _)) => all = all.plus(stats),
            Err(failure) => panic!(
                "seed {seed}: {}\nreplay: cargo run -p gridmpi-sim -- --seed {seed}",
                failure.what
            ),
        }
    }
    let Stats { cuts, half_cuts, last_cuts, joins, .. } = all;
    assert!(cuts > 1000, "the faults were not at work: {cuts} cuts");
    assert!(half_cuts > 100, "both ends had nearly always heard of what was cut: {half_cuts}");
    assert!(last_cuts > 100, "seldom were streams cut that ended: {last_cuts}");
    assert!(joins > 1000, "there was seldom more than one connection: {joins}");
}

#[test]
fn every_deliberate_fault_is_found() {
    for mutation in Mutation::ALL {
        let found = (0..500).any(|seed| run(seed, mutation, false).is_err());
        assert!(found, "{mutation:?} went unnoticed");
    }
}

#[test]
fn a_panic_is_a_failure_of_its_seed() {
    let mut failures = (0..500).filter_map(|seed| run(seed, Mutation::Panic, true).err());
    let failure = failures.next().expect("a run that panics");
    assert!(failure.what.ends_with("beyond the payload"), "{}", failure.what);
    assert!(!failure.trace.is_empty(), "and its trace is there");
    assert!(run(failure.seed, Mutation::None, false).is_ok());
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..50 {
        let (first, again) = (run(seed, Mutation::None, true), run(seed, Mutation::None, true));
        let (first, again) = (first.expect("passes"), again.expect("passes"));
        assert_eq!(first.0, again.0);
        assert!(first.1 == again.1, "seed {seed} is not reproducible");
    }
}
