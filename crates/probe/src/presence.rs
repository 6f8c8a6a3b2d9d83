//! A node at the relays of its cluster: registered as a process of a job would be, so that circuits to it can be tried.

use crate::message::Target;
use crate::visit::{self, Me};
use gridmpi_bootstrap::line::{self, Line, Pass};
use gridmpi_bootstrap::{RelayAccess, RelayError, Stranger, Strangers, Taking};
use gridmpi_doctor::{Bulk, Circuit, Outcome, RelayFact, RelayProblem, Route, route};
use gridmpi_leg::{LegError, Notices};
use gridmpi_wire::{CircuitId, Errand, LegNotice, LegVerdict, ProcId};
use std::io::Read;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time to connect and to agree with a relay on anything but a circuit.
const SHORT: Duration = Duration::from_secs(4);
/// A relay gives the far end 10 s to come.
const CIRCUIT: Duration = Duration::from_secs(13);

/// Most circuits that are taken at a time, in equal parts for all relays: who has a relay's token may call as often as it likes.
const MOST_TAKEN: usize = 256;
/// Most whose other ends have not proven themselves.
const MAX_STRANGERS: usize = 256;

/// A node at its relays.
pub(crate) struct Presence {
    relays: RelayAccess,
    me: Me,
    pass: Pass,
    as_process: Mutex<ProcId>,
    /// Circuits whose other ends have not proven themselves.
    strangers: Arc<Strangers>,
    /// Takes the lines of those that have.
    came: Box<dyn Fn(Line) + Send + Sync>,
}

impl Presence {
    pub(crate) fn new(
        relays: RelayAccess,
        me: Me,
        pass: &Pass,
        came: impl Fn(Line) + Send + Sync + 'static,
    ) -> Self {
        let as_process = Mutex::new(ProcId::NEWCOMER);
        let strangers = Arc::new(Strangers::new(MAX_STRANGERS));
        Self { relays, me, pass: pass.clone(), as_process, strangers, came: Box::new(came) }
    }

    fn process(&self) -> ProcId {
        *self.as_process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers at every relay, and stays so to the end of this process.
    pub(crate) fn register(self: &Arc<Self>, me: u32, first: u32, count: u32) -> Vec<RelayFact> {
        *self.as_process.lock().unwrap_or_else(PoisonError::into_inner) = ProcId(me);
        let errand = Errand::Register { first: ProcId(first), count };
        self.at_each(|own, name| {
            let mut fact = own.fact(name);
            match own.registered(name, errand, &mut fact) {
                Ok(stream) => {
                    let (own, at) = (Arc::clone(own), fact.address);
                    let taking = own.taking();
                    std::thread::spawn(move || own.await_notices(&stream, at, &taking));
                }
                Err(problem) => fact.problem = Some(problem),
            }
            fact
        })
    }

    fn at_each<T: Send>(self: &Arc<Self>, what: impl Fn(&Arc<Self>, &str) -> T + Sync) -> Vec<T> {
        let what = &what;
        std::thread::scope(|scope| {
            let names = self.relays.names.iter();
            let all: Vec<_> = names.map(|name| scope.spawn(move || what(self, name))).collect();
            all.into_iter().filter_map(|one| one.join().ok()).collect()
        })
    }

    fn fact(&self, name: &str) -> RelayFact {
        RelayFact {
            node: self.me.node.clone(),
            relay: name.to_owned(),
            address: None,
            route: Route::default(),
            trip_us: None,
            problem: None,
        }
    }

    fn registered(
        &self,
        name: &str,
        errand: Errand,
        fact: &mut RelayFact,
    ) -> Result<TcpStream, RelayProblem> {
        let address = address(name)?;
        (fact.address, fact.route) = (Some(address), route::to(address.ip()));
        let (stream, took) = connect(address)?;
        fact.trip_us = Some(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        self.ask(&stream, errand, SHORT)?;
        stream.set_read_timeout(None).map_err(|error| RelayProblem::Connect(error.to_string()))?;
        Ok(stream)
    }

    fn ask(
        &self,
        stream: &TcpStream,
        errand: Errand,
        patience: Duration,
    ) -> Result<(), RelayProblem> {
        let who = (self.process(), self.pass.job());
        self.relays.ask(stream, who, errand, Instant::now() + patience).map_err(problem)
    }

    /// For the circuits of one relay.
    fn taking(&self) -> Arc<Taking> {
        Arc::new(Taking::of_each(self.relays.names.len(), MOST_TAKEN, 2 << 20))
    }

    /// Takes the circuits of which the relay tells, until it ends the connection.
    fn await_notices(
        self: &Arc<Self>,
        mut stream: &TcpStream,
        relay: Option<SocketAddr>,
        taking: &Arc<Taking>,
    ) {
        let mut notices = Notices::default();
        while let Ok(count @ 1..) = stream.read(notices.space()) {
            let (Ok(notice), Some(relay)) = (notices.read(count), relay) else { return };
            // Of other relays a job's own processes are told; here one looks at those that the job names.
            let Some(LegNotice::Called { circuit, .. }) = notice else { continue };
            let (own, me) = (Arc::clone(self), Arc::clone(self));
            taking.begin(move || own.accept(relay, circuit), move |came| me.answer(came));
        }
    }

    fn accept(&self, relay: SocketAddr, circuit: CircuitId) -> Option<(TcpStream, Stranger)> {
        let (stream, _) = connect(relay).ok()?;
        self.ask(&stream, Errand::Accept { circuit }, SHORT).ok()?;
        let stranger = self.strangers.come(&stream, relay.ip())?;
        Some((stream, stranger))
    }

    /// One who comes to us by a circuit. Whoever waits at the other end tells what became of it.
    fn answer(&self, (stream, stranger): (TcpStream, Stranger)) {
        let line = line::answer(stream, &self.pass, Instant::now() + SHORT);
        drop(stranger);
        if let Ok(line) = line {
            (self.came)(line);
        }
    }

    /// A line to a process by a circuit through one of our relays.
    pub(crate) fn line(&self, relay: &str, process: u32) -> Result<Line, String> {
        let found = self.open(relay, ProcId(process));
        found.map_err(|problem| format!("no circuit through relay {relay}: {problem}"))
    }

    fn open(&self, relay: &str, process: ProcId) -> Result<Line, RelayProblem> {
        let (stream, _) = connect(address(relay)?)?;
        self.ask(&stream, Errand::Open { to: process }, CIRCUIT)?;
        let line = line::open(stream, &self.pass, Instant::now() + SHORT);
        line.map_err(|error| RelayProblem::Circuit(error.to_string()))
    }

    /// A circuit to another node through each relay.
    pub(crate) fn circuits(self: &Arc<Self>, to: &Target, process: u32) -> Vec<Circuit> {
        self.at_each(|own, name| {
            let found = own.circuit(name, to, ProcId(process));
            Circuit {
                from: own.me.node.clone(),
                to: to.node.clone(),
                relay: name.to_owned(),
                trip_us: found.as_ref().ok().copied(),
                problem: found.err(),
                idle: Vec::new(),
            }
        })
    }

    fn circuit(&self, name: &str, to: &Target, process: ProcId) -> Result<u32, RelayProblem> {
        let of_circuit = |why: &str| RelayProblem::Circuit(why.to_owned());
        let (mut line, greeting) =
            visit::greet(self.open(name, process)?).map_err(|outcome| match outcome {
                Outcome::Mute => of_circuit("nothing comes back on it"),
                _ => of_circuit("it broke"),
            })?;
        if !greeting.is_of(to.id) {
            return Err(of_circuit("it leads to another node"));
        }
        let trip = visit::fastest(&mut line);
        let trip = trip.ok_or_else(|| of_circuit("nothing comes back on it"))?;
        match visit::carries(&mut line, trip) {
            Bulk::Passed(_) => Ok(trip),
            Bulk::Stalled => Err(RelayProblem::Stalled),
            Bulk::Broken(_) => Err(of_circuit("it broke when 32 KiB were sent")),
        }
    }
}

fn address(name: &str) -> Result<SocketAddr, RelayProblem> {
    let unknown = |why: String| RelayProblem::Name(why);
    let mut found = name.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("it has no address".to_owned()))
}

/// A connection, and how long it took: a round trip.
fn connect(address: SocketAddr) -> Result<(TcpStream, Duration), RelayProblem> {
    let began = Instant::now();
    let stream = TcpStream::connect_timeout(&address, SHORT);
    let took = began.elapsed();
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    Ok((stream.map_err(|error| RelayProblem::Connect(error.to_string()))?, took))
}

fn problem(error: RelayError) -> RelayProblem {
    match error {
        RelayError::Io(error) => RelayProblem::Connect(error.to_string()),
        RelayError::Leg(LegError::NotGenuine) => RelayProblem::Token,
        RelayError::Leg(LegError::Refused(verdict)) => match verdict {
            LegVerdict::UnknownToken => RelayProblem::Token,
            LegVerdict::JobNotAllowed => RelayProblem::NotAllowed,
            LegVerdict::NoRoute => RelayProblem::NoRoute,
            LegVerdict::Unanswered => RelayProblem::Unanswered,
            verdict => RelayProblem::Refused(verdict.to_string()),
        },
        RelayError::Leg(error) => RelayProblem::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::{RelayToken, Secret};
    use gridmpi_doctor::Node;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn who_is_called_without_end_takes_a_number_of_circuits_at_a_time() {
        const CALLS: u64 = 400;
        let token = RelayToken::random().unwrap();
        let relays = RelayAccess { names: Vec::new(), token };
        let me = Me { id: 1, node: Node { cluster: String::new(), host: String::new() } };
        let pass = Pass::from(&Secret::random().unwrap());
        let presence = Arc::new(Presence::new(relays, me, &pass, |_| {}));
        // It calls, takes connections, and says nothing.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let leg = TcpStream::connect(at).unwrap();
        let (mut relay, _) = listener.accept().unwrap();
        for circuit in (0..CALLS).map(CircuitId) {
            relay.write_all(&LegNotice::Called { from: ProcId(0), circuit }.encode()).unwrap();
        }
        drop(relay);
        let circuits = presence.taking();
        presence.await_notices(&leg, Some(at), &circuits);
        let taking = circuits.count();
        assert!((1..=MOST_TAKEN).contains(&taking), "{taking} at a time");
        // Once they end others are taken.
        drop(listener);
        let until = Instant::now() + 3 * SHORT;
        while circuits.count() > 0 {
            assert!(Instant::now() < until, "circuits that nobody answers are never given up");
            std::thread::yield_now();
        }
    }
}
