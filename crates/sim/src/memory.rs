//! Memory of the simulated program: where it sends from and receives into.
//!
//! The engine gets it as it gets a real program's, by address; what it must not touch is checked.

use gridmpi_buffer::{Layout, RecvBuffer, SendBuffer};
use std::sync::Arc;

/// Fills what was not received into.
const UNTOUCHED: u8 = 0x55;
/// Fills a buffer that the program uses again.
const USED_AGAIN: u8 = 0xee;
/// Bytes behind a receive buffer that must stay untouched.
const GUARD: usize = 16;

/// Byte `at` of the content of message `id`.
#[must_use]
pub const fn content(id: usize, at: usize) -> u8 {
    let mixed = (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
    (mixed ^ (at as u64).wrapping_mul(0x0025_7a51) >> 3) as u8
}

/// A buffer of the program. It lives as long as the simulated process, as the engine may refer to it.
#[derive(Debug)]
pub struct Memory {
    address: *mut u8,
    /// With the guard.
    len: usize,
    is_used_again: bool,
}

// SAFETY: it owns the allocation; nothing else refers to it outside its own simulated world, which
// one thread runs.
unsafe impl Send for Memory {}

impl Memory {
    fn filled(byte: u8, len: usize) -> Self {
        let memory = vec![byte; len].into_boxed_slice();
        Self { address: Box::into_raw(memory).cast(), len, is_used_again: false }
    }

    /// The content of message `id`.
    #[must_use]
    pub fn message(id: usize, len: usize) -> Self {
        let mut memory = Self::filled(0, len);
        for (at, byte) in memory.bytes_mut().iter_mut().enumerate() {
            *byte = content(id, at);
        }
        memory
    }

    /// Room for `capacity` bytes, nothing received.
    #[must_use]
    pub fn room(capacity: usize) -> Self {
        Self::filled(UNTOUCHED, capacity + GUARD)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation is ours and `len` long. The engine writes only inside its own calls.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; the engine reads only inside its own calls.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }

    /// What the engine sends from. `layout` is of one byte.
    #[must_use]
    pub fn send_buffer(&self, layout: &Arc<Layout>) -> SendBuffer {
        // SAFETY: the memory outlives the endpoint, and is used again only after the send is over.
        // An engine that reads it later reads wrong bytes, which is what the simulator looks for.
        unsafe { SendBuffer::from_user(self.address, self.len as u64, layout.clone()) }
    }

    /// What the engine receives into. `layout` is of one byte.
    #[must_use]
    pub fn receive_buffer(&self, layout: &Arc<Layout>) -> RecvBuffer {
        let capacity = (self.len - GUARD) as u64;
        // SAFETY: the memory outlives the endpoint, and is read only after the receive is over.
        unsafe { RecvBuffer::from_user(self.address, capacity, layout.clone()) }
    }

    /// The vendor receives message `id` of `len` bytes: what fits is stored.
    pub fn store(&mut self, id: usize, len: usize) {
        let capacity = self.len - GUARD;
        for (at, byte) in self.bytes_mut()[..len.min(capacity)].iter_mut().enumerate() {
            *byte = content(id, at);
        }
    }

    /// Whether it holds the first `stored` bytes of message `id` and nothing behind them.
    #[must_use]
    pub fn holds(&self, id: usize, stored: usize) -> bool {
        let (data, rest) = self.bytes().split_at(stored);
        data.iter().enumerate().all(|(at, &byte)| byte == content(id, at))
            && rest.iter().all(|&byte| byte == UNTOUCHED)
    }

    /// The program uses the buffer for something else.
    pub fn use_again(&mut self) {
        self.is_used_again = true;
        self.bytes_mut().fill(USED_AGAIN);
    }

    /// Whether the program uses it for something else, and nobody has written to it since.
    #[must_use]
    pub fn is_the_programs(&self) -> bool {
        self.is_used_again && self.bytes().iter().all(|&byte| byte == USED_AGAIN)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.address, self.len);
        // SAFETY: `filled` made it from a box of this length, and nobody else frees it.
        drop(unsafe { Box::from_raw(memory) });
    }
}
