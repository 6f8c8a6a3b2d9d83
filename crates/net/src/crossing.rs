//! Two processes that dial each other at once: which of the two connections counts.

use std::time::Instant;

use gridmpi_wire::{ProcId, Strand, Verdict};

use crate::DialError;
use crate::attempt::Attempt;
use crate::link::peek;
use crate::poller::{Interest, Token};
use crate::state::{Socket, State};
use crate::timers::Due;

/// Where dials cross, the lower process's own waits for the other one's that is further.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deference {
    Possible,
    /// The challenge is there; it is read when the other one has had its time, if there still is need.
    Waiting,
    Over,
}

impl State {
    /// Whether the challenge that has come stays unread for now. The peer called, too, and so early that its connection will stand
    /// before this one would: then it is the one to have. Its hello may be a stranger's; so it has the time of its proof and no more.
    pub(crate) fn defers(
        &mut self,
        token: Token,
        attempt: &mut Attempt,
    ) -> Result<bool, DialError> {
        match attempt.deference {
            Deference::Over => return Ok(false),
            // Its time is over, or the system says that the connection has failed: nothing else is asked for.
            Deference::Waiting => attempt.deference = Deference::Over,
            Deference::Possible => {
                if self.us.me > attempt.peer {
                    return Ok(false);
                }
                let Some(hello) = self.called_by(attempt.peer) else { return Ok(false) };
                if peek(&attempt.carrier.fd)?.is_none() {
                    return Ok(false);
                }
                let until = hello + attempt.asked.elapsed() * 5 / 4 + self.limits().crossing;
                attempt.deference = Deference::Waiting;
                self.timers.set(until, Due::Attempt(token));
            }
        }
        let is_early = matches!(attempt.deference, Deference::Waiting);
        let interest = if is_early { Interest::None } else { Interest::Read };
        self.poller.modify(&attempt.carrier.fd, token, interest).map_err(DialError::Io)?;
        Ok(is_early)
    }

    /// When the peer said hello on a connection that it has yet to prove, if there is none with it.
    fn called_by(&mut self, id: ProcId) -> Option<Instant> {
        if self.peers.get(&id).is_some_and(|peer| peer.has_link()) {
            return None;
        }
        let sockets = &mut self.sockets;
        let hellos = self.pending.iter().filter_map(|token| match sockets.get(*token) {
            Some(Socket::Pending(pending)) => pending.hello_of(id),
            _ => None,
        });
        hellos.min()
    }

    /// Who was let go first has had its time.
    pub(crate) fn attempt_due(&mut self, token: Token) {
        match self.sockets.take(token) {
            Some(Socket::Attempt(attempt)) => self.attempt_ready(token, attempt),
            Some(other) => self.sockets.put(token, other),
            None => {}
        }
    }

    /// Which of two connections is kept is decided so that both sides decide alike.
    pub(crate) fn verdict(
        &mut self,
        id: ProcId,
        strand: Strand,
        hello: Option<Instant>,
    ) -> Verdict {
        let (us, is_closing) = (self.us.me, self.is_closing);
        let peer = self.peer(id);
        if peer.is_lost || is_closing {
            return Verdict::Gone;
        }
        if let Some(token) = peer.link(strand) {
            // A hello from before our connection stood was left behind by a crossing; one from
            // after it says that the peer has lost the connection.
            let is_older = match self.sockets.get(token) {
                Some(Socket::Link(link)) => hello.is_none_or(|hello| hello <= link.since),
                _ => false,
            };
            return if is_older { Verdict::Duplicate } else { Verdict::Accepted };
        }
        let attempt = peer.dial(strand).and_then(|dial| dial.attempt);
        let has_proven = match attempt.and_then(|token| self.sockets.get(token)) {
            Some(Socket::Attempt(attempt)) => attempt.has_proven(),
            _ => false,
        };
        // Crossing dials, both proven: the lower process's counts.
        if has_proven && us < id { Verdict::Duplicate } else { Verdict::Accepted }
    }
}
