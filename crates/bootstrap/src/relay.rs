//! The way through relays: a cluster that cannot reach the coordinator directly asks its relays for a circuit to it, and the
//! coordinator is registered at relays of its own.

use crate::channel::Timed;
use crate::connect::{self, tune_briskly};
use crate::lock;
use crate::names;
use crate::secret::{JobId, JobKey, SecretError};
use crate::taking::Taking;
use gridmpi_leg::{Ask, AskStep, Asker, LegError, Notices};
use gridmpi_wire::{Errand, LegNotice, ProcId};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most relays a cluster can have.
pub const MAX_RELAYS: usize = 64;
/// Time for a leg of ours to come about.
const SHORT: Duration = Duration::from_secs(10);
/// Time for a name service, where all names must be known.
const NAMES: Duration = Duration::from_secs(60);
/// Pause before a lost registration is made again; doubled each time, up to [`PAUSE_MOST`].
const PAUSE_LEAST: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(2);
/// A registration that stood for less has failed.
const STEADY: Duration = Duration::from_secs(1);

/// Relays that a process may use, and what proves that it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAccess {
    /// Where they listen, each as `host:port`; never empty.
    pub names: Vec<String>,
    /// Their token.
    pub token: RelayToken,
}

/// What a relay asks for. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayToken(JobKey);

/// Why a relay does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The connection to it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What it says, or what it is.
    #[error("{0}")]
    Leg(#[from] LegError),
}

impl std::fmt::Debug for RelayToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RelayToken(secret)")
    }
}

impl RelayToken {
    /// Reads 64 hexadecimal digits; white space around them does not matter.
    ///
    /// # Errors
    /// Says what was expected; never repeats the text.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        JobKey::parse(text.trim()).map(Self)
    }

    /// A new one from the system's random source.
    ///
    /// # Errors
    /// When the system has no random source.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system has no random source"))?;
        Ok(Self(JobKey::from_bytes(bytes)))
    }

    /// The digits that [`Self::parse`] reads. For a file or an environment only.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.0.reveal()
    }

    /// The token itself.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0.bytes()
    }
}

impl RelayAccess {
    /// Reads names separated by commas.
    ///
    /// # Errors
    /// Names the one that is none.
    pub fn parse_names(text: &str) -> Result<Vec<String>, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.len() > MAX_RELAYS {
            return Err(format!("more than {MAX_RELAYS} relays"));
        }
        names.iter().try_for_each(|name| Self::check_name(name))?;
        Ok(names)
    }

    /// Whether `name` is written as `host:port`.
    ///
    /// # Errors
    /// Says how it is to be written.
    pub fn check_name(name: &str) -> Result<(), String> {
        let is_one = name.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && !host.contains(char::is_whitespace)
                && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if is_one {
            Ok(())
        } else {
            Err(format!("{name:?} is no relay: write host:port, such as gateway:7118"))
        }
    }

    /// Looks the names up; each gives one address, and two names of one relay give it once. May wait for a name service.
    ///
    /// # Errors
    /// Names the first that is not known here.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        // Those that are known do not shorten the time for the others.
        let each = self.names.chunks(1);
        let all = each.map(|name| names::look_up(name, false, Instant::now() + NAMES));
        let mut known = Vec::new();
        for mut found in all {
            if let Some(problem) = found.unknown.pop() {
                return Err(problem);
            }
            found.known.retain(|address| !known.contains(address));
            known.append(&mut found.known);
        }
        Ok(known)
    }

    /// Asks the relay at the other end of `stream`, as process `me` of `job`. When it has agreed the stream is the circuit,
    /// or notices come on it.
    ///
    /// # Errors
    /// See [`RelayError`]; the stream is of no further use then.
    pub fn ask(
        &self,
        stream: &TcpStream,
        (me, job): (ProcId, JobId),
        errand: Errand,
        deadline: Instant,
    ) -> Result<(), RelayError> {
        ask(stream, &self.asker(me, job), errand, deadline)
    }

    pub(crate) fn asker(&self, me: ProcId, job: JobId) -> Asker {
        Asker { me, job: job.0, token: gridmpi_wire::JobKey::new(self.token.bytes()) }
    }
}

/// A leg's handshake, waiting for the relay.
fn ask(
    stream: &TcpStream,
    asker: &Asker,
    errand: Errand,
    deadline: Instant,
) -> Result<(), RelayError> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| io::Error::other("no random source"))?;
    let (mut ask, hello) = Ask::new(asker, errand, nonce);
    let mut wire = Timed::new(stream, deadline);
    wire.write_all(&hello)?;
    loop {
        let count = wire.read_some(ask.space())?;
        match ask.read(count, asker)? {
            AskStep::More => {}
            AskStep::Send(request) => wire.write_all(&request)?,
            AskStep::Done => return Ok(()),
        }
    }
}

/// A presence at relays in the coordinator's place: hands over the circuits that come, until it is dropped.
pub struct Door {
    inside: Arc<Inside>,
}

struct Inside {
    asker: Asker,
    is_closing: AtomicBool,
    /// Registrations that stand, to be ended from outside.
    standing: Mutex<Vec<(SocketAddr, TcpStream)>>,
    closing: Condvar,
}

/// Most circuits that are taken at a time, in equal parts for all relays: who has a relay's token may call as often as it likes.
const MOST_TAKEN: usize = 64;

impl Door {
    /// `came` is called with each circuit, from a thread of its own. `trouble` is told once for each relay why it cannot be
    /// used at present.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn open(
        access: &RelayAccess,
        addresses: Vec<SocketAddr>,
        job: JobId,
        came: impl Fn(TcpStream) + Send + Sync + 'static,
        trouble: impl Fn(SocketAddr, String) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let inside = Arc::new(Inside {
            asker: access.asker(ProcId::COORDINATOR, job),
            is_closing: AtomicBool::new(false),
            standing: Mutex::default(),
            closing: Condvar::new(),
        });
        let (came, trouble) = (Arc::new(came), Arc::new(trouble));
        let relays = addresses.len();
        for address in addresses {
            let taking = Arc::new(Taking::of_each(relays, MOST_TAKEN, 512 << 10));
            let (inside, came, trouble) =
                (Arc::clone(&inside), Arc::clone(&came), Arc::clone(&trouble));
            std::thread::Builder::new()
                .name("relay".to_owned())
                .stack_size(256 << 10)
                .spawn(move || inside.attend(address, &taking, &came, &*trouble))?;
        }
        Ok(Self { inside })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.inside.is_closing.store(true, Ordering::Release);
        let standing = lock(&self.inside.standing);
        for (_, stream) in standing.iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.inside.closing.notify_all();
    }
}

impl Inside {
    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Stays registered at one relay.
    fn attend<F: Fn(TcpStream) + Send + Sync + 'static>(
        self: &Arc<Self>,
        relay: SocketAddr,
        taking: &Arc<Taking>,
        came: &Arc<F>,
        trouble: &dyn Fn(SocketAddr, String),
    ) {
        let mut pause = PAUSE_LEAST;
        let mut is_told = false;
        while !self.is_closing() {
            match self.register(relay) {
                Ok(stream) => {
                    is_told = false;
                    let since = Instant::now();
                    self.listen(relay, &stream, taking, came);
                    if since.elapsed() >= STEADY {
                        pause = PAUSE_LEAST;
                    }
                }
                Err(error) if !is_told => {
                    is_told = true;
                    trouble(relay, error.to_string());
                }
                Err(_) => {}
            }
            self.rest(pause);
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    fn rest(&self, pause: Duration) {
        let standing = lock(&self.standing);
        if !self.is_closing() {
            drop(
                self.closing.wait_timeout(standing, pause).unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    fn connect(&self, relay: SocketAddr, errand: Errand) -> Result<TcpStream, RelayError> {
        let deadline = Instant::now() + SHORT;
        let stream = connect::open(relay, deadline);
        let stream = stream.map_err(|error| io::Error::other(connect::describe(&error)))?;
        tune_briskly(&stream)?;
        ask(&stream, &self.asker, errand, deadline)?;
        Ok(stream)
    }

    fn register(&self, relay: SocketAddr) -> Result<TcpStream, RelayError> {
        let errand = Errand::Register { first: ProcId::COORDINATOR, count: 1 };
        let stream = self.connect(relay, errand)?;
        stream.set_read_timeout(None)?;
        let mut standing = lock(&self.standing);
        standing.push((relay, stream.try_clone()?));
        if self.is_closing() {
            stream.shutdown(Shutdown::Both)?;
        }
        Ok(stream)
    }

    /// Takes notices until the registration ends.
    fn listen<F: Fn(TcpStream) + Send + Sync + 'static>(
        self: &Arc<Self>,
        relay: SocketAddr,
        mut stream: &TcpStream,
        taking: &Arc<Taking>,
        came: &Arc<F>,
    ) {
        let mut notices = Notices::default();
        while let Ok(count @ 1..) = io::Read::read(&mut stream, notices.space()) {
            let Ok(notice) = notices.read(count) else { break };
            // Other relays are for the clusters' processes: here they are as the job names them.
            let Some(LegNotice::Called { circuit, .. }) = notice else { continue };
            let errand = Errand::Accept { circuit };
            let (inside, came) = (Arc::clone(self), Arc::clone(came));
            taking.begin(move || inside.connect(relay, errand).ok(), move |stream| came(stream));
        }
        lock(&self.standing).retain(|(at, _)| *at != relay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::tests::asked;
    use gridmpi_wire::{CircuitId, LegVerdict};
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    #[test]
    fn names_are_host_and_port() {
        let good = RelayAccess::parse_names("gw1:7118, [::1]:7 ,10.0.0.1:1").unwrap();
        assert_eq!(good, ["gw1:7118", "[::1]:7", "10.0.0.1:1"]);
        for bad in ["", "gw", "gw:", ":7118", "gw:0", "gw:71180", "g w:7", "gw:7,"] {
            assert!(RelayAccess::parse_names(bad).unwrap_err().contains("host:port"), "{bad}");
        }
        assert!(RelayAccess::parse_names(&"a:1,".repeat(65)).is_err());
    }

    #[test]
    fn a_token_is_64_digits_and_never_shown() {
        let token = RelayToken::parse(&format!(" {}\n", "5".repeat(64))).unwrap();
        assert_eq!(token.reveal(), "5".repeat(64));
        assert!(!format!("{token:?}").contains('5'));
        let error = RelayToken::parse("secret").unwrap_err().to_string();
        assert!(error.contains("64") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn an_unknown_name_is_named() {
        let token = RelayToken::parse(&"5".repeat(64)).unwrap();
        let access = RelayAccess { names: vec!["no.such.host.invalid:1".to_owned()], token };
        assert!(access.resolve().unwrap_err().contains("no.such.host.invalid"));
    }

    #[test]
    fn two_names_of_a_relay_are_one() {
        let token = RelayToken::parse(&"5".repeat(64)).unwrap();
        let names = ["127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned).to_vec();
        let found = RelayAccess { names, token }.resolve().unwrap();
        assert_eq!(found.iter().map(SocketAddr::port).collect::<Vec<_>>(), [2, 1]);
    }

    /// A relay at which one registers, and which then, when `ready` returns, calls with so many circuits. What comes after is told to `leg`.
    fn calling(
        token: &RelayToken,
        circuits: u64,
        ready: impl FnOnce() + Send + 'static,
        leg: impl Fn(TcpStream) + Send + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, token) = (listener.local_addr().unwrap(), token.clone());
        std::thread::spawn(move || {
            let mut registered = listener.accept().unwrap().0;
            let request = asked(&mut registered, &token);
            registered.write_all(&request.answer(LegVerdict::Accepted)).unwrap();
            ready();
            for circuit in (0..circuits).map(CircuitId) {
                let called = LegNotice::Called { from: ProcId(0), circuit };
                registered.write_all(&called.encode()).unwrap();
            }
            listener.incoming().flatten().for_each(leg);
        });
        at
    }

    #[test]
    fn one_relay_cannot_take_the_places_of_another() {
        const PART: usize = MOST_TAKEN / 2;
        let token = RelayToken::random().unwrap();
        let access = RelayAccess { names: Vec::new(), token: token.clone() };
        let (taking, taken) = channel();
        let keep = move |leg| taking.send(leg).unwrap();
        let bad = calling(&token, 4 * MOST_TAKEN as u64, || (), keep);
        let (tell, full) = channel();
        let own = token.clone();
        let good = calling(
            &token,
            1,
            move || full.recv().unwrap(),
            move |mut leg| {
                let answer = asked(&mut leg, &own).answer(LegVerdict::Accepted);
                leg.write_all(&answer).unwrap();
            },
        );
        let (sender, came) = channel();
        let came_in = move |stream: TcpStream| sender.send(stream.peer_addr().unwrap()).unwrap();
        let job = crate::secret::Secret::random().unwrap().job();
        let _door = Door::open(&access, vec![bad, good], job, came_in, |_, _| ()).unwrap();
        let silent: Vec<TcpStream> = (0..PART).map(|_| taken.recv().unwrap()).collect();
        tell.send(()).unwrap();
        assert_eq!(came.recv_timeout(SHORT / 2), Ok(good));
        assert!(taken.try_recv().is_err() && silent.len() == PART, "it has no more than its part");
    }
}
