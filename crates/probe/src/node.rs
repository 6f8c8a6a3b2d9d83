//! One end of a measurement: does what the conductor orders.

use crate::admission::{self, Door, Visitor};
use crate::echo;
use crate::error::ProbeError;
use crate::info;
use crate::message::{Dial, Hello, MAX_STREAMS, Order, Purpose, Tally, Word};
use crate::presence::Presence;
use crate::reach::{Dialler, Reach};
use crate::streams::{Stream, Streams};
use crate::visit::{self, Me};
use gridmpi_bootstrap::RelayAccess;
use gridmpi_bootstrap::line::{self, Line, LineError, LineReader, LineWriter, Pass};
use gridmpi_doctor::{Node, machine};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often what has come in is told.
const TELL: Duration = Duration::from_millis(25);
/// Time for one short message, and for connections to be made.
const SHORT: Duration = Duration::from_secs(10);
/// A node that nobody orders anything leaves, unless it was told to stay longer.
const IDLE: Duration = Duration::from_secs(600);
/// It is the conductor who ends a transfer; without it, it ends so much later.
const MORE: Duration = Duration::from_secs(5);

/// Who a node is, to the conductor.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: String,
    /// The machine.
    pub host: String,
    /// Of how many that its launcher has started, if it was told.
    pub of: Option<u32>,
    /// Where others reach it, best first.
    pub addresses: Vec<SocketAddr>,
    /// The interface or network that it was told to use.
    pub interface: Option<String>,
    /// The relays of its cluster.
    pub relays: Option<RelayAccess>,
}

impl Identity {
    fn me(&self) -> Result<Me, ProbeError> {
        let id = getrandom::u64();
        let id = id.map_err(|error| ProbeError::Here(format!("no random source: {error}")))?;
        Ok(Me { id, node: Node { cluster: self.cluster.clone(), host: self.host.clone() } })
    }
}

/// Serves the conductor at one of `at` until it has no more orders.
///
/// # Errors
/// When it cannot be reached, or goes away.
pub fn attend(
    at: &[SocketAddr],
    pass: &Pass,
    listeners: Vec<TcpListener>,
    who: Identity,
) -> Result<(), ProbeError> {
    let here = |error: std::io::Error| ProbeError::Here(format!("cannot listen: {error}"));
    let me = who.me()?;
    let post = Arc::new(Post::new(&me));
    let _door = post.open(listeners, pass, |_, _| {}).map_err(here)?;
    let deadline = Instant::now() + SHORT;
    let line = match &who.relays {
        Some(relays) => line::dial_or_relay(at, relays, pass, deadline),
        None => line::dial(at, pass, deadline),
    };
    let mut line = line.map_err(ProbeError::Attend)?;
    line.send(&Purpose::Words, deadline).map_err(ProbeError::Attend)?;
    serve(line, who, me, pass, post)
}

/// Waits on `listeners` for a conductor, and serves it until it has no more orders. Others that come are told to `stranger`.
///
/// # Errors
/// When nobody comes within `wait`, or who has come goes away.
pub fn receive(
    listeners: Vec<TcpListener>,
    pass: &Pass,
    who: Identity,
    wait: Duration,
    stranger: impl Fn(SocketAddr, String) + Send + Sync + 'static,
) -> Result<(), ProbeError> {
    let here = |error: std::io::Error| ProbeError::Here(format!("cannot listen: {error}"));
    let me = who.me()?;
    let post = Arc::new(Post::new(&me));
    let _door = post.open(listeners, pass, stranger).map_err(here)?;
    let line = post.wait(Instant::now() + wait, |arrivals| arrivals.conductor.take());
    let missing = "nobody has come to measure with this end".to_owned();
    let line = line.ok_or(ProbeError::Missing { missing, seconds: wait.as_secs() })?;
    serve(line, who, me, pass, post)
}

/// Where those who were let in wait to be taken up.
struct Post {
    me: Me,
    arrivals: Mutex<Arrivals>,
    news: Condvar,
}

#[derive(Default)]
struct Arrivals {
    conductor: Option<Line>,
    has_conductor: bool,
    streams: VecDeque<(u32, Stream)>,
}

impl Post {
    fn new(me: &Me) -> Self {
        Self { me: me.clone(), arrivals: Mutex::default(), news: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(
        self: &Arc<Self>,
        listeners: Vec<TcpListener>,
        pass: &Pass,
        stranger: impl Fn(SocketAddr, String) + Send + Sync + 'static,
    ) -> std::io::Result<Door> {
        let post = Arc::clone(self);
        admission::open(listeners, pass, None, move |visitor| match visitor {
            Visitor::Proven(line) => post.visit(line, false),
            Visitor::Stranger(peer, problem) => stranger(peer, problem),
        })
    }

    fn visit(&self, mut line: Line, is_circuit: bool) {
        match line.receive(Instant::now() + SHORT) {
            Ok(Purpose::Echo) => drop(line.into_stream().map(echo::answer)),
            Ok(Purpose::Visit) => visit::serve(line, &self.me),
            Ok(Purpose::Stream { round, dialer_sends }) => {
                let Ok(socket) = line.into_stream() else { return };
                let mut arrivals = self.lock();
                // What no round has taken up is of no use any more when there is so much of it.
                if arrivals.streams.len() >= MAX_STREAMS as usize {
                    arrivals.streams.pop_front();
                }
                let stream = Stream { socket, sends: !dialer_sends, is_circuit };
                arrivals.streams.push_back((round, stream));
            }
            Ok(Purpose::Orders) => {
                let mut arrivals = self.lock();
                if !arrivals.has_conductor {
                    arrivals.has_conductor = true;
                    arrivals.conductor = Some(line);
                }
            }
            Ok(Purpose::Words) | Err(_) => return,
        }
        self.news.notify_all();
    }

    /// Waits until `take` finds what it wants.
    fn wait<T>(
        &self,
        deadline: Instant,
        mut take: impl FnMut(&mut Arrivals) -> Option<T>,
    ) -> Option<T> {
        let mut arrivals = self.lock();
        loop {
            if let Some(found) = take(&mut arrivals) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.news.wait_timeout(arrivals, left);
            arrivals = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `count` connections of a round, when all of them have come.
    fn streams(&self, round: u32, count: usize) -> Option<Vec<Stream>> {
        self.wait(Instant::now() + SHORT, |arrivals| {
            arrivals.streams.retain(|(of, _)| *of >= round);
            let here = arrivals.streams.iter().filter(|(of, _)| *of == round).count();
            (here >= count).then(|| {
                let (ours, others) = arrivals.streams.drain(..).partition(|(of, _)| *of == round);
                arrivals.streams = others;
                let ours: VecDeque<(u32, Stream)> = ours;
                ours.into_iter().map(|(_, stream)| stream).collect()
            })
        })
    }
}

fn serve(
    line: Line,
    who: Identity,
    me: Me,
    pass: &Pass,
    post: Arc<Post>,
) -> Result<(), ProbeError> {
    let (reader, writer) = line.split();
    let mouth = Mouth(Arc::new(Mutex::new(writer)));
    let Identity { cluster, host, of, addresses, interface, relays } = who;
    let told = addresses.clone();
    mouth.say(&Word::Hello(Hello { cluster, host, of, addresses, id: me.id }))?;
    let presence = relays.map(|relays| {
        let post = Arc::clone(&post);
        Arc::new(Presence::new(relays, me.clone(), pass, move |line| post.visit(line, true)))
    });
    let desk = Desk {
        orders: listen(reader, IDLE),
        mouth,
        post,
        dialler: Dialler { pass: pass.clone(), presence },
        me,
        machine: (interface, told),
        began: Instant::now(),
        streams: Vec::new(),
        running: None,
        tally: Tally::default(),
        over: Arc::default(),
    };
    desk.run()
}

/// Orders come in a thread of their own. The last is none: an error, or none for `idle`, or for longer where that was ordered.
fn listen(mut reader: LineReader, idle: Duration) -> Receiver<Result<Order, LineError>> {
    let (sender, orders) = sync_channel(16);
    std::thread::spawn(move || {
        let mut patience = idle;
        loop {
            let order = reader.receive(Instant::now() + patience);
            if let Ok(Order::Stay { for_s }) = order {
                patience = idle.max(Duration::from_secs(for_s.into()));
            }
            let is_last = order.is_err();
            if sender.send(order).is_err() || is_last {
                return;
            }
        }
    });
    orders
}

/// Speaks to the conductor.
#[derive(Clone)]
struct Mouth(Arc<Mutex<LineWriter>>);

impl Mouth {
    fn say(&self, word: &Word) -> Result<(), ProbeError> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.send(word, Instant::now() + SHORT).map_err(gone)
    }
}

fn gone(error: LineError) -> ProbeError {
    ProbeError::Lost { node: "the end that conducts".to_owned(), reason: error.to_string() }
}

/// A node at work.
struct Desk {
    orders: Receiver<Result<Order, LineError>>,
    mouth: Mouth,
    post: Arc<Post>,
    dialler: Dialler,
    me: Me,
    /// The interface that it was told to use, and the addresses that it tells.
    machine: (Option<String>, Vec<SocketAddr>),
    began: Instant,
    /// Made, not yet filled.
    streams: Vec<Stream>,
    running: Option<Streams>,
    /// Of what has run.
    tally: Tally,
    /// Ends what is running.
    over: Arc<AtomicBool>,
}

/// What a look needs of the desk.
struct Looking {
    me: Me,
    dialler: Dialler,
    machine: (Option<String>, Vec<SocketAddr>),
}

impl Desk {
    fn run(mut self) -> Result<(), ProbeError> {
        loop {
            let patience = if self.running.is_some() { TELL } else { IDLE };
            match self.orders.recv_timeout(patience) {
                Ok(Ok(Order::Leave)) => return Ok(()),
                Ok(Ok(order)) if order.is_sound() => self.obey(order)?,
                Ok(Ok(_)) => return Err(gone(LineError::Protocol("an unsound order".to_owned()))),
                Ok(Err(error)) => return Err(self.abandon(error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.abandon(LineError::Timeout));
                }
            }
            self.tell()?;
        }
    }

    fn abandon(&self, error: LineError) -> ProbeError {
        self.over.store(true, Ordering::Release);
        gone(error)
    }

    fn obey(&mut self, order: Order) -> Result<(), ProbeError> {
        match order {
            Order::Clock => self.mouth.say(&Word::Clock(self.now_us())),
            Order::Echo { to, count, every_us, for_ms } => {
                let every = Duration::from_micros(every_us.into());
                self.echo(to, (count, every), Duration::from_millis(for_ms.into()));
                Ok(())
            }
            Order::Open { round, dials, expects, congestion } => {
                match self.open(round, &dials, expects, congestion.as_deref()) {
                    Ok(()) => self.mouth.say(&Word::Ready),
                    Err(reason) => self.mouth.say(&Word::failed(&reason)),
                }
            }
            Order::Go { for_ms } => {
                let streams = std::mem::take(&mut self.streams);
                let limit = Duration::from_millis(for_ms.into()) + MORE;
                self.running = Some(Streams::start(streams, limit, Arc::clone(&self.over)));
                Ok(())
            }
            Order::Examine => self.look(|desk| {
                let (interface, told) = desk.machine;
                Word::Machine(Box::new(machine::look(desk.me.node, interface, told)))
            }),
            Order::Visit(to) => self.look(move |desk| {
                Word::Visited(Box::new(visit::visit(&to, &desk.me, &desk.dialler.pass)))
            }),
            Order::Idle { to, by, seconds } => {
                self.look(move |desk| Word::Idled(visit::idle(to.id, &by, &seconds, &desk.dialler)))
            }
            Order::Register { me, first, count } => self.look(move |desk| {
                let own = desk.dialler.presence;
                Word::Registered(own.map_or_else(Vec::new, |own| own.register(me, first, count)))
            }),
            Order::Circuits { to, process } => self.look(move |desk| {
                let own = desk.dialler.presence;
                Word::Circuits(own.map_or_else(Vec::new, |own| own.circuits(&to, process)))
            }),
            Order::Stop => self.stop(),
            // How long it is waited for the next is not the desk's.
            Order::Stay { .. } | Order::Leave => Ok(()),
        }
    }

    /// Looks at something, beside whatever else is going on; the conductor is told what it is.
    fn look(&self, what: impl FnOnce(Looking) -> Word + Send + 'static) -> Result<(), ProbeError> {
        let looking = Looking {
            me: self.me.clone(),
            dialler: self.dialler.clone(),
            machine: self.machine.clone(),
        };
        let mouth = self.mouth.clone();
        // If nobody listens any more, the desk has noticed it.
        std::thread::spawn(move || drop(mouth.say(&what(looking))));
        Ok(())
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Beside whatever else is going on.
    fn echo(&self, to: Reach, how: (u32, Duration), limit: Duration) {
        let (dialler, mouth, over) =
            (self.dialler.clone(), self.mouth.clone(), Arc::clone(&self.over));
        std::thread::spawn(move || {
            let trips = echo::run(&to, &dialler, how, Instant::now() + limit, &over);
            let word = trips.map_or_else(|reason| Word::failed(&reason), Word::Echoed);
            // If nobody listens any more, the desk has noticed it.
            let _ = mouth.say(&word);
        });
    }

    fn open(
        &mut self,
        round: u32,
        dials: &[Dial],
        expects: u32,
        congestion: Option<&str>,
    ) -> Result<(), String> {
        self.streams.clear();
        for dial in dials {
            let is_circuit = matches!(dial.to, Reach::Circuits { .. });
            let stream = |socket| Stream { socket, sends: dial.sends, is_circuit };
            self.streams.extend(self.dial(round, dial)?.into_iter().map(stream));
        }
        let expected = self.post.streams(round, expects as usize);
        let missing = || "not all connections came: the far end could not make them".to_owned();
        self.streams.extend(expected.ok_or_else(missing)?);
        let Some(name) = congestion else { return Ok(()) };
        let mut sending = self.streams.iter().filter(|stream| stream.sends);
        sending.try_for_each(|stream| info::choose(&stream.socket, name))
    }

    /// All connections of a dial, at once: each takes several round trips.
    fn dial(&self, round: u32, dial: &Dial) -> Result<Vec<TcpStream>, String> {
        let dialler = &self.dialler;
        let one = |number: u32| {
            let mut line = dialler.dial(&dial.to, number as usize)?;
            let purpose = Purpose::Stream { round, dialer_sends: dial.sends };
            line.send(&purpose, Instant::now() + SHORT).map_err(|error| error.to_string())?;
            line.into_stream().map_err(|error| error.to_string())
        };
        std::thread::scope(|scope| {
            let making: Vec<_> =
                (0..dial.connections).map(|number| scope.spawn(move || one(number))).collect();
            let fault = |_| Err("a fault of ours while connecting".to_owned());
            making.into_iter().map(|one| one.join().unwrap_or_else(fault)).collect()
        })
    }

    /// What has come in, as long as something runs. What breaks is told at once, all else when it is asked for.
    fn tell(&mut self) -> Result<(), ProbeError> {
        let at_us = self.now_us();
        let Some(running) = &mut self.running else { return Ok(()) };
        let word = Word::Received { at_us, bytes: running.received() };
        let is_over = running.is_over();
        self.mouth.say(&word)?;
        if is_over { self.finish() } else { Ok(()) }
    }

    fn stop(&mut self) -> Result<(), ProbeError> {
        // What comes next is not to end with what has ended.
        std::mem::take(&mut self.over).store(true, Ordering::Release);
        self.streams.clear();
        self.finish()?;
        self.mouth.say(&Word::Done(std::mem::take(&mut self.tally)))
    }

    fn finish(&mut self) -> Result<(), ProbeError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        match running.finish() {
            Ok(tally) => self.tally = tally,
            Err(reason) => self.mouth.say(&Word::failed(&reason))?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_bootstrap::Secret;

    #[test]
    fn a_node_leaves_when_it_has_no_order_unless_it_was_told_to_stay() {
        let idle = Duration::from_millis(300);
        let pass = Pass::from(&Secret::random().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let soon = || Instant::now() + Duration::from_secs(20);
        let begin = || {
            std::thread::scope(|scope| {
                let conductor = scope
                    .spawn(|| line::answer(listener.accept().unwrap().0, &pass, soon()).unwrap());
                let node = line::dial(&[at], &pass, soon()).unwrap();
                (conductor.join().unwrap(), listen(node.split().0, idle))
            })
        };
        let (_conductor, orders) = begin();
        let order = orders.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(matches!(order, Err(LineError::Timeout)), "{order:?}");
        let (mut conductor, orders) = begin();
        conductor.send(&Order::Stay { for_s: 20 }, soon()).unwrap();
        assert!(matches!(orders.recv(), Ok(Ok(Order::Stay { .. }))));
        let none = orders.recv_timeout(4 * idle);
        assert!(matches!(none, Err(RecvTimeoutError::Timeout)), "{none:?}");
        conductor.send(&Order::Clock, soon()).unwrap();
        assert!(matches!(orders.recv(), Ok(Ok(Order::Clock))));
    }
}
