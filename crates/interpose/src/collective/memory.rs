//! The buffers of a schedule: the program's and temporary ones, each seen as packed bytes.

use crate::error::Result;
use crate::operation::Data;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use gridmpi_buffer::{Layout, RecvBuffer, SendBuffer};
use gridmpi_coll::{Span, Temporary};
use std::ffi::c_void;
use std::sync::Arc;

/// Consecutive elements of one datatype at one address.
struct Block {
    address: *mut u8,
    count: u64,
    layout: Arc<Layout>,
    /// Where its packed bytes begin in the buffer.
    start: u64,
}

impl Block {
    fn len(&self) -> u64 {
        self.count * self.layout.size()
    }

    /// The part of the block that `span` covers: first packed byte within the block, and length.
    fn overlap(&self, span: Span) -> Option<(u64, u64)> {
        let first = span.offset.max(self.start);
        let end = span.end().min(self.start + self.len());
        (first < end).then(|| (first - self.start, end - first))
    }
}

/// One buffer of a schedule.
#[derive(Default)]
pub(crate) struct Memory {
    blocks: Vec<Block>,
    /// The memory behind a temporary buffer; its address is the block's.
    _storage: Option<Box<[u128]>>,
}

impl Memory {
    /// `count` elements of the program's.
    pub(crate) fn of_data<A: Abi>(rt: &Runtime<A>, data: Data<A>) -> Result<Self> {
        Self::of_blocks(rt, std::iter::once(data))
    }

    /// Blocks of the program's, seen one after the other.
    pub(crate) fn of_blocks<A: Abi>(
        rt: &Runtime<A>,
        blocks: impl Iterator<Item = Data<A>>,
    ) -> Result<Self> {
        let mut memory = Self::default();
        let mut start = 0;
        for data in blocks {
            let layout = rt.layouts.of(&rt.vendor, data.datatype)?;
            let block = Block { address: data.buf.cast(), count: data.elements()?, layout, start };
            start += block.len();
            memory.blocks.push(block);
        }
        Ok(memory)
    }

    /// Bytes of our own.
    pub(crate) fn of_bytes(bytes: &mut [u8]) -> Self {
        let layout = Arc::new(Layout::bytes(1));
        let block =
            Block { address: bytes.as_mut_ptr(), count: bytes.len() as u64, layout, start: 0 };
        Self { blocks: vec![block], _storage: None }
    }

    /// A temporary buffer; `element` is the reduction's datatype.
    pub(crate) fn temporary(what: Temporary, element: &Arc<Layout>) -> Self {
        match what {
            Temporary::Bytes(len) => Self::allocate(len, Arc::new(Layout::bytes(1))),
            Temporary::Elements(count) => Self::allocate(count, Arc::clone(element)),
        }
    }

    fn allocate(count: u64, layout: Arc<Layout>) -> Self {
        let (lowest, bytes) = room(count, &layout);
        let mut storage = vec![0u128; bytes.div_ceil(16)].into_boxed_slice();
        let address: *mut u8 = storage.as_mut_ptr().cast();
        // The lowest byte of all elements comes first in the storage.
        let address = address.wrapping_offset(-offset(lowest));
        Self { blocks: vec![Block { address, count, layout, start: 0 }], _storage: Some(storage) }
    }

    /// The span's data, to send.
    ///
    /// # Safety
    /// The memory stays valid and unchanged until the buffer is gone.
    pub(crate) unsafe fn to_send(&self, span: Span) -> SendBuffer {
        let parts = self.blocks.iter().filter_map(|block| {
            let (first, len) = block.overlap(span)?;
            // SAFETY: as this function's.
            let all = unsafe {
                SendBuffer::from_user(block.address, block.count, Arc::clone(&block.layout))
            };
            Some(all.slice(first, len))
        });
        SendBuffer::concat(parts.collect())
    }

    /// The span's place, to receive into.
    ///
    /// # Safety
    /// The memory stays valid and nobody else's until the buffer is gone.
    pub(crate) unsafe fn to_receive(&self, span: Span) -> RecvBuffer {
        let parts = self.blocks.iter().filter_map(|block| {
            let (first, len) = block.overlap(span)?;
            // SAFETY: as this function's.
            let all = unsafe {
                RecvBuffer::from_user(block.address, block.count, Arc::clone(&block.layout))
            };
            Some(all.slice(first, len))
        });
        RecvBuffer::concat(parts.collect())
    }

    /// The address of the span if its bytes lie in memory as in the packed view.
    pub(crate) fn contiguous(&self, span: Span) -> Option<*mut u8> {
        if span.len == 0 {
            return Some(std::ptr::null_mut());
        }
        let block = self.blocks.iter().find(|block| block.overlap(span).is_some())?;
        let (first, len) = block.overlap(span)?;
        let whole = len == span.len && block.layout.is_dense();
        let at =
            offset(block.layout.true_lb()).checked_add_unsigned(usize::try_from(first).ok()?)?;
        whole.then(|| block.address.wrapping_offset(at))
    }

    /// The address of the first element of the span, and how many it has. For buffers of elements.
    pub(crate) fn elements(&self, span: Span) -> (*mut c_void, u64) {
        let Some(block) = self.blocks.first() else { return (std::ptr::null_mut(), 0) };
        let size = block.layout.size().max(1);
        let first = i64::try_from(span.offset / size).unwrap_or(0);
        let address = block.address.wrapping_offset(offset(first * block.layout.extent()));
        (address.cast(), span.len / size)
    }
}

fn offset(bytes: i64) -> isize {
    isize::try_from(bytes).unwrap_or(0)
}

/// Where `count` elements begin, seen from the address of the first, and their bytes. The bounds count with the data, since vendors may
/// copy them along; elements go down in memory where the extent is negative.
fn room(count: u64, layout: &Layout) -> (i64, usize) {
    if count == 0 {
        return (0, 0);
    }
    let (true_lb, true_ub) = (layout.true_lb(), layout.true_lb() + layout.true_extent());
    let first = true_lb.min(layout.lb()).min(layout.ub());
    let last = true_ub.max(layout.lb()).max(layout.ub());
    let between = layout.extent().saturating_mul(i64::try_from(count - 1).unwrap_or(i64::MAX));
    let bytes = last.abs_diff(first).saturating_add(between.unsigned_abs());
    (first.saturating_add(between.min(0)), usize::try_from(bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of every element, bounds and data, lies in the storage.
    fn holds(count: u64, layout: &Layout) {
        let memory = Memory::temporary(Temporary::Elements(count), &Arc::new(layout.clone()));
        let storage = memory._storage.as_deref().unwrap().as_ptr_range();
        let (from, to) = (storage.start.addr() as i64, storage.end.addr() as i64);
        let block = &memory.blocks[0];
        for element in 0..count as i64 {
            let at = block.address.addr() as i64 + element * layout.extent();
            let data = [layout.true_lb(), layout.true_lb() + layout.true_extent()];
            for edge in [layout.lb(), layout.ub(), data[0], data[1]] {
                let at = at + edge;
                assert!((from..=to).contains(&at), "{at} of {from}..{to}: {element} of {layout:?}");
            }
        }
    }

    #[test]
    fn temporary_buffers_hold_types_of_any_bounds() {
        let double = Layout::predefined(8, 8);
        let late = Layout::structure([(1, 40, &double)]).unwrap();
        for layout in [
            double.clone(),
            double.resized(0, 64).unwrap(),
            double.resized(-16, 48).unwrap(),
            double.resized(0, -8).unwrap(),
            double.resized(100, -24).unwrap(),
            double.resized(0, 0).unwrap(),
            late.resized(0, 48).unwrap(),
            late.resized(0, -48).unwrap(),
        ] {
            for count in [1, 2, 7] {
                holds(count, &layout);
            }
        }
    }

    #[test]
    fn what_is_written_to_elements_that_go_down_comes_back() {
        let layout = Arc::new(Layout::predefined(8, 8).resized(0, -8).unwrap());
        let memory = Memory::temporary(Temporary::Elements(5), &layout);
        let all = Span { buffer: gridmpi_coll::BufferId(0), offset: 0, len: 40 };
        let bytes: Vec<u8> = (0..40).collect();
        // SAFETY: the memory lives longer than both buffers.
        unsafe {
            memory.to_receive(all).write_at(0, &bytes);
            assert_eq!(memory.to_send(all).to_bytes().as_ref(), bytes);
        }
    }
}
