//! Connections that stand: made, ready, lost.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridmpi_engine::PeerMisbehaved;
use gridmpi_wire::{ProcId, Strand};

use crate::carrier::{Carrier, Packets};
use crate::link::{Link, Read};
use crate::losses::PAUSE_MOST;
use crate::options::{
    CongestionControl, bound_unsent, carried, headers, hold_acknowledgements, holds_briefly,
};
use crate::poller::{Interest, Ready, Token};
use crate::state::{Peer, Socket, State};
use crate::{Failure, LinkError};

/// What a handshake has told of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// Of the other side.
    pub(crate) address: Option<SocketAddr>,
    /// How long the other side took to answer, all that lies between included.
    pub(crate) answer: Option<Duration>,
}

impl State {
    /// A handshake has succeeded and the endpoint has agreed: `carrier` is this connection to `id` from now
    /// on. The caller has registered nothing for it, or taken it back.
    pub(crate) fn establish(
        &mut self,
        (id, strand): (ProcId, Strand),
        mut carrier: Carrier,
        Met { address, answer }: Met,
    ) {
        carrier.packets = Packets::Full;
        self.end_dial(id, strand);
        let token = self.sockets.reserve();
        if let Err(error) = self.poller.add(&carrier.fd, token, Interest::Read) {
            // Out of kernel memory: as if the connection had failed at once.
            self.sockets.release(token);
            self.link_lost((id, strand), (Instant::now(), address), &error.into());
            return;
        }
        let mut link = Link::new(carrier, (id, strand), address, self.is_relayed(id));
        if let Some(rate) = self.paces.rate_to(id) {
            let wanted = &self.config.pacing.congestion;
            link.control = Some(CongestionControl::new(&link.carrier.fd, wanted, rate));
        }
        link.is_far = self.paces.is_far(id);
        if link.is_far {
            // Also where nothing is paced: the program may put a rate later. One that cannot be asked fails by itself.
            link.headers = headers(&link.carrier.fd);
            carried(&link.carrier.fd).iter().for_each(|now| link.weigh(now.segment));
        }
        link.may_hold = !link.is_far && holds_briefly(&link.carrier.fd);
        self.peer(id).links.push((strand, token));
        self.bound_links(id, &link);
        self.begin_beside(&mut link, answer);
        self.stats.connections += 1;
        self.note_presence(id);
        if let Some(cluster) = self.paces.cluster_of(id) {
            self.open_another(cluster, id, Instant::now());
        }
        let has_more = link.carrier.has_readable();
        self.write_link(token, Box::new(link));
        // What came right behind the handshake: no event will tell of it.
        if has_more && let Some(Socket::Link(link)) = self.sockets.take(token) {
            self.link_ready(&Ready { token, readable: true, writable: false }, link);
        }
    }

    /// Connections that share what there is get it late. `new` is not in its place yet.
    fn bound_links(&mut self, id: ProcId, new: &Link) {
        let Some(peer) = self.peers.get(&id).filter(|peer| peer.has_several()) else { return };
        bound_unsent(&new.carrier.fd);
        if let [first, _] = peer.links[..]
            && let Some(Socket::Link(link)) = self.sockets.get(first.1)
        {
            bound_unsent(&link.carrier.fd);
        }
    }

    /// The peer broke the rules already when it said where to go on.
    pub(crate) fn cannot_resume(
        &mut self,
        id: ProcId,
        address: Option<SocketAddr>,
        error: PeerMisbehaved,
    ) {
        let failure = Failure::misbehaved(id, address, &error.into());
        self.give_up(id, &failure.what.clone(), Some(failure));
    }

    /// Ends the standing connection in favour of another.
    pub(crate) fn drop_link(&mut self, id: ProcId, strand: Strand) {
        if let Some(token) = self.peer(id).link(strand) {
            self.release_link(token);
            self.forget_link(id, strand);
        }
    }

    /// The connection has gone.
    fn forget_link(&mut self, id: ProcId, strand: Strand) {
        self.peer(id).links.retain(|link| link.0 != strand);
        if !self.peer(id).has_link() {
            self.unclaim(id);
        }
        self.endpoint.disconnected(id, strand);
    }

    /// Closes the connection that the token stands for.
    pub(crate) fn release_link(&mut self, token: Token) {
        if let Some(Socket::Link(link)) = self.sockets.release(token) {
            self.retire(&link);
        }
    }

    pub(crate) fn link_ready(&mut self, ready: &Ready, mut link: Box<Link>) {
        if ready.readable {
            let mut done = Read::default();
            let result = link.read(&mut self.endpoint, &mut self.staging, &mut done);
            self.stats.bytes_in += done.bytes as u64;
            if link.is_far {
                self.counts.received += done.bytes as u64;
            } else if link.may_hold && done.bytes > 0 {
                hold_acknowledgements(&link.carrier.fd);
            }
            self.paces.received(link.peer, done.bytes);
            if done.frames > 0 {
                self.signs.advance();
                link.has_heard = true;
            }
            self.end_overtaken();
            if done.frames > 0 {
                self.see(&mut link);
            }
            if let Err(error) = result {
                self.end_link(ready.token, &link, &error);
                return;
            }
        }
        if ready.writable && link.interest == Interest::ReadWrite {
            self.write_link(ready.token, link);
        } else {
            self.sockets.put(ready.token, Socket::Link(link));
        }
    }

    /// What was in the midst of a frame that has begun to come by another connection must not go on with it: to be called after each read.
    fn end_overtaken(&mut self) {
        while let Some((id, strand)) = self.endpoint.overtaken() {
            self.drop_link(id, strand);
        }
    }

    /// Writes what there is, then puts the link back.
    pub(crate) fn write_link(&mut self, token: Token, mut link: Box<Link>) {
        if self.peers.get(&link.peer).is_some_and(Peer::has_several) {
            // It is free to be written to, and may be the one for what is to be sent next.
            let (peer, result) = (link.peer, self.watch_link(token, &mut link, Interest::Read));
            self.put_link(token, link, result);
            self.transmit_on_several(peer);
            return;
        }
        let result = self.write_turns(&mut link);
        let result = result.and_then(|wanted| self.watch_link(token, &mut link, wanted));
        let peer = link.peer;
        self.put_link(token, link, result);
        self.widen(peer);
    }

    /// What is to be waited for on a link.
    pub(crate) fn watch_link(
        &mut self,
        token: Token,
        link: &mut Link,
        wanted: Interest,
    ) -> io::Result<()> {
        if wanted != link.interest {
            self.poller.modify(&link.carrier.fd, token, wanted)?;
            link.interest = wanted;
        }
        Ok(())
    }

    /// Puts a link back that was written to, unless that has failed.
    pub(crate) fn put_link(&mut self, token: Token, mut link: Box<Link>, result: io::Result<()>) {
        match result {
            Ok(()) => self.sockets.put(token, Socket::Link(link)),
            Err(error) => {
                // What the peer sent before it went is still to be read: its last words may be
                // `Close`.
                let mut done = Read::default();
                let read = link.read(&mut self.endpoint, &mut self.staging, &mut done);
                if done.frames > 0 {
                    self.signs.advance();
                }
                self.end_overtaken();
                let error = read.err().filter(LinkError::says_more).unwrap_or(error.into());
                self.end_link(token, &link, &error);
            }
        }
    }

    pub(crate) fn end_link(&mut self, token: Token, link: &Link, error: &LinkError) {
        self.sockets.release(token);
        self.retire(link);
        if !link.has_heard {
            self.rest_beside(link.peer, PAUSE_MOST);
        }
        self.link_lost((link.peer, link.strand), (link.since, link.address), error);
    }

    /// There is no such connection to `id` any more, because of `error`. Since when it stood, and to which address.
    fn link_lost(
        &mut self,
        (id, strand): (ProcId, Strand),
        (since, address): (Instant, Option<SocketAddr>),
        error: &LinkError,
    ) {
        self.signs.advance();
        self.forget_link(id, strand);
        if let LinkError::Damaged(error) = error {
            self.note_damage(Some(id), address, error);
        }
        if error.is_final() {
            let failure = Failure::misbehaved(id, address, error);
            self.give_up(id, &failure.what.clone(), Some(failure));
            return;
        }
        let has_closed = self.endpoint.peer_closed(id);
        let is_alone = !self.peer(id).has_link();
        if is_alone && let Some(failure) = self.lost_again(id, (since, address), error) {
            self.give_up(id, &failure.what.clone(), (!has_closed).then_some(failure));
            return;
        }
        self.peer(id).ended = Some(error.to_string());
        self.peer(id).lost_way = address;
        // One that has closed is dialled if there is still something for it.
        if !has_closed {
            self.redial(id, matches!(error, LinkError::Silent | LinkError::Moved(_)));
        }
    }

    /// Whether nothing more is to be said to or expected from anybody. Who has closed and is dialled waits for our last word.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_there = |peer: &Peer| peer.has_link() || !peer.dials.is_empty();
        self.peers.iter().all(|(&id, peer)| {
            let is_gone = peer.is_lost || !is_there(peer);
            is_gone || self.endpoint.peer_closed(id)
        }) && (self.endpoint.is_drained() || !self.peers.values().any(is_there))
    }
}
