//! Datatypes interpreted naively: the standard's type maps, byte by byte (MPI 4.1 §5.1).

use gridmpi_buffer::{ArrayOrder, Distribution, Layout};
use proptest::collection::vec;
use proptest::prelude::*;

/// How a type was constructed.
#[derive(Clone, Debug)]
pub enum Type {
    Basic(u64),
    Vector { count: u64, block: u64, stride: i64, child: Box<Type> },
    Hvector { count: u64, block: u64, stride: i64, child: Box<Type> },
    Indexed { blocks: Vec<(u64, i64)>, child: Box<Type> },
    IndexedBlock { block: u64, at: Vec<i64>, child: Box<Type> },
    HindexedBlock { block: u64, at: Vec<i64>, child: Box<Type> },
    Struct(Vec<(u64, i64, Type)>),
    Subarray { dims: Vec<(u64, u64, u64)>, order: ArrayOrder, child: Box<Type> },
    Darray { rank: u64, dims: Vec<(u64, Distribution, u64)>, order: ArrayOrder, child: Box<Type> },
    Resized { lb: i64, extent: i64, child: Box<Type> },
}

/// A type map: offsets of data bytes in order, offsets of marks, and the strictest alignment.
#[derive(Clone, Debug, Default)]
pub struct Map {
    pub data: Vec<i64>,
    lb_marks: Vec<i64>,
    ub_marks: Vec<i64>,
    align: i64,
}

impl Map {
    pub fn lb(&self) -> i64 {
        let marks = self.lb_marks.iter().min();
        *marks.or(self.data.iter().min()).unwrap_or(&0)
    }

    pub fn ub(&self) -> i64 {
        if let Some(mark) = self.ub_marks.iter().max() {
            return *mark;
        }
        let Some(last) = self.data.iter().max() else { return 0 };
        let mut ub = last + 1;
        while (ub - self.lb()) % self.align != 0 {
            ub += 1;
        }
        ub
    }

    pub fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    pub fn true_bounds(&self) -> (i64, i64) {
        let low = self.data.iter().min().copied();
        low.map_or((0, 0), |low| (low, self.data.iter().max().unwrap() + 1))
    }

    fn put(&mut self, other: &Map, at: i64) {
        let moved = |offsets: &[i64]| offsets.iter().map(|offset| offset + at).collect::<Vec<_>>();
        self.data.extend(moved(&other.data));
        self.lb_marks.extend(moved(&other.lb_marks));
        self.ub_marks.extend(moved(&other.ub_marks));
        if !other.data.is_empty() {
            self.align = self.align.max(other.align);
        }
    }

    fn put_block(&mut self, other: &Map, block: u64, at: i64) {
        for index in 0..block as i64 {
            self.put(other, at + index * other.extent());
        }
    }

    pub fn elements(&self, count: u64) -> Vec<i64> {
        let mut all = Map::default();
        all.put_block(self, count, 0);
        all.data
    }
}

fn fastest_first(order: ArrayOrder, dims: usize) -> Vec<usize> {
    match order {
        ArrayOrder::C => (0..dims).rev().collect(),
        ArrayOrder::Fortran => (0..dims).collect(),
    }
}

/// A row of `size` elements of which `chosen` are there.
fn row(child: &Map, size: u64, chosen: impl Iterator<Item = u64>) -> Map {
    let mut map = Map::default();
    let bare = Map { lb_marks: vec![], ub_marks: vec![], ..child.clone() };
    for index in chosen {
        map.put(&bare, index as i64 * child.extent());
    }
    map.lb_marks.push(0);
    map.ub_marks.push(size as i64 * child.extent());
    map
}

/// The block length of the standard's `cyclic` for a dimension.
fn block_length(distribution: Distribution, gsize: u64, psize: u64) -> u64 {
    match distribution {
        Distribution::None => gsize,
        Distribution::Block(None) => gsize.div_ceil(psize),
        Distribution::Block(Some(darg)) | Distribution::Cyclic(Some(darg)) => darg,
        Distribution::Cyclic(None) => 1,
    }
}

impl Type {
    pub fn map(&self) -> Map {
        let mut map = Map { align: 1, ..Map::default() };
        match self {
            Self::Basic(size) => {
                map.data = (0..*size as i64).collect();
                map.align = *size as i64;
            }
            Self::Vector { count, block, stride, child } => {
                let child = child.map();
                for index in 0..*count as i64 {
                    map.put_block(&child, *block, index * stride * child.extent());
                }
            }
            Self::Hvector { count, block, stride, child } => {
                for index in 0..*count as i64 {
                    map.put_block(&child.map(), *block, index * stride);
                }
            }
            Self::Indexed { blocks, child } => {
                let child = child.map();
                for (block, at) in blocks {
                    map.put_block(&child, *block, at * child.extent());
                }
            }
            Self::IndexedBlock { block, at, child } => {
                let child = child.map();
                at.iter().for_each(|at| map.put_block(&child, *block, at * child.extent()));
            }
            Self::HindexedBlock { block, at, child } => {
                at.iter().for_each(|at| map.put_block(&child.map(), *block, *at));
            }
            Self::Struct(blocks) => {
                blocks
                    .iter()
                    .for_each(|(block, at, child)| map.put_block(&child.map(), *block, *at));
            }
            Self::Subarray { dims, order, child } => {
                map = child.map();
                for dim in fastest_first(*order, dims.len()) {
                    let (size, sub, start) = dims[dim];
                    map = row(&map, size, start..start + sub);
                }
            }
            Self::Darray { rank, dims, order, child } => {
                map = child.map();
                let mut place = vec![0; dims.len()];
                let (mut rest, mut grid) = (*rank, dims.iter().map(|dim| dim.2).product::<u64>());
                for (dim, &(_, _, psize)) in dims.iter().enumerate() {
                    grid /= psize;
                    (place[dim], rest) = (rest / grid, rest % grid);
                }
                for dim in fastest_first(*order, dims.len()) {
                    let (gsize, distribution, psize) = dims[dim];
                    let length = block_length(distribution, gsize, psize);
                    let mine = |index: &u64| index / length % psize == place[dim];
                    map = row(&map, gsize, (0..gsize).filter(mine));
                }
            }
            Self::Resized { lb, extent, child } => {
                map = child.map();
                (map.lb_marks, map.ub_marks) = (vec![*lb], vec![lb + extent]);
            }
        }
        map
    }

    pub fn layout(&self) -> Layout {
        match self {
            Self::Basic(size) => Ok(Layout::predefined(*size, *size)),
            Self::Vector { count, block, stride, child } => {
                child.layout().vector(*count, *block, *stride)
            }
            Self::Hvector { count, block, stride, child } => {
                child.layout().hvector(*count, *block, *stride)
            }
            Self::Indexed { blocks, child } => child.layout().indexed(blocks.iter().copied()),
            Self::IndexedBlock { block, at, child } => {
                child.layout().indexed_block(*block, at.iter().copied())
            }
            Self::HindexedBlock { block, at, child } => {
                child.layout().hindexed_block(*block, at.iter().copied())
            }
            Self::Struct(blocks) => {
                let blocks: Vec<_> = blocks.iter().map(|b| (b.0, b.1, b.2.layout())).collect();
                Layout::structure(blocks.iter().map(|b| (b.0, b.1, &b.2)))
            }
            Self::Subarray { dims, order, child } => {
                let of =
                    |pick: fn(&(u64, u64, u64)) -> u64| dims.iter().map(pick).collect::<Vec<_>>();
                child.layout().subarray(&of(|d| d.0), &of(|d| d.1), &of(|d| d.2), *order)
            }
            Self::Darray { rank, dims, order, child } => {
                let gsizes: Vec<_> = dims.iter().map(|d| d.0).collect();
                let distributions: Vec<_> = dims.iter().map(|d| d.1).collect();
                let psizes: Vec<_> = dims.iter().map(|d| d.2).collect();
                child.layout().darray(*rank, &gsizes, &distributions, &psizes, *order)
            }
            Self::Resized { lb, extent, child } => child.layout().resized(*lb, *extent),
        }
        .expect("small types do not overflow")
    }
}

fn order() -> impl Strategy<Value = ArrayOrder> {
    prop_oneof![Just(ArrayOrder::C), Just(ArrayOrder::Fortran)]
}

fn subarray_dim() -> impl Strategy<Value = (u64, u64, u64)> {
    (1u64..5)
        .prop_flat_map(|size| (Just(size), 1..=size))
        .prop_flat_map(|(size, sub)| (Just(size), Just(sub), 0..=size - sub))
}

fn darray_dim() -> impl Strategy<Value = (u64, Distribution, u64)> {
    (1u64..8, 1u64..4, 0..5, 1u64..4).prop_map(|(gsize, psize, kind, darg)| match kind {
        0 => (gsize, Distribution::None, 1),
        1 => (gsize, Distribution::Block(None), psize),
        2 => (gsize, Distribution::Block(Some(gsize.div_ceil(psize) + darg - 1)), psize),
        3 => (gsize, Distribution::Cyclic(None), psize),
        _ => (gsize, Distribution::Cyclic(Some(darg)), psize),
    })
}

fn constructed(child: BoxedStrategy<Type>) -> BoxedStrategy<Type> {
    let boxed = child.clone().prop_map(Box::new);
    let blocks = vec((0u64..4, -6i64..12), 0..5);
    let displacements = vec(-6i64..12, 0..5);
    let bytes = vec(-40i64..80, 0..5);
    prop_oneof![
        (0u64..4, 0u64..4, -4i64..5, boxed.clone()).prop_map(|(count, block, stride, child)| {
            Type::Vector { count, block, stride, child }
        }),
        (0u64..4, 0u64..4, -40i64..50, boxed.clone()).prop_map(|(count, block, stride, child)| {
            Type::Hvector { count, block, stride, child }
        }),
        (blocks, boxed.clone()).prop_map(|(blocks, child)| Type::Indexed { blocks, child }),
        (0u64..4, displacements, boxed.clone()).prop_map(|(block, at, child)| Type::IndexedBlock {
            block,
            at,
            child
        }),
        (0u64..4, bytes, boxed.clone()).prop_map(|(block, at, child)| Type::HindexedBlock {
            block,
            at,
            child
        }),
        vec((0u64..3, -40i64..80, child), 0..4).prop_map(Type::Struct),
        (vec(subarray_dim(), 1..4), order(), boxed.clone())
            .prop_map(|(dims, order, child)| Type::Subarray { dims, order, child }),
        (any::<u64>(), vec(darray_dim(), 1..4), order(), boxed.clone()).prop_map(
            |(rank, dims, order, child)| {
                let rank = rank % dims.iter().map(|dim| dim.2).product::<u64>();
                Type::Darray { rank, dims, order, child }
            }
        ),
        (-20i64..20, -20i64..60, boxed).prop_map(|(lb, extent, child)| Type::Resized {
            lb,
            extent,
            child
        }),
    ]
    .boxed()
}

/// A random type of up to three constructors above a basic one.
pub fn types() -> impl Strategy<Value = Type> {
    let basic = prop_oneof![Just(1u64), Just(2), Just(4), Just(8), Just(16)];
    let leaf = basic.prop_map(Type::Basic).boxed();
    (0..4).prop_flat_map(move |depth| {
        let mut strategy = leaf.clone();
        for _ in 0..depth {
            strategy = constructed(strategy);
        }
        strategy
    })
}
