//! The program's memory, by raw address. All unsafe code that touches it is here; that of `block` is for memory of our own.
//!
//! A view keeps an address as a number and makes a pointer of it only while it copies or while slices
//! are lent out, so no reference to the program's memory outlives a call. Addresses come from outside
//! Rust, hence *exposed provenance*: a pointer may be made of the number again (`std::ptr`, "Exposed
//! Provenance"), and `MPI_BOTTOM` with absolute displacements is an address like any other.

use std::io::{IoSlice, IoSliceMut};
use std::ops::ControlFlow;
use std::ptr;

use crate::node::{Node, Run};
use crate::{Layout, MAX_SLICES};

/// A part of the data of some elements in the program's memory: `len` bytes from byte `skip` on.
#[derive(Clone, Debug)]
struct View {
    address: usize,
    node: Node,
    skip: u64,
    len: u64,
}

impl View {
    fn new(address: usize, count: u64, layout: &Layout) -> Self {
        let node = layout.elements(count);
        let len = node.size();
        Self { address, node, skip: 0, len }
    }

    fn part(&self, offset: u64, len: u64) -> Self {
        assert!(offset <= self.len && len <= self.len - offset, "a part lies within its view");
        Self { address: self.address, node: self.node.clone(), skip: self.skip + offset, len }
    }

    /// Runs of the `len` bytes from `offset`, at offsets from the view's address.
    fn walk(&self, offset: u64, len: u64, emit: &mut impl FnMut(Run) -> ControlFlow<()>) {
        assert!(offset <= self.len && len <= self.len - offset, "a walk stays within its view");
        let _ = self.node.walk(0, self.skip + offset, len, emit);
    }

    /// Calls `emit` with address and length of each block of the `len` bytes from `offset`, while it
    /// returns true.
    fn blocks(&self, offset: u64, len: u64, mut emit: impl FnMut(usize, usize) -> bool) {
        self.walk(offset, len, &mut |run| {
            for index in 0..run.count {
                if !emit(self.at(run.at(index)), run.len as usize) {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
    }

    fn at(&self, offset: i64) -> usize {
        self.address.wrapping_add_signed(offset as isize)
    }

    fn is_fragmented(&self) -> bool {
        self.node.size() / self.node.blocks().max(1) < crate::FRAGMENT
    }
}

/// The program's memory to send from.
#[derive(Clone, Debug)]
pub(crate) struct UserSend(View);

impl UserSend {
    /// # Safety
    /// The data of the elements stays readable and unchanged until the view and its clones and parts are
    /// dropped.
    pub(crate) unsafe fn new(address: *const u8, count: u64, layout: &Layout) -> Self {
        Self(View::new(address.expose_provenance(), count, layout))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }

    pub(crate) fn is_fragmented(&self) -> bool {
        self.0.is_fragmented()
    }

    pub(crate) fn part(&self, offset: u64, len: u64) -> Self {
        Self(self.0.part(offset, len))
    }

    pub(crate) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        let mut to = out.as_mut_ptr();
        self.0.walk(offset, out.len() as u64, &mut |run| {
            // SAFETY: `new` promises that the view's data is readable, and the runs are within it. The
            // runs of a walk have `out.len()` bytes together, so all writes are within `out`. `out` is
            // borrowed mutably, so it is not the program's memory, which must not change meanwhile.
            to = unsafe { gather(ptr::with_exposed_provenance(self.0.at(0)), run, to) };
            ControlFlow::Continue(())
        });
    }

    /// Appends slices from `offset` to `out` until it has [`MAX_SLICES`] or `len` bytes are covered.
    /// Returns the bytes covered.
    pub(crate) fn io_slices<'a>(
        &'a self,
        offset: u64,
        len: u64,
        out: &mut Vec<IoSlice<'a>>,
    ) -> u64 {
        let mut covered = 0;
        self.0.blocks(offset, len, |at, bytes| {
            if out.len() == MAX_SLICES {
                return false;
            }
            // SAFETY: `new` promises that the block is readable and unchanged until this view is
            // dropped, and the slice lives no longer than the borrow of the view.
            let block =
                unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(at), bytes) };
            out.push(IoSlice::new(block));
            covered += bytes as u64;
            true
        });
        covered
    }
}

/// The program's memory to receive into. Not cloned: parts never overlap.
#[derive(Debug)]
pub(crate) struct UserReceive(View);

impl UserReceive {
    /// # Safety
    /// The data of the elements stays writable, and nobody else touches it, until the view and its parts
    /// are dropped. Where elements overlap one another the program has broken MPI's rule (MPI 4.1
    /// §5.1.11); the bytes are then written one after the other.
    pub(crate) unsafe fn new(address: *mut u8, count: u64, layout: &Layout) -> Self {
        Self(View::new(address.expose_provenance(), count, layout))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }

    pub(crate) fn is_fragmented(&self) -> bool {
        self.0.is_fragmented()
    }

    /// The first `at` bytes and the rest.
    pub(crate) fn split(self, at: u64) -> (Self, Self) {
        let rest = self.0.len - at;
        (Self(self.0.part(0, at)), Self(self.0.part(at, rest)))
    }

    pub(crate) fn write_at(&mut self, offset: u64, data: &[u8]) {
        let mut from = data.as_ptr();
        self.0.walk(offset, data.len() as u64, &mut |run| {
            // SAFETY: `new` promises that the view's data is writable and ours alone, and the runs are
            // within it. The runs of a walk have `data.len()` bytes together, so all reads are within
            // `data`, which as a live borrow is not part of the view.
            from = unsafe { scatter(from, ptr::with_exposed_provenance_mut(self.0.at(0)), run) };
            ControlFlow::Continue(())
        });
    }

    /// Fills `out` with slices from `offset` on, that cover at most `len` bytes. Returns how many.
    pub(crate) fn io_slices_mut<'a>(
        &'a mut self,
        offset: u64,
        len: u64,
        out: &mut [IoSliceMut<'a>],
    ) -> usize {
        let mut used: usize = 0;
        let mut last = 0..0;
        self.0.blocks(offset, len, |at, bytes| {
            // Overlapping blocks (forbidden by MPI, but a program may do it) must not become two
            // mutable slices at once; blocks in ascending order cannot overlap unseen.
            if used == out.len() || (used > 0 && at < last.end) {
                return false;
            }
            last = at..at.wrapping_add(bytes);
            // SAFETY: `new` promises that the block is writable and ours alone until this view is
            // dropped; the slice lives no longer than the borrow of the view, and blocks lent out
            // together ascend without overlap, as checked above.
            let block = unsafe {
                std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(at), bytes)
            };
            out[used] = IoSliceMut::new(block);
            used += 1;
            true
        });
        used
    }
}

/// Copies the blocks of `run` at `base` to `to`, densely. Returns the end of what was written.
///
/// # Safety
/// The blocks are readable, `to` is writable for all their bytes, and the two do not overlap.
unsafe fn gather(base: *const u8, run: Run, mut to: *mut u8) -> *mut u8 {
    let mut from = base.wrapping_offset(run.offset as isize);
    // SAFETY: within the promise of the caller, block by block; short blocks of the usual sizes are
    // copied as one unaligned word.
    unsafe {
        match run.len {
            4 => words::<u32>(from, run.stride as isize, to, 4, run.count),
            8 => words::<u64>(from, run.stride as isize, to, 8, run.count),
            16 => words::<u128>(from, run.stride as isize, to, 16, run.count),
            _ => {
                for _ in 0..run.count {
                    ptr::copy_nonoverlapping(from, to, run.len as usize);
                    from = from.wrapping_offset(run.stride as isize);
                    to = to.add(run.len as usize);
                }
                return to;
            }
        }
        to.add((run.len * run.count) as usize)
    }
}

/// Copies dense bytes at `from` to the blocks of `run` at `base`. Returns the end of what was read.
///
/// # Safety
/// `from` is readable for all bytes of the blocks, the blocks are writable, and the two do not overlap.
unsafe fn scatter(mut from: *const u8, base: *mut u8, run: Run) -> *const u8 {
    let mut to = base.wrapping_offset(run.offset as isize);
    // SAFETY: as in `gather`.
    unsafe {
        match run.len {
            4 => words::<u32>(from, 4, to, run.stride as isize, run.count),
            8 => words::<u64>(from, 8, to, run.stride as isize, run.count),
            16 => words::<u128>(from, 16, to, run.stride as isize, run.count),
            _ => {
                for _ in 0..run.count {
                    ptr::copy_nonoverlapping(from, to, run.len as usize);
                    from = from.add(run.len as usize);
                    to = to.wrapping_offset(run.stride as isize);
                }
                return from;
            }
        }
        from.add((run.len * run.count) as usize)
    }
}

/// Copies `count` words from `from`, `step` bytes apart, to `to`, `pace` bytes apart.
///
/// # Safety
/// Each word is readable or writable in its place, at any alignment.
unsafe fn words<T: Copy>(from: *const u8, step: isize, to: *mut u8, pace: isize, count: u64) {
    let (mut from, mut to) = (from, to);
    for _ in 0..count {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) };
        from = from.wrapping_offset(step);
        to = to.wrapping_offset(pace);
    }
}
