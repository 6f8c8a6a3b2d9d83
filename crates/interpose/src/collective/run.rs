//! Runs a schedule on the program's thread: every step starts as soon as its predecessors are done.

use super::agenda::Agenda;
use super::phase::{Phase, Reduction, Stage};
use super::spare;
use crate::communicator::Spanning;
use crate::error::{Error, Result, check};
use crate::guard::Lift;
use crate::progress::Turn;
use crate::runtime::Runtime;
use crate::status::Outcome;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_coll::{Schedule, Span, Step};
use gridmpi_engine::{Mode, Place, RequestId, Source, TagMatch};
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
    agenda: Agenda,
    /// Under way with other clusters.
    messages: Vec<Message>,
    /// Under way inside the cluster, with their steps.
    phases: Vec<(usize, Phase<A>)>,
    /// While it lasts, what this process sends begins at the share of one of its senders.
    _regulated: Option<Entered<'a>>,
}

/// A message under way.
struct Message {
    step: usize,
    id: RequestId,
    receive: bool,
}

/// What leaves at once whatever the rate is worth no word.
const WORTH: u64 = 4096;

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
        Self {
            rt,
            comm,
            schedule,
            stage,
            number: comm.next_collective(),
            agenda: Agenda::new(schedule),
            messages: Vec::new(),
            phases: Vec::new(),
            _regulated: regulate(rt, comm, schedule),
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// A message of the wrong length, an error of the vendor's, a lost cluster.
    pub(crate) fn finish(mut self) -> Result<()> {
        let result = self.go_on();
        spare(result, std::mem::take(&mut self.phases))
    }

    fn go_on(&mut self) -> Result<()> {
        let mut turn = Turn::new(self.rt);
        loop {
            // What was just started may have ended at once.
            while self.start_ready()? {
                self.look()?;
            }
            if self.agenda.is_over() {
                return Ok(());
            }
            turn.wait(!self.phases.is_empty())?;
            self.look()?;
        }
    }

    /// Starts what may start. Whether anything did.
    fn start_ready(&mut self) -> Result<bool> {
        let mut started = false;
        while let Some(step) = self.agenda.next() {
            self.start(step)?;
            started = true;
        }
        Ok(started)
    }

    /// Finds out what has ended.
    fn look(&mut self) -> Result<()> {
        self.look_at_messages()?;
        self.look_at_phases()
    }

    /// There may be thousands, and they end one by one: the engine is asked for all at once.
    fn look_at_messages(&mut self) -> Result<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let mut engine = self.rt.job().net.lock();
        let mut failure = None;
        self.messages.retain(|message| {
            let Some(completion) = engine.take(message.id) else { return true };
            let outcome = Outcome::<A>::of_engine(&completion, message.receive);
            failure = failure.take().or(outcome.error);
            self.agenda.done(message.step);
            false
        });
        failure.map_or(Ok(()), Err)
    }

    fn look_at_phases(&mut self) -> Result<()> {
        let mut index = 0;
        while let Some((step, phase)) = self.phases.get_mut(index) {
            if phase.test(self.rt, self.stage)? {
                self.agenda.done(*step);
                self.phases.remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    fn start(&mut self, step: usize) -> Result<()> {
        let schedule = self.schedule;
        match &schedule.steps[step] {
            Step::Send { to, data, tag } => {
                let id = self.send(*to, data, *tag)?;
                self.messages.push(Message { step, id, receive: false });
            }
            Step::Receive { from, into, tag } => {
                let id = self.receive(*from, into, *tag)?;
                self.messages.push(Message { step, id, receive: true });
            }
            Step::Copy { from, to } => {
                self.copy(*from, *to);
                self.agenda.done(step);
            }
            Step::Reduce { from, into } => {
                self.reduce(*from, *into)?;
                self.agenda.done(step);
            }
            Step::Local(collective) => {
                let phase = Phase::start(self.rt, self.stage, collective)?;
                self.phases.push((step, phase));
            }
        }
        Ok(())
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

    fn send(&self, to: Rank, data: &[Span], tag: u32) -> Result<RequestId> {
        // SAFETY: the buffers are the collective's until it ends.
        let parts =
            data.iter().map(|span| unsafe { self.stage.memory(span.buffer).to_send(*span) });
        let buffer = gridmpi_buffer::SendBuffer::concat(parts.collect());
        let context = self.comm.context().on(Plane::Collective);
        let (to, tag, me) = (self.proc(to)?, self.tag(tag), self.comm.rank());
        Ok(self.rt.job().net.lock().send(to, context, me, tag, Mode::Standard, buffer))
    }

    fn receive(&self, from: Rank, into: &[Span], tag: u32) -> Result<RequestId> {
        // SAFETY: the buffers are the collective's until it ends.
        let parts =
            into.iter().map(|span| unsafe { self.stage.memory(span.buffer).to_receive(*span) });
        let buffer = gridmpi_buffer::RecvBuffer::concat(parts.collect());
        let context = self.comm.context().on(Plane::Collective);
        let (source, tag) = (Source::Remote(from, self.proc(from)?), TagMatch::Is(self.tag(tag)));
        Ok(self.rt.job().net.lock().receive(context, source, tag, buffer))
    }

    fn copy(&self, from: Span, to: Span) {
        // SAFETY: the spans do not overlap, and no other step is at them now.
        let (source, mut target) = unsafe {
            (
                self.stage.memory(from.buffer).to_send(from),
                self.stage.memory(to.buffer).to_receive(to),
            )
        };
        target.write_at(0, &source.to_bytes());
    }

    fn reduce(&self, from: Span, into: Span) -> Result<()> {
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
        check(unsafe { self.rt.vendor.reduce_local(from, into, count, datatype, op) })
    }
}
