//! Buffered sends within the cluster (MPI 4.1 §3.4), in jobs of several clusters. They leave from copies of ours as the vendor's nonblocking
//! sends: were they in the vendor's buffer, `MPI_Buffer_detach` would wait for them inside the vendor, and held receives, which
//! the other side may be waiting for, would not move.

use crate::error::{Result, forward};
use crate::job::Attached;
use crate::operation::{Address, Data, SendKind, vendor_isend};
use crate::progress::Turn;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, Count, Named};
use parking_lot::Mutex;
use std::ffi::c_int;

/// The messages that are under way.
pub(crate) struct Buffered<A: Abi>(Mutex<UnderWay<A>>);

struct UnderWay<A: Abi> {
    sent: Vec<Copied<A>>,
    /// How many there are, with those that a thread has taken out to look at.
    count: usize,
    /// Bytes of all of these.
    bytes: u64,
    /// They are looked at when there are so many, or more bytes than this.
    look_at: usize,
    look_at_bytes: u64,
}

/// So few, and so few bytes, are left alone while they fit.
const FEW: usize = 16;
const FEW_BYTES: u64 = 1 << 20;

struct Copied<A: Abi> {
    request: A::Request,
    bytes: Vec<u8>,
}

impl<A: Abi> Default for Buffered<A> {
    fn default() -> Self {
        let (look_at, look_at_bytes) = (FEW, FEW_BYTES);
        Self(Mutex::new(UnderWay { sent: Vec::new(), count: 0, bytes: 0, look_at, look_at_bytes }))
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
        let fits = self.has_room(rt, &rt.job().attached, buffer.len());
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
        self.0.lock().add(Copied { request, bytes });
        Ok(true)
    }

    /// Whether `len` bytes more fit into what is attached. What is under way is looked at where they do not, and when it has become twice as
    /// many messages or bytes: a look at all for each would be quadratic where the receiver comes late, and what has left takes memory
    /// until somebody looks.
    fn has_room(&self, rt: &Runtime<A>, attached: &Attached, len: u64) -> bool {
        let fits =
            |under_way: &UnderWay<A>| attached.check(under_way.bytes.saturating_add(len)).is_ok();
        let is_due = |under_way: &UnderWay<A>| {
            let bytes = under_way.bytes.saturating_add(len);
            let has_doubled =
                under_way.count >= under_way.look_at || bytes > under_way.look_at_bytes;
            has_doubled || !fits(under_way)
        };
        // The lock ends with the statement: the vendor is called in a sweep.
        let due = is_due(&self.0.lock());
        if due {
            self.sweep(rt);
        }
        !due || fits(&self.0.lock())
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
        let mut sent = std::mem::take(&mut self.0.lock().sent);
        let before = total(&sent);
        sent.retain_mut(|sent| !sent.has_left(rt));
        self.0.lock().put_back(sent, before)
    }
}

/// How many, and how many bytes.
fn total<A: Abi>(sent: &[Copied<A>]) -> (usize, u64) {
    (sent.len(), sent.iter().map(|sent| sent.bytes.len() as u64).sum())
}

impl<A: Abi> UnderWay<A> {
    fn add(&mut self, sent: Copied<A>) {
        self.count += 1;
        self.bytes += sent.bytes.len() as u64;
        self.sent.push(sent);
    }

    /// What is left of so many that were taken out; others may have sent meanwhile. Whether none is under way any more.
    fn put_back(&mut self, mut left: Vec<Copied<A>>, before: (usize, u64)) -> bool {
        let after = total(&left);
        self.count -= before.0 - after.0;
        self.bytes -= before.1 - after.1;
        self.look_at = (2 * self.count).max(FEW);
        self.look_at_bytes = self.bytes.saturating_mul(2).max(FEW_BYTES);
        self.sent.append(&mut left);
        self.count == 0
    }
}

impl<A: Abi> Copied<A> {
    fn has_left(&mut self, rt: &Runtime<A>) -> bool {
        let mut flag = 0;
        // SAFETY: a request of ours that is under way.
        let tested = forward(|| unsafe {
            rt.vendor.test(&raw mut self.request, &raw mut flag, A::status_ignore())
        });
        // The program cannot be told of a failure any more; its handler has been.
        tested.is_err() || flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::Vendor;
    use gridmpi_abi::{Handle, Mpich};
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    type Request = <Mpich as Abi>::Request;
    type Status = <Mpich as Abi>::Status;

    static TESTS: AtomicUsize = AtomicUsize::new(0);

    /// Odd requests never end.
    unsafe extern "C" fn test(request: *mut Request, flag: *mut c_int, _: *mut Status) -> c_int {
        unsafe { *flag = c_int::from((*request).bits().is_multiple_of(2)) };
        0
    }

    /// The same, counted.
    unsafe extern "C" fn counted(
        request: *mut Request,
        flag: *mut c_int,
        at: *mut Status,
    ) -> c_int {
        TESTS.fetch_add(1, Relaxed);
        unsafe { test(request, flag, at) }
    }

    fn copied(request: usize, len: usize) -> Copied<Mpich> {
        Copied { request: Handle::from_bits(request), bytes: vec![0; len] }
    }

    #[test]
    fn what_is_under_way_is_looked_at_when_there_is_no_room_or_when_it_has_doubled() {
        let vendor = unsafe { Vendor::of(&[(c"MPI_Test", counted as *const c_void)]) };
        let (rt, buffered) = (Runtime::<Mpich>::over(vendor), Buffered::default());
        let attached = Attached::default();
        attached.set::<Mpich>(std::ptr::null_mut(), 100_000);
        for _ in 0..1000 {
            assert!(buffered.has_room(&rt, &attached, 100));
            buffered.0.lock().add(copied(1, 100));
        }
        let looks = TESTS.swap(0, Relaxed);
        assert!((FEW..3000).contains(&looks), "{looks} looks");

        assert!(!buffered.has_room(&rt, &attached, 1), "all is taken, and nothing has left");
        assert_eq!(TESTS.swap(0, Relaxed), 1000);
        assert!(buffered.has_room(&rt, &attached, 0));
        buffered.0.lock().sent[7] = copied(2, 100);
        assert!(buffered.has_room(&rt, &attached, 100), "one has left");
        assert!(!buffered.has_room(&rt, &attached, 101));

        buffered.0.lock().sent.iter_mut().for_each(|sent| *sent = copied(2, 100));
        assert!(buffered.sweep(&rt));
        assert_eq!(buffered.0.lock().bytes, 0);
    }

    #[test]
    fn what_has_left_is_not_kept_however_few_they_are() {
        let vendor = unsafe { Vendor::of(&[(c"MPI_Test", test as *const c_void)]) };
        let (rt, buffered) = (Runtime::<Mpich>::over(vendor), Buffered::default());
        let attached = Attached::default();
        attached.set::<Mpich>(Mpich::buffer_automatic(), 0);
        let send = |request, len: usize| {
            assert!(buffered.has_room(&rt, &attached, len as u64));
            buffered.0.lock().add(copied(request, len));
            assert!(buffered.0.lock().bytes <= 4 << 20);
        };
        // After many little ones that waited long, too.
        (0..1000).for_each(|_| send(1, 8));
        buffered.0.lock().sent.iter_mut().for_each(|sent| *sent = copied(2, 8));
        (0..20).for_each(|_| send(2, 1 << 20));
    }

    #[test]
    fn what_another_thread_looks_at_is_still_under_way() {
        let vendor = unsafe { Vendor::of(&[(c"MPI_Test", test as *const c_void)]) };
        let (rt, buffered) = (Runtime::<Mpich>::over(vendor), Buffered::default());
        buffered.0.lock().add(copied(2, 0));
        let taken = std::mem::take(&mut buffered.0.lock().sent);
        assert!(!buffered.sweep(&rt));
        assert!(buffered.0.lock().put_back(Vec::new(), total(&taken)));
    }
}
