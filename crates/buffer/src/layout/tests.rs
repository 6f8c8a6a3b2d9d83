use super::*;
use crate::node::Run;

fn runs(layout: &Layout, count: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    let node = layout.elements(count);
    let _ = node.walk(0, 0, node.size(), &mut |run| {
        runs.push(run);
        std::ops::ControlFlow::Continue(())
    });
    runs
}

fn double() -> Layout {
    Layout::predefined(8, 8)
}

#[test]
fn a_vector_of_a_million_blocks_is_one_run() {
    let vector = double().vector(1_000_000, 1, 3).unwrap();
    assert_eq!(runs(&vector, 1), [Run { offset: 0, len: 8, count: 1_000_000, stride: 24 }]);
    let by_index = double().indexed_block(2, (0..1_000_000).map(|i| i * 5)).unwrap();
    assert_eq!(runs(&by_index, 1), [Run { offset: 0, len: 16, count: 1_000_000, stride: 40 }]);
}

#[test]
fn touching_blocks_become_one() {
    let whole = double().subarray(&[4, 8, 8], &[2, 8, 8], &[1, 0, 0], ArrayOrder::C).unwrap();
    assert_eq!(runs(&whole, 1), [Run::block(512, 1024)]);
    let pieces = double().indexed([(2, 4), (1, 6), (3, 7)]).unwrap();
    assert_eq!(runs(&pieces, 1), [Run::block(32, 48)]);
    let record = Layout::structure([(1, 0, &double()), (2, 8, &Layout::predefined(4, 4))]).unwrap();
    assert!(record.is_dense());
    assert_eq!(runs(&record, 100), [Run::block(0, 1600)]);
}

#[test]
fn a_stride_gives_way_to_a_touching_block() {
    let layout = Layout::bytes(1).hindexed([(4, 0), (4, 8), (4, 12), (4, 16)]).unwrap();
    assert_eq!(runs(&layout, 1), [Run::block(0, 4), Run::block(8, 12)]);
}

#[test]
fn a_structure_is_padded_to_its_strictest_member() {
    // MPI 4.1 §5.1, example of ε: {(double, 0), (char, 8)} has extent 16.
    let record = Layout::structure([(1, 0, &double()), (1, 8, &Layout::bytes(1))]).unwrap();
    assert_eq!((record.size(), record.extent(), record.true_extent()), (9, 16, 9));
    let three = record.contiguous(3).unwrap();
    assert_eq!((three.size(), three.extent(), three.true_extent()), (27, 48, 41));
}

#[test]
fn marks_rule_the_bounds_of_what_is_built_of_them() {
    // MPI 4.1 §5.1.7, example: type1 = resized int with lb -3, extent 9.
    let int = Layout::predefined(4, 4);
    let type1 = int.resized(-3, 9).unwrap();
    let type2 = type1.contiguous(2).unwrap();
    assert_eq!((type2.lb(), type2.ub()), (-3, 15));
    let mixed = Layout::structure([(1, 100, &int), (1, 0, &type1)]).unwrap();
    assert_eq!((mixed.lb(), mixed.ub(), mixed.true_extent()), (-3, 6, 104));
}

#[test]
fn vendor_bounds_do_not_mark() {
    let int = Layout::predefined(4, 4).with_bounds(0, 8).unwrap();
    let two = Layout::structure([(1, 0, &int), (1, 100, &Layout::bytes(1))]).unwrap();
    assert_eq!(two.extent(), 104);
    assert_eq!(int.contiguous(2).unwrap().true_extent(), 12);
}

#[test]
fn what_does_not_fit_is_refused() {
    let big = Layout::bytes(1 << 40);
    assert_eq!(big.contiguous(1 << 23).unwrap_err(), LayoutError::Overflow);
    assert_eq!(big.contiguous(u64::MAX).unwrap_err(), LayoutError::Overflow);
    assert_eq!(big.vector(2, 1, i64::MAX).unwrap_err(), LayoutError::Overflow);
    assert_eq!(double().resized(i64::MAX, 1).unwrap_err(), LayoutError::Overflow);
    assert_eq!(double().hindexed([(1, i64::MAX)]).unwrap_err(), LayoutError::Overflow);
    let far = double().hindexed([(1, i64::MAX - 8), (1, i64::MIN)]);
    assert_eq!(far.unwrap_err(), LayoutError::Overflow);
    assert!(double().vector(1, 1, i64::MAX).is_ok(), "a stride that nothing follows");
}

#[test]
fn wrong_arrays_are_refused_by_argument() {
    let array = |result: Result<Layout, LayoutError>| match result {
        Err(LayoutError::Array(name)) => name,
        other => panic!("{other:?}"),
    };
    let sub = |sizes: &[u64], subsizes: &[u64], starts: &[u64]| {
        array(double().subarray(sizes, subsizes, starts, ArrayOrder::C))
    };
    assert_eq!(sub(&[], &[], &[]), "number of dimensions");
    assert_eq!(sub(&[4], &[0], &[0]), "subsizes");
    assert_eq!(sub(&[4], &[2], &[3]), "starts");
    let grid = |rank, distribution, psize| {
        array(double().darray(rank, &[10], &[distribution], &[psize], ArrayOrder::Fortran))
    };
    assert_eq!(grid(0, Distribution::None, 2), "psizes");
    assert_eq!(grid(0, Distribution::Block(Some(4)), 2), "dargs");
    assert_eq!(grid(0, Distribution::Cyclic(Some(0)), 2), "dargs");
    assert_eq!(grid(2, Distribution::Cyclic(None), 2), "rank");
    assert_eq!(grid(0, Distribution::Cyclic(None), 0), "psizes");
}
