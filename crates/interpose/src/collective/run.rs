//! Runs a schedule on the program's thread: every step starts as soon as its predecessors are done.

use super::phase::{Phase, Reduction, Stage};
use super::spare;
use crate::communicator::Spanning;
use crate::error::{Error, Result, check};
use crate::guard::Lift;
use crate::operation::{self, Active};
use crate::progress::Turn;
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_coll::{Schedule, Span, Step};
use gridmpi_engine::{Mode, Place, Source, TagMatch};
use gridmpi_net::Entered;
use gridmpi_wire::{Plane, ProcId, Rank};
use std::ffi::c_int;

/// A collective under way.
pub(crate) struct Run<'a, A: Abi> {
    rt: &'a Runtime<A>,
    comm: &'a Spanning<A>,
    schedule: &'a Schedule,
    stage: &'a Stage<A>,
    /// Separates this collective's messages from those of its neighbours in time.
    number: u32,
    states: Vec<State<A>>,
    /// Local collectives start in the order of their steps.
    next_local: usize,
    /// While it lasts, what this process sends begins at the share of one of its senders.
    _regulated: Option<Entered<'a>>,
}

/// What leaves at once whatever the rate is worth no word.
const WORTH: u64 = 4096;

enum State<A: Abi> {
    Waiting,
    Remote(Active<A>),
    Local(Phase<A>),
    Done,
}

/// Enters the regulation of a collective in which this process sends much to other clusters: who else does is in its schedule.
fn regulate<'a, A: Abi>(
    rt: &'a Runtime<A>,
    comm: &Spanning<A>,
    schedule: &Schedule,
) -> Option<Entered<'a>> {
    if schedule.sent().map(|(_, bytes)| bytes).fold(0, u64::saturating_add) <= WORTH {
        return None;
    }
    let procs = comm.view.group().procs();
    let proc_of = |rank: Rank| procs.get(rank.0 as usize).copied();
    let sends = schedule.sent().filter_map(|(to, bytes)| Some((proc_of(to)?, bytes)));
    let senders = schedule.senders(comm.view.shape());
    let senders = senders.iter().filter_map(|&rank| proc_of(rank));
    rt.job().net.enter(sends, senders, schedule.is_sure_of_senders())
}

impl<'a, A: Abi> Run<'a, A> {
    pub(crate) fn new(
        rt: &'a Runtime<A>,
        comm: &'a Spanning<A>,
        schedule: &'a Schedule,
        stage: &'a Stage<A>,
    ) -> Self {
        let states = schedule.steps.iter().map(|_| State::Waiting).collect();
        let mut run = Self {
            rt,
            comm,
            schedule,
            stage,
            number: comm.next_collective(),
            states,
            next_local: 0,
            _regulated: regulate(rt, comm, schedule),
        };
        run.next_local = run.local_from(0);
        run
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// A message of the wrong length, an error of the vendor's, a lost cluster.
    pub(crate) fn finish(mut self) -> Result<()> {
        let result = self.go_on();
        spare(result, std::mem::take(&mut self.states))
    }

    fn go_on(&mut self) -> Result<()> {
        let mut turn = Turn::new(self.rt);
        loop {
            while self.pass()? {}
            if self.states.iter().all(|state| matches!(state, State::Done)) {
                return Ok(());
            }
            let local = self.states.iter().any(|state| matches!(state, State::Local(_)));
            turn.wait(local)?;
        }
    }

    /// Looks at every step once. Whether any went on.
    fn pass(&mut self) -> Result<bool> {
        let mut moved = false;
        for index in 0..self.states.len() {
            let ready = self.may_start(index);
            let next = match &mut self.states[index] {
                State::Done => continue,
                State::Waiting if ready => Some(self.start(index)?),
                State::Waiting => None,
                State::Remote(active) => match operation::poll(self.rt, active, self.comm) {
                    Some(outcome) => {
                        outcome.error.map_or(Ok(()), Err)?;
                        Some(State::Done)
                    }
                    None => None,
                },
                State::Local(phase) => phase.test(self.rt, self.stage)?.then_some(State::Done),
            };
            if let Some(next) = next {
                self.states[index] = next;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn may_start(&self, index: usize) -> bool {
        let is_local = matches!(self.schedule.steps[index], Step::Local(_));
        let before = &self.schedule.after[index];
        (!is_local || index == self.next_local)
            && before.iter().all(|step| matches!(self.states[step.0 as usize], State::Done))
    }

    fn local_from(&self, index: usize) -> usize {
        let rest = self.schedule.steps.iter().skip(index);
        rest.take_while(|step| !matches!(step, Step::Local(_))).count() + index
    }

    fn start(&mut self, index: usize) -> Result<State<A>> {
        let schedule = self.schedule;
        match &schedule.steps[index] {
            Step::Send { to, data, tag } => self.send(*to, data, *tag),
            Step::Receive { from, into, tag } => self.receive(*from, into, *tag),
            Step::Copy { from, to } => self.copy(*from, *to),
            Step::Reduce { from, into } => self.reduce(*from, *into),
            Step::Local(collective) => {
                self.next_local = self.local_from(index + 1);
                Phase::start(self.rt, self.stage, collective).map(State::Local)
            }
        }
    }

    fn proc(&self, rank: Rank) -> Result<ProcId> {
        match self.comm.view.place(rank) {
            Some(Place::Remote(proc)) => Ok(proc),
            _ => Err(Error::new(ErrorClass::Intern, "a schedule sends within the cluster")),
        }
    }

    fn tag(&self, tag: u32) -> c_int {
        ((self.number & 0x7fff) << 16 | (tag & 0xffff)).cast_signed()
    }

    fn send(&self, to: Rank, data: &[Span], tag: u32) -> Result<State<A>> {
        // SAFETY: the buffers are the collective's until it ends.
        let parts =
            data.iter().map(|span| unsafe { self.stage.memory(span.buffer).to_send(*span) });
        let buffer = gridmpi_buffer::SendBuffer::concat(parts.collect());
        let context = self.comm.context().on(Plane::Collective);
        let (to, tag, me) = (self.proc(to)?, self.tag(tag), self.comm.rank());
        let id = self.rt.job().net.lock().send(to, context, me, tag, Mode::Standard, buffer);
        Ok(State::Remote(Active::Engine { id, receive: false, held: false }))
    }

    fn receive(&self, from: Rank, into: &[Span], tag: u32) -> Result<State<A>> {
        // SAFETY: the buffers are the collective's until it ends.
        let parts =
            into.iter().map(|span| unsafe { self.stage.memory(span.buffer).to_receive(*span) });
        let buffer = gridmpi_buffer::RecvBuffer::concat(parts.collect());
        let context = self.comm.context().on(Plane::Collective);
        let (source, tag) = (Source::Remote(from, self.proc(from)?), TagMatch::Is(self.tag(tag)));
        let id = self.rt.job().net.lock().receive(context, source, tag, buffer);
        Ok(State::Remote(Active::Engine { id, receive: true, held: false }))
    }

    fn copy(&self, from: Span, to: Span) -> Result<State<A>> {
        // SAFETY: the spans do not overlap, and no other step is at them now.
        let (source, mut target) = unsafe {
            (
                self.stage.memory(from.buffer).to_send(from),
                self.stage.memory(to.buffer).to_receive(to),
            )
        };
        target.write_at(0, &source.to_bytes());
        Ok(State::Done)
    }

    fn reduce(&self, from: Span, into: Span) -> Result<State<A>> {
        let Reduction { datatype, op } = self.stage.reduction();
        let ((from, count), (into, _)) = (self.stage.elements(from), self.stage.elements(into));
        let count = c_int::try_from(count).map_err(|_| {
            Error::new(
                ErrorClass::Count,
                "a reduction across clusters takes 2^31-1 elements at most",
            )
        })?;
        // The program's operation may ask about its datatype (MPI 4.1 §6.9.5).
        let _lift = Lift::new();
        // SAFETY: both have `count` elements and are the collective's until it ends.
        check(unsafe { self.rt.vendor.reduce_local(from, into, count, datatype, op) })?;
        Ok(State::Done)
    }
}
