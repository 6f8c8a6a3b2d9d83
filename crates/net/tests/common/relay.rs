//! A relay of one hop, for tests of those who use relays: a thread for each connection, no bound on anything.
#![allow(dead_code)] // each test file uses its part

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gridmpi_leg::{Host, HostStep, Request};
use gridmpi_net::{Net, NetConfig, Relays, Way};
use gridmpi_wire::{CircuitId, Errand, JobKey, LegNotice, LegVerdict, ProcId, RelayAddress};

use super::common::nets_with;
use super::pattern;

pub const TOKEN: [u8; 32] = [4; 32];

/// All of these relays are the ways to every process, and each process registers at all of them.
pub fn use_relays(config: &mut NetConfig, relays: &[Relay]) {
    let all = || (0..relays.len()).map(Way::Relay).collect();
    config.peers.iter_mut().for_each(|ways| *ways = all());
    config.relays = Some(Relays {
        addresses: relays.iter().map(|relay| relay.address).collect(),
        token: JobKey::new(TOKEN),
        first: config.me,
        count: 1,
        takes_more: true,
    });
}

/// Two networks that reach each other through these relays.
pub fn relayed(relays: &[Relay], adjust: impl Fn(&mut NetConfig)) -> Vec<Net> {
    nets_with(2, |config| {
        use_relays(config, relays);
        adjust(config);
    })
}

pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    registered: Mutex<HashMap<ProcId, TcpStream>>,
    waiting: Mutex<HashMap<CircuitId, (TcpStream, Box<Request>)>>,
    open: Mutex<Vec<TcpStream>>,
    circuits: AtomicU64,
    joined: AtomicUsize,
    trouble: Mutex<Option<Trouble>>,
    is_closed: AtomicBool,
    is_mute: AtomicBool,
    /// Circuits that were asked for, and answers to calls that have come.
    opens: AtomicUsize,
    accepts: AtomicUsize,
    /// What others it tells of.
    beside: Mutex<Vec<SocketAddr>>,
}

fn notice(beside: SocketAddr) -> [u8; LegNotice::LEN] {
    LegNotice::Beside(RelayAddress::new(beside).unwrap()).encode()
}

/// What becomes of the bytes of a circuit in each direction, pieces of which go through in turn: it says what goes on instead.
/// The number counts directions from 0, the other the bytes of it before.
pub type Trouble = Arc<dyn Fn(u64, u64, &mut Vec<u8>) + Send + Sync>;

impl Relay {
    /// One that does this to what passes on circuits that come about from now on.
    pub fn trouble(&self, trouble: Option<Trouble>) {
        *self.shared.trouble.lock().unwrap() = trouble;
    }

    pub fn new(token: JobKey) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, token) = (Arc::clone(&serving), token.clone());
                std::thread::spawn(move || shared.serve(stream, &token));
            }
        });
        Self { address, shared }
    }

    /// Tells those who are registered, and those who will be, of this one.
    pub fn tell(&self, beside: SocketAddr) {
        self.shared.beside.lock().unwrap().push(beside);
        for stream in self.shared.registered.lock().unwrap().values_mut() {
            let _ = stream.write_all(&notice(beside));
        }
    }

    /// From now on nobody is answered who comes because he was called.
    pub fn fall_mute(&self) {
        self.shared.is_mute.store(true, Ordering::SeqCst);
    }

    /// Calls everybody who is registered so often, for circuits that do not exist.
    pub fn call(&self, times: u64) {
        for stream in self.shared.registered.lock().unwrap().values_mut() {
            for number in 0..times {
                let circuit = CircuitId((1 << 40) + number);
                let called = LegNotice::Called { from: ProcId(0), circuit };
                stream.write_all(&called.encode()).unwrap();
            }
        }
    }

    /// How many circuits were asked for.
    pub fn opens(&self) -> usize {
        self.shared.opens.load(Ordering::SeqCst)
    }

    /// How often somebody came who was called.
    pub fn accepts(&self) -> usize {
        self.shared.accepts.load(Ordering::SeqCst)
    }

    /// How many circuits have come about.
    pub fn circuits(&self) -> usize {
        self.shared.joined.load(Ordering::SeqCst)
    }

    /// How many processes are registered.
    pub fn registered(&self) -> usize {
        self.shared.registered.lock().unwrap().len()
    }

    /// Cuts every connection, and takes no new ones.
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Takes connections again.
    pub fn reopen(&self) {
        self.shared.is_closed.store(false, Ordering::SeqCst);
    }

    /// Cuts every connection; new ones are taken.
    pub fn cut(&self) {
        self.shared.registered.lock().unwrap().clear();
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, token: &JobKey) {
        self.open.lock().unwrap().push(stream.try_clone().unwrap());
        if self.is_closed.load(Ordering::SeqCst) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        let nonce = pattern(self.circuits.fetch_add(1, Ordering::SeqCst), 32);
        let mut host = Host::new(nonce.try_into().unwrap());
        let request = loop {
            let Ok(count @ 1..) = stream.read(host.space()) else { return };
            match host.read(count, |id| (*id == token.token_id()).then(|| token.clone())) {
                Ok(HostStep::More) => {}
                Ok(HostStep::Send(challenge)) => stream.write_all(&challenge).unwrap(),
                Ok(HostStep::Refuse(challenge, _)) => {
                    stream.write_all(&challenge).unwrap();
                    return;
                }
                Ok(HostStep::Asked(request)) => break request,
                Err(_) => return,
            }
        };
        self.run(stream, request);
    }

    fn register(&self, who: ProcId, mut stream: TcpStream, answer: &[u8]) {
        let beside = self.beside.lock().unwrap();
        let _ = stream.write_all(answer);
        for relay in &*beside {
            let _ = stream.write_all(&notice(*relay));
        }
        self.registered.lock().unwrap().insert(who, stream);
    }

    /// Unless he has registered again meanwhile.
    fn leave(&self, who: ProcId, stream: &TcpStream) {
        let mut registered = self.registered.lock().unwrap();
        let address = |stream: &TcpStream| stream.peer_addr().ok();
        if registered.get(&who).is_some_and(|known| address(known) == address(stream)) {
            registered.remove(&who);
        }
    }

    fn run(&self, mut stream: TcpStream, request: Box<Request>) {
        let from = request.what().from;
        match request.what().errand {
            Errand::Register { .. } => {
                let told = stream.try_clone().unwrap();
                self.register(from, told, &request.answer(LegVerdict::Accepted));
                // Who is registered says nothing more until he leaves.
                let _ = stream.read(&mut [0]);
                self.leave(from, &stream);
            }
            Errand::Open { to } => {
                self.opens.fetch_add(1, Ordering::SeqCst);
                let circuit = CircuitId(self.circuits.fetch_add(1, Ordering::SeqCst));
                let mut registered = self.registered.lock().unwrap();
                let Some(callee) = registered.get_mut(&to) else {
                    let _ = stream.write_all(&request.answer(LegVerdict::NoRoute));
                    return;
                };
                self.waiting.lock().unwrap().insert(circuit, (stream, request));
                let _ = callee.write_all(&LegNotice::Called { from, circuit }.encode());
            }
            Errand::Accept { circuit } => {
                self.accepts.fetch_add(1, Ordering::SeqCst);
                if self.is_mute.load(Ordering::SeqCst) {
                    // The other handle to the stream keeps it open.
                    return;
                }
                let Some((mut near, opened)) = self.waiting.lock().unwrap().remove(&circuit) else {
                    let _ = stream.write_all(&request.answer(LegVerdict::NoSuchCircuit));
                    return;
                };
                let _ = stream.write_all(&request.answer(LegVerdict::Accepted));
                let _ = near.write_all(&opened.answer(LegVerdict::Accepted));
                let circuit = self.joined.fetch_add(1, Ordering::SeqCst) as u64;
                let trouble = self.trouble.lock().unwrap().clone();
                let (to, from) = (stream.try_clone().unwrap(), near.try_clone().unwrap());
                forward(near, to, circuit * 2, trouble.clone());
                forward(stream, from, circuit * 2 + 1, trouble);
            }
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, number: u64, trouble: Option<Trouble>) {
    std::thread::spawn(move || {
        let mut space = vec![0; 16 * 1024];
        let mut at = 0;
        while let Ok(count @ 1..) = from.read(&mut space) {
            let mut piece = space[..count].to_vec();
            if let Some(trouble) = &trouble {
                trouble(number, at, &mut piece);
            }
            at += count as u64;
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
