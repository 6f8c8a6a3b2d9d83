//! A phase inside the cluster: the vendor's own nonblocking collective on the token.

use super::memory::Memory;
use crate::error::{Error, Result, check, forward};
use crate::guard::Lift;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass, Named};
use gridmpi_coll::{BufferId, LocalCollective, Span};
use std::ffi::{c_int, c_void};

/// What a schedule runs on: its buffers by [`BufferId`], and the reduction's arguments.
pub(crate) struct Stage<A: Abi> {
    pub(crate) buffers: Vec<Memory>,
    /// Datatype and operation; `None` where nothing is reduced.
    pub(crate) reduction: Option<Reduction<A>>,
    pub(crate) token: A::Comm,
}

/// The arguments of a reduction.
#[derive(Clone, Copy)]
pub(crate) struct Reduction<A: Abi> {
    pub(crate) datatype: A::Datatype,
    pub(crate) op: A::Op,
}

impl<A: Abi> Stage<A> {
    pub(crate) fn memory(&self, buffer: BufferId) -> &Memory {
        &self.buffers[usize::from(buffer.0)]
    }

    pub(crate) fn elements(&self, span: Span) -> (*mut c_void, u64) {
        self.memory(span.buffer).elements(span)
    }

    pub(crate) fn reduction(&self) -> Reduction<A> {
        self.reduction.expect("only reductions have steps that reduce")
    }
}

/// A vendor collective under way, with what it looks at until it is done.
pub(crate) struct Phase<A: Abi> {
    pub(crate) request: A::Request,
    _arrays: Vec<Places>,
    /// Results to spread over memory that is not contiguous.
    unpack: Vec<(Vec<u8>, Vec<Span>)>,
}

/// Parts of one buffer as vendor procedures take them: a base address, counts and displacements in bytes.
struct Places {
    base: *mut c_void,
    counts: Vec<c_int>,
    displs: Vec<c_int>,
    /// What the base points to, if the parts are not contiguous where they belong.
    _staged: Option<Vec<u8>>,
}

impl<A: Abi> Phase<A> {
    /// Starts the collective. The stage stays as it is until the phase has ended.
    pub(crate) fn start(rt: &Runtime<A>, stage: &Stage<A>, what: &LocalCollective) -> Result<Self> {
        let mut starter = Starter { rt, stage, arrays: Vec::new(), unpack: Vec::new() };
        let mut request = A::request_null();
        starter.start(what, &raw mut request)?;
        Ok(Self { request, _arrays: starter.arrays, unpack: starter.unpack })
    }

    /// Whether it has ended; its results are in place then.
    pub(crate) fn test(&mut self, rt: &Runtime<A>, stage: &Stage<A>) -> Result<bool> {
        let mut flag = 0;
        // SAFETY: our request, under way. Operations and error handlers of the program's may run.
        forward(|| unsafe {
            rt.vendor.test(&raw mut self.request, &raw mut flag, A::status_ignore())
        })?;
        if flag == 0 {
            return Ok(false);
        }
        for (bytes, spans) in self.unpack.drain(..) {
            spread(stage, &bytes, &spans);
        }
        Ok(true)
    }
}

/// Stores consecutive bytes to the spans' places.
fn spread<A: Abi>(stage: &Stage<A>, bytes: &[u8], spans: &[Span]) {
    let mut rest = bytes;
    for span in spans {
        let (part, after) = rest.split_at(usize::try_from(span.len).unwrap_or(0));
        // SAFETY: the buffer is the collective's until it ends, and nothing else writes there now.
        unsafe { stage.memory(span.buffer).to_receive(*span) }.write_at(0, part);
        rest = after;
    }
}

/// The spans' bytes, one after the other.
fn collect<A: Abi>(stage: &Stage<A>, spans: &[Span]) -> Vec<u8> {
    let total: u64 = spans.iter().map(|s| s.len).sum();
    let mut bytes = vec![0; usize::try_from(total).unwrap_or(0)];
    let mut rest = bytes.as_mut_slice();
    for span in spans {
        let (part, after) = rest.split_at_mut(usize::try_from(span.len).unwrap_or(0));
        // SAFETY: the buffer is the collective's until it ends, and nothing writes there now.
        unsafe { stage.memory(span.buffer).to_send(*span) }.copy_to(0, part);
        rest = after;
    }
    bytes
}

fn small(n: u64) -> Result<c_int> {
    c_int::try_from(n).map_err(|_| {
        let message = format!(
            "a collective across clusters moves {n} bytes or elements at once; the limit is 2^31-1"
        );
        Error::new(ErrorClass::Count, message)
    })
}

struct Starter<'a, A: Abi> {
    rt: &'a Runtime<A>,
    stage: &'a Stage<A>,
    arrays: Vec<Places>,
    unpack: Vec<(Vec<u8>, Vec<Span>)>,
}

impl<A: Abi> Starter<'_, A> {
    fn start(&mut self, what: &LocalCollective, request: *mut A::Request) -> Result<()> {
        let (v, comm, r) = (&self.rt.vendor, self.stage.token, request);
        let byte = A::datatype(Named::Byte);
        // Operations and error handlers of the program's may run.
        let _lift = Lift::new();
        // SAFETY: all memory is the collective's until it ends, and the arrays live in the phase.
        let code = unsafe {
            match what {
                LocalCollective::Barrier => v.ibarrier(comm, r),
                LocalCollective::Bcast { data, root } => {
                    let is_root = self.is_me(*root);
                    let (at, count) =
                        if is_root { self.source(*data)? } else { self.target(*data)? };
                    v.ibcast(at, count, byte, small((*root).into())?, comm, r)
                }
                LocalCollective::Gatherv { send, recv, root } => {
                    let (from, count) = self.optional_source(*send)?;
                    let (base, counts, displs) = self.targets(recv, send.is_none())?;
                    v.igatherv(
                        from,
                        count,
                        byte,
                        base,
                        counts,
                        displs,
                        byte,
                        small((*root).into())?,
                        comm,
                        r,
                    )
                }
                LocalCollective::Scatterv { send, recv, root } => {
                    let (base, counts, displs) = self.sources(send)?;
                    let (into, count) = self.optional_target(*recv)?;
                    v.iscatterv(
                        base,
                        counts,
                        displs,
                        byte,
                        into,
                        count,
                        byte,
                        small((*root).into())?,
                        comm,
                        r,
                    )
                }
                LocalCollective::Allgatherv { send, recv } => {
                    let (from, count) = self.optional_source(*send)?;
                    let (base, counts, displs) = self.targets(recv, send.is_none())?;
                    v.iallgatherv(from, count, byte, base, counts, displs, byte, comm, r)
                }
                LocalCollective::Alltoallv { send, recv } => {
                    let (from, send_counts, send_displs) = self.sources(send)?;
                    let (into, counts, displs) = self.targets(recv, false)?;
                    v.ialltoallv(
                        from,
                        send_counts,
                        send_displs,
                        byte,
                        into,
                        counts,
                        displs,
                        byte,
                        comm,
                        r,
                    )
                }
                reducing => self.start_reducing(reducing, request)?,
            }
        };
        check(code)
    }

    unsafe fn start_reducing(
        &mut self,
        what: &LocalCollective,
        r: *mut A::Request,
    ) -> Result<c_int> {
        let (v, comm) = (&self.rt.vendor, self.stage.token);
        let Reduction { datatype, op } = self.stage.reduction();
        let operand = |from: &Option<Span>| match from {
            Some(span) => self.stage.elements(*span),
            None => (A::in_place(), 0),
        };
        // SAFETY: as in `start`.
        Ok(unsafe {
            match what {
                LocalCollective::Reduce { from, into, root } => {
                    let (from, count) = operand(from);
                    let (into, result) =
                        into.map_or((std::ptr::null_mut(), 0), |s| self.stage.elements(s));
                    v.ireduce(
                        from,
                        into,
                        small(count.max(result))?,
                        datatype,
                        op,
                        small((*root).into())?,
                        comm,
                        r,
                    )
                }
                LocalCollective::Scan { from, into } => {
                    let (into, count) = self.stage.elements(*into);
                    v.iscan(operand(from).0, into, small(count)?, datatype, op, comm, r)
                }
                LocalCollective::Exscan { from, into } => {
                    let (into, count) = self.stage.elements(*into);
                    v.iexscan(operand(from).0, into, small(count)?, datatype, op, comm, r)
                }
                LocalCollective::ReduceScatter { from, into } => {
                    let counts = from.iter().map(|s| small(self.stage.elements(*s).1));
                    let counts = counts.collect::<Result<Vec<_>>>()?;
                    let base =
                        from.first().map_or(std::ptr::null_mut(), |s| self.stage.elements(*s).0);
                    let places =
                        self.keep(Places { base, counts, displs: Vec::new(), _staged: None });
                    let into = self.stage.elements(*into).0;
                    v.ireduce_scatter(places.0, into, places.1, datatype, op, comm, r)
                }
                _ => unreachable!("the other local collectives move bytes"),
            }
        })
    }

    fn is_me(&self, local: u32) -> bool {
        let mut rank = 0;
        // SAFETY: a communicator of the program and a place of our own.
        unsafe { self.rt.vendor.comm_rank(self.stage.token, &raw mut rank) };
        u32::try_from(rank) == Ok(local)
    }

    /// Keeps arrays alive until the phase ends; what the vendor is told of them.
    fn keep(&mut self, places: Places) -> (*mut c_void, *const c_int, *const c_int) {
        let told = (places.base, places.counts.as_ptr(), places.displs.as_ptr());
        self.arrays.push(places);
        told
    }

    /// The bytes of a span, for the vendor to read.
    fn source(&mut self, span: Span) -> Result<(*mut c_void, c_int)> {
        let (base, ..) = self.sources(&[span])?;
        Ok((base, small(span.len)?))
    }

    fn optional_source(&mut self, span: Option<Span>) -> Result<(*mut c_void, c_int)> {
        span.map_or(Ok((A::in_place(), 0)), |span| self.source(span))
    }

    /// The place of a span, for the vendor to write.
    fn target(&mut self, span: Span) -> Result<(*mut c_void, c_int)> {
        let (base, ..) = self.targets(&[span], false)?;
        Ok((base, small(span.len)?))
    }

    fn optional_target(&mut self, span: Option<Span>) -> Result<(*mut c_void, c_int)> {
        span.map_or(Ok((A::in_place(), 0)), |span| self.target(span))
    }

    fn sources(&mut self, spans: &[Span]) -> Result<(*mut c_void, *const c_int, *const c_int)> {
        let places = match in_memory(self.stage, spans)? {
            Some(places) => places,
            None => staged(collect(self.stage, spans), spans)?,
        };
        Ok(self.keep(places))
    }

    /// `in_place`: this process's own part is among the places already.
    fn targets(
        &mut self,
        spans: &[Span],
        in_place: bool,
    ) -> Result<(*mut c_void, *const c_int, *const c_int)> {
        if let Some(places) = in_memory(self.stage, spans)? {
            return Ok(self.keep(places));
        }
        let total: u64 = spans.iter().map(|s| s.len).sum();
        let mut bytes = if in_place {
            collect(self.stage, spans)
        } else {
            vec![0; usize::try_from(total).unwrap_or(0)]
        };
        let base = bytes.as_mut_ptr().cast();
        // The heap block stays where it is when the vector moves.
        self.unpack.push((bytes, spans.to_vec()));
        let (counts, displs) = one_after_the_other(spans)?;
        Ok(self.keep(Places { base, counts, displs, _staged: None }))
    }
}

/// The spans where they are, if each is contiguous and `int` reaches from the lowest to all.
fn in_memory<A: Abi>(stage: &Stage<A>, spans: &[Span]) -> Result<Option<Places>> {
    let mut found = Vec::with_capacity(spans.len());
    for span in spans {
        let Some(address) = stage.memory(span.buffer).contiguous(*span) else { return Ok(None) };
        found.push((address, small(span.len)?));
    }
    let occupied = found.iter().filter(|(_, len)| *len > 0).map(|(address, _)| address.addr());
    let Some(lowest) = occupied.min() else {
        let zeros = vec![0; spans.len()];
        return Ok(Some(Places {
            base: std::ptr::null_mut(),
            counts: zeros.clone(),
            displs: zeros,
            _staged: None,
        }));
    };
    let base = found.iter().map(|(address, _)| *address).find(|a| a.addr() == lowest);
    let displs = found.iter().map(|(address, len)| {
        if *len == 0 { Some(0) } else { c_int::try_from(address.addr() - lowest).ok() }
    });
    let Some(displs) = displs.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let counts = found.iter().map(|(_, len)| *len).collect();
    Ok(base.map(|base| Places { base: base.cast(), counts, displs, _staged: None }))
}

fn one_after_the_other(spans: &[Span]) -> Result<(Vec<c_int>, Vec<c_int>)> {
    let mut next = 0;
    let (mut counts, mut displs) =
        (Vec::with_capacity(spans.len()), Vec::with_capacity(spans.len()));
    for span in spans {
        counts.push(small(span.len)?);
        displs.push(small(next)?);
        next += span.len;
    }
    Ok((counts, displs))
}

fn staged(mut bytes: Vec<u8>, spans: &[Span]) -> Result<Places> {
    let (counts, displs) = one_after_the_other(spans)?;
    Ok(Places { base: bytes.as_mut_ptr().cast(), counts, displs, _staged: Some(bytes) })
}
