//! Buffered sends within the cluster (MPI 4.1 §3.4), in jobs of several clusters. They leave from copies of ours as the vendor's nonblocking
//! sends: were they in the vendor's buffer, `MPI_Buffer_detach` would wait for them inside the vendor, and held receives, which
//! the other side may be waiting for, would not move.

use crate::error::{Result, forward};
use crate::operation::{Address, Data, SendKind, vendor_isend};
use crate::progress::Turn;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Count, Named};
use parking_lot::Mutex;
use std::ffi::c_int;

/// The messages that are under way.
pub(crate) struct Buffered<A: Abi>(Mutex<Vec<Copied<A>>>);

struct Copied<A: Abi> {
    request: A::Request,
    bytes: Vec<u8>,
}

impl<A: Abi> Default for Buffered<A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<A: Abi> Buffered<A> {
    /// Sends to a rank of the vendor's, and whether it did: not where the vendor must tell a mistake, nor where what is under way leaves too
    /// little of what is attached (the vendor has its own view of that, and communicators may have buffers of their own).
    ///
    /// # Errors
    /// Those of the vendor.
    ///
    /// # Safety
    /// The data is the program's; it is copied.
    pub(crate) unsafe fn send(
        &self,
        rt: &Runtime<A>,
        data: Data<A>,
        to: Address,
        comm: A::Comm,
    ) -> Result<bool> {
        if to.peer == A::PROC_NULL || data.count < 0 || data.datatype == A::datatype_null() {
            return Ok(false);
        }
        // SAFETY: as this function's.
        let buffer = unsafe { data.to_send(rt)? };
        self.sweep(rt);
        let under_way: u64 = self.0.lock().iter().map(|sent| sent.bytes.len() as u64).sum();
        let fits = rt.job().attached.check(under_way.saturating_add(buffer.len())).is_ok();
        let Some(len) = c_int::try_from(buffer.len()).ok().filter(|_| fits) else {
            return Ok(false);
        };
        let mut bytes = vec![0; len as usize];
        buffer.copy_to(0, &mut bytes);
        // MPI_PACKED matches every type (MPI 4.1 §5.2), and packed data of like machines is the data itself.
        let packed = A::datatype(Named::Packed);
        let copy = Data::new(bytes.as_ptr().cast(), Count::from(len), packed);
        // SAFETY: the bytes stay until the request has ended.
        let request = unsafe { vendor_isend(rt, SendKind::Standard, copy, to, comm)? };
        self.0.lock().push(Copied { request, bytes });
        Ok(true)
    }

    /// Waits until all have left.
    ///
    /// # Errors
    /// Another cluster is lost.
    pub(crate) fn drain(&self, rt: &Runtime<A>) -> Result<()> {
        let mut turn = Turn::new(rt);
        while !self.sweep(rt) {
            turn.wait(true)?;
        }
        Ok(())
    }

    /// Drops what has left. Whether all has.
    fn sweep(&self, rt: &Runtime<A>) -> bool {
        // No lock is held around the vendor, which may run an error handler.
        let sent = std::mem::take(&mut *self.0.lock());
        let mut left: Vec<_> = sent.into_iter().filter_map(|sent| sent.look(rt)).collect();
        let mut all = self.0.lock();
        // Others may have sent meanwhile.
        all.append(&mut left);
        all.is_empty()
    }
}

impl<A: Abi> Copied<A> {
    /// Itself, if it is still under way.
    fn look(mut self, rt: &Runtime<A>) -> Option<Self> {
        let mut flag = 0;
        // SAFETY: a request of ours that is under way.
        let tested = forward(|| unsafe {
            rt.vendor.test(&raw mut self.request, &raw mut flag, A::status_ignore())
        });
        // The program cannot be told of a failure any more; its handler has been.
        (tested.is_ok() && flag == 0).then_some(self)
    }
}
