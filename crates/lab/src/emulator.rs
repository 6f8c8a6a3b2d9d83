//! The link emulator, between two virtual cables: one thread a direction, or one for both where the link coalesces.
//!
//! A frame waits in the ring it was received into until the time that [`Flow`] gave it. While
//! frames wait nothing is looked at before the first of them is due: what arrives meanwhile is
//! due later, and its time stamp is already taken. So the thread wakes once a delivery, or once
//! for several, of both directions, that are due within the time that the link coalesces.

use crate::arrivals::Arrival;
use crate::connections::Connections;
use crate::flow::{Flow, Sample, Traffic, Volume};
use crate::histogram::Histogram;
use crate::spec::Link;
use crate::sys::clock;
use crate::sys::ring::{BATCH, Frame, Ring, Sender};
use crate::sys::wait_readable;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Low enough to leave the kernel's own threads alone, above every ordinary program.
const PRIORITY: i32 = 20;
/// An arrival is certainly in the ring this long after its time stamp.
const SETTLE_BEHIND: u64 = 1_000_000;
/// How often an unsettled or unpublished direction without frames in flight looks again.
const RECHECK: Duration = Duration::from_millis(2);
/// Longest sleep with frames in flight, ns: keeps counters fresh over long delays.
const LONGEST_SLEEP: u64 = 50_000_000;
/// Frames taken in before deliveries are looked at again.
const INTAKE: usize = 256;
/// Most slots of one ring: 32 MiB of them, or 64 MiB where each holds a super-packet.
const MOST_SLOTS: u32 = 16_384;
const MOST_LARGE_SLOTS: u32 = 1_024;

/// What a direction has done so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Whether the thread has real-time priority; `None` before it runs.
    pub realtime: Option<bool>,
    /// Counters of the virtual link.
    pub traffic: Traffic,
    /// Bytes in the bottleneck's buffer.
    pub queued: u64,
    /// TCP connections that have sent 16 KiB or more.
    pub connections: u64,
    /// Delivered to the other side.
    pub delivered: Volume,
    /// Frames that the emulator itself failed to take in or pass on: none in a sound run.
    pub failures: u64,
    /// How late deliveries were, ns.
    pub lateness: Histogram,
    /// Finished milliseconds not yet collected.
    pub samples: Vec<Sample>,
    /// Single frames not yet collected, if they are recorded.
    pub arrivals: Vec<Arrival>,
}

/// Progress of a direction, shared with whoever reports it.
pub type Shared = Arc<Mutex<Progress>>;

/// A direction that is at work.
#[derive(Debug)]
pub struct Running {
    /// What it has done so far.
    pub progress: Shared,
    fault: Arc<AtomicU64>,
}

impl Running {
    /// Frames that arrive from now on are also lost with this probability.
    pub fn disturb(&self, probability: f64) {
        self.fault.store(probability.to_bits(), Ordering::Relaxed);
    }
}

/// One direction of an emulated link.
pub struct Direction {
    ring: Ring,
    sender: Sender,
    flow: Flow,
    connections: Connections,
    in_flight: VecDeque<(u64, Frame)>,
    /// How long a frame that is due may wait for others, ns.
    coalesce: u64,
    records_arrivals: bool,
    fresh: Progress,
    shared: Shared,
    /// Losses that are asked for from outside: bits of a probability.
    fault: Arc<AtomicU64>,
}

/// Slots for everything that can be in the buffer and on the way, as small packets.
fn slots(link: &Link, super_packets: bool) -> u32 {
    let most = if super_packets { MOST_LARGE_SLOTS } else { MOST_SLOTS };
    let Some(rate) = link.bandwidth else { return most };
    let on_the_way = u128::from(rate / 8) * link.delay.as_nanos() / 1_000_000_000;
    let smallest = 60 + u128::from(crate::flow::WIRE_OVERHEAD);
    let packets = (on_the_way + u128::from(link.buffer)) / smallest + 1_024;
    packets.min(u128::from(most)) as u32
}

impl Direction {
    /// Prepares to carry frames from the device `from` to the device `to` of the calling
    /// thread's network namespace.
    ///
    /// # Errors
    /// When a device does not exist or the kernel refuses.
    pub fn new(link: &Link, from: &str, to: &str, gso: bool, flow: Flow) -> io::Result<Self> {
        let ring = Ring::new(from, slots(link, gso), gso)?;
        let sender = Sender::new(to)?;
        let shared = Shared::default();
        let (in_flight, fresh) = (VecDeque::new(), Progress::default());
        let fault = Arc::default();
        let coalesce = u64::try_from(link.coalesce.as_nanos()).unwrap_or(0);
        let (records_arrivals, connections) = (false, Connections::default());
        Ok(Self {
            ring,
            sender,
            flow,
            connections,
            in_flight,
            coalesce,
            records_arrivals,
            fresh,
            shared,
            fault,
        })
    }

    /// Records the arrival of every frame, too, if `wanted`.
    #[must_use]
    pub fn recording_arrivals(mut self, wanted: bool) -> Self {
        self.records_arrivals = wanted;
        self
    }

    fn running(&self) -> Running {
        Running { progress: Arc::clone(&self.shared), fault: Arc::clone(&self.fault) }
    }

    fn take_in(&mut self) {
        self.flow.disturb(f64::from_bits(self.fault.load(Ordering::Relaxed)));
        let before = clock::monotonic();
        // Time stamps are of the clock that may be set; everything here is of the other.
        let offset = clock::realtime().wrapping_sub(before);
        let Self { ring, flow, connections, in_flight, fresh, records_arrivals, .. } = self;
        let Progress { samples, failures, arrivals, .. } = fresh;
        let mut finished = |sample| samples.push(sample);
        for _ in 0..INTAKE {
            match ring.receive() {
                Some(Ok(frame)) => {
                    let arrived = frame.stamp.wrapping_sub(offset).min(clock::monotonic());
                    let volume = Volume { bytes: frame.bytes, packets: frame.packets.into() };
                    connections.note(ring.contents(&frame));
                    if *records_arrivals {
                        let Volume { bytes, packets } = volume;
                        arrivals.push(Arrival { stamp: frame.stamp, bytes, packets });
                    }
                    match flow.arrive(arrived, volume, &mut finished) {
                        Some(release) => in_flight.push_back((release, frame)),
                        None => ring.release(frame),
                    }
                }
                Some(Err(_)) => *failures += 1,
                None => {
                    flow.settle(before.saturating_sub(SETTLE_BEHIND), &mut finished);
                    break;
                }
            }
        }
    }

    /// Delivers what is due by `now`.
    fn deliver(&mut self, now: u64) {
        while self.in_flight.front().is_some_and(|(at, _)| *at <= now) {
            let due = self.in_flight.iter().take(BATCH).take_while(|(at, _)| *at <= now);
            let late = |at: u64| (now - at).saturating_sub(self.coalesce);
            let due = due.map(|(at, _)| self.fresh.lateness.add(late(*at))).count();
            let frames = self.in_flight.iter().take(due).map(|(_, frame)| frame);
            let sent = self.sender.send(&self.ring, frames).unwrap_or(0);
            for (_, frame) in self.in_flight.drain(..sent) {
                let volume = Volume { bytes: frame.bytes, packets: frame.packets.into() };
                self.fresh.delivered.add(volume);
                self.ring.release(frame);
            }
            // A frame that the kernel will not take must not hold up those behind it.
            for (_, frame) in self.in_flight.drain(..due - sent) {
                self.fresh.failures += 1;
                self.ring.release(frame);
            }
        }
    }

    /// Hands over what is new, unless the reader holds the lock: then next time.
    fn publish(&mut self) {
        if self.fresh.samples.is_empty() && !self.in_flight.is_empty() {
            return;
        }
        let Ok(mut shared) = self.shared.try_lock() else { return };
        shared.traffic = self.flow.total();
        shared.queued = self.flow.queued();
        shared.connections = self.connections.count();
        shared.delivered.add(std::mem::take(&mut self.fresh.delivered));
        shared.failures += std::mem::take(&mut self.fresh.failures) + self.ring.overruns();
        shared.lateness.take_from(&mut self.fresh.lateness);
        shared.samples.append(&mut self.fresh.samples);
        shared.arrivals.append(&mut self.fresh.arrivals);
    }

    fn is_published(&self) -> bool {
        self.fresh.samples.is_empty() && self.fresh.delivered == Volume::default()
    }

    /// When the first frame is to leave at the latest, ns; `None` while none is on its way.
    fn due(&self) -> Option<u64> {
        self.in_flight.front().map(|(release, _)| release + self.coalesce)
    }

    fn is_settled(&self) -> bool {
        !self.flow.is_unsettled() && self.is_published()
    }
}

/// Starts both directions of a link, which is called `name`; they run until the process ends.
///
/// # Errors
/// When no thread can be started.
pub fn start(link: [Direction; 2], name: &str) -> io::Result<[Running; 2]> {
    let running = link.each_ref().map(Direction::running);
    let coalesces = link.iter().all(|direction| direction.coalesce > 0);
    let threads = if coalesces { vec![Vec::from(link)] } else { link.map(|it| vec![it]).into() };
    for directions in threads {
        thread::Builder::new().name(name.to_owned()).spawn(move || carry(directions))?;
    }
    Ok(running)
}

fn carry(mut directions: Vec<Direction>) {
    let realtime = clock::run_at_once(PRIORITY).is_ok();
    for Direction { shared, .. } in &directions {
        shared.lock().unwrap_or_else(PoisonError::into_inner).realtime = Some(realtime);
    }
    loop {
        directions.iter_mut().for_each(Direction::take_in);
        let now = clock::monotonic();
        if due(&directions).is_some_and(|due| due <= now) {
            directions.iter_mut().for_each(|direction| direction.deliver(now));
        }
        directions.iter_mut().for_each(Direction::publish);
        wait(&directions);
    }
}

/// When the first frame of all is to leave at the latest, ns; `None` while none is on its way.
fn due(directions: &[Direction]) -> Option<u64> {
    directions.iter().filter_map(Direction::due).min()
}

/// Until a frame is due, or comes where none is on its way. That it has come is soon enough seen when another is due within the time
/// that it may wait itself.
fn wait(directions: &[Direction]) {
    let (now, due) = (clock::monotonic(), due(directions));
    let time = due.map(|due| due.saturating_sub(now).min(LONGEST_SLEEP));
    let idle = directions.iter().filter(|direction| direction.due().is_none());
    let idle: Vec<_> = idle.map(|direction| direction.ring.as_fd()).collect();
    let may_wait = directions.iter().map(|direction| direction.coalesce).min();
    if let Some(time) = time.filter(|time| idle.is_empty() || may_wait >= Some(*time)) {
        return clock::sleep_until(now + time);
    }
    let timeout = match time {
        Some(time) => Some(Duration::from_nanos(time)),
        None if directions.iter().all(Direction::is_settled) => None,
        None => Some(RECHECK),
    };
    if wait_readable(&idle, timeout).is_err() {
        thread::sleep(RECHECK);
    }
}
