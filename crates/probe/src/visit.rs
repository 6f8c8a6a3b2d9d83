//! One node looks at another: which of its addresses lead to it, and what the first that does can carry.

use crate::info;
use crate::message::{MAX_IDLE_S, Purpose, Target};
use crate::reach::{Dialler, Reach};
use gridmpi_bootstrap::line::{self, Line, LineError, Pass};
use gridmpi_doctor::{Attempt, Bulk, Depth, Idle, Node, Outcome, Route, Visit, route};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for a connection: the kernel asks again after 1 and 3 s.
const CONNECT: Duration = Duration::from_millis(3200);
/// Time for one short message.
const SHORT: Duration = Duration::from_secs(3);
/// What takes longer than this to be told impossible was waited for.
const AT_ONCE: Duration = Duration::from_millis(900);
/// What is to cross: many full packets, and less than any buffer.
const BULK: u32 = 32 << 10;
/// Time for it, and round trips more.
const BULK_TIME: Duration = Duration::from_millis(2500);
const BULK_TRIPS: u32 = 10;
/// Small messages to and fro.
const ECHOES: u32 = 10;
/// Packets that are tried where large ones vanish: jumbo frames, Ethernet, tunnels of all kinds, the least of either protocol.
const PACKETS: [u32; 16] =
    [8000, 4000, 2000, 1500, 1492, 1480, 1450, 1420, 1400, 1380, 1350, 1300, 1280, 1200, 1000, 576];
/// Longest dialogue with one visitor.
const PATIENCE: Duration = Duration::from_secs(MAX_IDLE_S as u64 + 60);

/// This node, as it shows itself to others.
#[derive(Clone, Debug)]
pub(crate) struct Me {
    pub(crate) id: u64,
    pub(crate) node: Node,
}

/// The first word of whoever is visited.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    id: u64,
    node: Node,
    /// Where the visitor comes from, as it is seen here.
    seen: SocketAddr,
}

/// What a visitor asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// An answer.
    Echo,
    /// An answer, when this has come.
    Take(String),
    /// So many bytes.
    Give(u32),
}

/// What it gets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Microseconds since 1970, by the clock there.
    Echo(u64),
    /// What was asked for.
    Given(String),
}

fn clock_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The side that is visited, until the visitor goes.
pub(crate) fn serve(mut line: Line, me: &Me) {
    let Ok(seen) = line.stream().peer_addr() else { return };
    let seen = SocketAddr::new(seen.ip().to_canonical(), seen.port());
    let greeting = Greeting { id: me.id, node: me.node.clone(), seen };
    let mut alive = line.send(&greeting, Instant::now() + SHORT).is_ok();
    while alive {
        let Ok(ask) = line.receive(Instant::now() + PATIENCE) else { return };
        let answer = match ask {
            Ask::Echo | Ask::Take(_) => Answer::Echo(clock_us()),
            Ask::Give(bytes) => Answer::Given(filler(bytes.min(BULK))),
        };
        alive = line.send(&answer, Instant::now() + 2 * SHORT).is_ok();
    }
}

fn filler(bytes: u32) -> String {
    "x".repeat(bytes as usize)
}

/// Looks at another node.
pub(crate) fn visit(target: &Target, me: &Me, pass: &Pass) -> Visit {
    let (mut attempts, mut first) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let begin = |at: &SocketAddr| {
            let at = *at;
            scope.spawn(move || attempt(at, target.id, me, pass))
        };
        let trying: Vec<_> = target.to.iter().map(begin).collect();
        for (address, attempt) in target.to.iter().zip(trying) {
            // A fault of ours while trying one address says nothing of the others.
            let Ok((outcome, call)) = attempt.join() else { continue };
            let route = route::to(address.ip());
            let outcome = beside(outcome, &route);
            attempts.push(Attempt { address: *address, outcome, route });
            first = first.take().or(call);
        }
    });
    Visit { attempts, depth: first.map(|call| deepen(call, target.id, pass)) }
}

/// Whoever has no way there is told so by its own kernel.
fn beside(outcome: Outcome, route: &Route) -> Outcome {
    match outcome {
        Outcome::Rejected(why) if route.interface.is_none() && route.source.is_none() => {
            Outcome::NoWay(why)
        }
        outcome => outcome,
    }
}

/// A connection on which the right node has greeted.
struct Call {
    line: Line,
    address: SocketAddr,
    seen: SocketAddr,
}

fn attempt(address: SocketAddr, id: u64, me: &Me, pass: &Pass) -> (Outcome, Option<Call>) {
    match call(address, None, pass) {
        Ok((_, greeting)) if greeting.id == me.id => (Outcome::Oneself, None),
        Ok((_, greeting)) if greeting.id != id => (Outcome::Other(greeting.node), None),
        Ok((line, greeting)) => {
            (Outcome::Reached, Some(Call { line, address, seen: greeting.seen }))
        }
        Err(outcome) => (outcome, None),
    }
}

/// Connects with packets of at most `packet` bytes, and hears who is there.
fn call(
    address: SocketAddr,
    packet: Option<u32>,
    pass: &Pass,
) -> Result<(Line, Greeting), Outcome> {
    let stream = connect(address, packet)?;
    let deadline = Instant::now() + SHORT;
    let line = line::open(stream, pass, deadline).map_err(stranger)?;
    greet(line)
}

/// The first words of a visit, on a line that stands.
pub(crate) fn greet(mut line: Line) -> Result<(Line, Greeting), Outcome> {
    let deadline = Instant::now() + SHORT;
    line.send(&Purpose::Visit, deadline).map_err(stranger)?;
    let greeting = line.receive(deadline).map_err(stranger)?;
    Ok((line, greeting))
}

impl Greeting {
    pub(crate) const fn is_of(&self, id: u64) -> bool {
        self.id == id
    }
}

fn stranger(error: LineError) -> Outcome {
    match error {
        LineError::Timeout => Outcome::Mute,
        LineError::Token(_) => Outcome::Stranger("has another token".to_owned()),
        LineError::Version(_) => Outcome::Stranger("is another release of GridMPI".to_owned()),
        LineError::Gone(_) => Outcome::Stranger("closes the connection".to_owned()),
        LineError::Protocol(what) => Outcome::Stranger(what),
        LineError::Unreachable { .. } => Outcome::Silent,
    }
}

/// A plain connection, without keep-alive: that would hide what idle ones suffer.
fn connect(address: SocketAddr, packet: Option<u32>) -> Result<TcpStream, Outcome> {
    let no_way = |error: std::io::Error| Outcome::NoWay(error.to_string());
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(no_way)?;
    if let Some(packet) = packet {
        socket.set_tcp_mss(packet.saturating_sub(headers(address.ip()))).map_err(no_way)?;
    }
    let began = Instant::now();
    let made = socket.connect_timeout(&address.into(), CONNECT);
    made.map_err(|error| unmade(&error, began.elapsed()))?;
    Ok(socket.into())
}

/// Why there is no connection, which was known after a while.
fn unmade(error: &std::io::Error, after: Duration) -> Outcome {
    match error.kind() {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::TimedOut => Outcome::Silent,
        // What the kernel concludes after a wait: no machine there answers for that address.
        ErrorKind::HostUnreachable if after > AT_ONCE => Outcome::Silent,
        // ICMP's "administratively prohibited", with which firewalls reject: the former by IPv4, the latter by IPv6.
        ErrorKind::HostUnreachable | ErrorKind::PermissionDenied => {
            Outcome::Rejected(error.to_string())
        }
        _ => Outcome::NoWay(error.to_string()),
    }
}

/// Of each packet, bytes.
const fn headers(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 40 } else { 60 }
}

fn deepen(call: Call, id: u64, pass: &Pass) -> Depth {
    let Call { mut line, address, seen } = call;
    let local = line.stream().local_addr().unwrap_or(address);
    let trips: Vec<Trip> = (0..ECHOES).map_while(|_| trip(&mut line)).collect();
    let best = trips.iter().min_by_key(|trip| trip.took).copied().unwrap_or_default();
    let patience = BULK_TIME + best.took * BULK_TRIPS;
    let outward = bulk(&mut line, &Ask::Take(filler(BULK)), patience);
    let (packet, kernel_us) = info::packet_and_trip(line.stream()).unwrap_or_default();
    let congestion = info::control(line.stream());
    let again = match outward {
        Bulk::Passed(_) => Some(line),
        // The line is clogged: what is behind says nothing of the way back.
        _ => recall(address, None, id, pass),
    };
    let inward =
        again.map_or(Bulk::Stalled, |mut line| bulk(&mut line, &Ask::Give(BULK), patience));
    let is_stalled = outward == Bulk::Stalled || inward == Bulk::Stalled;
    let took_us = u32::try_from(best.took.as_micros()).unwrap_or(u32::MAX);
    Depth {
        address,
        local: SocketAddr::new(local.ip().to_canonical(), local.port()),
        seen,
        trip_us: if kernel_us == 0 { took_us } else { took_us.min(kernel_us) },
        ahead_us: best.ahead_us,
        ahead_error_us: took_us / 2,
        outward,
        inward,
        passing: is_stalled.then(|| passing(address, packet, patience, id, pass)).flatten(),
        path_mtu: (packet > 0).then_some(packet),
        congestion,
    }
}

fn recall(address: SocketAddr, packet: Option<u32>, id: u64, pass: &Pass) -> Option<Line> {
    let (line, greeting) = call(address, packet, pass).ok()?;
    greeting.is_of(id).then_some(line)
}

#[derive(Clone, Copy, Default)]
struct Trip {
    took: Duration,
    ahead_us: i64,
}

fn trip(line: &mut Line) -> Option<Trip> {
    let (deadline, began, before) = (Instant::now() + SHORT, Instant::now(), clock_us());
    line.send(&Ask::Echo, deadline).ok()?;
    let Ok(Answer::Echo(there_us)) = line.receive(deadline) else { return None };
    let took = began.elapsed();
    let middle = before.saturating_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX) / 2);
    let ahead = i128::from(there_us) - i128::from(middle);
    let ahead_us = i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX });
    Some(Trip { took, ahead_us })
}

/// The fastest of a few round trips on a line that stands, microseconds.
pub(crate) fn fastest(line: &mut Line) -> Option<u32> {
    let trips: Vec<Trip> = (0..3).map_while(|_| trip(line)).collect();
    trips.iter().map(|trip| u32::try_from(trip.took.as_micros()).unwrap_or(u32::MAX)).min()
}

/// Whether much crosses both ways a line on which small messages take so long.
pub(crate) fn carries(line: &mut Line, trip_us: u32) -> Bulk {
    let patience = BULK_TIME + Duration::from_micros(trip_us.into()) * BULK_TRIPS;
    match bulk(line, &Ask::Take(filler(BULK)), patience) {
        Bulk::Passed(_) => bulk(line, &Ask::Give(BULK), patience),
        stopped => stopped,
    }
}

fn bulk(line: &mut Line, ask: &Ask, patience: Duration) -> Bulk {
    let (began, deadline) = (Instant::now(), Instant::now() + patience);
    let answer = line.send(ask, deadline).and_then(|()| line.receive::<Answer>(deadline));
    match answer {
        Ok(_) => Bulk::Passed(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX)),
        Err(LineError::Timeout) => Bulk::Stalled,
        Err(error) => Bulk::Broken(error.to_string()),
    }
}

/// The largest packets that pass both ways, of those that are tried, all at once.
fn passing(
    address: SocketAddr,
    most: u32,
    patience: Duration,
    id: u64,
    pass: &Pass,
) -> Option<u32> {
    let passes = |packet: u32| {
        let Some(mut line) = recall(address, Some(packet), id, pass) else { return false };
        let takes = |line: &mut Line, ask| matches!(bulk(line, &ask, patience), Bulk::Passed(_));
        takes(&mut line, Ask::Take(filler(BULK))) && takes(&mut line, Ask::Give(BULK))
    };
    let tried = PACKETS.into_iter().filter(|packet| *packet < most);
    std::thread::scope(|scope| {
        let trying: Vec<_> =
            tried.map(|packet| (packet, scope.spawn(move || passes(packet)))).collect();
        let passed = trying.into_iter().filter_map(|(packet, trying)| {
            trying.join().is_ok_and(|passes| passes).then_some(packet)
        });
        passed.max()
    })
}

/// Connections that are left alone for so many seconds each, all at once, and used then; way by way.
pub(crate) fn idle(id: u64, by: &[Reach], seconds: &[u32], dialler: &Dialler) -> Vec<Vec<Idle>> {
    std::thread::scope(|scope| {
        let begin = |way| scope.spawn(move || idle_on(id, way, seconds, dialler));
        let waiting: Vec<_> = by.iter().map(begin).collect();
        waiting.into_iter().map(|one| one.join().unwrap_or_default()).collect()
    })
}

/// A line that nothing but its traffic keeps alive, to the right node.
fn quiet(id: u64, way: &Reach, dialler: &Dialler) -> Option<Line> {
    match way {
        Reach::Direct(to) => to.iter().find_map(|at| recall(*at, None, id, &dialler.pass)),
        Reach::Circuits { .. } => {
            let (line, greeting) = greet(dialler.dial(way, 0).ok()?).ok()?;
            greeting.is_of(id).then_some(line)
        }
    }
}

fn idle_on(id: u64, way: &Reach, seconds: &[u32], dialler: &Dialler) -> Vec<Idle> {
    let survives = |seconds: u32| {
        let mut line = quiet(id, way, dialler)?;
        trip(&mut line)?;
        let until = Instant::now() + Duration::from_secs(seconds.into());
        // Nothing is to come; that something does, or an end, is known at once.
        let quiet = line.receive::<Answer>(until);
        let is_alive = matches!(quiet, Err(LineError::Timeout)) && trip(&mut line).is_some();
        Some(Idle { seconds, is_alive })
    };
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            seconds.iter().map(|seconds| scope.spawn(move || survives(*seconds))).collect();
        waiting.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn what_a_firewall_rejects_is_told_from_what_has_no_way() {
        let (soon, late) = (Duration::from_millis(20), AT_ONCE * 2);
        let source = "10.1.0.1".parse().ok();
        let way = Route { interface: Some("eth1".into()), source, ..Route::default() };
        // Where the tool `ip` is missing.
        let source_only = Route { source, ..Route::default() };
        let none = Route::default();
        let judged = |errno: Errno, after, route| beside(unmade(&errno.into(), after), route);
        for errno in [Errno::HOSTUNREACH, Errno::ACCESS] {
            for route in [&way, &source_only] {
                let outcome = judged(errno, soon, route);
                assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
            }
            let outcome = judged(errno, soon, &none);
            assert!(matches!(outcome, Outcome::NoWay(_)), "{outcome:?}");
        }
        let unknown = judged(Errno::NETUNREACH, soon, &way);
        assert!(matches!(unknown, Outcome::NoWay(_)), "{unknown:?}");
        assert_eq!(judged(Errno::HOSTUNREACH, late, &way), Outcome::Silent);
        assert_eq!(judged(Errno::CONNREFUSED, soon, &way), Outcome::Refused);
    }
}
