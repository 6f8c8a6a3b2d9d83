//! Windows are opened before they are needed.
//!
//! A connection that has carried short messages only has the window that it began with, ten segments, whatever its rate is: the first long message
//! takes a round trip more for each doubling of it, and whoever waits for that message does. Windows count packets, not bytes. So once a process
//! has been seen to send what is spaced out, its connections to that cluster that are at rest send words that say nothing, each in a packet of its
//! own, until their windows carry the rate: one connection after the other, as fast as the process may send.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_wire::ProcId;

use crate::carrier::Packets;
use crate::link::{Left, Link, Most, Written};
use crate::options::packets_to_open;
use crate::poller::{Interest, Token};
use crate::state::{Socket, State};
use crate::timers::Due;

/// In so many round trips a window of ten is one of [`MOST`], and some are lost.
const ROUNDS: u8 = 6;

/// No window is opened further, segments: what follows is as fast from there.
const MOST: u32 = 128;

/// How long those are left alone whose process sends something there: first, and most.
const BUSY: Duration = Duration::from_millis(20);
const BUSY_MOST: Duration = Duration::from_secs(1);

/// The windows towards a cluster, once it has turned out that what goes there is spaced out.
#[derive(Debug)]
pub(crate) struct Narrow {
    /// The peers whose connections are to be opened further, those that have waited longest first.
    peers: VecDeque<ProcId>,
    /// How long they are left alone next.
    pause: Duration,
}

/// How far a connection's window has been opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// So many round trips may follow.
    rounds: u8,
    /// What was sent last has arrived by then.
    arrived: Instant,
}

/// How many words open a window as far as they can, and how long they are on their way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Words {
    pub(crate) count: u32,
    pub(crate) round: Duration,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// This one is opened further, by these.
    Open(Token, Words),
    /// Words of all are on their way until then.
    At(Instant),
    /// Each has something to send.
    Busy,
    /// All are as wide as they are to be.
    Done,
}

impl Opening {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { rounds: ROUNDS, arrived: now }
    }
}

/// Segments that make so many bytes per second in a round trip, with some to spare.
pub(crate) fn wanted(rate: u64, round: Duration, segment: u32, spare: f64) -> u32 {
    // The conversion saturates; no segment is empty.
    let wanted = rate as f64 * round.as_secs_f64() * spare / f64::from(segment.max(1));
    (wanted.ceil() as u32).min(MOST)
}

impl State {
    /// What goes to this cluster is spaced out, it has turned out.
    pub(crate) fn begin_opening(&mut self, cluster: u16, now: Instant) {
        if self.paces.get(cluster).is_some_and(|paced| paced.narrow.is_none()) {
            self.open_all(cluster, now);
        }
    }

    /// Another rate counts for what is sent, perhaps: more may be wanted.
    pub(crate) fn open_again(&mut self, now: Instant) {
        for cluster in 0..self.paces.clusters() as u16 {
            if self.paces.get(cluster).is_some_and(|paced| paced.narrow.is_some()) {
                self.open_all(cluster, now);
            }
        }
    }

    fn open_all(&mut self, cluster: u16, now: Instant) {
        let peers = self.peers_of(cluster).into();
        if let Some(paced) = self.paces.get(cluster) {
            paced.narrow = Some(Narrow { peers, pause: BUSY });
            self.timers.move_to(now + BUSY, Due::Open(cluster));
        }
    }

    /// There is another connection to a peer of this cluster.
    pub(crate) fn open_another(&mut self, cluster: u16, peer: ProcId, now: Instant) {
        if let Some(narrow) = self.narrow(cluster) {
            if !narrow.peers.contains(&peer) {
                narrow.peers.push_back(peer);
            }
            narrow.pause = BUSY;
            self.timers.move_to(now + BUSY, Due::Open(cluster));
        }
    }

    /// How a handshake with this process goes on, so that what it says opens the window of the connection that is being made. So many share what
    /// this process may send, while they are made.
    pub(crate) fn packets_of_handshake(
        &self,
        fd: &OwnedFd,
        peer: ProcId,
        sharing: usize,
    ) -> Packets {
        let rate = self.paces.rate_to(peer).map(|rate| rate / sharing.max(1) as u64);
        rate.and_then(|rate| packets_to_open(fd, rate)).map_or(Packets::Full, Packets::Many)
    }

    fn narrow(&mut self, cluster: u16) -> Option<&mut Narrow> {
        self.paces.get(cluster)?.narrow.as_mut()
    }

    /// The next connection to this cluster is opened further, if one is left that is to be.
    pub(crate) fn open_due(&mut self, cluster: u16) {
        let now = Instant::now();
        let next = match self.next_to_open(cluster, now) {
            _ if self.is_closing => return,
            Next::Done => return,
            Next::Open(token, words) => now + self.open(cluster, token, words, now),
            Next::At(due) => due,
            Next::Busy => now + self.narrow(cluster).map_or(BUSY_MOST, Narrow::leave_alone),
        };
        self.timers.move_to(next, Due::Open(cluster));
    }

    fn next_to_open(&mut self, cluster: u16, now: Instant) -> Next {
        let Some(paced) = self.paces.get(cluster) else { return Next::Done };
        let (is_busy, rate) = (paced.is_sending(), paced.pacer.rate() as u64);
        let Some(narrow) = &mut paced.narrow else { return Next::Done };
        if is_busy && !narrow.peers.is_empty() {
            return Next::Busy;
        }
        let mut next = Next::Done;
        for _ in 0..narrow.peers.len() {
            let Some(peer) = self.narrow(cluster).and_then(|narrow| narrow.peers.pop_front())
            else {
                break;
            };
            let found = self.look_at(peer, rate, now);
            if found == Next::Done {
                continue;
            }
            self.narrow(cluster).into_iter().for_each(|narrow| narrow.peers.push_back(peer));
            next = match (found, next) {
                (Next::Open(..), _) => return found,
                (Next::Busy, Next::At(_)) | (Next::At(_), Next::At(_)) => next,
                _ => found,
            };
        }
        next
    }

    /// What is to be done of one. Several connections to one peer share what there is, and those that have been at work are open.
    fn look_at(&mut self, peer: ProcId, rate: u64, now: Instant) -> Next {
        let links = self.peers.get(&peer).map_or(&[][..], |peer| &peer.links);
        let [(_, token)] = *links else { return Next::Done };
        let Some(Socket::Link(link)) = self.sockets.get(token) else { return Next::Done };
        if self.endpoint.unwritten_bytes(peer) > 0 {
            return Next::Busy;
        }
        match link.opening {
            Opening { rounds: 0, .. } => Next::Done,
            Opening { arrived, .. } if arrived > now => Next::At(arrived),
            // It stays as it is where nothing would open it.
            _ => link.words_to_open(rate).map_or(Next::Done, |words| Next::Open(token, words)),
        }
    }

    /// Opens one further. How long what was sent for that takes of what the process may always have: others may send meanwhile.
    fn open(&mut self, cluster: u16, token: Token, words: Words, now: Instant) -> Duration {
        let Some(Socket::Link(mut link)) = self.sockets.take(token) else { return Duration::ZERO };
        link.opening = Opening { rounds: link.opening.rounds - 1, arrived: now + words.round };
        let (result, bytes) = self.say_nothing(&mut link, words.count);
        let result = result.and_then(|left| {
            let left = if left == Left::Nothing { link.interest } else { Interest::ReadWrite };
            self.watch_link(token, &mut link, left)
        });
        self.put_link(token, link, result);
        let Some(paced) = self.paces.get(cluster) else { return Duration::ZERO };
        paced.pacer.said(bytes, now);
        Duration::from_secs_f64(bytes as f64 / paced.least().max(1.0))
    }

    /// Words, each in a packet of its own. Whether the last one has left, and what they are on the wire.
    fn say_nothing(&mut self, link: &mut Link, count: u32) -> (io::Result<Left>, usize) {
        let mut on_wire = 0;
        link.carrier.packets = Packets::Apart;
        let mut left = Ok(Left::Nothing);
        for _ in 0..count {
            self.endpoint.pong(link.peer, link.strand);
            let written = self.write_most(link, Most::Fair);
            if let Ok(Written { bytes, .. }) = written {
                on_wire += link.carrier.on_wire(bytes) + link.headers;
            }
            left = written.map(|written| written.left);
            if !matches!(left, Ok(Left::Nothing)) {
                break;
            }
        }
        link.carrier.packets = Packets::Full;
        (left, on_wire)
    }
}

impl Narrow {
    /// Longer each time.
    fn leave_alone(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (2 * pause).min(BUSY_MOST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::try_congestion_control;
    use crate::paces::tests::{config, link, meet, state_among, wait_on};
    use crate::{Listen, NetConfig, Security, Way, bind};
    use gridmpi_rate::Rate;
    use gridmpi_sock::TcpInfo;
    use gridmpi_wire::Strand;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    #[test]
    fn a_window_is_to_carry_the_rate_over_the_path() {
        let round = Duration::from_millis(20);
        // 40 Mbit/s.
        assert_eq!(wanted(5_000_000, round, 1448, 1.0), 70);
        assert_eq!(wanted(5_000_000, round, 1448, 1.25), 87);
        assert_eq!(wanted(u64::MAX, round, 1448, 1.25), MOST);
        assert_eq!(wanted(u64::MAX, Duration::ZERO, 0, 1.25), 0);
    }

    #[test]
    fn connections_at_rest_say_nothing_in_packets_of_their_own_until_their_windows_are_open() {
        if try_congestion_control("bbr").is_err() {
            return;
        }
        // So fast that loopback is a long path.
        let mut state = state_among(vec![0, 1, 1], 1e16);
        let other = ProcId(2);
        let mut end = meet(&mut state, (other, Strand::FIRST));
        state.flush();
        state.open_due(1);
        assert_eq!(link(&mut state, other).written, 0, "nothing is spaced out yet");
        state.begin_opening(1, Instant::now());
        state.open_due(1);
        assert_eq!(link(&mut state, other).opening.rounds, ROUNDS - 1);
        let mut came = [0; 24];
        let before = link(&mut state, other).written;
        assert!(before > 0 && before.is_multiple_of(24), "{before}");
        for _ in 0..before / 24 {
            end.read_exact(&mut came).unwrap();
            assert_eq!(came[0], 9, "no Pong");
        }
        let end: OwnedFd = end.into();
        assert_eq!(u64::from(TcpInfo::of(&end).unwrap().data_segs_in), before / 24);
        // What was sent is on its way, as far as one knows.
        link(&mut state, other).opening.arrived += Duration::from_secs(60);
        state.open_due(1);
        assert_eq!(link(&mut state, other).written, before);
        assert!(matches!(state.next_to_open(1, Instant::now()), Next::At(_)));
        // While others have their turns nobody opens anything, and it is looked at ever less often.
        link(&mut state, other).opening.arrived = Instant::now();
        wait_on(&mut state);
        assert_eq!(state.next_to_open(1, Instant::now()), Next::Busy);
        for _ in 0..9 {
            state.open_due(1);
        }
        assert_eq!(link(&mut state, other).written, before);
        assert_eq!(state.narrow(1).unwrap().pause, BUSY_MOST);
    }

    /// Two processes of these clusters, between which loopback is a long path, once the first has connected to the second with TLS: what the kernel
    /// says of the connection, at either end.
    fn connected(clusters: [u16; 2]) -> [TcpInfo; 2] {
        let listen = Listen { interface: Some("127.0.0.1".into()), port: 0 };
        let bound = [(); 2].map(|()| bind(&listen).unwrap());
        let peers = bound.each_ref().map(|it| vec![Way::Direct(it.addresses().to_vec())]).to_vec();
        let mut me = 0;
        let mut states = bound.map(|bound| {
            let mut config = NetConfig { peers: peers.clone(), ..config(ProcId(me)) };
            me += 1;
            config.security = Some(Security::of_job(config.job, &config.key).unwrap());
            config.pacing.clusters = clusters.to_vec();
            config.pacing.rates = vec![Rate::from_bits_per_second(1e16); 2];
            config.pacing.rates[usize::from(clusters[me as usize - 1])] = None;
            State::new(bound, config).unwrap()
        });
        states[0].dial(ProcId(1));
        let has_met = |state: &State| state.peers.values().any(|peer| peer.has_link());
        let until = Instant::now() + Duration::from_secs(20);
        while !states.iter().all(has_met) {
            assert!(Instant::now() < until, "they do not meet");
            for state in &mut states {
                let mut ready = Vec::new();
                state.poller.wait(Some(Duration::from_millis(1)), &mut ready).unwrap();
                state.handle(&ready, true);
            }
        }
        assert_eq!([0, 1].map(|state| states[state].dialling), [0; 2]);
        states.map(|mut state| {
            let other = ProcId(1 - state.us.me.0);
            let link = link(&mut state, other);
            assert_eq!(link.carrier.packets, Packets::Full);
            TcpInfo::of(&link.carrier.fd).unwrap()
        })
    }

    #[test]
    fn a_handshake_opens_windows_between_clusters() {
        let [near, far] = connected([0, 1]);
        // Hello in eight, what TLS begins with, a change of ciphers, and what proves who it is in as many as the window lets out, of ten at least.
        // How it opens shows only where acknowledgements take a while.
        assert!((17..=29).contains(&near.data_segs_out), "{near:?}");
        // Challenge in eight, what TLS answers, the welcome.
        assert!((10..=12).contains(&far.data_segs_out), "{far:?}");
    }

    #[test]
    fn within_a_cluster_a_handshake_is_as_short_as_it_can_be() {
        let [near, far] = connected([0, 0]);
        assert!(near.data_segs_out <= 2 && far.data_segs_out <= 2, "{near:?} {far:?}");
    }

    #[test]
    fn who_connects_to_many_opens_no_more_than_they_share() {
        // Loopback is a long path, but not for as little as that.
        let state = state_among(vec![0, 1], 1e16);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
        let packets = |sharing| state.packets_of_handshake(&near, ProcId(1), sharing);
        assert_eq!([1, 2].map(packets), [Packets::Many(8); 2]);
        assert_eq!(packets(1 << 50), Packets::Full);
    }

    #[test]
    fn where_nothing_is_spaced_out_windows_stay_as_they_are() {
        let mut state = state_among(vec![0, 1, 1], 1e16);
        let other = ProcId(2);
        let _end = meet(&mut state, (other, Strand::FIRST));
        let due = |state: &mut State| {
            let due = state.timers.expired(Instant::now() + 2 * BUSY);
            due.contains(&Due::Open(1))
        };
        assert!(!due(&mut state));
        state.begin_opening(1, Instant::now());
        assert!(due(&mut state));
        // It is seen once, and others join.
        state.begin_opening(1, Instant::now());
        assert!(!due(&mut state));
        let _another = meet(&mut state, (ProcId(1), Strand::FIRST));
        assert!(due(&mut state));
        // Another rate may want more; one peer is looked at once.
        state.open_again(Instant::now());
        assert!(due(&mut state));
        assert_eq!(state.narrow(1).unwrap().peers.len(), 2);
    }
}
