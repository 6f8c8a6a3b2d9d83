//! What a process's traffic with other clusters comes to; for tools and reports.
//!
//! What is counted where bytes flow costs an increment, or a comparison: the clock is read only when a wait begins or ends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::link::Link;
use crate::options::retransmits;
use crate::state::{Socket, State};

/// Since the start, over all connections to other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes handed to the kernel, heads of frames included.
    pub sent: u64,
    /// Bytes taken from the kernel, heads of frames included.
    pub received: u64,
    /// Grants that the broker of the cluster has made to this process.
    pub grants: u64,
    /// Connections that were given up, or did not come about, because what came was not what was sent.
    pub damaged: u64,
    /// How long something was ready to be sent but waited: for its turn, or for the kernel to take more. Waits of several
    /// connections at the same time count once.
    pub stalled: Duration,
}

/// When something waits, and how long.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    waiting: usize,
    since: Option<Instant>,
    before: Duration,
}

impl Stalls {
    fn begin(&mut self, now: Instant) {
        self.waiting += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            self.before = self.total(now);
            self.since = None;
        }
    }

    fn total(&self, now: Instant) -> Duration {
        self.before
            + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl State {
    /// Whether something that could be sent on this link waits from now on.
    pub(crate) fn note_wait(&mut self, link: &mut Link, is_waiting: bool) {
        if link.is_waiting == is_waiting || !link.is_far {
            return;
        }
        link.is_waiting = is_waiting;
        if is_waiting {
            self.stalls.begin(Instant::now());
        } else {
            self.stalls.end(Instant::now());
        }
    }

    /// The link goes; what it has counted stays.
    pub(crate) fn retire(&mut self, link: &Link) {
        if link.is_waiting {
            self.stalls.end(Instant::now());
        }
        if link.is_far {
            self.retransmits_before += retransmits(&link.carrier.fd);
        }
    }

    /// What has been counted up to now.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts;
        counts.stalled = self.stalls.total(Instant::now());
        counts
    }

    /// The addresses from which connections go to other clusters.
    pub(crate) fn sources(&self) -> BTreeSet<IpAddr> {
        let source = |socket: &Socket| match socket {
            Socket::Link(link) if link.is_far => {
                let local = SockRef::from(&link.carrier.fd).local_addr().ok()?;
                local.as_socket().map(|at| at.ip().to_canonical())
            }
            _ => None,
        };
        self.sockets.iter().filter_map(source).collect()
    }

    /// Segments that the kernel has sent again on connections to other clusters.
    pub(crate) fn retransmits(&self) -> u64 {
        let of = |socket: &Socket| match socket {
            Socket::Link(link) if link.is_far => retransmits(&link.carrier.fd),
            _ => 0,
        };
        self.retransmits_before + self.sockets.iter().map(of).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_at_the_same_time_count_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stalls = Stalls::default();
        assert_eq!(stalls.total(at(5)), Duration::ZERO);
        stalls.begin(at(10));
        stalls.begin(at(20));
        stalls.end(at(30));
        assert_eq!(stalls.total(at(35)), Duration::from_millis(25));
        stalls.end(at(40));
        assert_eq!(stalls.total(at(90)), Duration::from_millis(30));
        stalls.begin(at(100));
        assert_eq!(stalls.total(at(101)), Duration::from_millis(31));
    }
}
