//! The pacers of a process, one towards each other cluster, and what their turns make happen.

use std::io;
use std::time::Instant;

use gridmpi_rate::Rate;
use gridmpi_wire::ProcId;

use crate::Pacing;
use crate::link::{Left, Link, Most, Written};
use crate::options::{set_pacing_rate, window};
use crate::pace::{Ask, Pacer, SEGMENT, Turn};
use crate::poller::Interest;
use crate::state::State;
use crate::timers::Due;

/// Links and interfaces count whole frames, with what is before and between them; the kernel counts what TCP carries.
const PAYLOAD: f64 = SEGMENT as f64 / 1538.0;

/// The kernel does not space out the first ten segments of a connection.
const YOUNG: u64 = 10 * SEGMENT as u64;

/// The pacers, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    /// The cluster of each process.
    clusters: Vec<u16>,
    /// `None` where what goes there is not paced.
    paced: Vec<Option<Paced>>,
}

#[derive(Debug)]
struct Paced {
    pacer: Pacer,
    /// When it will be asked who is next.
    armed: Option<Instant>,
}

impl Paces {
    pub(crate) fn new(pacing: &Pacing) -> Self {
        let now = Instant::now();
        let paced = |rate: Rate| {
            let payload = rate.bits_per_second() / 8.0 * PAYLOAD;
            Paced { pacer: Pacer::new(payload, now), armed: None }
        };
        // What is not bounded need not be paced.
        let bounded = |rate: &Option<Rate>| rate.filter(|rate| *rate < Rate::UNBOUNDED);
        Self {
            clusters: pacing.clusters.clone(),
            paced: pacing.rates.iter().map(|rate| bounded(rate).map(paced)).collect(),
        }
    }

    /// The peer's cluster, if what goes there is paced.
    fn cluster_of(&self, peer: ProcId) -> Option<u16> {
        let cluster = *self.clusters.get(peer.0 as usize)?;
        self.paced.get(usize::from(cluster))?.as_ref()?;
        Some(cluster)
    }

    fn get(&mut self, cluster: u16) -> Option<&mut Paced> {
        self.paced.get_mut(usize::from(cluster))?.as_mut()
    }

    fn next(&mut self, cluster: u16, now: Instant) -> Option<ProcId> {
        self.get(cluster)?.pacer.next(now)
    }

    /// So many bytes have come from `peer`.
    pub(crate) fn received(&mut self, peer: ProcId, bytes: usize) {
        if let Some(cluster) = self.cluster_of(peer)
            && let Some(paced) = self.get(cluster)
        {
            paced.pacer.received(bytes, Instant::now());
        }
    }
}

impl State {
    /// Lets a link write what it may, and says what is to be waited for.
    pub(crate) fn write_turns(&mut self, link: &mut Link) -> io::Result<Interest> {
        let Some(cluster) = self.paces.cluster_of(link.peer) else {
            return Ok(match self.write_most(link, Most::Fair)?.left {
                Left::Nothing => Interest::Read,
                // After its turn it is still writable, so the next wait for events comes back to it.
                Left::ForRoom | Left::ForTurn => Interest::ReadWrite,
            });
        };
        loop {
            let now = Instant::now();
            let Some(most) = self.ask_turn(cluster, link, now)? else {
                self.arm_turn(cluster);
                return Ok(Interest::Read);
            };
            let Written { bytes, left } = self.write_most(link, Most::Bytes(most))?;
            if let Some(paced) = self.paces.get(cluster) {
                paced.pacer.wrote(link.peer, bytes, now);
            }
            match left {
                Left::Nothing => return Ok(Interest::Read),
                Left::ForRoom => return Ok(Interest::ReadWrite),
                Left::ForTurn => {}
            }
        }
    }

    fn write_most(&mut self, link: &mut Link, most: Most) -> io::Result<Written> {
        let written = link.write(&mut self.endpoint, most)?;
        self.stats.bytes_out += written.bytes as u64;
        link.written += written.bytes as u64;
        Ok(written)
    }

    /// How much a link may write now, if it is its turn; the kernel knows the rate then.
    fn ask_turn(
        &mut self,
        cluster: u16,
        link: &mut Link,
        now: Instant,
    ) -> io::Result<Option<usize>> {
        let ask = Ask {
            backlog: self.endpoint.unwritten_bytes(link.peer),
            is_young: link.written < YOUNG,
        };
        let Some(Paced { pacer, .. }) = self.paces.get(cluster) else { return Ok(None) };
        let Turn::Now(most) = pacer.ask(link.peer, ask, now) else { return Ok(None) };
        let rate = pacer.socket_rate();
        if link.paced_to != Some(rate) {
            set_pacing_rate(&link.fd, rate)?;
            link.paced_to = Some(rate);
        }
        if !pacer.has_waiting() || ask.backlog == 0 {
            return Ok(Some(most));
        }
        // What its window holds back would leave in another's turn.
        Ok(Some(most.min(window(&link.fd)?).max(SEGMENT)))
    }

    /// The turn of somebody who sends to this cluster may have come.
    pub(crate) fn turn_due(&mut self, cluster: u16) {
        if let Some(paced) = self.paces.get(cluster) {
            paced.armed = None;
        }
        while let Some(peer) = self.paces.next(cluster, Instant::now()) {
            self.transmit(peer);
        }
        self.arm_turn(cluster);
    }

    /// Sees to it that the next turn is not missed.
    fn arm_turn(&mut self, cluster: u16) {
        let Some(paced) = self.paces.get(cluster) else { return };
        let Some(due) = paced.pacer.due() else { return };
        if paced.armed.is_none_or(|armed| armed > due) {
            paced.armed = Some(due);
            self.timers.set(due, Due::Turn(cluster));
        }
    }
}
