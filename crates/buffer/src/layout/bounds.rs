//! Sizes and bounds of constructed types (MPI 4.1 §5.1, equations for lb, ub and extent).

use super::{Layout, LayoutError};
use crate::node::Sequence;

/// The least and the greatest offset of something; nothing yet if `None`.
type Range = Option<(i128, i128)>;

/// Gathers blocks of a type under construction.
///
/// Bounds are those of the standard's type map: of the marks, if any entry is a mark; else of the data,
/// the upper one padded by ε to the strictest alignment within.
pub(super) struct Builder {
    data: Sequence,
    size: u64,
    true_bounds: Range,
    marks: Range,
    align: u64,
}

impl Default for Builder {
    fn default() -> Self {
        Self { data: Sequence::default(), size: 0, true_bounds: None, marks: None, align: 1 }
    }
}

impl Builder {
    /// Adds `count` blocks, `stride` bytes apart, the first at `at`, of `block` elements of `child` each.
    pub(super) fn add(
        &mut self,
        child: &Layout,
        block: u64,
        count: u64,
        stride: i128,
        at: i128,
    ) -> Result<(), LayoutError> {
        if block == 0 || count == 0 {
            return Ok(());
        }
        self.grow(child.size, block, count)?;
        let (low, high) = reach(block, child.extent().into(), count, stride)?;
        let spread = |lb: i64, ub: i64| (at + low + i128::from(lb), at + high + i128::from(ub));
        if child.size > 0 {
            include(&mut self.true_bounds, spread(child.true_lb, child.true_ub));
            self.align = self.align.max(child.align);
        }
        if child.marked {
            include(&mut self.marks, spread(child.lb, child.ub));
        }
        // Wrapping is sound: `finish` refuses the type if data lies beyond 63 bits, and a stride or
        // displacement that nothing lies at has no effect.
        let one = child.elements(block).repeated(count, stride as i64);
        self.data.push(one.shifted(at as i64));
        Ok(())
    }

    /// Adds marks without data, as arrays have them.
    pub(super) fn mark(&mut self, lb: i128, ub: i128) {
        include(&mut self.marks, (lb, ub));
    }

    fn grow(&mut self, size: u64, block: u64, count: u64) -> Result<(), LayoutError> {
        let more = size.checked_mul(block).and_then(|bytes| bytes.checked_mul(count));
        let size =
            more.and_then(|more| self.size.checked_add(more)).ok_or(LayoutError::Overflow)?;
        i64::try_from(size).map_err(|_| LayoutError::Overflow)?;
        self.size = size;
        Ok(())
    }

    /// The type of all blocks added.
    pub(super) fn finish(self) -> Result<Layout, LayoutError> {
        let (true_lb, true_ub) = fit(self.true_bounds.unwrap_or((0, 0)))?;
        let (lb, ub) = match (self.marks, self.true_bounds) {
            (Some(marks), _) => fit(marks)?,
            (None, Some((lb, ub))) => fit((lb, lb + pad(ub - lb, self.align)))?,
            (None, None) => (0, 0),
        };
        ub.checked_sub(lb).and(true_ub.checked_sub(true_lb)).ok_or(LayoutError::Overflow)?;
        let (size, align, marked) = (self.size, self.align, self.marks.is_some());
        Ok(Layout { node: self.data.finish(), size, lb, ub, true_lb, true_ub, align, marked })
    }
}

/// The least and greatest offset of an element among `count` blocks of `block` elements.
fn reach(block: u64, extent: i128, count: u64, stride: i128) -> Result<(i128, i128), LayoutError> {
    // The factors are below 2^64 and 2^64 (an extent), or 2^127 (a stride in extents).
    let elements = i128::from(block - 1).checked_mul(extent).ok_or(LayoutError::Overflow)?;
    let blocks = i128::from(count - 1).checked_mul(stride).ok_or(LayoutError::Overflow)?;
    let limit = 1i128 << 100; // keeps every later sum within 128 bits
    if elements.abs() > limit || blocks.abs() > limit {
        return Err(LayoutError::Overflow);
    }
    Ok((elements.min(0) + blocks.min(0), elements.max(0) + blocks.max(0)))
}

fn include(range: &mut Range, (low, high): (i128, i128)) {
    let (a, b) = range.unwrap_or((low, high));
    *range = Some((a.min(low), b.max(high)));
}

fn fit((low, high): (i128, i128)) -> Result<(i64, i64), LayoutError> {
    let narrow = |value| i64::try_from(value).map_err(|_| LayoutError::Overflow);
    Ok((narrow(low)?, narrow(high)?))
}

fn pad(extent: i128, align: u64) -> i128 {
    let align = i128::from(align);
    (extent + align - 1).div_euclid(align) * align
}
