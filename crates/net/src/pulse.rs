//! Connections that have fallen silent though nothing says so: a relay's host is gone, or the way to it; or our own address is.
//!
//! A connection to a relay is short, so that what is sent there is acknowledged at once, by its host's kernel, however slow the
//! process at the far end may be. When that stops the circuit is lost, long before TCP would give up: other relays may lead on.
//! A relay that hangs is seen by what the peer acknowledges, which takes longer to be sure of: a process may be busy, or the way slow.
//! A direct connection is as long as the path is; it is left to TCP, unless the address that it was made from is not ours any more.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_sock::TcpInfo;
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

/// More than relays and the kernels of both sides hold of a circuit's two directions where it is slow. One who takes so much, and
/// nothing is acknowledged, throws it away.
const BETWEEN: u64 = 8 << 20;

/// What fits wholly into the buffers of the relay's host does not say how slow its way is. Each time that a connection was left and still
/// nothing has come of it the next one has twice as long to answer, so often.
const DOUBLINGS: u32 = 2;

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
    /// While frames are to be acknowledged.
    wait: Option<Wait>,
    /// How long that has taken lately.
    slow: Duration,
}

/// What is waited for on a circuit: that the peer acknowledges some of its frames.
///
/// They count when they are whole. Where many circuits share a slow way a frame of each takes as long as those of all, and nothing is
/// acknowledged meanwhile; but the relay takes more as it gets rid of what it has. So the clock begins anew when its host has taken some
/// of what had to wait for that. What it takes at once is no sign: that does the kernel of a relay that hangs, too, until its buffers
/// are full, and of small messages now and then that would be for ever. When all is taken the rest has, beyond the usual, as long
/// as it took to get there, or as the one before it.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Frames that it had acknowledged, and since when no more.
    answered: u64,
    since: Instant,
    /// Bytes that the relay's host had taken by then, and when it last took some of what had to wait.
    before: u64,
    moved: Instant,
    taken: Taken,
}

/// How far the relay's host is with what was written on a circuit.
#[derive(Clone, Copy, Debug)]
struct Taken {
    bytes: u64,
    /// Some has to wait before it may leave.
    is_held: bool,
}

impl Taken {
    fn of(fd: &OwnedFd) -> Self {
        TcpInfo::of(fd).map_or(Self { bytes: 0, is_held: false }, |info| Self {
            bytes: info.bytes_acked,
            is_held: info.notsent_bytes > 0,
        })
    }
}

impl Wait {
    const fn new(answered: u64, taken: Taken, now: Instant) -> Self {
        Self { answered, since: now, before: taken.bytes, moved: now, taken }
    }

    fn take(&mut self, taken: Taken, now: Instant) {
        let has_moved = self.taken.is_held && taken.bytes > self.taken.bytes;
        if has_moved && taken.bytes.saturating_sub(self.before) <= BETWEEN {
            self.moved = now;
        }
        self.taken = taken;
    }

    fn spent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// How long in vain, where answers may take so long.
    fn vain(&self, slow: Duration, now: Instant) -> Duration {
        let usual = slow.max(self.moved.saturating_duration_since(self.since));
        now.saturating_duration_since(self.moved).saturating_sub(usual)
    }
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
        Self {
            acknowledged: 0,
            since: now,
            is_circuit,
            is_watched: false,
            wait: None,
            slow: Duration::ZERO,
        }
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

    /// The peer has acknowledged so many frames, and so many are to be. How long it has been waited for in vain, if it is.
    fn listen(
        &mut self,
        (answered, due): (u64, u64),
        taken: impl FnOnce() -> Taken,
        now: Instant,
    ) -> Option<Duration> {
        let before = self.wait.take();
        if let Some(wait) = before.filter(|wait| wait.answered != answered) {
            self.slow = wait.spent(now).max(self.slow / 2);
        }
        if due == 0 {
            return None;
        }
        let taken = taken();
        let same = before.filter(|wait| wait.answered == answered);
        let mut wait = same.unwrap_or(Wait::new(answered, taken, now));
        wait.take(taken, now);
        self.wait = Some(wait);
        Some(wait.vain(self.slow, now))
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
        let Self { sockets, endpoint, config, paces, .. } = self;
        for (token, socket) in sockets.iter_with_tokens() {
            let Socket::Link(link) = socket else { continue };
            let pulse = &mut link.pulse;
            if pulse.is_circuit {
                let frames = endpoint.frames(link.peer, link.strand).unwrap_or_default();
                let waited = pulse.listen(frames, || Taken::of(&link.carrier.fd), now);
                let cycle = paces.cycle(link.peer);
                let patience =
                    patience(config.limits.unanswered, endpoint.in_vain(link.peer), cycle);
                if waited.is_some_and(|waited| waited >= patience) {
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

/// How long frames may be unanswered when so many connections were lost in vain, and answers wait for turns for so long; a program may hold
/// its rate so low that these would be for ever.
fn patience(unanswered: Duration, in_vain: u32, cycle: Duration) -> Duration {
    let times = |doublings: u32| unanswered.saturating_mul(1 << doublings.min(DOUBLINGS));
    times(in_vain).saturating_add(cycle.min(times(DOUBLINGS)))
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

    /// Looks at a circuit every 250 ms for so long; what the relay's host has taken by then. The longest time in vain.
    fn watch(
        pulse: &mut Pulse,
        (from, until): (Instant, Duration),
        frames: (u64, u64),
        taken: impl Fn(Duration) -> Taken,
    ) -> Duration {
        let looks = (0..).map(|look| EVERY * look).take_while(|at| *at <= until);
        looks.filter_map(|at| pulse.listen(frames, || taken(at), from + at)).max().unwrap()
    }

    const NOTHING: Taken = Taken { bytes: 0, is_held: false };

    /// What arrives at 25 kB/s, of which some waits until all has come.
    fn slowly(at: Duration, all: u64) -> Taken {
        let bytes = at.as_millis() as u64 * 25;
        Taken { bytes: bytes.min(all), is_held: bytes < all }
    }

    #[test]
    fn only_frames_that_are_due_and_stay_so_are_unanswered() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pulse = Pulse::new(start, true);
        let mut listen = |frames, ms| pulse.listen(frames, || NOTHING, at(ms));
        assert_eq!(listen((0, 0), 60_000), None);
        assert_eq!(listen((0, 3), 90_000), Some(Duration::ZERO), "they were written since");
        assert_eq!(listen((0, 9), 91_000), Some(Duration::from_secs(1)));
        assert_eq!(listen((1, 8), 92_000), Some(Duration::ZERO));
        assert_eq!(listen((9, 0), 93_000), None);
        assert_eq!(listen((9, 1), 99_000), Some(Duration::ZERO));
    }

    #[test]
    fn a_frame_that_goes_slowly_is_waited_for_and_what_is_left_of_it_as_long_again() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        // 1 MB in 40 s, and then all is with the relay.
        let until = Duration::from_secs(40);
        let vain = watch(&mut pulse, (start, until), (0, 4), |at| slowly(at, 1_000_000));
        assert_eq!(vain, Duration::ZERO);
        let listen = |pulse: &mut Pulse, frames, seconds| {
            let taken = || Taken { bytes: 1_000_000, is_held: false };
            pulse.listen(frames, taken, start + Duration::from_secs(seconds))
        };
        assert_eq!(listen(&mut pulse, (0, 4), 79), Some(Duration::ZERO));
        assert_eq!(listen(&mut pulse, (0, 4), 85), Some(Duration::from_secs(5)));
        // The next one may take as long, but nobody is slow for ever.
        assert_eq!(listen(&mut pulse, (1, 3), 85), Some(Duration::ZERO));
        assert_eq!(listen(&mut pulse, (1, 3), 171), Some(Duration::from_secs(1)));
        for answered in 2..20 {
            listen(&mut pulse, (answered, 3), 171);
        }
        assert!(listen(&mut pulse, (19, 3), 181) > Some(Duration::from_millis(9900)));
    }

    #[test]
    fn who_waited_in_vain_waits_longer_the_next_time_but_not_for_ever() {
        let wait = |times, cycle| patience(Duration::from_secs(10), times, cycle).as_secs();
        let waits = [0, 1, 2, 3, 99].map(|times| wait(times, Duration::ZERO));
        assert_eq!(waits, [10, 20, 40, 40, 40]);
        assert_eq!([11, 50].map(|cycle| wait(0, Duration::from_secs(cycle))), [21, 50]);
        assert_eq!(wait(2, Duration::MAX), 80);
    }

    #[test]
    fn small_messages_that_a_hanging_relay_takes_are_unanswered() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        let until = Duration::from_secs(10);
        let trickle = |at: Duration| Taken { bytes: at.as_millis() as u64, is_held: false };
        assert_eq!(watch(&mut pulse, (start, until), (0, 40), trickle), until);
    }

    #[test]
    fn what_fits_into_the_buffers_of_a_hanging_relay_puts_it_off_for_no_longer_than_that_takes() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        let full = |at: Duration| {
            let bytes = (at.as_millis() as u64 * 1000).min(500_000);
            Taken { bytes, is_held: true }
        };
        let until = Duration::from_secs(11);
        assert_eq!(watch(&mut pulse, (start, until), (0, 9), full), Duration::from_secs(10));
    }

    #[test]
    fn who_takes_more_than_there_is_room_for_on_the_way_throws_it_away() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        // 8 MiB in 8 s.
        let gone =
            |at: Duration| Taken { bytes: at.as_secs_f64() as u64 * BETWEEN / 8, is_held: true };
        let vain = watch(&mut pulse, (start, Duration::from_secs(30)), (0, 99), gone);
        assert!((13..15).contains(&vain.as_secs()), "{vain:?}");
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
