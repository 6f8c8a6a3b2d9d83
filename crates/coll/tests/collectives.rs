//! Every collective over random shapes against its definition, and what crosses the wide area.

mod model;

use gridmpi_coll::{Blocks, Collective, Elements, Shape, Tuning, algorithm, schedule};
use gridmpi_wire::Rank;
use model::{Dice, Operation, Process, Traffic, run, run_without, shapes};
use proptest::prelude::*;

/// One rank's buffers: send, receive before, and receive after as the definition has it.
struct Buffers {
    send: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Everything about a call but its kind.
#[derive(Clone, Debug)]
struct Case {
    /// The cluster of each rank.
    clusters: Vec<u16>,
    root: Rank,
    /// Elements, or bytes, of a block.
    count: u64,
    operation: Operation,
    in_place: bool,
    tuning: Tuning,
    seed: u64,
}

impl Case {
    fn size(&self) -> u32 {
        self.clusters.len() as u32
    }

    fn clusters(&self) -> u64 {
        shapes(&self.clusters)[0].clusters() as u64
    }

    /// Ranks in other clusters than the root's.
    fn away(&self) -> u64 {
        let home = self.clusters[self.root.0 as usize];
        self.clusters.iter().filter(|&&cluster| cluster != home).count() as u64
    }

    fn is_ordered(&self) -> bool {
        shapes(&self.clusters)[0].is_ordered()
    }

    fn dice(&self) -> Dice {
        Dice::new(self.seed ^ 0x5DEE_CE66)
    }

    /// Random bytes for each rank, `len` of the rank.
    fn data(&self, len: impl Fn(Rank) -> u64) -> Vec<Vec<u8>> {
        let mut dice = self.dice();
        let mut bytes = |len: u64| (0..len).map(|_| dice.below(256) as u8).collect();
        ranks(self.size()).map(|rank| bytes(len(rank))).collect()
    }

    /// Random operands; floats are of very different size.
    fn operands(&self) -> (Elements, Vec<Vec<u8>>) {
        let size = self.operation.size() as u64;
        let elements =
            Elements { count: self.count, size, commutative: self.operation.is_commutative() };
        if self.operation != Operation::Float {
            return (elements, self.data(|_| elements.len()));
        }
        let mut dice = self.dice();
        let mut float =
            || ((dice.below(2000) as f32) - 1000.0) * 1.7f32.powi(dice.below(60) as i32 - 30);
        let mut floats = || (0..self.count).flat_map(|_| float().to_le_bytes()).collect();
        (elements, ranks(self.size()).map(|_| floats()).collect())
    }

    /// Different lengths by rank, some 0.
    fn lens(&self, unit: u64) -> Vec<u64> {
        let mut dice = self.dice();
        let bound = self.count as usize + 1;
        ranks(self.size())
            .map(|_| dice.below(bound) as u64 * u64::from(dice.below(4) > 0) * unit)
            .collect()
    }

    /// Runs the collective that `call` names for each rank. Panics on any difference from `buffers`.
    fn run(&self, call: impl Fn(Rank) -> Collective, buffers: &[Buffers], same: bool) -> Traffic {
        let mut processes = Vec::new();
        for (shape, rank_buffers) in shapes(&self.clusters).into_iter().zip(buffers) {
            let collective = call(shape.me());
            let schedule = schedule(&shape, &collective, &self.tuning);
            let is_source =
                matches!(collective, Collective::Bcast { root, .. } if root == shape.me());
            let memory = (rank_buffers.send.clone(), rank_buffers.before.clone());
            processes.push(Process::new(shape, schedule, self.operation, memory, is_source));
        }
        let traffic = run(&mut processes, self.operation, self.seed);
        for (process, buffers) in processes.iter().zip(buffers) {
            if same {
                assert_eq!(
                    process.received(),
                    processes[0].received(),
                    "the same result everywhere"
                );
            } else {
                let name = algorithm(&process.shape, &call(process.shape.me()), &self.tuning);
                assert_eq!(
                    process.received(),
                    buffers.after,
                    "{name}, rank {}",
                    process.shape.me().0
                );
            }
        }
        assert!(traffic.crossings <= 1, "one delay, not {}", traffic.crossings);
        traffic
    }

    /// Buffers of a collective in which every rank sends `input` and has `after` in the end; in place,
    /// the input lies in `after`'s buffer from byte `at(rank)` on.
    fn everywhere(
        &self,
        input: &[Vec<u8>],
        after: impl Fn(Rank) -> Vec<u8>,
        at: impl Fn(Rank) -> u64,
    ) -> Vec<Buffers> {
        let of = |rank: Rank| {
            let (send, after) = (input[rank.0 as usize].clone(), after(rank));
            if !self.in_place {
                return Buffers { send, before: vec![0xEE; after.len()], after };
            }
            let mut before = vec![0xEE; after.len()];
            before[at(rank) as usize..][..send.len()].copy_from_slice(&send);
            Buffers { send: vec![], before, after }
        };
        ranks(self.size()).map(of).collect()
    }
}

fn ranks(size: u32) -> impl Iterator<Item = Rank> {
    (0..size).map(Rank)
}

/// Operands of ranks `0..end` combined in rank order.
fn combined(operands: &[Vec<u8>], end: u32, operation: Operation) -> Vec<u8> {
    let (first, rest) = operands[..end as usize].split_first().unwrap();
    rest.iter().fold(first.clone(), |left, right| operation.apply(&left, right))
}

fn mappings() -> impl Strategy<Value = Vec<u16>> {
    let contiguous = prop::collection::vec(1usize..6, 1..5).prop_map(|sizes| {
        let ranks = sizes.iter().enumerate();
        ranks.flat_map(|(cluster, &size)| vec![cluster as u16 * 3 + 1; size]).collect::<Vec<_>>()
    });
    prop_oneof![contiguous.clone(), contiguous.prop_shuffle()]
}

fn tunings() -> impl Strategy<Value = Tuning> {
    let lane_bytes = prop_oneof![Just(1u64), Just(16), Just(1 << 20)];
    let through_leaders = prop_oneof![Just(0u64), Just(1 << 20)];
    (lane_bytes, 1u32..5, through_leaders).prop_map(|(lane_bytes, max_lanes, through_leaders)| {
        Tuning { lane_bytes, max_lanes, through_leaders }
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let operations = prop_oneof![Just(Operation::Sum), Just(Operation::Matrix)];
    let count = prop_oneof![Just(0u64), 1u64..5, 1u64..40];
    (mappings(), any::<u32>(), count, operations, any::<bool>(), tunings(), any::<u64>()).prop_map(
        |(clusters, root, count, operation, in_place, tuning, seed)| {
            let root = Rank(root % clusters.len() as u32);
            Case { clusters, root, count, operation, in_place, tuning, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn barrier(case in cases()) {
        let nothing = case.everywhere(&vec![vec![]; case.size() as usize], |_| vec![], |_| 0);
        let traffic = case.run(|_| Collective::Barrier, &nothing, false);
        let clusters = case.clusters();
        prop_assert_eq!((traffic.total(), traffic.messages), (0, clusters * (clusters - 1)));
        prop_assert_eq!(traffic.crossings > 0, clusters > 1);
    }

    #[test]
    fn nobody_leaves_a_barrier_before_all_have_entered(case in cases()) {
        let make = |shape: Shape| {
            let schedule = schedule(&shape, &Collective::Barrier, &case.tuning);
            Process::new(shape, schedule, case.operation, Default::default(), false)
        };
        let mut processes: Vec<_> = shapes(&case.clusters).into_iter().map(make).collect();
        run_without(&mut processes, Some(case.root), case.operation, case.seed);
        prop_assert!(processes.iter().all(|process| !process.is_done()));
    }

    #[test]
    fn bcast(case in cases()) {
        let data = case.data(|_| case.count);
        let after = data[case.root.0 as usize].clone();
        let buffers: Vec<_> = ranks(case.size()).map(|rank| Buffers {
            send: vec![],
            before: if rank == case.root { after.clone() } else { vec![0xEE; after.len()] },
            after: after.clone(),
        }).collect();
        let traffic = case.run(|_| Collective::Bcast { root: case.root, len: case.count }, &buffers, false);
        prop_assert_eq!(traffic.total(), case.count * (case.clusters() - 1));
    }

    #[test]
    fn gather(case in cases(), irregular: bool) {
        let lens = if irregular { case.lens(1) } else { vec![case.count; case.size() as usize] };
        let blocks = Blocks::new(lens.iter().copied());
        let data = case.data(|rank| lens[rank.0 as usize]);
        let buffers: Vec<_> = ranks(case.size()).map(|rank| {
            let at_root = rank == case.root;
            let after = if at_root { data.concat() } else { vec![] };
            let mut before = vec![0xEE; after.len()];
            let send = data[rank.0 as usize].clone();
            if !(at_root && case.in_place) {
                return Buffers { send, before, after };
            }
            before[blocks.offset(rank) as usize..][..send.len()].copy_from_slice(&send);
            Buffers { send: vec![], before, after }
        }).collect();
        let call = |rank: Rank| {
            let (root, in_place) = (case.root, case.in_place && rank == case.root);
            let len = lens[rank.0 as usize];
            if !irregular {
                return Collective::Gather { root, len, in_place };
            }
            let blocks = if rank == root { blocks.clone() } else { Blocks::default() };
            Collective::Gatherv { root, len, blocks, in_place }
        };
        let traffic = case.run(call, &buffers, false);
        let home = case.clusters[case.root.0 as usize];
        let away = ranks(case.size()).filter(|rank| case.clusters[rank.0 as usize] != home);
        prop_assert_eq!(traffic.total(), away.map(|rank| blocks.len(rank)).sum::<u64>());
    }

    #[test]
    fn scatter(case in cases(), irregular: bool) {
        let lens = if irregular { case.lens(1) } else { vec![case.count; case.size() as usize] };
        let blocks = Blocks::new(lens.iter().copied());
        let data = case.data(|rank| lens[rank.0 as usize]);
        let buffers: Vec<_> = ranks(case.size()).map(|rank| {
            let at_root = rank == case.root;
            let in_place = at_root && case.in_place;
            let after = if in_place { vec![] } else { data[rank.0 as usize].clone() };
            let send = if at_root { data.concat() } else { vec![] };
            Buffers { send, before: vec![0xEE; after.len()], after }
        }).collect();
        let call = |rank: Rank| {
            let (root, in_place) = (case.root, case.in_place && rank == case.root);
            let len = lens[rank.0 as usize];
            if !irregular {
                return Collective::Scatter { root, len, in_place };
            }
            let blocks = if rank == root { blocks.clone() } else { Blocks::default() };
            Collective::Scatterv { root, len, blocks, in_place }
        };
        let traffic = case.run(call, &buffers, false);
        let home = case.clusters[case.root.0 as usize];
        let away = ranks(case.size()).filter(|rank| case.clusters[rank.0 as usize] != home);
        prop_assert_eq!(traffic.total(), away.map(|rank| blocks.len(rank)).sum::<u64>());
    }

    #[test]
    fn allgather(case in cases(), irregular: bool) {
        let lens = if irregular { case.lens(1) } else { vec![case.count; case.size() as usize] };
        let blocks = Blocks::new(lens.iter().copied());
        let data = case.data(|rank| lens[rank.0 as usize]);
        let buffers = case.everywhere(&data, |_| data.concat(), |rank| blocks.offset(rank));
        let call = |_| Collective::Allgather { blocks: blocks.clone(), in_place: case.in_place };
        let traffic = case.run(call, &buffers, false);
        prop_assert_eq!(traffic.total(), blocks.total() * (case.clusters() - 1), "once to each cluster");
    }

    #[test]
    fn alltoall(case in cases(), irregular: bool) {
        let size = case.size();
        let mut dice = case.dice();
        let random: Vec<Vec<u64>> = ranks(size).map(|_| ranks(size).map(|_| {
            if irregular { dice.below(case.count as usize + 1) as u64 } else { case.count }
        }).collect()).collect();
        // In place, a pair exchanges as much as it gets.
        let len = |i: usize, j: usize| if case.in_place { random[i.min(j)][i.max(j)] } else { random[i][j] };
        let indices = || 0..size as usize;
        let table: Vec<Vec<u64>> = indices().map(|i| indices().map(|j| len(i, j)).collect()).collect();
        let data: Vec<Vec<Vec<u8>>> = table.iter().map(|row| {
            row.iter().map(|&len| (0..len).map(|_| dice.below(256) as u8).collect()).collect()
        }).collect();
        let input: Vec<Vec<u8>> = data.iter().map(|blocks| blocks.concat()).collect();
        let output = |rank: Rank| data.iter().flat_map(|blocks| blocks[rank.0 as usize].clone()).collect();
        let buffers = case.everywhere(&input, output, |_| 0);
        let call = |rank: Rank| Collective::Alltoall {
            send: Blocks::new(table[rank.0 as usize].iter().copied()),
            recv: Blocks::new(table.iter().map(|row| row[rank.0 as usize])),
            is_equal: !irregular,
            in_place: case.in_place,
        };
        let traffic = case.run(call, &buffers, false);
        let crossing = |i: usize, j: usize| case.clusters[i] != case.clusters[j];
        let pairs = (0..size as usize).flat_map(|i| (0..size as usize).map(move |j| (i, j)));
        let expected: u64 = pairs.filter(|&(i, j)| crossing(i, j)).map(|(i, j)| table[i][j]).sum();
        prop_assert_eq!(traffic.total(), expected);
    }

    #[test]
    fn reduce(case in cases()) {
        let (elements, operands) = case.operands();
        let result = combined(&operands, case.size(), case.operation);
        let buffers: Vec<_> = ranks(case.size()).map(|rank| {
            let send = operands[rank.0 as usize].clone();
            match (rank == case.root, case.in_place) {
                (true, true) => Buffers { send: vec![], before: send, after: result.clone() },
                (true, false) => Buffers { send, before: vec![0xEE; result.len()], after: result.clone() },
                (false, _) => Buffers { send, before: vec![], after: vec![] },
            }
        }).collect();
        let call = |rank| {
            Collective::Reduce { root: case.root, elements, in_place: case.in_place && rank == case.root }
        };
        let traffic = case.run(call, &buffers, false);
        let by_cluster = case.operation.is_commutative() || case.is_ordered();
        let operands = if by_cluster { case.clusters() - 1 } else { case.away() };
        prop_assert_eq!(traffic.total(), elements.len() * operands);
    }

    #[test]
    fn allreduce(case in cases()) {
        let (elements, operands) = case.operands();
        let result = combined(&operands, case.size(), case.operation);
        let buffers = case.everywhere(&operands, |_| result.clone(), |_| 0);
        let call = |_| Collective::Allreduce { elements, in_place: case.in_place };
        let traffic = case.run(call, &buffers, false);
        let by_cluster = case.operation.is_commutative() || case.is_ordered();
        let operands = if by_cluster { case.clusters() } else { u64::from(case.size()) };
        prop_assert_eq!(traffic.total(), elements.len() * operands * (case.clusters() - 1));
    }

    #[test]
    fn allreduce_is_the_same_everywhere_for_floats(case in cases()) {
        let case = Case { operation: Operation::Float, ..case };
        let (elements, operands) = case.operands();
        let buffers = case.everywhere(&operands, |_| vec![0; elements.len() as usize], |_| 0);
        case.run(|_| Collective::Allreduce { elements, in_place: case.in_place }, &buffers, true);
    }

    #[test]
    fn reduce_scatter(case in cases(), irregular: bool) {
        let unit = case.operation.size() as u64;
        let lens = if irregular { case.lens(unit) } else { vec![case.count.min(6) * unit; case.size() as usize] };
        let blocks = Blocks::new(lens);
        let case = Case { count: blocks.total() / unit, ..case };
        let (elements, operands) = case.operands();
        let result = combined(&operands, case.size(), case.operation);
        let block = |rank| result[blocks.offset(rank) as usize..][..blocks.len(rank) as usize].to_vec();
        let buffers: Vec<_> = ranks(case.size()).map(|rank| {
            let send = operands[rank.0 as usize].clone();
            if !case.in_place {
                return Buffers { send, before: vec![0xEE; block(rank).len()], after: block(rank) };
            }
            let mut after = send.clone();
            after[..block(rank).len()].copy_from_slice(&block(rank));
            Buffers { send: vec![], before: send, after }
        }).collect();
        let call = |_| Collective::ReduceScatter { elements, blocks: blocks.clone(), in_place: case.in_place };
        let traffic = case.run(call, &buffers, false);
        let by_cluster = case.operation.is_commutative() || case.is_ordered();
        if by_cluster {
            prop_assert_eq!(traffic.total(), elements.len() * (case.clusters() - 1));
        }
    }

    #[test]
    fn scan(case in cases()) {
        let (elements, operands) = case.operands();
        let prefix = |rank: Rank| combined(&operands, rank.0 + 1, case.operation);
        let buffers = case.everywhere(&operands, prefix, |_| 0);
        let call = |_| Collective::Scan { elements, in_place: case.in_place };
        let traffic = case.run(call, &buffers, false);
        let clusters = case.clusters();
        let operands = if case.is_ordered() { clusters * (clusters - 1) / 2 } else { u64::from(case.size()) * (clusters - 1) };
        prop_assert_eq!(traffic.total(), elements.len() * operands);
    }

    #[test]
    fn exscan(case in cases(), without_buffer: bool) {
        let (elements, operands) = case.operands();
        // Nothing is stored on rank 0: its buffer stays, and may be none at all.
        let prefix = |rank: Rank| match rank.0 {
            0 if case.in_place => operands[0].clone(),
            0 if without_buffer => vec![],
            0 => vec![0xEE; elements.len() as usize],
            end => combined(&operands, end, case.operation),
        };
        let buffers = case.everywhere(&operands, prefix, |_| 0);
        case.run(|_| Collective::Exscan { elements, in_place: case.in_place }, &buffers, false);
    }
}

#[test]
fn the_default_tuning_takes_lanes_for_large_data_only() {
    let shape = Shape::new(Rank(0), &[0u16, 0, 1, 1].map(gridmpi_wire::ClusterId));
    let name = |collective: Collective| algorithm(&shape, &collective, &Tuning::default());
    let bcast = |len| name(Collective::Bcast { root: Rank(3), len });
    assert_eq!(bcast(0), "nothing to do");
    assert_eq!(bcast(1 << 10), "bcast direct");
    assert_eq!(bcast(1 << 20), "bcast lanes");
    let sum = |count| {
        let elements = Elements { count, size: 8, commutative: true };
        name(Collective::Allreduce { elements, in_place: false })
    };
    assert_eq!(sum(1), "allreduce leaders");
    assert_eq!(sum(1 << 20), "allreduce lanes");
    let gather = |len| name(Collective::Gather { root: Rank(1), len, in_place: false });
    assert_eq!(gather(8), "gather leaders");
    assert_eq!(gather(1 << 16), "gather direct");
}

#[test]
fn lanes_share_the_crossing_evenly() {
    let case = Case {
        clusters: vec![0, 0, 0, 0, 1, 1, 1, 1],
        root: Rank(5),
        count: 1 << 12,
        operation: Operation::Sum,
        in_place: false,
        tuning: Tuning { lane_bytes: 256, max_lanes: 4, through_leaders: 0 },
        seed: 7,
    };
    for shape in shapes(&case.clusters) {
        let schedule =
            schedule(&shape, &Collective::Bcast { root: case.root, len: case.count }, &case.tuning);
        let sent: u64 = schedule
            .steps
            .iter()
            .map(|step| match step {
                gridmpi_coll::Step::Send { data, .. } => data.iter().map(|span| span.len).sum(),
                _ => 0,
            })
            .sum();
        assert_eq!(sent, if shape.is_local(case.root) { case.count / 4 } else { 0 });
    }
}
