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
        let bytes = room(count, &layout);
        let mut storage = vec![0u128; bytes.div_ceil(16)].into_boxed_slice();
        let address: *mut u8 = storage.as_mut_ptr().cast();
        // The first data byte of element 0 comes first in the storage.
        let address = address.wrapping_offset(-offset(layout.true_lb()));
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

/// Bytes from the first to the last data byte of `count` elements.
fn room(count: u64, layout: &Layout) -> usize {
    let between = layout.extent().unsigned_abs().saturating_mul(count.saturating_sub(1));
    let last = layout.true_extent().unsigned_abs();
    if count == 0 { 0 } else { usize::try_from(between.saturating_add(last)).unwrap_or(usize::MAX) }
}
