//! Connections that have fallen silent though nothing says so: a relay's host is gone, or the way to it; or our own address is.
//!
//! A connection to a relay is short, so that what is sent there is acknowledged at once, by its host's kernel, however slow the
//! process at the far end may be. When that stops the circuit is lost, long before TCP would give up: other relays may lead on.
//! A relay that hangs is seen by what the peer acknowledges, which takes longer to be sure of: a process may be busy.
//! A direct connection is as long as the path is; it is left to TCP, unless the address that it was made from is not ours any more.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket as RawSocket, Type};

use crate::LinkError;
use crate::options::carried;
use crate::poller::Token;
use crate::state::{Socket, State};
use crate::timers::Due;

/// How often one looks, while anything is on its way.
const EVERY: Duration = Duration::from_millis(250);

/// How long nothing of what is on its way is acknowledged before a relay counts as gone. TCP has sent it again three times by then.
const SILENCE: Duration = Duration::from_millis(1250);

/// What was acknowledged on a connection, and since when no more.
///
/// Each circuit is a connection of its own to the relay: a firewall may forget one and keep the others. So each is asked by
/// itself, but only while something written on it may be on its way: of thousands that are idle none is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    acknowledged: u64,
    since: Instant,
    /// It leads to a relay.
    is_circuit: bool,
    /// Something was written, and has not been seen to have arrived.
    is_watched: bool,
    /// Frames that the peer acknowledged, and since when no more, while some are to be.
    answered: Option<(u64, Instant)>,
}

/// What a look at a connection says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Nothing is on its way, so nothing can be said.
    Idle,
    Alive,
    Silent,
}

impl Pulse {
    pub(crate) const fn new(now: Instant, is_circuit: bool) -> Self {
        Self { acknowledged: 0, since: now, is_circuit, is_watched: false, answered: None }
    }

    /// Whether the connection leads to a relay: what the kernel knows of it is of the way there only.
    pub(crate) const fn is_circuit(&self) -> bool {
        self.is_circuit
    }

    /// Something was written. What was silent before, because there was nothing to say, is no silence.
    pub(crate) fn wrote(&mut self) {
        if !self.is_watched {
            (self.is_watched, self.since) = (true, Instant::now());
        }
    }

    fn look(&mut self, fd: &OwnedFd, now: Instant) -> Sign {
        if !self.is_watched {
            return Sign::Idle;
        }
        let Ok(carried) = carried(fd) else { return Sign::Idle };
        let sign = self.judge(carried.acknowledged, carried.is_on_its_way, now);
        // What the relay has no room for yet leaves without another word of ours.
        self.is_watched = sign != Sign::Idle || !carried.is_all;
        sign
    }

    /// The peer has acknowledged so many frames, and so many are to be. How long it has not acknowledged any of them.
    fn listen(&mut self, (acknowledged, due): (u64, u64), now: Instant) -> Option<Duration> {
        let before = self.answered.filter(|(before, _)| *before == acknowledged);
        self.answered = (due > 0).then(|| before.unwrap_or((acknowledged, now)));
        self.answered.map(|(_, since)| now.saturating_duration_since(since))
    }

    fn judge(&mut self, acknowledged: u64, is_on_its_way: bool, now: Instant) -> Sign {
        if !is_on_its_way || acknowledged != self.acknowledged {
            (self.acknowledged, self.since) = (acknowledged, now);
            return if is_on_its_way { Sign::Alive } else { Sign::Idle };
        }
        if now.saturating_duration_since(self.since) >= SILENCE {
            Sign::Silent
        } else {
            Sign::Alive
        }
    }
}

impl State {
    /// Something was written on a connection: it is watched until that has arrived.
    pub(crate) fn watch_pulse(&mut self) {
        if !self.is_watching_pulse {
            self.is_watching_pulse = true;
            self.timers.set(Instant::now() + EVERY, Due::Pulse);
        }
    }

    pub(crate) fn pulse_due(&mut self) {
        let now = Instant::now();
        let mut silent = Vec::new();
        let mut is_any = false;
        let Self { sockets, endpoint, config, .. } = self;
        for (token, socket) in sockets.iter_with_tokens() {
            let Socket::Link(link) = socket else { continue };
            let pulse = &mut link.pulse;
            if pulse.is_circuit {
                let frames = endpoint.frames(link.peer, link.strand).unwrap_or_default();
                let waited = pulse.listen(frames, now);
                if waited.is_some_and(|waited| waited >= config.limits.unanswered) {
                    silent.push((token, LinkError::Unanswered));
                    continue;
                }
                is_any |= waited.is_some();
            }
            let sign = pulse.look(&link.carrier.fd, now);
            is_any |= sign != Sign::Silent && pulse.is_watched;
            if sign != Sign::Silent {
                continue;
            }
            if pulse.is_circuit {
                silent.push((token, LinkError::Silent));
            } else if let Some(address) = lost_address(&link.carrier.fd) {
                silent.push((token, LinkError::Moved(address)));
            } else {
                // Later again, or TCP gives up.
                is_any = true;
            }
        }
        self.is_watching_pulse = false;
        if is_any {
            self.watch_pulse();
        }
        silent.into_iter().for_each(|(token, why)| self.end_silent(token, &why));
    }

    fn end_silent(&mut self, token: Token, why: &LinkError) {
        if let Some(Socket::Link(link)) = self.sockets.take(token) {
            self.end_link(token, &link, why);
        }
    }
}

/// The address that a connection was made from, if this machine has it no longer: nothing that is sent from it leaves.
fn lost_address(fd: &OwnedFd) -> Option<IpAddr> {
    let address = SockRef::from(fd).local_addr().ok()?.as_socket()?.ip();
    let socket =
        RawSocket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::DGRAM, None);
    let bound = socket.ok()?.bind(&SocketAddr::new(address, 0).into());
    bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_its_way_and_stays_there_is_silence() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pulse = Pulse::new(start, true);
        assert_eq!(pulse.judge(0, false, at(60_000)), Sign::Idle);
        assert_eq!(pulse.judge(0, true, at(60_100)), Sign::Alive);
        assert_eq!(pulse.judge(0, true, at(61_200)), Sign::Alive);
        assert_eq!(pulse.judge(10, true, at(61_300)), Sign::Alive, "some has arrived");
        assert_eq!(pulse.judge(10, true, at(62_500)), Sign::Alive);
        assert_eq!(pulse.judge(10, true, at(62_550)), Sign::Silent);
        assert_eq!(
            pulse.judge(10, false, at(62_560)),
            Sign::Idle,
            "the far end takes no more, but its host answers"
        );
        assert_eq!(pulse.judge(10, true, at(63_000)), Sign::Alive);
    }

    #[test]
    fn only_frames_that_are_due_and_stay_so_are_unanswered() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pulse = Pulse::new(start, true);
        assert_eq!(pulse.listen((0, 0), at(60_000)), None);
        assert_eq!(
            pulse.listen((0, 3), at(90_000)),
            Some(Duration::ZERO),
            "they were written since"
        );
        assert_eq!(pulse.listen((0, 9), at(91_000)), Some(Duration::from_secs(1)));
        assert_eq!(pulse.listen((1, 8), at(92_000)), Some(Duration::ZERO));
        assert_eq!(pulse.listen((9, 0), at(93_000)), None);
        assert_eq!(pulse.listen((9, 1), at(99_000)), Some(Duration::ZERO));
    }

    #[test]
    fn a_long_rest_before_the_first_word_is_no_silence() {
        let (_reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let now = Instant::now();
        let mut pulse = Pulse::new(now.checked_sub(Duration::from_secs(3600)).unwrap(), true);
        assert_eq!(
            pulse.look(&writer.into(), now),
            Sign::Idle,
            "nobody has written: not even asked"
        );
        pulse.wrote();
        assert!(pulse.is_watched && pulse.since >= now);
        assert_eq!(pulse.judge(0, true, now + Duration::from_millis(250)), Sign::Alive);
        assert_eq!(pulse.judge(0, true, now + 2 * SILENCE), Sign::Silent);
    }

    #[test]
    fn an_address_that_this_machine_has_is_not_lost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(lost_address(&stream.into()), None);
    }
}
