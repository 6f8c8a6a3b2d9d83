//! An established connection: frames off a socket into the endpoint, and back.

use std::borrow::Cow;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use gridmpi_engine::{Endpoint, Progress, Sink};
use gridmpi_rate::{HEADERS, SEGMENT, Weight};
use gridmpi_wire::{MAX_HEAD, ProcId, Strand, parse};
use rustix::net::{RecvFlags, recv};

use crate::LinkError;
use crate::carrier::Carrier;
use crate::opening::{Opening, Words};
use crate::options::{Carried, CongestionControl, Work, lets_out, set_pacing_rate};
use crate::pace::SMALL;
use crate::poller::Interest;
use crate::pulse::Pulse;
use crate::spread::Speed;

/// The kernel does not space out the first ten segments of a connection. Where a handshake had those it does, by its own pace, which the window
/// of a connection that has just been made lets be no more than a part of the rate: a turn would last into the next one's.
pub(crate) const YOUNG: u64 = 10 * SEGMENT as u64;

/// Most bytes read or, by whole frames, written on one connection before others get their turn.
const TURN: usize = 1 << 20;

/// How much may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Most {
    /// As much as one may have before others get their turn.
    Fair,
    /// Not a byte more, as many as there are on the wire.
    Bytes(usize),
}

/// How fast the kernel is to be, bytes per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// What it is told.
    pub(crate) told: u64,
    /// What it should be able to at least, before the next acknowledgement.
    pub(crate) rate: u64,
    /// So far it would space out for less, whatever it was told.
    pub(crate) is_behind: bool,
}

impl Pace {
    /// Neither more nor less than this.
    pub(crate) const fn plain(rate: u64) -> Self {
        Self { told: rate, rate, is_behind: false }
    }
}

/// Payloads with at least this much to come are read straight to where they belong.
pub(crate) const DIRECT_ABOVE: usize = 8 * 1024;

/// What is read beyond a direct payload: the next head, or a few small frames.
const BEHIND_DIRECT: usize = 4 * 1024;

/// A connection and what has half arrived on it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) carrier: Carrier,
    pub(crate) peer: ProcId,
    /// Which of the connections to it.
    pub(crate) strand: Strand,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) interest: Interest,
    /// What the kernel was told to pace it to, bytes per second.
    pub(crate) paced_to: Option<u64>,
    /// Of a connection that is paced.
    pub(crate) control: Option<CongestionControl>,
    /// Bytes written since the connection stands.
    pub(crate) written: u64,
    /// What had come of that when it was looked at, and how much was written when all of it had arrived then.
    pub(crate) carried: Carried,
    pub(crate) looked_at: u64,
    /// What each of its frames has of headers.
    pub(crate) headers: usize,
    weight: Weight,
    /// How fast it has been seen to be, where it is one of several.
    pub(crate) speed: Speed,
    /// When the connection was made.
    pub(crate) since: Instant,
    /// The peer is of another cluster.
    pub(crate) is_far: bool,
    /// How far its window has been opened before it is needed.
    pub(crate) opening: Opening,
    /// Acknowledgements to it may wait for something to go with.
    pub(crate) may_hold: bool,
    /// A frame has come by it.
    pub(crate) has_heard: bool,
    pub(crate) pulse: Pulse,
    /// Something that could be sent to such a one waits.
    pub(crate) is_waiting: bool,
    /// A head that has not wholly arrived.
    head: [u8; MAX_HEAD],
    head_len: usize,
    /// A payload that has not wholly arrived.
    arriving: Option<Arriving>,
}

#[derive(Debug)]
struct Arriving {
    sink: Sink,
    at: u32,
}

impl Arriving {
    fn rest(&self) -> usize {
        (self.sink.len() - self.at) as usize
    }
}

/// What a turn of writing has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) left: Left,
}

/// What is left to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Something, when the socket has room again.
    ForRoom,
    /// Something, perhaps: the turn is over.
    ForTurn,
}

/// What a turn of reading has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    pub(crate) bytes: usize,
    pub(crate) frames: u64,
}

impl Link {
    pub(crate) fn new(
        carrier: Carrier,
        (peer, strand): (ProcId, Strand),
        address: Option<SocketAddr>,
        is_circuit: bool,
    ) -> Self {
        let since = Instant::now();
        Self {
            carrier,
            peer,
            strand,
            address,
            interest: Interest::Read,
            paced_to: None,
            control: None,
            carried: Carried::default(),
            looked_at: 0,
            written: 0,
            headers: HEADERS,
            weight: Weight::USUAL,
            speed: Speed::new(since),
            since,
            is_far: true,
            opening: Opening::new(since),
            may_hold: false,
            has_heard: false,
            pulse: Pulse::new(since, is_circuit),
            is_waiting: false,
            head: [0; MAX_HEAD],
            head_len: 0,
            arriving: None,
        }
    }

    /// Its full segments carry so many bytes now.
    pub(crate) fn weigh(&mut self, segment: u32) {
        self.weight = Weight::new(segment, self.headers);
    }

    /// What so many bytes take of the wire, TLS records and all, by bytes in usual frames.
    pub(crate) fn on_wire(&self, bytes: usize) -> usize {
        self.weight.weighed(self.carrier.on_wire(bytes))
    }

    /// How many bytes can be written so that [`Self::on_wire`] has these of them.
    fn within(&self, on_wire: usize) -> usize {
        self.carrier.within(self.weight.bytes(on_wire))
    }

    /// The same of what TCP has, or may have, records and all.
    pub(crate) fn weighed(&self, bytes: usize) -> usize {
        self.weight.weighed(bytes)
    }

    /// A rate as the kernel counts it, which knows no headers; all ones stay that.
    pub(crate) fn without_headers(&self, rate: u64) -> u64 {
        if rate == u64::MAX { rate } else { self.weight.rate(rate) }
    }

    /// Whether the kernel does not space it out yet.
    pub(crate) const fn is_young(&self) -> bool {
        self.written < YOUNG
    }

    /// More is to be sent than goes at once.
    pub(crate) fn work(&mut self, work: Work) {
        let work = Work { rate: self.without_headers(work.rate), ..work };
        if let Some(control) = &mut self.control {
            control.work(&self.carrier.fd, work);
        }
    }

    /// The kernel spaces out what is sent as it is told. What differs by less than pacing is exact is no other rate.
    pub(crate) fn pace(&mut self, pace: Pace) -> io::Result<()> {
        let Pace { told, rate, is_behind } = pace;
        let [told, rate] = [told, rate].map(|rate| self.without_headers(rate));
        let known = self.paced_to;
        // One that was told of nothing spaces out nothing, and has no timer for that.
        let is_told = match known {
            None => told == u64::MAX,
            Some(known) => known.abs_diff(told) <= known / 512,
        };
        if !is_told {
            set_pacing_rate(&self.carrier.fd, told)?;
            self.paced_to = Some(told);
            self.control.iter_mut().for_each(CongestionControl::space_out);
        }
        let is_raised = !is_told && known.is_some_and(|known| known < rate);
        if let Some(control) = self.control.as_mut().filter(|_| is_raised || is_behind) {
            control.hasten(&self.carrier.fd, rate);
        }
        Ok(())
    }

    /// Whether the path is so short that any window covers it, and the connection keeps its own congestion control for that.
    pub(crate) fn is_short(&self) -> bool {
        self.control.as_ref().is_some_and(CongestionControl::is_short)
    }

    /// Whether the kernel lets out so many bytes more at such a rate as soon as it has them: it was told of none, and has none of its own.
    pub(crate) fn is_untold(&self, bytes: u64, rate: u64) -> bool {
        let rate = self.without_headers(rate);
        let takes = |it: &CongestionControl| it.takes(&self.carrier.fd, bytes, rate);
        self.paced_to.is_none() && self.control.as_ref().is_some_and(takes)
    }

    /// Whether the path takes so many bytes more at such a rate as they are handed over: any window covers it, or the kernel lets them out. Of short
    /// messages the kernel is not asked.
    pub(crate) fn takes(&self, bytes: u64, rate: u64) -> bool {
        let is_free = || self.control.as_ref().is_some_and(CongestionControl::is_free);
        self.is_short()
            || match bytes {
                ..=SMALL => self.paced_to.is_none() && is_free(),
                _ => self.is_untold(bytes, rate),
            }
    }

    /// Whether its window holds up nothing of so many bytes more at such a rate. Of short messages the kernel is not asked.
    pub(crate) fn lets_out(&self, bytes: u64, rate: u64) -> bool {
        let rate = self.without_headers(rate);
        bytes <= SMALL || self.is_short() || lets_out(&self.carrier.fd, bytes, rate)
    }

    /// What opens its window so that it can send so many bytes per second; `None` where it can, or nothing opens it.
    pub(crate) fn words_to_open(&mut self, rate: u64) -> Option<Words> {
        self.control.as_mut()?.words_to_open(&self.carrier.fd, rate)
    }

    /// Nothing is to be sent for now.
    pub(crate) fn rest(&mut self) {
        if let Some(control) = &mut self.control {
            control.rest(&self.carrier.fd);
        }
    }

    /// It is paced no longer.
    pub(crate) fn let_go(&mut self) {
        if let Some(control) = &mut self.control {
            control.let_go(&self.carrier.fd);
        }
    }

    /// Reads until the socket is empty, the turn is over or a request is complete: the program may post
    /// a receive for what comes next, which then needs no room on the heap and no copy. `staging` is
    /// anybody's between calls.
    pub(crate) fn read(
        &mut self,
        endpoint: &mut Endpoint,
        staging: &mut [u8],
        done: &mut Read,
    ) -> Result<(), LinkError> {
        let completions = endpoint.completions();
        loop {
            let has_turn = done.bytes < TURN && endpoint.completions() == completions;
            if !has_turn && !self.carrier.has_readable() {
                break;
            }
            let (count, asked) = match &self.arriving {
                Some(arriving)
                    if has_turn
                        && arriving.rest() >= DIRECT_ABOVE
                        && !endpoint.sink_is_fragmented(&arriving.sink) =>
                {
                    self.read_direct(endpoint, staging, done)?
                }
                _ => self.read_staged(endpoint, staging, done, has_turn)?,
            };
            done.bytes += count;
            if count < asked && !self.carrier.may_have_more() {
                // The socket is empty; if it ended meanwhile the next event says so.
                break;
            }
        }
        Ok(())
    }

    /// Reads what fits the staging space, behind the head that has half arrived.
    fn read_staged(
        &mut self,
        endpoint: &mut Endpoint,
        staging: &mut [u8],
        done: &mut Read,
        from_socket: bool,
    ) -> Result<(usize, usize), LinkError> {
        let kept = self.head_len;
        staging[..kept].copy_from_slice(&self.head[..kept]);
        let asked = staging.len() - kept;
        let space = &mut staging[kept..];
        let read =
            if from_socket { self.carrier.read(space) } else { self.carrier.read_rest(space) };
        let Some(count) = received(read)? else { return Ok((0, asked)) };
        self.head_len = 0;
        self.digest(endpoint, &staging[..kept + count], done)?;
        Ok((count, asked))
    }

    /// Reads a payload to where it belongs, and a little of what follows it.
    fn read_direct(
        &mut self,
        endpoint: &mut Endpoint,
        staging: &mut [u8],
        done: &mut Read,
    ) -> Result<(usize, usize), LinkError> {
        let Some(arriving) = &mut self.arriving else { return Ok((0, 0)) };
        let (carrier, rest) = (&mut self.carrier, arriving.rest());
        // Checked records are read ahead by the carrier, which alone can say whether they are right.
        let behind = if carrier.is_checked() { 0 } else { BEHIND_DIRECT };
        let (behind, ahead) = (&mut staging[..behind], behind);
        let tried = endpoint.sink_slices(&arriving.sink, arriving.at, |slices| {
            let direct: usize = slices.iter().map(|slice| slice.len()).sum();
            if direct == 0 {
                return None;
            }
            if direct < rest {
                return Some((carrier.read_vectored(slices), direct, direct));
            }
            let mut all: Vec<IoSliceMut<'_>> = Vec::with_capacity(slices.len() + 1);
            all.extend(slices.iter_mut().map(|slice| IoSliceMut::new(slice)));
            all.push(IoSliceMut::new(behind));
            Some((carrier.read_vectored(&mut all), direct, direct + ahead))
        });
        let Some((result, direct, asked)) = tried else {
            return self.read_staged(endpoint, staging, done, true);
        };
        let Some(count) = received(result)? else { return Ok((0, asked)) };
        arriving.at += count.min(direct) as u32;
        if arriving.rest() == 0 {
            self.finish(endpoint, done)?;
            self.digest(endpoint, &staging[..count.saturating_sub(direct)], done)?;
        }
        Ok((count, asked))
    }

    /// Hands `bytes` to the endpoint frame by frame; keeps a head that is cut off at the end.
    fn digest(
        &mut self,
        endpoint: &mut Endpoint,
        mut bytes: &[u8],
        done: &mut Read,
    ) -> Result<(), LinkError> {
        loop {
            if let Some(arriving) = &mut self.arriving {
                let count = arriving.rest().min(bytes.len());
                endpoint.sink_write(&arriving.sink, arriving.at, &bytes[..count]);
                arriving.at += count as u32;
                bytes = &bytes[count..];
                if arriving.rest() > 0 {
                    return Ok(());
                }
                self.finish(endpoint, done)?;
            }
            let Some(parsed) = parse(bytes)? else {
                self.head[..bytes.len()].copy_from_slice(bytes);
                self.head_len = bytes.len();
                return Ok(());
            };
            let header = parsed.header;
            let sink = endpoint.frame(self.peer, self.strand, &header, parsed.frame)?;
            self.arriving = Some(Arriving { sink, at: 0 });
            bytes = &bytes[header.head_len()..];
        }
    }

    fn finish(&mut self, endpoint: &mut Endpoint, done: &mut Read) -> Result<(), LinkError> {
        if let Some(arriving) = self.arriving.take() {
            done.frames += 1;
            endpoint.frame_end(self.peer, arriving.sink)?;
        }
        Ok(())
    }

    /// Writes what the endpoint has for the peer until there is no more, the socket takes no more
    /// or the turn is over.
    pub(crate) fn write(&mut self, endpoint: &mut Endpoint, most: Most) -> io::Result<Written> {
        let mut bytes = 0;
        let (end, limit) = match most {
            Most::Fair => (TURN, usize::MAX),
            Most::Bytes(on_wire) => {
                let bytes = self.within(on_wire);
                (bytes, bytes)
            }
        };
        self.carrier.flush()?;
        while bytes < end {
            let carrier = &mut self.carrier;
            let progress = endpoint.transmit(self.peer, self.strand, end - bytes, |slices| {
                let count = carrier.write(&cut(slices, limit - bytes))?;
                bytes += count;
                Ok(count)
            })?;
            match progress {
                Progress::Idle if self.carrier.has_unsent() => {
                    return Ok(Written { bytes, left: Left::ForRoom });
                }
                Progress::Idle => return Ok(Written { bytes, left: Left::Nothing }),
                // Else it was cut short by us.
                Progress::Blocked if bytes < limit => {
                    return Ok(Written { bytes, left: Left::ForRoom });
                }
                _ => {}
            }
        }
        let left = if self.carrier.has_unsent() { Left::ForRoom } else { Left::ForTurn };
        Ok(Written { bytes, left })
    }
}

/// The slices up to `most` bytes.
fn cut<'a>(slices: &'a [IoSlice<'a>], most: usize) -> Cow<'a, [IoSlice<'a>]> {
    let mut left = most;
    for (index, slice) in slices.iter().enumerate() {
        if slice.len() > left {
            let mut kept = slices[..index].to_vec();
            kept.push(IoSlice::new(&slice[..left]));
            return Cow::Owned(kept);
        }
        left -= slice.len();
    }
    Cow::Borrowed(slices)
}

/// The next byte, which stays there; `None` if nothing has come.
pub(crate) fn peek(fd: &OwnedFd) -> Result<Option<u8>, LinkError> {
    let mut next = [0];
    let peeked = recv(fd, &mut next[..], RecvFlags::PEEK);
    let is_there = received(peeked.map(|peeked| peeked.0).map_err(Into::into))?.is_some();
    Ok(is_there.then_some(next[0]))
}

/// Bytes received; `None` when there are none now.
pub(crate) fn received(result: io::Result<usize>) -> Result<Option<usize>, LinkError> {
    match result {
        Ok(0) => Err(LinkError::Closed),
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(LinkError::Damaged(error)),
        Err(error) => Err(error.into()),
    }
}
