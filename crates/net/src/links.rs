//! Connections that stand: made, ready, lost.

use std::net::SocketAddr;
use std::time::Instant;

use gridmpi_engine::PeerMisbehaved;
use gridmpi_wire::ProcId;

use crate::carrier::Carrier;
use crate::link::{Link, Read};
use crate::options::CongestionControl;
use crate::poller::{Interest, Ready, Token};
use crate::state::{Socket, State};
use crate::{Failure, LinkError};

impl State {
    /// A handshake has succeeded and the endpoint has agreed: `carrier` is the connection to `id` from now
    /// on. The caller has registered nothing for it, or taken it back.
    pub(crate) fn establish(&mut self, id: ProcId, carrier: Carrier, address: Option<SocketAddr>) {
        self.drop_dial(id);
        let token = self.sockets.reserve();
        if let Err(error) = self.poller.add(&carrier.fd, token, Interest::Read) {
            // Out of kernel memory: as if the connection had failed at once.
            self.sockets.release(token);
            self.link_lost(id, address, &error.into());
            return;
        }
        let mut link = Link::new(carrier, id, address, Instant::now());
        if self.paces.cluster_of(id).is_some() {
            let wanted = self.config.pacing.congestion.as_deref();
            link.control = Some(CongestionControl::new(&link.carrier.fd, wanted));
        }
        link.is_far = self.paces.is_far(id);
        self.peer(id).link = Some(token);
        self.stats.connections += 1;
        let has_more = link.carrier.has_readable();
        self.write_link(token, Box::new(link));
        // What came right behind the handshake: no event will tell of it.
        if has_more && let Some(Socket::Link(link)) = self.sockets.take(token) {
            self.link_ready(&Ready { token, readable: true, writable: false }, link);
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
    pub(crate) fn drop_link(&mut self, id: ProcId) {
        if let Some(token) = self.peer(id).link.take() {
            self.release_link(token);
            self.unclaim(id);
            self.endpoint.disconnected(id);
        }
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
            }
            self.paces.received(link.peer, done.bytes);
            if done.frames > 0 {
                self.signs.advance();
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

    /// Writes what there is, then puts the link back.
    pub(crate) fn write_link(&mut self, token: Token, mut link: Box<Link>) {
        let result = self.write_turns(&mut link).and_then(|wanted| {
            if wanted != link.interest {
                self.poller.modify(&link.carrier.fd, token, wanted)?;
                link.interest = wanted;
            }
            Ok(())
        });
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
                let error = read.err().filter(LinkError::is_final).unwrap_or(error.into());
                self.end_link(token, &link, &error);
            }
        }
    }

    fn end_link(&mut self, token: Token, link: &Link, error: &LinkError) {
        self.sockets.release(token);
        self.retire(link);
        self.peer(link.peer).link = None;
        self.link_lost(link.peer, link.address, error);
    }

    /// There is no connection to `id` any more, because of `error`.
    fn link_lost(&mut self, id: ProcId, address: Option<SocketAddr>, error: &LinkError) {
        self.signs.advance();
        self.unclaim(id);
        self.endpoint.disconnected(id);
        if error.is_final() {
            let failure = Failure::misbehaved(id, address, error);
            self.give_up(id, &failure.what.clone(), Some(failure));
        } else if !self.endpoint.peer_closed(id) {
            self.peer(id).ended = Some(error.to_string());
            self.redial(id);
        }
    }

    /// Whether nothing more is to be said to or expected from anybody.
    pub(crate) fn is_quiet(&self) -> bool {
        self.peers.iter().all(|(&id, peer)| {
            let is_gone = peer.is_lost || (peer.link.is_none() && peer.dial.is_none());
            is_gone || self.endpoint.peer_closed(id)
        }) && (self.endpoint.is_drained() || self.peers.values().all(|peer| peer.link.is_none()))
    }
}
