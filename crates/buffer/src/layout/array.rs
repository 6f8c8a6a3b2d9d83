//! Types of parts of arrays: `subarray` and `darray` (MPI 4.1 §5.1.3 and §5.1.4).

use super::bounds::Builder;
use super::{Layout, LayoutError};

/// `MPI_ORDER_C` or `MPI_ORDER_FORTRAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayOrder {
    /// The last dimension varies fastest.
    C,
    /// The first dimension varies fastest.
    Fortran,
}

/// How one dimension of `darray` is distributed (MPI 4.1 §5.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// `MPI_DISTRIBUTE_NONE`.
    None,
    /// `MPI_DISTRIBUTE_BLOCK`; the argument, or `None` for `MPI_DISTRIBUTE_DFLT_DARG`.
    Block(Option<u64>),
    /// `MPI_DISTRIBUTE_CYCLIC`; the argument, or `None` for `MPI_DISTRIBUTE_DFLT_DARG`.
    Cyclic(Option<u64>),
}

impl ArrayOrder {
    /// The dimensions, the fastest first.
    fn fastest_first(self, dims: usize) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::C => Box::new((0..dims).rev()),
            Self::Fortran => Box::new(0..dims),
        }
    }
}

impl Layout {
    /// `MPI_Type_create_subarray`: `subsizes` elements from `starts` of an array of `sizes`.
    ///
    /// # Errors
    /// [`LayoutError::Array`] if the arguments differ in length or the part is empty or not within the
    /// array; [`LayoutError::Overflow`].
    pub fn subarray(
        &self,
        sizes: &[u64],
        subsizes: &[u64],
        starts: &[u64],
        order: ArrayOrder,
    ) -> Result<Self, LayoutError> {
        if sizes.is_empty() || sizes.len() != subsizes.len() || sizes.len() != starts.len() {
            return Err(LayoutError::Array("number of dimensions"));
        }
        let mut part = self.clone();
        for dim in order.fastest_first(sizes.len()) {
            let (size, sub, start) = (sizes[dim], subsizes[dim], starts[dim]);
            if sub == 0 || sub > size {
                return Err(LayoutError::Array("subsizes"));
            }
            if start > size - sub {
                return Err(LayoutError::Array("starts"));
            }
            let block = Blocks { first: start, len: sub, count: 1, every: 0, last: sub };
            part = part.slab(size, block)?;
        }
        Ok(part)
    }

    /// `MPI_Type_create_darray`: the part of process `rank`, of the grid `psizes` in row-major order,
    /// in an array of `gsizes`.
    ///
    /// # Errors
    /// [`LayoutError::Array`] if the arguments differ in length or the standard forbids their values;
    /// [`LayoutError::Overflow`].
    pub fn darray(
        &self,
        rank: u64,
        gsizes: &[u64],
        distributions: &[Distribution],
        psizes: &[u64],
        order: ArrayOrder,
    ) -> Result<Self, LayoutError> {
        let dims = gsizes.len();
        if dims == 0 || dims != distributions.len() || dims != psizes.len() {
            return Err(LayoutError::Array("number of dimensions"));
        }
        let place = grid_coordinates(rank, psizes)?;
        let mut part = self.clone();
        for dim in order.fastest_first(dims) {
            let (gsize, psize) = (gsizes[dim], psizes[dim]);
            let argument = distributions[dim].argument(gsize, psize)?;
            part = part.slab(gsize, Blocks::cyclic(argument, gsize, place[dim], psize))?;
        }
        Ok(part)
    }

    /// One dimension: blocks of this type in a row of `size` elements, bounded by the whole row.
    fn slab(&self, size: u64, blocks: Blocks) -> Result<Self, LayoutError> {
        let extent = i128::from(self.extent());
        let bytes =
            |elements: u64| i128::from(elements).checked_mul(extent).ok_or(LayoutError::Overflow);
        let mut builder = Builder::default();
        if blocks.count > 0 {
            let whole = blocks.count - 1;
            let last = blocks.first.saturating_add(whole.saturating_mul(blocks.every));
            builder.add(self, blocks.len, whole, bytes(blocks.every)?, bytes(blocks.first)?)?;
            builder.add(self, blocks.last, 1, 0, bytes(last)?)?;
        }
        let mut slab = builder.finish()?;
        // The marks of the standard's definition are the row's, whatever marks its elements have.
        let mut marks = Builder::default();
        marks.mark(0, bytes(size)?);
        let marks = marks.finish()?;
        (slab.lb, slab.ub, slab.marked) = (marks.lb, marks.ub, true);
        Ok(slab)
    }
}

/// Blocks in a row, in elements: `count` of `len`, `every` apart from `first` on; the last has `last`.
struct Blocks {
    first: u64,
    len: u64,
    count: u64,
    every: u64,
    last: u64,
}

impl Blocks {
    /// The standard's `cyclic(darg, gsize, r, psize)`.
    fn cyclic(darg: u64, gsize: u64, r: u64, psize: u64) -> Self {
        let all = gsize.div_ceil(darg);
        let count = all / psize + u64::from(r < all % psize);
        let cycle = psize.saturating_mul(darg);
        let first = r.saturating_mul(darg);
        let rest = gsize % cycle;
        // The last cycle is cut short for one process: the one in whose block the array ends.
        let last = if rest > first && rest - first < darg { rest - first } else { darg };
        Self { first, len: darg, count, every: cycle, last }
    }
}

impl Distribution {
    /// The block length of the cyclic distribution that this is.
    fn argument(self, gsize: u64, psize: u64) -> Result<u64, LayoutError> {
        match self {
            Self::None if psize == 1 => Ok(gsize.max(1)),
            Self::None => Err(LayoutError::Array("psizes")),
            Self::Block(None) => Ok(gsize.div_ceil(psize).max(1)),
            Self::Cyclic(None) => Ok(1),
            Self::Block(Some(0)) | Self::Cyclic(Some(0)) => Err(LayoutError::Array("dargs")),
            Self::Block(Some(darg)) if darg.saturating_mul(psize) < gsize => {
                Err(LayoutError::Array("dargs"))
            }
            Self::Block(Some(darg)) | Self::Cyclic(Some(darg)) => Ok(darg),
        }
    }
}

/// Where `rank` is in the grid: row-major, as the standard has it for either order of the array.
fn grid_coordinates(rank: u64, psizes: &[u64]) -> Result<Vec<u64>, LayoutError> {
    let mut rest = rank;
    let mut place = vec![0; psizes.len()];
    for (dim, &psize) in psizes.iter().enumerate().rev() {
        if psize == 0 {
            return Err(LayoutError::Array("psizes"));
        }
        (place[dim], rest) = (rest % psize, rest / psize);
    }
    if rest == 0 { Ok(place) } else { Err(LayoutError::Array("rank")) }
}
