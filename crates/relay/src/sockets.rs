//! All sockets, as the core uses them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gridmpi_leg::{Host, Request};
use gridmpi_wire::LegVerdict;
use rustix::net::{RecvFlags, Shutdown};
use smallvec::SmallVec;

use crate::arena::{Arena, Key};
use crate::channel::{Channel, received, send};
use crate::core::{Action, BATCH, LinkKey, Piece, Pull, Pushed, Wire, Wires};
use crate::dial::Known;
use crate::greet::Greeting;
use crate::options;
use crate::poller::{Interest, Poller};

/// Up to so many bytes one copy more costs less than the kernel takes to read a list of slices.
const TOGETHER: usize = 256;

/// Names a socket; the kernel keeps it with the socket.
pub(crate) type SocketKey = Key<Socket>;

/// Most connections that were refused and have still to close.
pub(crate) const CLOSING_MOST: usize = 256;

impl From<SocketKey> for Wire {
    fn from(key: SocketKey) -> Self {
        Self(key.to_bits())
    }
}

impl From<Wire> for SocketKey {
    fn from(wire: Wire) -> Self {
        Self::from_bits(wire.0)
    }
}

/// A socket and what it is for.
#[derive(Debug)]
pub(crate) enum Socket {
    Listener(OwnedFd),
    /// Somebody has something to say to the loop.
    Wake(#[expect(dead_code, reason = "open as long as it is watched")] OwnedFd),
    /// A signal has come.
    Signals(#[expect(dead_code, reason = "open as long as it is watched")] OwnedFd),
    /// Somebody asks for `/metrics`.
    Http(#[expect(dead_code, reason = "open as long as it is watched")] OwnedFd),
    /// Something is due.
    Alarm(#[expect(dead_code, reason = "open as long as it is watched")] OwnedFd),
    Pending(Box<Pending>),
    Leg(Leg),
    Trunk(Box<Trunk>),
    /// Refused; what it still sends is dropped until it ends.
    Closing(OwnedFd),
}

/// A connection that has not said what it is.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) fd: OwnedFd,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) accepted: Instant,
    pub(crate) stage: PendingStage,
}

#[derive(Debug)]
pub(crate) enum PendingStage {
    /// Its first bytes say what it is.
    First {
        bytes: [u8; 8],
        have: usize,
    },
    Leg(Box<Host>),
}

/// A connection to a process that has proven itself.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) fd: OwnedFd,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) link: Option<LinkKey>,
    /// To be answered.
    pub(crate) request: Option<Box<Request>>,
    /// It sends no more than what is there.
    pub(crate) has_ended: bool,
    pub(crate) is_blocked: bool,
    pub(crate) is_registered: bool,
}

/// A connection to another relay, or to what should be one.
#[derive(Debug)]
pub(crate) struct Trunk {
    pub(crate) channel: Channel,
    pub(crate) stage: TrunkStage,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) is_dialer: bool,
    pub(crate) known: Option<Key<Known>>,
    /// Since when it is being made or, once it stands, since when it does.
    pub(crate) since: Instant,
    /// It sends no more than what is there.
    pub(crate) has_ended: bool,
    pub(crate) is_blocked: bool,
    /// What the other side's host had acknowledged when it was last looked at.
    pub(crate) acknowledged: u64,
    /// It has sent much since it was looked at before.
    pub(crate) is_active: bool,
    /// It asks for so much that it is read less at a time.
    pub(crate) is_asking: bool,
    /// What it is paced to, bytes per second.
    pub(crate) rate: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum TrunkStage {
    /// The connection is being made.
    Connecting,
    /// TLS is not through with its handshake.
    Shaking,
    Greeting(Box<Greeting>),
    Up(LinkKey),
}

/// A connection that has ended, for whoever looks after it.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) known: Option<Key<Known>>,
    pub(crate) address: Option<SocketAddr>,
    /// We had dialled.
    pub(crate) is_dialer: bool,
    /// How long it has stood; `None`: it never did.
    pub(crate) stood: Option<Duration>,
    pub(crate) why: String,
}

/// All sockets.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) all: Arena<Socket>,
    pub(crate) poller: Poller,
    /// Where small pieces are put together.
    together: Box<[u8; TOGETHER]>,
    pulled: Vec<u8>,
    pulled_len: usize,
    /// The next pull begins anew.
    is_pushed: bool,
    /// Connections that were found to be gone.
    pub(crate) failed: Vec<(LinkKey, SocketKey, String)>,
    pub(crate) lost: Vec<Lost>,
    /// Refused connections, and since when.
    pub(crate) closing: VecDeque<(Instant, SocketKey)>,
}

impl Sockets {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            all: Arena::default(),
            poller: Poller::new()?,
            together: Box::new([0; TOGETHER]),
            pulled: vec![0; BATCH],
            pulled_len: 0,
            is_pushed: false,
            failed: Vec::new(),
            lost: Vec::new(),
            closing: VecDeque::new(),
        })
    }

    pub(crate) fn add(
        &mut self,
        fd: OwnedFd,
        interest: Interest,
        make: impl FnOnce(OwnedFd) -> Socket,
    ) -> io::Result<SocketKey> {
        let poller = &self.poller;
        let mut added = Ok(());
        let key = self.all.insert_with(|key| {
            added = poller.add(&fd, key, interest);
            make(fd)
        });
        match added {
            Ok(()) => Ok(key),
            Err(error) => {
                self.all.remove(key);
                Err(error)
            }
        }
    }

    pub(crate) fn leg(&mut self, key: SocketKey) -> Option<&mut Leg> {
        match self.all.get_mut(key) {
            Some(Socket::Leg(leg)) => Some(leg),
            _ => None,
        }
    }

    pub(crate) fn trunk(&mut self, key: SocketKey) -> Option<&mut Trunk> {
        match self.all.get_mut(key) {
            Some(Socket::Trunk(trunk)) => Some(trunk),
            _ => None,
        }
    }

    /// Forgets a connection to another relay.
    pub(crate) fn end_trunk(&mut self, key: SocketKey, why: impl Into<String>) -> Option<LinkKey> {
        let Some(Socket::Trunk(trunk)) = self.all.remove(key) else { return None };
        let link = match trunk.stage {
            TrunkStage::Up(link) => Some(link),
            _ => None,
        };
        let (known, address, is_dialer) = (trunk.known, trunk.address, trunk.is_dialer);
        let stood = link.map(|_| trunk.since.elapsed());
        self.lost.push(Lost { known, address, is_dialer, stood, why: why.into() });
        link
    }

    /// Sends a leg's last message before the circuit's bytes, or before its end.
    fn answer(&mut self, key: SocketKey, verdict: LegVerdict) {
        let Some(leg) = self.leg(key) else { return };
        let Some(request) = leg.request.take() else { return };
        let answer = request.answer(verdict);
        let is_sent =
            send(&leg.fd, &[IoSlice::new(&answer)]).is_ok_and(|sent| sent == answer.len());
        if verdict != LegVerdict::Accepted {
            self.close_slowly(key);
        } else if !is_sent && let Some(link) = leg.link {
            self.failed.push((link, key, "the leg takes no answer".to_owned()));
        }
    }

    /// Closes so that what was sent last arrives: while there are bytes that nobody has read, the end would be a reset.
    pub(crate) fn close_slowly(&mut self, key: SocketKey) {
        let fd = match self.all.remove(key) {
            Some(Socket::Leg(leg)) => leg.fd,
            Some(Socket::Pending(pending)) => pending.fd,
            _ => return,
        };
        if rustix::net::shutdown(&fd, Shutdown::Write).is_err() {
            return;
        }
        let poller = &self.poller;
        let mut is_watched = false;
        let key = self.all.insert_with(|key| {
            is_watched = poller.modify(&fd, key, Interest::Read).is_ok();
            Socket::Closing(fd)
        });
        if is_watched {
            self.make_room_for_closing();
            self.closing.push_back((Instant::now(), key));
        } else {
            self.all.remove(key);
        }
    }

    /// Refused connections have a fixed number of places: the oldest one's is for the next.
    fn make_room_for_closing(&mut self) {
        let Self { closing, all, .. } = self;
        if closing.len() >= CLOSING_MOST {
            closing.retain(|(_, key)| all.get(*key).is_some());
        }
        if closing.len() >= CLOSING_MOST
            && let Some((_, oldest)) = closing.pop_front()
        {
            all.remove(oldest);
        }
    }
}

fn bytes_of<'a>(piece: &'a Piece<'_>, pulled: &'a [u8]) -> &'a [u8] {
    match piece {
        Piece::Head(head) => head,
        Piece::Slice(slice) => slice,
        Piece::Pulled(range) => pulled.get(range.clone()).unwrap_or_default(),
        Piece::Held(bytes) => bytes,
    }
}

/// The bytes of all pieces together, copied to `space` if they are several and few.
fn gather<'a>(
    pieces: &'a [Piece<'_>],
    pulled: &'a [u8],
    space: &'a mut [u8; TOGETHER],
) -> Option<&'a [u8]> {
    if let [piece] = pieces {
        return Some(bytes_of(piece, pulled));
    }
    let mut len = 0;
    for piece in pieces {
        if let Piece::Head(head) = piece {
            *space.get_mut(len..)?.first_chunk_mut()? = *head;
            len += head.len();
            continue;
        }
        let bytes = bytes_of(piece, pulled);
        let end = len + bytes.len();
        space.get_mut(len..end)?.copy_from_slice(bytes);
        len = end;
    }
    space.get(..len)
}

fn push_slices(
    all: &mut Arena<Socket>,
    failed: &mut Vec<(LinkKey, SocketKey, String)>,
    key: SocketKey,
    slices: &[IoSlice<'_>],
    count: usize,
) -> Pushed {
    let (result, link) = match all.get_mut(key) {
        Some(Socket::Leg(leg)) => (push_leg(leg, slices, count), leg.link),
        Some(Socket::Trunk(trunk)) => {
            let link = match trunk.stage {
                TrunkStage::Up(link) => Some(link),
                _ => None,
            };
            (push_trunk(trunk, slices, count), link)
        }
        _ => return Pushed { bytes: count, is_blocked: false },
    };
    result.unwrap_or_else(|error| {
        if let Some(link) = link {
            failed.push((link, key, error.to_string()));
        }
        Pushed { bytes: count, is_blocked: true }
    })
}

fn push_leg(leg: &mut Leg, slices: &[IoSlice<'_>], count: usize) -> io::Result<Pushed> {
    let bytes = send(&leg.fd, slices)?;
    leg.is_blocked = bytes < count;
    Ok(Pushed { bytes, is_blocked: leg.is_blocked })
}

fn push_trunk(trunk: &mut Trunk, slices: &[IoSlice<'_>], count: usize) -> io::Result<Pushed> {
    trunk.is_blocked = !trunk.channel.write(slices)?;
    Ok(Pushed { bytes: count, is_blocked: trunk.is_blocked })
}

impl Wires for Sockets {
    fn pull(&mut self, wire: Wire, most: usize) -> Pull {
        if std::mem::take(&mut self.is_pushed) {
            self.pulled_len = 0;
        }
        let key = SocketKey::from(wire);
        let Some(Socket::Leg(leg)) = self.all.get_mut(key) else { return Pull::Failed };
        let start = self.pulled_len;
        let end = self.pulled.len().min(start.saturating_add(most));
        let space = self.pulled.get_mut(start..end).unwrap_or_default();
        if space.is_empty() {
            return Pull::Empty;
        }
        let asked = space.len();
        match received(rustix::net::recv(&leg.fd, space, RecvFlags::empty()).map(|read| read.0)) {
            Ok(Some(0)) => Pull::End,
            Ok(Some(count)) => {
                self.pulled_len += count;
                Pull::Bytes {
                    range: start..start + count,
                    is_last: count < asked && !leg.has_ended,
                }
            }
            Ok(None) => Pull::Empty,
            Err(error) => {
                if let Some(link) = leg.link {
                    self.failed.push((link, key, error.to_string()));
                }
                Pull::Failed
            }
        }
    }

    fn pulled(&self, range: Range<usize>) -> &[u8] {
        self.pulled.get(range).unwrap_or_default()
    }

    fn push(&mut self, wire: Wire, pieces: &[Piece<'_>]) -> Pushed {
        self.is_pushed = true;
        let key = SocketKey::from(wire);
        let Self { all, pulled, failed, together, .. } = self;
        if let Some(bytes) = gather(pieces, pulled, together) {
            return push_slices(all, failed, key, &[IoSlice::new(bytes)], bytes.len());
        }
        let slices: SmallVec<[IoSlice<'_>; 8]> =
            pieces.iter().map(|piece| IoSlice::new(bytes_of(piece, pulled))).collect();
        let count = slices.iter().map(|slice| slice.len()).sum();
        push_slices(all, failed, key, &slices, count)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Answer(wire, verdict) => self.answer(wire.into(), verdict),
            Action::Notice(wire, notice) => {
                let key = wire.into();
                let Some(leg) = self.leg(key) else { return };
                let bytes = notice.encode();
                let is_sent =
                    send(&leg.fd, &[IoSlice::new(&bytes)]).is_ok_and(|n| n == bytes.len());
                if !is_sent && let Some(link) = leg.link {
                    self.failed.push((link, key, "the process reads no notices".to_owned()));
                }
            }
            Action::Shutdown(wire) => {
                if let Some(leg) = self.leg(wire.into()) {
                    // Whether it is still there the next read tells.
                    let _ = rustix::net::shutdown(&leg.fd, Shutdown::Write);
                }
            }
            Action::Close(wire) => {
                self.all.remove(wire.into());
            }
            Action::Reset(wire) => {
                if let Some(Socket::Leg(leg)) = self.all.remove(wire.into()) {
                    options::reset_on_close(&leg.fd);
                }
            }
            Action::Dead(wire) => {
                self.end_trunk(wire.into(), "it has fallen silent");
            }
            Action::Deaf(wire) => {
                self.end_trunk(wire.into(), "it does not read: too much waits for it");
            }
        }
    }
}
