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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, JobParts};
    use crate::matb::Matb;
    use crate::pacing::{self, Wish};
    use crate::vendor::Vendor;
    use gridmpi_abi::{Handle, Mpich};
    use gridmpi_bootstrap::{
        ClusterName, DataModel, Endian, JobEnv, JobId, JobTable, LinkInfo, NetworkInfo, Pacing,
        ProcInfo, Registration, Settings,
    };
    use gridmpi_coll::{Blocks, Collective, Tuning};
    use gridmpi_engine::{Communicator, JobMap};
    use gridmpi_net::{Limits, Listen, Net, NetConfig, Way};
    use std::sync::Arc;
    use std::time::Duration;

    const LINK: u64 = 80_000_000;
    const KEY: [u8; 32] = [9; 32];

    /// This process and another are cluster `a`, two more are `b`, each on a node of its own; 80 Mbit/s join the clusters.
    fn table() -> JobTable {
        let proc = |host: &str| ProcInfo { addresses: vec![], host: host.into(), pid: 1 };
        let cluster = |name| Registration {
            cluster: ClusterName::new(name).unwrap(),
            procs: vec![proc("n1"), proc("n2")],
            data_model: DataModel { endian: Endian::Little, long: 8, pointer: 8, long_double: 16 },
            vendor: String::new(),
            tag_ub: 32767,
            credit: None,
            has_relays: false,
        };
        let link = LinkInfo {
            between: [0, 1],
            bandwidth_bits_per_s: Some(LINK),
            delay_us: None,
            via: None,
            dial: None,
        };
        let network = NetworkInfo { links: vec![link], ..NetworkInfo::default() };
        JobTable { job: [7; 16], clusters: vec![cluster("a"), cluster("b")], network }
    }

    /// The way to the others, who are not there: nothing is sent.
    fn net(table: &JobTable, setting: Pacing) -> Net {
        let me = ProcId(0);
        let bound =
            gridmpi_net::bind(&Listen { interface: Some("127.0.0.1".into()), port: 0 }).unwrap();
        let config = NetConfig {
            me,
            job: table.job,
            key: gridmpi_wire::JobKey::new(KEY),
            engine: gridmpi_engine::Config::new(me),
            peers: vec![vec![Way::Direct(vec![])]; table.size()],
            security: None,
            relays: None,
            limits: Limits::default(),
            pacing: pacing::of(Wish { setting, ..Wish::default() }, table, 0, me),
            warn: |text| panic!("{text}"),
            tells_of_absence: None,
            lost: None,
            forked: None,
        };
        Net::start(bound, config).unwrap()
    }

    fn env(table: &JobTable) -> JobEnv {
        JobEnv {
            coordinators: vec![],
            job: JobId(table.job),
            key: gridmpi_bootstrap::JobKey::from_bytes(KEY),
            cluster: table.clusters[0].cluster.clone(),
            relays: None,
            interface: None,
            wait: Duration::ZERO,
            settings: Settings::default(),
        }
    }

    /// Process 0, and its world.
    fn process(setting: Pacing) -> (Runtime<Mpich>, Spanning<Mpich>) {
        let (table, me) = (table(), ProcId(0));
        let map = JobMap::contiguous([("a".into(), 2), ("b".into(), 2)]);
        let world = Communicator::world(me, &map).unwrap();
        // SAFETY: no procedure at all.
        let rt = Runtime::<Mpich>::over(unsafe { Vendor::of(&[]) });
        rt.activate(Job::new(JobParts {
            net: net(&table, setting),
            map,
            me,
            vendor_world: Handle::from_bits(0),
            quiet: Handle::from_bits(0),
            own: Handle::from_bits(0),
            tag_ub: 32767,
            matb: Matb::new(&table, 0, me),
            pacing: setting,
            yields: false,
            control: None,
            env: env(&table),
            told_lost: Arc::default(),
        }));
        (rt, Spanning::new(Handle::from_bits(0), world))
    }

    /// What the process may send with before, during and after a collective, parts of the link.
    fn parts(setting: Pacing, what: &Collective) -> [f64; 3] {
        let (rt, world) = process(setting);
        let part = || rt.job().net.rates()[1].unwrap() / LINK as f64;
        let schedule = gridmpi_coll::schedule(world.view.shape(), what, &Tuning::default());
        let stage = Stage { buffers: vec![], reduction: None, token: world.token };
        let before = part();
        let run = Run::new(&rt, &world, &schedule, &stage);
        let during = part();
        drop(run);
        [before, during, part()]
    }

    #[test]
    fn who_alone_sends_in_a_collective_begins_with_all_of_the_link() {
        let bcast = |root, len| Collective::Bcast { root: Rank(root), len };
        assert_eq!(parts(Pacing::Auto, &bcast(0, 200_000)), [0.5, 1.0, 0.5]);
        // Everybody has a part to send; this process has none; what it has is next to nothing.
        let blocks = Blocks::equal(4, 1_000_000);
        let allgather = Collective::Allgather { blocks, in_place: false };
        for what in [allgather, bcast(2, 200_000), bcast(0, WORTH)] {
            assert_eq!(parts(Pacing::Auto, &what), [0.5; 3], "{what:?}");
        }
    }

    #[test]
    fn nobody_does_where_rates_are_fixed() {
        let bcast = Collective::Bcast { root: Rank(0), len: 200_000 };
        assert_eq!(parts(Pacing::Static, &bcast), [0.5; 3]);
    }
}
