//! Plays all processes of a cluster at once, each with legs of its own: they register at the cluster's relay, open circuits
//! to processes of other clusters, accept those to them and echo what comes.
//!
//! It does what standard input says, a line at a time: `register`, `open`, or `chat RATE SECONDS` (messages per second of all
//! together), and answers with what it has measured (`@NAME V V ...`) and `done`, or with `failed` and why.

use super::ends::{JOB, read_token};
use super::talk::Talk;
use gridmpi_leg::{Ask, AskStep, Asker, Notices};
use gridmpi_wire::{Errand, JobKey, LegNotice, ProcId};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Standard input's place among the connections.
const ORDERS: u64 = u64::MAX;
/// How long anything that was ordered may take beyond its own time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events taken at a time.
const BATCH: usize = 256;
/// Descriptors beside those of legs.
const OTHERS: u64 = 16;

/// A cluster of processes.
#[derive(Debug, clap::Args)]
pub struct Crowd {
    /// The cluster's relay.
    #[arg(long)]
    relay: SocketAddr,
    /// The relays' token.
    #[arg(long)]
    token: PathBuf,
    /// Which cluster, from 0.
    #[arg(long)]
    cluster: u32,
    /// How many clusters there are.
    #[arg(long)]
    clusters: u32,
    /// Processes of each cluster.
    #[arg(long)]
    processes: u32,
}

/// A connection to the relay.
#[derive(Debug)]
struct Leg {
    fd: OwnedFd,
    /// Whose it is.
    me: ProcId,
    errand: Errand,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Connecting,
    Asking(Box<Ask>),
    Registered(Notices),
    /// What comes goes back.
    Echo,
    /// What goes comes back.
    Talk(Talk),
}

/// What is under way.
#[derive(Debug)]
enum Task {
    None,
    Register,
    Open,
    Chat(Chat),
}

/// Messages at even distances, the circuits by turns.
#[derive(Debug)]
struct Chat {
    /// Between two messages, s.
    distance: f64,
    /// Messages in all.
    most: u64,
    /// Those whose time has come.
    due: u64,
    /// Those that were not sent, since the one before on the same circuit was still on its way.
    skipped: u64,
    /// Round trips, µs.
    took: Vec<f64>,
    /// Messages that have not come back.
    open: usize,
}

struct Player<'a> {
    crowd: &'a Crowd,
    token: JobKey,
    epoll: OwnedFd,
    orders: Vec<u8>,
    legs: Vec<Leg>,
    /// Those of circuits that we have opened.
    talkers: Vec<usize>,
    registered: u32,
    accepted: u32,
    task: Task,
    since: Instant,
    /// When the task must be done.
    until: Instant,
    space: Vec<u8>,
}

/// Plays until standard input ends.
///
/// # Errors
/// The relay does not do what it should, or too few descriptors may be used.
pub fn play(crowd: &Crowd) -> io::Result<()> {
    let result = Player::new(crowd).and_then(|mut player| player.play());
    if let Err(error) = &result {
        println!("failed {error}");
    }
    result
}

/// Raises the limit of descriptors as far as needed.
pub(super) fn allow_descriptors(count: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < count) {
        let most = limit.maximum.unwrap_or_default();
        return Err(io::Error::other(format!(
            "{count} file descriptors are needed, and RLIMIT_NOFILE allows {most}: raise it (ulimit -Hn {count}), or measure with --quick"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: limit.maximum })?;
    Ok(())
}

impl<'a> Player<'a> {
    fn new(crowd: &'a Crowd) -> io::Result<Self> {
        let others = u64::from(crowd.clusters.saturating_sub(1));
        allow_descriptors(u64::from(crowd.processes) * (1 + 2 * others) + OTHERS)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let key = epoll::EventData::new_u64(ORDERS);
        epoll::add(&epoll, io::stdin(), key, epoll::EventFlags::IN)?;
        let now = Instant::now();
        Ok(Self {
            crowd,
            token: read_token(&crowd.token)?,
            epoll,
            orders: Vec::new(),
            legs: Vec::new(),
            talkers: Vec::new(),
            registered: 0,
            accepted: 0,
            task: Task::None,
            since: now,
            until: now,
            space: vec![0; 64 * 1024],
        })
    }

    fn play(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            self.wait(&mut ready)?;
            for (key, flags) in ready.drain(..) {
                if key != ORDERS {
                    self.leg_ready(key as usize, flags)?;
                } else if !self.listen()? {
                    return Ok(());
                }
            }
            self.chat()?;
            if self.is_done() {
                self.report();
            } else if !matches!(self.task, Task::None) && Instant::now() > self.until {
                return Err(io::Error::other(self.standing()));
            }
        }
    }

    /// How far it is, for whom it took too long.
    fn standing(&self) -> String {
        let Self { registered, accepted, talkers, .. } = self;
        let open = if let Task::Chat(chat) = &self.task { chat.open } else { 0 };
        format!(
            "not done in time: {registered} registered, {} circuits opened, {accepted} accepted, {open} messages not back",
            talkers.len()
        )
    }

    fn wait(&self, ready: &mut Vec<(u64, epoll::EventFlags)>) -> io::Result<()> {
        let now = Instant::now();
        let timeout = match &self.task {
            Task::None => None,
            Task::Chat(chat) if chat.due < chat.most => {
                Some(chat.next(self.since).saturating_duration_since(now))
            }
            _ => Some(self.until.saturating_duration_since(now) + Duration::from_millis(1)),
        };
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        let (events, _) = epoll::wait(&self.epoll, &mut space, timeout.as_ref())?;
        // The structure is packed: its fields are copied out.
        ready.extend(events.iter().map(|event| (event.data.u64(), event.flags)));
        Ok(())
    }

    /// Takes orders; `false`: there will be no more.
    fn listen(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 256];
        // Not by the standard library's buffer, which would keep what epoll then does not tell of.
        let count = rustix::io::read(io::stdin(), &mut bytes)?;
        self.orders.extend(bytes.iter().take(count));
        while let Some(end) = self.orders.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.orders.drain(..=end).collect();
            self.order(String::from_utf8_lossy(&line).trim())?;
        }
        Ok(count > 0)
    }

    fn order(&mut self, line: &str) -> io::Result<()> {
        let mut words = line.split_ascii_whitespace();
        let word = words.next().unwrap_or_default();
        let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        self.since = Instant::now();
        self.until = self.since + PATIENCE;
        match (word, numbers.as_slice()) {
            ("register", []) => {
                self.task = Task::Register;
                self.register()
            }
            ("open", []) => {
                self.task = Task::Open;
                self.open()
            }
            ("chat", &[rate, seconds]) if rate > 0.0 && seconds > 0.0 => {
                self.task = Task::Chat(Chat::new(rate, seconds));
                self.until += Duration::from_secs_f64(seconds);
                Ok(())
            }
            _ => Err(io::Error::other(format!("`{line}` is no order"))),
        }
    }

    /// The lowest process of a cluster.
    fn first(&self, cluster: u32) -> u32 {
        cluster * self.crowd.processes
    }

    fn register(&mut self) -> io::Result<()> {
        let first = self.first(self.crowd.cluster);
        let errand = Errand::Register { first: ProcId(first), count: self.crowd.processes };
        (0..self.crowd.processes).try_for_each(|n| self.begin(ProcId(first + n), errand))
    }

    /// Each process opens one circuit to one process of each other cluster, and so has one from each, too.
    fn open(&mut self) -> io::Result<()> {
        let own = self.first(self.crowd.cluster);
        for n in 0..self.crowd.processes {
            let others = (0..self.crowd.clusters).filter(|cluster| *cluster != self.crowd.cluster);
            for cluster in others.collect::<Vec<_>>() {
                let to = ProcId(self.first(cluster) + n);
                self.begin(ProcId(own + n), Errand::Open { to })?;
            }
        }
        Ok(())
    }

    /// Circuits that each process opens.
    fn circuits(&self) -> usize {
        self.crowd.processes as usize * (self.crowd.clusters as usize).saturating_sub(1)
    }

    fn begin(&mut self, me: ProcId, errand: Errand) -> io::Result<()> {
        let family = match self.crowd.relay {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        match net::connect(&fd, &self.crowd.relay) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let key = epoll::EventData::new_u64(self.legs.len() as u64);
        epoll::add(&self.epoll, &fd, key, epoll::EventFlags::OUT)?;
        self.legs.push(Leg { fd, me, errand, stage: Stage::Connecting });
        Ok(())
    }

    fn leg_ready(&mut self, index: usize, flags: epoll::EventFlags) -> io::Result<()> {
        let Some(leg) = self.legs.get(index) else { return Ok(()) };
        let (me, errand) = (leg.me.0, leg.errand);
        let named = |error| io::Error::other(format!("process {me}, {errand:?}: {error}"));
        match leg.stage {
            Stage::Connecting => self.connected(index).map_err(named),
            _ if flags.is_empty() => Ok(()),
            _ => self.step(index).map_err(named),
        }
    }

    fn connected(&mut self, index: usize) -> io::Result<()> {
        let Some(leg) = self.legs.get_mut(index) else { return Ok(()) };
        sockopt::socket_error(&leg.fd)??;
        let asker = Asker { me: leg.me, job: JOB, token: self.token.clone() };
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let (ask, hello) = Ask::new(&asker, leg.errand, nonce);
        send(&leg.fd, &hello)?;
        leg.stage = Stage::Asking(Box::new(ask));
        let key = epoll::EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, &leg.fd, key, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Reads once.
    fn step(&mut self, index: usize) -> io::Result<()> {
        let Some(leg) = self.legs.get_mut(index) else { return Ok(()) };
        match &mut leg.stage {
            Stage::Connecting => {}
            Stage::Asking(ask) => {
                let Some(count) = receive(&leg.fd, ask.space())? else { return Ok(()) };
                let asker = Asker { me: leg.me, job: JOB, token: self.token.clone() };
                match ask.read(count, &asker).map_err(io::Error::other)? {
                    AskStep::More => {}
                    AskStep::Send(request) => send(&leg.fd, &request)?,
                    AskStep::Done => self.done(index),
                }
            }
            Stage::Registered(notices) => {
                let Some(count) = receive(&leg.fd, notices.space())? else { return Ok(()) };
                let notice = notices.read(count).map_err(io::Error::other)?;
                let me = leg.me;
                if let Some(LegNotice::Called { circuit, .. }) = notice {
                    self.begin(me, Errand::Accept { circuit })?;
                }
            }
            Stage::Echo => {
                let Some(count) = receive(&leg.fd, &mut self.space)? else { return Ok(()) };
                send(&leg.fd, self.space.get(..count).unwrap_or_default())?;
            }
            Stage::Talk(talk) => {
                let Some(count) = receive(&leg.fd, &mut self.space)? else { return Ok(()) };
                let bytes = self.space.get(..count).unwrap_or_default();
                let back = talk.read(bytes, Instant::now()).map_err(io::Error::other)?;
                if let (Task::Chat(chat), Some(took)) = (&mut self.task, back) {
                    chat.took.push(took.as_secs_f64() * 1e6);
                    chat.open -= 1;
                }
            }
        }
        Ok(())
    }

    /// The relay has done what the leg is for.
    fn done(&mut self, index: usize) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.stage = match leg.errand {
            Errand::Register { .. } => {
                self.registered += 1;
                Stage::Registered(Notices::default())
            }
            Errand::Open { to } => {
                self.talkers.push(index);
                Stage::Talk(Talk::new(u64::from(leg.me.0) << 32 | u64::from(to.0)))
            }
            Errand::Accept { .. } => {
                self.accepted += 1;
                Stage::Echo
            }
        };
    }

    /// Sends every message whose time has come.
    fn chat(&mut self) -> io::Result<()> {
        let Task::Chat(chat) = &mut self.task else { return Ok(()) };
        let now = Instant::now();
        while chat.due < chat.most && chat.next(self.since) <= now {
            let turn = chat.due as usize % self.talkers.len().max(1);
            chat.due += 1;
            let leg = self.talkers.get(turn).and_then(|index| self.legs.get_mut(*index));
            let Some(Leg { stage: Stage::Talk(talk), fd, .. }) = leg else {
                return Err(io::Error::other("no circuit has been opened"));
            };
            match talk.write(Instant::now()) {
                Some(message) => {
                    send(fd, &message)?;
                    chat.open += 1;
                }
                None => chat.skipped += 1,
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let circuits = self.circuits();
        match &self.task {
            Task::None => false,
            Task::Register => self.registered == self.crowd.processes,
            Task::Open => self.talkers.len() == circuits && self.accepted as usize == circuits,
            Task::Chat(chat) => chat.due == chat.most && chat.open == 0,
        }
    }

    fn report(&mut self) {
        println!("@took {}", self.since.elapsed().as_secs_f64());
        if let Task::Chat(chat) = std::mem::replace(&mut self.task, Task::None) {
            let all: Vec<_> = chat.took.iter().map(|took| format!("{took:.1}")).collect();
            println!("@skipped {}\n@round-trip {}", chat.skipped, all.join(" "));
        }
        println!("done");
    }
}

impl Chat {
    fn new(rate: f64, seconds: f64) -> Self {
        let most = (rate * seconds) as u64;
        Self { distance: 1.0 / rate, most, due: 0, skipped: 0, took: Vec::new(), open: 0 }
    }

    /// When the next message is due.
    fn next(&self, since: Instant) -> Instant {
        since + Duration::from_secs_f64(self.distance * self.due as f64)
    }
}

/// Bytes that came; `None` if there are none after all.
fn receive(fd: &OwnedFd, space: &mut [u8]) -> io::Result<Option<usize>> {
    match net::recv(fd, space, RecvFlags::empty()) {
        Ok((0, _)) => Err(io::Error::other("the relay has closed the connection")),
        Ok((count, _)) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// So little at a time that a connection on which nothing waits has room for it.
fn send(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    match net::send(fd, bytes, SendFlags::NOSIGNAL)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::Error::other("the connection has no room for a message")),
    }
}
