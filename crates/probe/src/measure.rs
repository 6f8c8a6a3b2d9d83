//! One path: what is sent when, and what comes of it.

use crate::conductor::{Conductor, HERE, THERE};
use crate::error::ProbeError;
use crate::figure::{Figure, Series, Window, median};
use crate::message::{Dial, Order, Tally, Word};
use crate::plan;
use crate::result::{PathReport, Queueing, RoundTrip, Transfer, with_headers};
use crate::road::Road;
use std::time::{Duration, Instant};

/// Time for connections to be made and for nodes to come to an end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Round trips on the idle path.
const IDLE_ECHOES: u32 = 20;
const IDLE_LIMIT_MS: u32 = 3000;
/// Between two round trips while a transfer is under way.
const ECHO_EVERY: Duration = Duration::from_millis(20);
/// Queues may take so long to drain after a transfer.
const DRAIN: Duration = Duration::from_secs(5);
/// Longest transfer, whatever the round trip.
const LONGEST: Duration = Duration::from_secs(15);

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for each transfer whose figure does not settle; more where round trips are long.
    pub limit: Duration,
    /// Connections in all, about.
    pub connections: u32,
    /// Congestion control instead of the system's.
    pub congestion: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { limit: Duration::from_secs(2), connections: 16, congestion: None }
    }
}

/// One transfer to be.
struct Task<'a> {
    options: &'a Options,
    /// Who makes the connections, and who takes them.
    sides: [&'a [usize]; 2],
    /// Which of both sends.
    sender: usize,
    idle: RoundTrip,
    /// From the former to the latter.
    road: &'a Road,
}

impl Conductor<'_> {
    /// Measures between here and there, after [`Conductor::by_hand`].
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn measure_by_hand(&mut self, options: &Options) -> Result<PathReport, ProbeError> {
        self.measure([HERE, THERE], options)
    }

    /// Measures the path between two clusters. The first one's nodes make all connections.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn measure(
        &mut self,
        between: [&str; 2],
        options: &Options,
    ) -> Result<PathReport, ProbeError> {
        self.measure_on(&Road::Direct, between, options)
    }

    pub(crate) fn measure_on(
        &mut self,
        road: &Road,
        between: [&str; 2],
        options: &Options,
    ) -> Result<PathReport, ProbeError> {
        let nodes = between.map(|cluster| road.users(self.of(cluster)));
        if nodes.iter().any(Vec::is_empty) {
            return Err(ProbeError::Ended(format!("no node of {between:?} is here")));
        }
        self.keep_all();
        let ends = [nodes[0][0], nodes[1][0]];
        let idle = self.trips(road, ends, IDLE_ECHOES)?;
        let mut run = |sender: usize, all: bool| {
            let mut sides = [nodes[0].as_slice(), nodes[1].as_slice()];
            if !all {
                sides[sender] = &sides[sender][..1];
            }
            self.settle(road, ends, idle)?;
            self.transfer(&Task { options, sides, sender, idle, road })
        };
        let together = [run(0, true)?, run(1, true)?];
        let mut alone = together.clone();
        for side in 0..2 {
            if nodes[side].len() > 1 {
                alone[side] = run(side, false)?;
            }
        }
        let nodes = [0, 1].map(|side| u32::try_from(nodes[side].len()).unwrap_or(u32::MAX));
        let between = between.map(str::to_owned);
        Ok(PathReport { between, nodes, round_trip: idle, together, alone })
    }

    fn trips(
        &mut self,
        road: &Road,
        [from, to]: [usize; 2],
        count: u32,
    ) -> Result<RoundTrip, ProbeError> {
        let to_it = self.reach(road, to);
        self.order(from, &Order::Echo { to: to_it, count, every_us: 0, for_ms: IDLE_LIMIT_MS })?;
        let heard = self.hear(&[from], PATIENCE, "round trips", |_, word| match word {
            Word::Echoed(trips) => Some(trips),
            _ => None,
        })?;
        let trips = heard.into_iter().next().unwrap_or_default();
        let (Some(least), Some(median)) = (trips.iter().min(), median(&trips)) else {
            return Err(ProbeError::Silent { node: self.name(to), what: "round trips" });
        };
        Ok(RoundTrip { least_us: *least, median_us: median })
    }

    /// Waits until what an earlier transfer has left in queues is gone.
    fn settle(&mut self, road: &Road, ends: [usize; 2], idle: RoundTrip) -> Result<(), ProbeError> {
        let calm = idle.median_us + idle.median_us / 4 + 1000;
        let deadline = Instant::now() + DRAIN;
        while self.trips(road, ends, 3)?.least_us > calm && Instant::now() < deadline {}
        Ok(())
    }

    fn transfer(&mut self, task: &Task<'_>) -> Result<Transfer, ProbeError> {
        let connections = self.open(task)?;
        let senders = task.sides[task.sender];
        let receivers = task.sides[1 - task.sender];
        let limit = task.limit();
        let go = Order::Go { for_ms: limit.as_millis() as u32 };
        for node in receivers.iter().chain(senders) {
            self.order(*node, &go)?;
        }
        let echoes = u32::try_from(limit.as_millis() / ECHO_EVERY.as_millis()).unwrap_or(1);
        let echo = Order::Echo {
            to: self.reach(task.road, task.sides[1][0]),
            count: echoes,
            every_us: ECHO_EVERY.as_micros() as u32,
            for_ms: limit.as_millis() as u32,
        };
        self.order(task.sides[0][0], &echo)?;
        let watched = self.watch_flow(task)?;
        let (tally, trips) = self.end(task, watched.trips)?;
        let goodput = watched.figure.rate * 8.0;
        let least = task.idle.least_us;
        let rise = |us: u32| us.saturating_sub(least);
        let queueing = trips.iter().min().zip(median(&trips));
        Ok(Transfer {
            goodput_bits_per_s: goodput.round() as u64,
            bandwidth_bits_per_s: with_headers(goodput),
            seconds: watched.figure.seconds,
            is_stable: watched.figure.is_stable,
            connections,
            segments: tally.segments,
            retransmitted: tally.retransmitted,
            queueing: queueing.map(|(least, median)| Queueing {
                least_us: rise(*least),
                median_us: rise(median),
            }),
            congestion: tally.congestion,
        })
    }

    /// All connections of a transfer; how many.
    fn open(&mut self, task: &Task<'_>) -> Result<u32, ProbeError> {
        self.rounds += 1;
        let (round, congestion) = (self.rounds, task.options.congestion.clone());
        let [here, there] = task.sides;
        let flows = plan::flows(here.len(), there.len(), task.options.connections);
        for (index, node) in there.iter().enumerate() {
            let ours = flows.iter().filter(|flow| flow.there == index);
            let expects = ours.map(|flow| flow.connections).sum();
            let congestion = congestion.clone();
            self.order(*node, &Order::Open { round, dials: Vec::new(), expects, congestion })?;
        }
        for (index, node) in here.iter().enumerate() {
            let ours = flows.iter().filter(|flow| flow.here == index);
            let dial = |flow: &plan::Flow| Dial {
                to: self.reach(task.road, there[flow.there]),
                connections: flow.connections,
                sends: task.sender == 0,
            };
            let dials = ours.map(dial).collect();
            let congestion = congestion.clone();
            self.order(*node, &Order::Open { round, dials, expects: 0, congestion })?;
        }
        let all: Vec<usize> = here.iter().chain(there).copied().collect();
        let ready = |_, word| matches!(word, Word::Ready).then_some(());
        self.hear(&all, PATIENCE, "connections to be made", ready)?;
        Ok(flows.iter().map(|flow| flow.connections).sum())
    }

    /// Listens to the receivers until the figure is stable or time is up.
    fn watch_flow(&mut self, task: &Task<'_>) -> Result<Watched, ProbeError> {
        let (receivers, window) = (task.sides[1 - task.sender], task.window());
        let mut series = Series::new(receivers.len());
        let deadline = Instant::now() + task.limit();
        let mut trips = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let heard = if left.is_zero() { None } else { self.word(left)? };
            match heard {
                Some((node, Word::Received { at_us, bytes })) => {
                    if let Some(receiver) = receivers.iter().position(|known| *known == node) {
                        let at = self.nodes[node].offset_us.saturating_add_unsigned(at_us);
                        series.add(receiver, u64::try_from(at).unwrap_or(0), bytes);
                    }
                }
                Some((_, Word::Echoed(found))) => trips = Some(found),
                _ => {}
            }
            let figure = series.figure(window);
            if let Some(figure) = figure.filter(|figure| figure.is_stable || left.is_zero()) {
                return Ok(Watched { figure, trips });
            }
            if left.is_zero() {
                return Err(self.nothing(task, &series));
            }
        }
    }

    fn nothing(&self, task: &Task<'_>, series: &Series) -> ProbeError {
        let sender = task.sides[task.sender][0];
        let receiver = task.sides[1 - task.sender][0];
        if series.has_any() {
            let what = "enough to arrive for a figure (give more time by --seconds)";
            return ProbeError::Silent { node: self.name(receiver), what };
        }
        ProbeError::Nothing { from: self.name(sender), to: self.name(receiver) }
    }

    /// Senders end first, so that no connection breaks under them; what they counted, and the round trips meanwhile.
    fn end(
        &mut self,
        task: &Task<'_>,
        mut trips: Option<Vec<u32>>,
    ) -> Result<(Tally, Vec<u32>), ProbeError> {
        let mut sum = Tally::default();
        for side in [task.sender, 1 - task.sender] {
            for node in task.sides[side] {
                self.order(*node, &Order::Stop)?;
            }
            let tallies =
                self.hear(task.sides[side], PATIENCE, "the end of a transfer", |_, word| {
                    match word {
                        Word::Done(tally) => return Some(tally),
                        Word::Echoed(found) => trips = Some(found),
                        _ => {}
                    }
                    None
                })?;
            for tally in tallies {
                sum.segments = sum.segments.saturating_add(tally.segments);
                sum.retransmitted = sum.retransmitted.saturating_add(tally.retransmitted);
                sum.congestion = sum.congestion.or(tally.congestion);
            }
        }
        let echoed = |_, word| if let Word::Echoed(trips) = word { Some(trips) } else { None };
        let trips = match trips {
            Some(trips) => trips,
            None => self.hear(&[task.sides[0][0]], PATIENCE, "round trips", echoed)?.concat(),
        };
        Ok((sum, trips))
    }
}

struct Watched {
    figure: Figure,
    trips: Option<Vec<u32>>,
}

impl Task<'_> {
    fn round_trip(&self) -> Duration {
        Duration::from_micros(self.idle.median_us.into())
    }

    fn window(&self) -> Window {
        let discard = Duration::from_millis(300).max(self.round_trip() * 10);
        let width = Duration::from_millis(100).max(self.round_trip() * 2);
        Window { discard_us: discard.as_micros() as u64, width_us: width.as_micros() as u64 }
    }

    /// Long round trips need more than what the user has allowed.
    fn limit(&self) -> Duration {
        let Window { discard_us, width_us } = self.window();
        let needed = Duration::from_micros(discard_us + 8 * width_us);
        self.options.limit.max(needed).min(LONGEST)
    }
}
