//! A phase inside the cluster: the vendor's own nonblocking collective on the token.

use super::memory::Memory;
use crate::datatype::many;
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
    /// Made for it.
    types: Vec<A::Datatype>,
    /// Results to spread over memory that is not contiguous.
    unpack: Vec<(Vec<u8>, Vec<Span>)>,
}

/// Parts of one buffer as vendor procedures take them: a base address, counts and displacements in units of so many bytes.
struct Places {
    unit: u64,
    base: *mut c_void,
    counts: Vec<c_int>,
    displs: Vec<c_int>,
    /// What the base points to, if the parts are not contiguous where they belong.
    _staged: Option<Vec<u8>>,
}

impl<A: Abi> Phase<A> {
    /// Starts the collective. The stage stays as it is until the phase has ended.
    pub(crate) fn start(rt: &Runtime<A>, stage: &Stage<A>, what: &LocalCollective) -> Result<Self> {
        let mut starter =
            Starter { rt, stage, arrays: Vec::new(), types: Vec::new(), unpack: Vec::new() };
        let mut request = A::request_null();
        starter.start(what, &raw mut request)?;
        let Starter { arrays, types, unpack, .. } = starter;
        Ok(Self { request, _arrays: arrays, types, unpack })
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
        for mut made in self.types.drain(..) {
            // SAFETY: ours, and the collective has ended.
            unsafe { rt.vendor.type_free(&raw mut made) };
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
        let message = format!("a collective across clusters has {n} elements; the limit is 2^31-1");
        Error::new(ErrorClass::Count, message)
    })
}

struct Starter<'a, A: Abi> {
    rt: &'a Runtime<A>,
    stage: &'a Stage<A>,
    arrays: Vec<Places>,
    types: Vec<A::Datatype>,
    unpack: Vec<(Vec<u8>, Vec<Span>)>,
}

impl<A: Abi> Starter<'_, A> {
    fn start(&mut self, what: &LocalCollective, request: *mut A::Request) -> Result<()> {
        let (v, comm, r) = (&self.rt.vendor, self.stage.token, request);
        // Operations and error handlers of the program's may run.
        let _lift = Lift::new();
        // SAFETY: all memory is the collective's until it ends, and the arrays live in the phase.
        let code = unsafe {
            match what {
                LocalCollective::Barrier => v.ibarrier(comm, r),
                LocalCollective::Bcast { data, root } => {
                    let is_root = self.is_me(*root);
                    let (at, count, kind) =
                        if is_root { self.source(*data)? } else { self.target(*data)? };
                    v.ibcast(at, count, kind, small((*root).into())?, comm, r)
                }
                LocalCollective::Gatherv { send, recv, root } => {
                    let (from, count, sent) = self.optional_source(*send)?;
                    let (base, counts, displs, kind) = self.targets(recv, send.is_none())?;
                    v.igatherv(
                        from,
                        count,
                        sent,
                        base,
                        counts,
                        displs,
                        kind,
                        small((*root).into())?,
                        comm,
                        r,
                    )
                }
                LocalCollective::Scatterv { send, recv, root } => {
                    let (base, counts, displs, kind) = self.sources(send)?;
                    let (into, count, received) = self.optional_target(*recv)?;
                    v.iscatterv(
                        base,
                        counts,
                        displs,
                        kind,
                        into,
                        count,
                        received,
                        small((*root).into())?,
                        comm,
                        r,
                    )
                }
                LocalCollective::Allgatherv { send, recv } => {
                    let (from, count, sent) = self.optional_source(*send)?;
                    let (base, counts, displs, kind) = self.targets(recv, send.is_none())?;
                    v.iallgatherv(from, count, sent, base, counts, displs, kind, comm, r)
                }
                LocalCollective::Alltoallv { send, recv } => {
                    let (from, send_counts, send_displs, sent) = self.sources(send)?;
                    let (into, counts, displs, kind) = self.targets(recv, false)?;
                    v.ialltoallv(
                        from,
                        send_counts,
                        send_displs,
                        sent,
                        into,
                        counts,
                        displs,
                        kind,
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
                    let displs = Vec::new();
                    let places =
                        self.keep(Places { unit: 1, base, counts, displs, _staged: None })?;
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
    fn keep(&mut self, places: Places) -> Result<Told<A>> {
        let kind = match places.unit {
            1 => A::datatype(Named::Byte),
            unit => self.bytes_type(unit)?,
        };
        let told = (places.base, places.counts.as_ptr(), places.displs.as_ptr(), kind);
        self.arrays.push(places);
        Ok(told)
    }

    /// A datatype of so many bytes, which lasts until the phase ends.
    fn bytes_type(&mut self, bytes: u64) -> Result<A::Datatype> {
        let whole = many(&self.rt.vendor, A::datatype(Named::Byte), bytes)?;
        self.types.push(whole);
        Ok(whole)
    }

    /// The bytes of a span, for the vendor to read.
    fn source(&mut self, span: Span) -> Result<(*mut c_void, c_int, A::Datatype)> {
        self.sources(&[span]).map(|told| self.only(told))
    }

    fn optional_source(&mut self, span: Option<Span>) -> Result<(*mut c_void, c_int, A::Datatype)> {
        span.map_or(Ok((A::in_place(), 0, A::datatype(Named::Byte))), |span| self.source(span))
    }

    /// The place of a span, for the vendor to write.
    fn target(&mut self, span: Span) -> Result<(*mut c_void, c_int, A::Datatype)> {
        self.targets(&[span], false).map(|told| self.only(told))
    }

    fn optional_target(&mut self, span: Option<Span>) -> Result<(*mut c_void, c_int, A::Datatype)> {
        span.map_or(Ok((A::in_place(), 0, A::datatype(Named::Byte))), |span| self.target(span))
    }

    /// What was just kept, of one part.
    fn only(&self, (base, _, _, kind): Told<A>) -> (*mut c_void, c_int, A::Datatype) {
        let count = self.arrays.last().and_then(|places| places.counts.first());
        (base, count.copied().unwrap_or(0), kind)
    }

    fn sources(&mut self, spans: &[Span]) -> Result<Told<A>> {
        let places = match in_memory(self.stage, spans) {
            Some(places) => places,
            None => staged(collect(self.stage, spans), spans)?,
        };
        self.keep(places)
    }

    /// `in_place`: this process's own part is among the places already.
    fn targets(&mut self, spans: &[Span], in_place: bool) -> Result<Told<A>> {
        if let Some(places) = in_memory(self.stage, spans) {
            return self.keep(places);
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
        let (unit, counts, displs) = one_after_the_other(spans)?;
        self.keep(Places { unit, base, counts, displs, _staged: None })
    }
}

/// A base address, counts, displacements, and the datatype that both count.
type Told<A> = (*mut c_void, *const c_int, *const c_int, <A as Abi>::Datatype);

/// Lengths and displacements, in bytes, as `int` holds them: in units of a byte where it does, else of the greatest that divides all
/// lengths. Members may count the same bytes in different units.
fn counted(lens: &[u64], displs: &[u64]) -> Option<(u64, Vec<c_int>, Vec<c_int>)> {
    let fits = |n: &u64| c_int::try_from(*n).is_ok();
    let unit = if lens.iter().chain(displs).all(fits) {
        1
    } else {
        lens.iter().copied().fold(0, greatest_common_divisor).max(1)
    };
    let in_units =
        |n: &u64| n.is_multiple_of(unit).then(|| c_int::try_from(n / unit).ok()).flatten();
    let counts = lens.iter().map(in_units).collect::<Option<_>>()?;
    Some((unit, counts, displs.iter().map(in_units).collect::<Option<_>>()?))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The spans where they are, if each is contiguous and `int` reaches from the lowest to all.
fn in_memory<A: Abi>(stage: &Stage<A>, spans: &[Span]) -> Option<Places> {
    let found: Option<Vec<_>> = spans
        .iter()
        .map(|span| Some((stage.memory(span.buffer).contiguous(*span)?, span.len)))
        .collect();
    let found = found?;
    let occupied = found.iter().filter(|(_, len)| *len > 0);
    let base = occupied.map(|(address, _)| *address).min_by_key(|address| address.addr());
    let base = base.unwrap_or(std::ptr::null_mut());
    let lens: Vec<_> = found.iter().map(|(_, len)| *len).collect();
    let from_base = |(address, len): &(*mut u8, u64)| {
        if *len == 0 { 0 } else { (address.addr() - base.addr()) as u64 }
    };
    let (unit, counts, displs) = counted(&lens, &found.iter().map(from_base).collect::<Vec<_>>())?;
    Some(Places { unit, base: base.cast(), counts, displs, _staged: None })
}

fn one_after_the_other(spans: &[Span]) -> Result<(u64, Vec<c_int>, Vec<c_int>)> {
    let lens: Vec<_> = spans.iter().map(|span| span.len).collect();
    let mut next = 0;
    let place = |len: &u64| {
        next += len;
        next - len
    };
    let displs: Vec<_> = lens.iter().map(place).collect();
    counted(&lens, &displs).ok_or_else(|| {
        let message = format!(
            "a collective across clusters moves {next} bytes at once, in parts of lengths that have no great common divisor; \
             the limit is 2^31-1 times that"
        );
        Error::new(ErrorClass::Count, message)
    })
}

fn staged(mut bytes: Vec<u8>, spans: &[Span]) -> Result<Places> {
    let (unit, counts, displs) = one_after_the_other(spans)?;
    let base = bytes.as_mut_ptr().cast();
    Ok(Places { unit, base, counts, displs, _staged: Some(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_int_holds_is_counted_in_bytes() {
        assert_eq!(counted(&[3, 0, 5], &[0, 0, 3]), Some((1, vec![3, 0, 5], vec![0, 0, 3])));
        assert_eq!(counted(&[], &[]), Some((1, vec![], vec![])));
    }

    #[test]
    fn what_int_does_not_hold_is_counted_in_greater_units() {
        const G: u64 = 1 << 30;
        assert_eq!(counted(&[3 * G + 1], &[0]), Some((3 * G + 1, vec![1], vec![0])));
        let third = 1_000_000_008;
        let lens = [third, third, third, 16];
        let displs = [0, third, 2 * third, 3 * third];
        let counts = vec![125_000_001, 125_000_001, 125_000_001, 2];
        let places = vec![0, 125_000_001, 250_000_002, 375_000_003];
        assert_eq!(counted(&lens, &displs), Some((8, counts, places)));
        assert_eq!(counted(&[3 * G, 5], &[0, 3 * G]), None, "no unit divides both");
        assert_eq!(counted(&[8, 8], &[0, 3 * G + 1]), None, "the displacement is no multiple");
    }
}
