//! Options of sockets that no library names.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use gridmpi_rate::{HEADERS, HEADERS_IPV6};
use gridmpi_sock::TcpInfo;
pub(crate) use gridmpi_sock::set_pacing_rate;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, setsockopt, socket};
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};
use socket2::SockRef;

use crate::Congestion;
use crate::opening::{Words, wanted};
use crate::pace::Progress;

sockopt_impl!(RtoMin, Both, libc::IPPROTO_TCP, TCP_RTO_MIN_US, u32);
sockopt_impl!(DelackMax, Both, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, u32);

/// Since Linux 6.15 (linux/tcp.h).
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// The least that an acknowledgement is waited for before data are sent again, instead of 200 ms, and the longest that one is held
/// back: well below, since the far side of a connection is a process of ours.
const RTO_MIN_US: u32 = 40_000;
const DELACK_MAX_US: u32 = 8_000;
/// What the kernel rounds up by, at most (100 ticks a second).
const TICK_US: u32 = 10_000;

/// A rate that is this near is followed: turns are spread out within it (`pace.rs`, `evened`). Where acknowledgements come, the last one is not so old, ms.
const FOLLOWED: f64 = 0.85;
const SILENT_MS: u32 = 2;

/// What keeps its window while a connection rests, and opens it fast when more is granted. Others halve theirs with each
/// retransmission timeout that passes, down to ten segments (RFC 2861), and the next burst begins with those; and where they are
/// paced they take their own pace for the path's and open it slowly. In the long run BBR sends a thirtieth less than it may, and
/// without pacing loses several times as much as cubic where senders meet.
const OPENER: &str = "bbr";
/// Where it has settled and paces by less than this part of the rate it opens nothing any more. Every eighth round trip is at ¾ of what it has settled for;
/// at first, where others have a queue on the way, some are at a third.
const SETTLED: f64 = 0.6;
/// Until it has settled this is where slow start is to end (include/net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// So many windows in a round trip it begins with (BBR, high gain: 2/ln 2).
const OPENS_BY: f64 = 2.885;
/// Every kernel lets a socket have this.
const PLAIN: &str = "reno";

/// How much larger a window is than what is needed of it before it is left to grow by itself.
const SPARE: f64 = 1.5;
/// Of a lone connection, which has to have all on the way, an opener has less to spare. And as much as that has to be on the way: to
/// others than the opener a window that has not been filled for a while is half too large, and they take that off at once (RFC 2861).
const SPARE_ALONE: f64 = 1.25;
const FILLED: f64 = 0.85;

/// So many packets beside what is divided of a handshake are not to wait for a round trip.
const BESIDE: u32 = 2;

/// What every window begins with, and rests at, segments (RFC 6928).
const BEGINNING: f64 = 10.0;

/// A path that so many segments cover does not wait long for a window that begins with [`BEGINNING`], and has 20 a round trip later, then 40. More than 20
/// since the first round trips are measured while all who begin keep the machine busy.
const SOON: f64 = 3.0 * BEGINNING;

/// A window that is filled is so many times as wide a round trip later, until something is lost.
const GROWTH: f64 = 2.0;

/// Whether the kernel lets this process's connections have a congestion control.
///
/// # Errors
/// What it answers: `ENOENT` where it has none of that name, `EPERM` where it is not allowed.
pub fn try_congestion_control(name: &str) -> io::Result<()> {
    let kind = (AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC);
    let fd = socket(kind.0, kind.1, kind.2, None)?;
    Ok(setsockopt(&fd, TcpCongestion, &OsString::from(name))?)
}

/// The congestion control of a paced connection, while it sends and while it rests.
#[derive(Debug)]
pub(crate) struct CongestionControl {
    /// `None`: the same at all times.
    own: Option<OsString>,
    state: Control,
    /// The kernel does not have the opener, or not for us; or it is not wanted.
    lacks_opener: bool,
}

/// What a connection has to send, which is more than goes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// At most so many bytes at a time before others have their turn; all ones: there are no others.
    pub(crate) turn: usize,
    /// All that there is, bytes.
    pub(crate) all: u64,
    /// It is the peer's only connection, and no relay is on the way, which would hold it back.
    pub(crate) is_direct: bool,
    /// It has sent so little yet that the kernel, told of a rate, would not space it out: the opener does.
    pub(crate) is_young: bool,
}

impl Work {
    /// For ever, with no others.
    #[cfg(test)]
    pub(crate) const fn alone(rate: u64) -> Self {
        Self { rate, turn: usize::MAX, all: u64::MAX, is_direct: true, is_young: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Control {
    /// Its own: so far its window has let out at once what there was, and nothing was to be spaced out.
    Fresh,
    /// Its own, which was sending at so many bytes per second; also at rest, where the path is so short that any window covers it.
    Own { rate: u64, is_short: bool },
    /// The opener, at work.
    Opening,
    /// The opener, at rest.
    Resting,
}

impl CongestionControl {
    /// Of a connection that has just been made, for so many bytes per second.
    pub(crate) fn new(fd: &OwnedFd, wanted: &Congestion, rate: u64) -> Self {
        if let Congestion::Named(name) = wanted {
            // Where the kernel does not let us have it, the connection keeps its own.
            let _ = setsockopt(fd, TcpCongestion, &OsString::from(name));
            return Self { own: None, state: Control::Resting, lacks_opener: false };
        }
        let own = getsockopt(fd, TcpCongestion).ok();
        // An opener spaces out at its own pace, even if nothing else is to be: what is not needed is not begun with.
        let is_short = TcpInfo::of(fd).is_ok_and(|info| is_short(&info, rate));
        let state = if is_short { Control::Own { rate, is_short } } else { Control::Fresh };
        Self { own, state, lacks_opener: *wanted == Congestion::System }
    }

    /// Whether the path is so short, as it was seen last, that the connection has its own at all times.
    pub(crate) const fn is_short(&self) -> bool {
        matches!(self.state, Control::Own { is_short: true, .. })
    }

    /// Whether the kernel spaces nothing out by itself, or the path is short.
    pub(crate) fn is_free(&self) -> bool {
        self.is_short() || self.state == Control::Fresh
    }

    /// The same, and it lets out so many bytes at once, or at this rate (bytes per second).
    pub(crate) fn takes(&self, fd: &OwnedFd, bytes: u64, rate: u64) -> bool {
        self.is_short() || self.state == Control::Fresh && lets_out(fd, bytes, rate)
    }

    /// The kernel spaces out what is sent from now on.
    pub(crate) fn space_out(&mut self) {
        if self.state == Control::Fresh {
            self.state = Control::Own { rate: 0, is_short: false };
        }
    }

    /// More is to be sent than goes at once.
    pub(crate) fn work(&mut self, fd: &OwnedFd, work: Work) {
        let Work { rate, turn, all, is_direct, is_young } = work;
        let Some(own) = &self.own else { return };
        if self.state == Control::Resting {
            self.state = Control::Opening;
        }
        if let Control::Own { rate: before, .. } = &mut self.state
            && rate <= *before
        {
            // A window that nobody fills shrinks: when more is granted it is to be looked at.
            *before = rate;
            return;
        }
        let Ok(info) = TcpInfo::of(fd) else { return };
        let is_short = is_short(&info, rate);
        let is_open = is_short || covers(&info, rate, turn);
        match self.state {
            Control::Opening if is_short || is_open && fills(&info, rate, turn) => {
                let _ = setsockopt(fd, TcpCongestion, own);
                self.state = Control::Own { rate, is_short };
            }
            Control::Opening
                if is_direct
                    && !self.lacks_opener
                    && own != OPENER
                    && has_settled_below(&info, rate) =>
            {
                // What slow start is to end at is forgotten with this.
                open_anew(fd, &mut self.lacks_opener);
                let _ = setsockopt(fd, TcpCongestion, own);
                self.state = Control::Own { rate, is_short };
            }
            Control::Fresh if is_short => self.state = Control::Own { rate, is_short },
            Control::Fresh if flows(&info, rate, all) || !is_young && soon_opens(&info, rate) => {}
            Control::Fresh | Control::Own { .. } if !is_open => {
                open(fd, &mut self.lacks_opener);
                self.state = Control::Opening;
            }
            _ => {}
        }
    }

    /// The kernel has been told that so much may be sent, bytes per second. By itself it follows with the next acknowledgement, which
    /// after a rest is a whole round trip away: an opener that begins anew follows at once.
    pub(crate) fn hasten(&mut self, fd: &OwnedFd, rate: u64) {
        let Some(own) = &self.own else { return };
        let lags = || TcpInfo::of(fd).is_ok_and(|info| Spacing::of(&info).lags_behind(rate));
        let has_own = matches!(self.state, Control::Fresh | Control::Own { .. });
        if has_own || self.lacks_opener || !lags() {
            return;
        }
        if !open_anew(fd, &mut self.lacks_opener) {
            let _ = setsockopt(fd, TcpCongestion, own);
        }
    }

    /// How many packets open the window of a connection at rest as far as they can, so that it sends so many bytes per second: it opens by one for
    /// each that arrives, with the opener, and is not forgotten. `None` where it is wide enough, also if that is not forgotten only from now on, or
    /// there is no opener.
    pub(crate) fn words_to_open(&mut self, fd: &OwnedFd, rate: u64) -> Option<Words> {
        let is_at_rest = matches!(self.state, Control::Fresh | Control::Resting);
        if !is_at_rest || self.own.is_none() || self.lacks_opener {
            return None;
        }
        let info = of_long_path(fd, rate)?;
        let is_fresh = self.state == Control::Fresh;
        if is_fresh && (soon_opens(&info, rate) || !open(fd, &mut self.lacks_opener)) {
            return None;
        }
        self.state = Control::Resting;
        let lacks = lacks(&info, rate)?;
        let room = info.snd_cwnd.saturating_sub(info.unacked);
        let round = Duration::from_micros(info.rtt.into()) * 5 / 4;
        Some(Words { count: room.min(lacks), round })
    }

    /// It is paced no longer, and has its own.
    pub(crate) fn let_go(&mut self, fd: &OwnedFd) {
        let Some(own) = &self.own else { return };
        match self.state {
            Control::Fresh | Control::Own { is_short: true, .. } => return,
            Control::Opening | Control::Resting => drop(setsockopt(fd, TcpCongestion, own)),
            Control::Own { .. } => {}
        }
        self.state = Control::Own { rate: 0, is_short: false };
    }

    /// Nothing is left to be sent for now.
    pub(crate) fn rest(&mut self, fd: &OwnedFd) {
        let Some(own) = &self.own else { return };
        match self.state {
            Control::Fresh | Control::Resting | Control::Own { is_short: true, .. } => return,
            // It begins anew only if it is set anew.
            Control::Opening => drop(setsockopt(fd, TcpCongestion, own)),
            Control::Own { .. } => {}
        }
        self.state = Control::Resting;
        open(fd, &mut self.lacks_opener);
    }
}

/// Gives the connection the opener, unless there is none. Whether it has it.
fn open(fd: &OwnedFd, is_lacking: &mut bool) -> bool {
    *is_lacking = *is_lacking || setsockopt(fd, TcpCongestion, &OsString::from(OPENER)).is_err();
    !*is_lacking
}

/// The same, but it begins anew: set to what it is it would go on as it is.
fn open_anew(fd: &OwnedFd, is_lacking: &mut bool) -> bool {
    let _ = setsockopt(fd, TcpCongestion, &OsString::from(PLAIN));
    open(fd, is_lacking)
}

/// Shortens what a lost segment at the end of a message costs, where the kernel lets a socket choose. Before a socket is connected, or listens,
/// which those that it accepts have from it: what has once been reckoned sinks by a quarter in each round trip, and never rises for this.
pub(crate) fn shorten_timeouts(fd: &impl AsFd) {
    // Kernels before 6.15 know neither, and both belong together.
    if setsockopt(fd, DelackMax, &DELACK_MAX_US).is_ok() {
        let _ = setsockopt(fd, RtoMin, &RTO_MIN_US);
    }
}

/// Whether the kernel holds an acknowledgement back for so short that the far side does not take what it has sent for lost, nor wait for it.
pub(crate) fn holds_briefly(fd: &impl AsFd) -> bool {
    getsockopt(fd, DelackMax).is_ok_and(|longest| longest <= DELACK_MAX_US + TICK_US)
}

/// Lets acknowledgements of what comes next wait for something to go with: after a pause the kernel sends one for each packet, until the connection
/// has been told so, and again when one was held back as long as may be. Words to a broker are such packets, from all of its cluster at a time.
pub(crate) fn hold_acknowledgements(fd: &impl AsFd) {
    // A connection that fails says so by itself.
    let _ = rustix::net::sockopt::set_tcp_quickack(fd, false);
}

/// What the kernel may hold of a connection that is one of several, beyond what its window lets out: what it has cannot take
/// another connection any more, and what must be in order waits behind it.
const UNSENT_MOST: u32 = 256 << 10;

/// Lets the kernel take no more than soon leaves.
pub(crate) fn bound_unsent(fd: &OwnedFd) {
    // Where the kernel knows it not the connections are shared less evenly.
    let _ = gridmpi_sock::bound_unsent(fd, UNSENT_MOST);
}

/// How many bytes more the congestion window of a connection lets out at once, or a segment if the kernel has nothing for when it opens
/// (a window that nobody asks more of does not grow). What the kernel holds beyond them leaves when acknowledgements come.
pub(crate) fn window(fd: &OwnedFd) -> io::Result<usize> {
    Ok(room(&TcpInfo::of(fd)?))
}

/// Whether a window lets out so many bytes more at once, or covers its path at this rate (bytes per second) a round trip later.
pub(crate) fn lets_out(fd: &OwnedFd, bytes: u64, rate: u64) -> bool {
    TcpInfo::of(fd).is_ok_and(|info| flows(&info, rate, bytes))
}

/// What comes of what is written on a connection now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// As [`window`] has it.
    pub(crate) room: usize,
    /// How far the kernel is.
    pub(crate) progress: Progress,
    /// For what rate it spaces out.
    pub(crate) spacing: Spacing,
}

pub(crate) fn outlook(fd: &OwnedFd) -> io::Result<Outlook> {
    let info = TcpInfo::of(fd)?;
    let spacing = Spacing::of(&info);
    Ok(Outlook { room: room(&info), progress: progress_of(&info), spacing })
}

/// For what rate a connection's segments are spaced out, which an acknowledgement may change, and an opener that begins anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    /// Bytes per second.
    rate: u64,
    /// What an opener begins with.
    anew: f64,
    /// Since the last acknowledgement.
    silent_ms: u32,
}

impl Spacing {
    fn of(info: &TcpInfo) -> Self {
        let window = f64::from(info.snd_cwnd) * f64::from(info.snd_mss);
        let anew = OPENS_BY * window / (f64::from(info.rtt.max(1)) / 1e6);
        Self { rate: info.pacing_rate, anew, silent_ms: info.last_ack_recv_ms }
    }

    /// Whether it is for less than this, with no acknowledgement in sight that would change it, and an opener would be faster.
    pub(crate) fn lags_behind(self, rate: u64) -> bool {
        let known = self.rate as f64;
        known < FOLLOWED * rate as f64
            && self.silent_ms >= SILENT_MS
            && self.anew > known / FOLLOWED
    }
}

/// How far the kernel is with what it was given of a connection.
pub(crate) fn progress(fd: &OwnedFd) -> io::Result<Progress> {
    Ok(progress_of(&TcpInfo::of(fd)?))
}

fn progress_of(info: &TcpInfo) -> Progress {
    Progress {
        sent: u64::from(info.data_segs_out) * u64::from(info.snd_mss),
        unsent: info.notsent_bytes as usize,
        is_open: in_flight(info) < info.snd_cwnd,
        unread_us: info.rwnd_limited,
        pace: info.pacing_rate,
    }
}

/// What has come of what was written on a connection since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    /// Bytes that have been acknowledged.
    pub(crate) acknowledged: u64,
    /// Segments that were sent again, and the bytes of a full one.
    pub(crate) resent: u64,
    pub(crate) segment: u32,
    /// Nothing is on its way.
    pub(crate) is_all: bool,
    /// How much longer than the shortest one its round trips take now: what waits somewhere on the way.
    pub(crate) queued: Duration,
    /// Segments are on their way; what a full receiver holds back is not.
    pub(crate) is_on_its_way: bool,
}

pub(crate) fn carried(fd: &OwnedFd) -> io::Result<Carried> {
    let info = TcpInfo::of(fd)?;
    let acknowledged = info.bytes_acked;
    let is_all = info.unacked == 0 && info.notsent_bytes == 0;
    let (resent, is_on_its_way) = (info.total_retrans.into(), info.unacked > 0);
    let segment = info.snd_mss;
    let queued = Duration::from_micros(info.rtt.saturating_sub(info.min_rtt).into());
    Ok(Carried { acknowledged, resent, segment, is_all, queued, is_on_its_way })
}

/// What each of a connection's frames has of headers, bytes on the wire.
pub(crate) fn headers(fd: &OwnedFd) -> usize {
    // What cannot be asked is as most are.
    let peer = SockRef::from(fd).peer_addr().ok().and_then(|at| at.as_socket());
    let is_ipv6 = peer.is_some_and(|at| at.ip().to_canonical().is_ipv6());
    if is_ipv6 { HEADERS_IPV6 } else { HEADERS }
}

/// How many segments a connection has sent again.
pub(crate) fn retransmits(fd: &OwnedFd) -> u64 {
    carried(fd).map_or(0, |carried| carried.resent)
}

/// Whether the window, with something to spare, is that of a path at this rate (bytes per second), or lets so much out at once: a
/// turn, after which the others have theirs. All ones: there are no others.
fn covers(info: &TcpInfo, rate: u64, turn: usize) -> bool {
    let on_the_way = rate as f64 * f64::from(info.rtt) / 1e6;
    let window = f64::from(info.snd_cwnd) * f64::from(info.snd_mss);
    let spare = if turn == usize::MAX { SPARE_ALONE } else { SPARE };
    window >= spare * on_the_way.min(turn as f64)
}

/// Whether a window needs no opener, which has a timer for each packet: it lets out so many bytes at once, or covers the path at this rate a round trip
/// later, as it opens by itself.
fn flows(info: &TcpInfo, rate: u64, bytes: u64) -> bool {
    let segments = |count: u32| f64::from(count) * f64::from(info.snd_mss);
    let growth = if info.snd_cwnd < info.snd_ssthresh { GROWTH } else { 1.0 };
    let kept = f64::from(info.notsent_bytes);
    let room = segments(info.snd_cwnd.saturating_sub(in_flight(info)));
    bytes as f64 <= room - kept || on_the_way(info, rate) <= growth * segments(info.snd_cwnd) - kept
}

/// What is on the way at a rate while nothing waits there, bytes.
fn on_the_way(info: &TcpInfo, rate: u64) -> f64 {
    rate as f64 * f64::from(info.min_rtt) / 1e6
}

/// Whether an opener takes less than the rate for what the path carries: others of whom nobody here knows had their part of an interface while it
/// looked, or the peer did not read. It tries for a quarter more in one of eight round trips.
fn has_settled_below(info: &TcpInfo, rate: u64) -> bool {
    info.snd_ssthresh < INFINITE_SSTHRESH && (info.pacing_rate as f64) < SETTLED * rate as f64
}

/// Whether the path is so short that the window which every connection begins with covers it. An opener would take the share that it
/// gets of an interface beside others for the path's bandwidth, and a queue there for more than it may have on the way.
fn is_short(info: &TcpInfo, rate: u64) -> bool {
    SPARE * on_the_way(info, rate) <= BEGINNING * f64::from(info.snd_mss)
}

/// Whether the window that every connection begins with soon covers the path: an opener would gain a round trip or two, and has a timer for each packet
/// from then on.
fn soon_opens(info: &TcpInfo, rate: u64) -> bool {
    on_the_way(info, rate) <= SOON * f64::from(info.snd_mss)
}

/// What the kernel says of a connection whose path is known to be so long that not any window covers it at this rate.
fn of_long_path(fd: &OwnedFd, rate: u64) -> Option<TcpInfo> {
    TcpInfo::of(fd).ok().filter(|info| info.min_rtt != u32::MAX && !is_short(info, rate))
}

/// How many segments the window lacks for this rate; `None` where it has enough.
fn lacks(info: &TcpInfo, rate: u64) -> Option<u32> {
    let path = Duration::from_micros(info.min_rtt.into());
    let lacks = wanted(rate, path, info.snd_mss, SPARE_ALONE).saturating_sub(info.snd_cwnd);
    (lacks > 0).then_some(lacks)
}

/// Into how many packets what a handshake says next is to be divided, on a connection that will send so many bytes per second: all that its window
/// lacks, as far as it lets them out. The window opens by one for each that arrives, whatever it carries, but only if they fill more than half of it
/// (Linux, `tcp_is_cwnd_limited`). `None` where it has enough, or would not open.
pub(crate) fn packets_to_open(fd: &OwnedFd, rate: u64) -> Option<u32> {
    let info = of_long_path(fd, rate)?;
    let room = info.snd_cwnd.saturating_sub(in_flight(&info) + BESIDE);
    let least = info.snd_cwnd / 2 + 1;
    Some(lacks(&info, rate)?.max(least).min(room)).filter(|&packets| packets >= least)
}

/// Whether a lone connection has about as much on the way as it can at this rate.
fn fills(info: &TcpInfo, rate: u64, turn: usize) -> bool {
    let on_the_way = rate as f64 * f64::from(info.rtt) / 1e6;
    turn != usize::MAX || f64::from(info.unacked * info.snd_mss) >= FILLED * on_the_way
}

/// Segments that are on their way.
const fn in_flight(info: &TcpInfo) -> u32 {
    (info.unacked + info.retrans).saturating_sub(info.sacked + info.lost)
}

/// How many bytes more may leave at once.
fn room(info: &TcpInfo) -> usize {
    let room = info.snd_cwnd.saturating_sub(in_flight(info)) as usize * info.snd_mss as usize;
    let kept = info.notsent_bytes as usize;
    if kept == 0 { room.max(info.snd_mss as usize) } else { room.saturating_sub(kept) }
}

#[cfg(test)]
mod tests;
