//! Windows are opened before they are needed.
//!
//! A connection that has carried short messages only has the window that it began with, ten segments, whatever its rate is: the first long message
//! takes a round trip more for each doubling of it, and whoever waits for that message does. Windows count packets, not bytes. So once a process
//! has been seen to send what is spaced out, its connections to that cluster that are at rest send words that say nothing, each in a packet of its
//! own, until their windows carry the rate: one connection after the other, as fast as the process may send.

use std::io;
use std::time::{Duration, Instant};

use gridmpi_wire::ProcId;

use crate::link::{Link, Most};
use crate::poller::{Interest, Token};
use crate::state::{Peer, Socket, State};
use crate::timers::Due;

/// In so many round trips a window of ten is one of [`MOST`], and some are lost.
const ROUNDS: u8 = 6;

/// No window is opened further, segments: what follows is as fast from there.
const MOST: u32 = 128;

/// How long those are left alone whose process sends something there.
const BUSY: Duration = Duration::from_millis(20);

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
        if let Some(paced) = self.paces.get(cluster).filter(|paced| !paced.has_spaced) {
            paced.has_spaced = true;
            self.timers.move_to(now + BUSY, Due::Open(cluster));
        }
    }

    /// There is another connection to a peer of this cluster.
    pub(crate) fn open_another(&mut self, cluster: u16, now: Instant) {
        if self.paces.get(cluster).is_some_and(|paced| paced.has_spaced) {
            self.timers.move_to(now + BUSY, Due::Open(cluster));
        }
    }

    /// The next connection to this cluster is opened further, if one is left that is to be.
    pub(crate) fn open_due(&mut self, cluster: u16) {
        let now = Instant::now();
        let Some((token, due)) = self.narrowest(cluster).filter(|_| !self.is_closing) else {
            return;
        };
        let is_busy =
            |paced: &mut crate::paces::Paced| paced.claims.has_some() || paced.pacer.has_waiting();
        let next = if self.paces.get(cluster).is_some_and(is_busy) {
            now + BUSY
        } else if due > now {
            due
        } else {
            now + self.open(cluster, token, now)
        };
        self.timers.move_to(next, Due::Open(cluster));
    }

    /// The connection at rest whose last words have arrived first, and when they have.
    fn narrowest(&mut self, cluster: u16) -> Option<(Token, Instant)> {
        let lone = |(&id, peer): (&ProcId, &Peer)| {
            let is_there = self.paces.place_of(id) == Some(cluster) && peer.links.len() == 1;
            (is_there && self.endpoint.unwritten_bytes(id) == 0).then(|| peer.links[0].1)
        };
        let tokens: Vec<_> = self.peers.iter().filter_map(lone).collect();
        let due = |token| match self.sockets.get(token) {
            Some(Socket::Link(link)) if link.opening.rounds > 0 && link.is_at_rest() => {
                Some((token, link.opening.arrived))
            }
            _ => None,
        };
        tokens.into_iter().filter_map(due).min_by_key(|&(_, due)| due)
    }

    /// Opens one further. How long what was sent for that takes at the process's rate.
    fn open(&mut self, cluster: u16, token: Token, now: Instant) -> Duration {
        let Some(Socket::Link(mut link)) = self.sockets.take(token) else { return Duration::ZERO };
        let rate = self.paces.get(cluster).map_or(0.0, |paced| paced.pacer.rate());
        let Some(words) = link.words_to_open(rate as u64) else {
            link.opening.rounds = 0;
            self.sockets.put(token, Socket::Link(link));
            return Duration::ZERO;
        };
        link.opening = Opening { rounds: link.opening.rounds - 1, arrived: now + words.round };
        let before = link.written;
        let result = self.say_nothing(&mut link, words.count);
        let bytes =
            link.on_wire((link.written - before) as usize) + words.count as usize * link.headers;
        let left = if link.carrier.has_unsent() { Interest::ReadWrite } else { link.interest };
        let result = result.and_then(|()| self.watch_link(token, &mut link, left));
        self.put_link(token, link, result);
        if let Some(paced) = self.paces.get(cluster) {
            paced.pacer.said(bytes, now);
        }
        Duration::from_secs_f64(bytes as f64 / rate.max(1.0))
    }

    fn say_nothing(&mut self, link: &mut Link, count: u32) -> io::Result<()> {
        link.carrier.keep_apart(true);
        let result = (0..count).try_for_each(|_| {
            self.endpoint.pong(link.peer, link.strand);
            self.write_most(link, Most::Fair).map(drop)
        });
        link.carrier.keep_apart(false);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::try_congestion_control;
    use crate::paces::tests::{meet, state_among, wait_on};
    use gridmpi_sock::TcpInfo;
    use gridmpi_wire::Strand;
    use std::io::Read as _;
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

    fn link(state: &mut State, peer: ProcId) -> &mut Link {
        let (_, token) = state.peers[&peer].links[0];
        let Some(Socket::Link(link)) = state.sockets.get(token) else { panic!("it is lost") };
        link
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
        // While others have their turns nobody opens anything.
        link(&mut state, other).opening.arrived = Instant::now();
        wait_on(&mut state);
        state.open_due(1);
        assert_eq!(link(&mut state, other).written, before);
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
    }
}
