//! Datatypes as layouts: the constructors of MPI 4.1 §5.1 and the bounds they give.

mod array;
mod bounds;

pub use array::{ArrayOrder, Distribution};

use bounds::Builder;
use thiserror::Error;

use crate::node::Node;

/// One element of a datatype: its bytes as strided runs in type-map order, and its bounds.
///
/// Cheap to clone (shares the runs). Kept as nested repetitions, so its memory follows the way the
/// type was built and not the number of its blocks.
#[derive(Clone, Debug)]
pub struct Layout {
    node: Node,
    size: u64,
    lb: i64,
    ub: i64,
    true_lb: i64,
    true_ub: i64,
    /// The strictest alignment of the predefined types within, by which unmarked bounds are padded.
    align: u64,
    /// Whether the bounds were set by the program (MPI 4.1 §5.1.7) and so rule those of types built of it.
    marked: bool,
}

/// Why a layout cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A size, bound or displacement does not fit 63 bits.
    #[error("the datatype's size or extent does not fit 63 bits")]
    Overflow,
    /// Arguments of `subarray` or `darray` that the standard forbids; names the argument.
    #[error("invalid {0} of an array datatype")]
    Array(&'static str),
}

type Made = Result<Layout, LayoutError>;

impl Layout {
    /// No bytes, extent 0.
    #[must_use]
    pub fn empty() -> Self {
        Self::bytes(0)
    }

    /// A predefined dense type of `size` bytes with alignment 1 (it never causes padding).
    #[must_use]
    pub fn bytes(size: u64) -> Self {
        Self::predefined(size, 1)
    }

    /// A predefined dense type of `size` bytes; `align` is the machine's alignment of it, by which a
    /// type that holds it is padded (MPI 4.1 §5.1, the ε of the extent). `size` is below 2^63.
    #[must_use]
    pub fn predefined(size: u64, align: u64) -> Self {
        let ub = size as i64;
        let align = align.max(1);
        Self {
            node: Node::dense(size),
            size,
            lb: 0,
            ub,
            true_lb: 0,
            true_ub: ub,
            align,
            marked: false,
        }
    }

    /// `MPI_Type_contiguous`.
    ///
    /// # Errors
    /// As every constructor: [`LayoutError::Overflow`] if a size or bound does not fit 63 bits.
    pub fn contiguous(&self, count: u64) -> Made {
        self.hvector(1, count, 0)
    }

    /// `MPI_Type_vector`: `stride` in extents of this type.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn vector(&self, count: u64, block: u64, stride: i64) -> Made {
        let mut builder = Builder::default();
        builder.add(self, block, count, self.extents(stride), 0)?;
        builder.finish()
    }

    /// `MPI_Type_create_hvector`: `stride` in bytes.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn hvector(&self, count: u64, block: u64, stride: i64) -> Made {
        let mut builder = Builder::default();
        builder.add(self, block, count, stride.into(), 0)?;
        builder.finish()
    }

    /// `MPI_Type_indexed`: pairs of block length and displacement in extents of this type.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn indexed(&self, blocks: impl IntoIterator<Item = (u64, i64)>) -> Made {
        let mut builder = Builder::default();
        for (block, at) in blocks {
            builder.add(self, block, 1, 0, self.extents(at))?;
        }
        builder.finish()
    }

    /// `MPI_Type_create_hindexed`: pairs of block length and displacement in bytes.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn hindexed(&self, blocks: impl IntoIterator<Item = (u64, i64)>) -> Made {
        Self::structure(blocks.into_iter().map(|(block, at)| (block, at, self)))
    }

    /// `MPI_Type_create_indexed_block`: displacements in extents of this type.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn indexed_block(&self, block: u64, at: impl IntoIterator<Item = i64>) -> Made {
        self.indexed(at.into_iter().map(|at| (block, at)))
    }

    /// `MPI_Type_create_hindexed_block`: displacements in bytes.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn hindexed_block(&self, block: u64, at: impl IntoIterator<Item = i64>) -> Made {
        self.hindexed(at.into_iter().map(|at| (block, at)))
    }

    /// `MPI_Type_create_struct`: block length, displacement in bytes and type of each block.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn structure<'a>(blocks: impl IntoIterator<Item = (u64, i64, &'a Self)>) -> Made {
        let mut builder = Builder::default();
        for (block, at, child) in blocks {
            builder.add(child, block, 1, 0, at.into())?;
        }
        builder.finish()
    }

    /// `MPI_Type_create_resized`: from then on the bounds are marked, and types built of it are bounded
    /// by such marks alone (MPI 4.1 §5.1.7).
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn resized(&self, lb: i64, extent: i64) -> Made {
        Ok(Self { marked: true, ..self.with_bounds(lb, extent)? })
    }

    /// The same layout with the bounds that the vendor MPI reports for it. Vendors differ in how they
    /// pad types of misaligned data, and the program's memory follows its vendor.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn with_bounds(&self, lb: i64, extent: i64) -> Made {
        let ub = lb.checked_add(extent).ok_or(LayoutError::Overflow)?;
        Ok(Self { lb, ub, ..self.clone() })
    }

    /// Bytes of data in one element (`MPI_Type_size`).
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Lower bound, bytes (`MPI_Type_get_extent`).
    #[must_use]
    pub fn lb(&self) -> i64 {
        self.lb
    }

    /// Upper bound, bytes.
    #[must_use]
    pub fn ub(&self) -> i64 {
        self.ub
    }

    /// Bytes from one element to the next of several (`MPI_Type_get_extent`); may be negative.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.ub.wrapping_sub(self.lb)
    }

    /// Offset of the first byte of data (`MPI_Type_get_true_extent`); 0 if there is none.
    #[must_use]
    pub fn true_lb(&self) -> i64 {
        self.true_lb
    }

    /// Bytes from the first byte of data to the end of the last; 0 if there is none.
    #[must_use]
    pub fn true_extent(&self) -> i64 {
        self.true_ub.wrapping_sub(self.true_lb)
    }

    /// Whether any number of consecutive elements is one contiguous run of bytes in order. The run
    /// starts at [`Self::true_lb`].
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.size == 0 || (self.node.as_block().is_some() && self.extent() == self.size as i64)
    }

    /// The data of `count` elements.
    pub(crate) fn elements(&self, count: u64) -> Node {
        self.node.repeated(count, self.extent())
    }

    /// Bytes of `count` extents.
    fn extents(&self, count: i64) -> i128 {
        i128::from(count) * i128::from(self.extent())
    }
}

#[cfg(test)]
mod tests;
