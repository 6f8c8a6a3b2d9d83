//! What goes over the connections: dialling, writing, reading, cuts; bytes to the engine.

use crate::mutation::Mutation;
use crate::network::{Link, LinkState};
use crate::rules::{MessageIndex, Unmatched, Where};
use crate::world::{Event, Phase, World, trace};
use gridmpi_engine::{Progress, Sink};
use gridmpi_wire::{Envelope, Frame, HEADER_LEN, Header, ProcId, Strand, parse};
use std::ops::Range;

/// How many times its grant of envelopes a peer may have unmatched, where the receiver has lent it all that it lends.
const MOST_GRANTS: u64 = 64;

impl World {
    /// The links of two processes.
    fn links_of(&self, a: usize, b: usize) -> Range<usize> {
        let ends = [a.min(b), a.max(b)];
        let first = self.links.iter().position(|link| link.ends == ends);
        let first = first.expect("links between clusters");
        first..first + self.plan.paths.len()
    }

    /// A process, which has none, wants a connection to a peer.
    pub fn dial(&mut self, process: usize, peer: usize) {
        let links = self.links_of(process, peer);
        let is_coming =
            |link: usize| matches!(self.links[link].state, LinkState::Dialing | LinkState::Up);
        if links.clone().any(is_coming) || self.is_refused() {
            return;
        }
        // Where none is free the process has yet to hear of an end, and then says again what it wants.
        let free: Vec<usize> = links.filter(|&link| self.links[link].is_free(process)).collect();
        if !free.is_empty() {
            let link = free[self.rng.index(free.len())];
            self.begin_connecting(link);
        }
    }

    fn is_refused(&self) -> bool {
        self.mutation == Mutation::RefuseLast && self.phase == Phase::Closing
    }

    fn begin_connecting(&mut self, link: usize) {
        self.links[link].state = LinkState::Dialing;
        self.later(2 * self.links[link].path.delay, Event::Connect { link });
    }

    /// A process that has much to say to a peer makes one more connection, now and then.
    fn join(&mut self, process: usize, peer: ProcId) {
        let links = self.links_of(process, peer.0 as usize);
        let link = links.start + self.rng.index(links.len());
        let much = 2 * u64::from(self.plan.config.chunk);
        if self.links[link].is_free(process)
            && self.processes[process].endpoint.unwritten_bytes(peer) >= much
            && self.rng.chance(50)
        {
            self.begin_connecting(link);
        }
    }

    /// A connection is made; one end learns of it first, which may be all that comes of it.
    pub fn connect(&mut self, link: usize) {
        let [a, b] = self.links[link].ends;
        let stands = |link: usize| self.links[link].state == LinkState::Up;
        self.stats.joins += u64::from(self.links_of(a, b).any(stands));
        // Who accepts one drops what it has under the number: the dialler has lost that.
        (0..2).for_each(|side| self.notice(link, side));
        self.links[link].connect();
        let expects = |at: usize, of: usize| self.processes[at].endpoint.expects(ProcId(of as u32));
        let expected = [expects(b, a), expects(a, b)];
        let first = self.rng.index(2);
        let (side, peer_expects) = (1 - first, expected[1 - first]);
        let (epoch, delay) = (self.links[link].epoch, self.links[link].path.delay);
        self.later(delay, Event::Connected { link, side, epoch, peer_expects });
        if self.rng.chance(self.plan.cuts.young) {
            self.later(delay, Event::Cut { link });
        }
        self.connected(link, first, expected[first]);
    }

    /// A side learns of a new connection.
    pub fn connected(&mut self, link: usize, side: usize, peer_expects: u64) {
        let (process, peer) = (self.links[link].ends[side], self.links[link].ends[1 - side]);
        let strand = self.links[link].strand;
        trace!(self, "p{process} has {strand} to p{peer}, which expects frame {peer_expects}");
        self.links[link].is_up[side] = true;
        let peer = ProcId(peer as u32);
        if let Err(error) = self.processes[process].endpoint.connected(peer, strand, peer_expects) {
            self.rules.fail(error.to_string());
        }
        let epoch = self.links[link].epoch;
        self.at(self.now, Event::Read { link, side: 1 - side, epoch });
        self.attend(process);
    }

    /// A connection is cut, if there is one: perhaps before its second end has heard of it.
    pub fn cut(&mut self, link: usize) {
        if self.links[link].state != LinkState::Up {
            return;
        }
        self.count_cut(link);
        let Link { ends, strand, is_up, .. } = self.links[link];
        trace!(self, "{strand} of p{ends:?} is cut, which {is_up:?} have");
        self.links[link].cut(&mut self.rng);
        let epoch = self.links[link].epoch;
        let is_half = is_up != [true; 2];
        for (side, has) in is_up.into_iter().enumerate() {
            if is_half && has && self.mutation == Mutation::ForgetHalf {
                continue;
            }
            self.at(self.now, Event::Read { link, side, epoch });
            self.later(2 * self.links[link].path.delay, Event::Notice { link, side, epoch });
        }
    }

    fn count_cut(&mut self, link: usize) {
        let Link { ends: [a, b], is_up, .. } = self.links[link];
        let is_busy =
            |at: usize, of: usize| !self.processes[at].endpoint.is_idle(ProcId(of as u32));
        let ends_streams = self.phase == Phase::Closing && (is_busy(a, b) || is_busy(b, a));
        self.stats.cuts += 1;
        self.stats.half_cuts += u64::from(is_up != [true; 2]);
        self.stats.last_cuts += u64::from(ends_streams);
    }

    /// One of the connections that stand is cut.
    pub fn cut_any(&mut self) {
        let stands = |&link: &usize| self.links[link].state == LinkState::Up;
        let standing: Vec<usize> = (0..self.links.len()).filter(stands).collect();
        if !standing.is_empty() {
            let link = standing[self.rng.index(standing.len())];
            self.cut(link);
        }
    }

    /// A side notices that its connection was cut, or that there will be none; if it has not before.
    pub fn notice(&mut self, link: usize, side: usize) {
        let Link { ends, strand, is_unaware, .. } = self.links[link];
        if !is_unaware[side] {
            return;
        }
        let (process, peer) = (ends[side], ends[1 - side]);
        trace!(self, "p{process} has lost {strand} to p{peer}");
        self.links[link].notice(side);
        self.processes[process].endpoint.disconnected(ProcId(peer as u32), strand);
        self.attend(process);
    }

    /// Writes once to each peer that may be written to.
    pub fn drive(&mut self, process: usize) {
        self.processes[process].drive_due = false;
        for peer in std::mem::take(&mut self.processes[process].ready) {
            if self.mutation.strikes(Mutation::LoseWake, &mut self.rng) {
                continue;
            }
            let again = self.write(process, peer);
            let ready = &mut self.processes[process].ready;
            if again && !ready.contains(&peer) {
                ready.push(peer);
            }
        }
        self.attend(process);
    }

    /// Writes once on each connection to a peer. Whether to do it again without being asked.
    fn write(&mut self, process: usize, peer: ProcId) -> bool {
        self.join(process, peer);
        let links = self.links_of(process, peer.0 as usize);
        let first = self.rng.index(links.len());
        let turned = links.clone().cycle().skip(first).take(links.len());
        turned.filter(|&link| self.write_on(process, peer, link)).count() > 0
    }

    fn write_on(&mut self, process: usize, peer: ProcId, link: usize) -> bool {
        let side = self.links[link].side(process);
        if !self.links[link].is_up[side] {
            return false;
        }
        let (strand, path) = (self.links[link].strand, self.links[link].path);
        if self.rng.chance(10) {
            // Truly seen or not.
            let rate = if path.per_tick > 0 { path.per_tick as f64 } else { 1e3 };
            let rate = if self.rng.chance(50) { rate } else { self.rng.within(1, 2000) as f64 };
            self.processes[process].endpoint.set_rate(peer, strand, rate);
        }
        if self.rng.chance(3) {
            let reach = [1, 100, 1000, 100_000][self.rng.index(4)];
            self.processes[process].endpoint.set_reach(peer, strand, reach);
        }
        let pipe = &mut self.links[link].pipes[side];
        let (capacity, rng, before) = (self.plan.pipe, &mut self.rng, pipe.len());
        let max = [10, 100, 10_000][rng.index(3)];
        let endpoint = &mut self.processes[process].endpoint;
        let progress =
            endpoint.transmit(peer, strand, max, |slices| pipe.write(slices, capacity, rng));
        let bytes = pipe.len() - before;
        if bytes > 0 {
            let arrival = self.now + path.delay + self.rng.within(0, self.plan.delays.jitter);
            let takes = (bytes as u64).checked_div(path.per_tick).unwrap_or_default();
            let arrival = arrival.max(self.links[link].pipes[side].last_arrival) + takes;
            self.links[link].pipes[side].last_arrival = arrival;
            let epoch = self.links[link].epoch;
            self.at(arrival, Event::Cross { link, side, epoch, bytes });
        }
        match progress {
            Ok(Progress::Idle) => false,
            Ok(Progress::More) => true,
            // A full pipe is written to again when it is read.
            Ok(Progress::Blocked) => self.links[link].pipes[side].len() < capacity,
            Err(error) => {
                self.rules.fail(format!("transmit: {error}"));
                false
            }
        }
    }

    /// Reads some of what a side has written.
    pub fn read(&mut self, link: usize, side: usize) {
        let l = &mut self.links[link];
        if !l.is_up[1 - side] || !l.pipes[side].is_readable() {
            return;
        }
        let was_full = l.pipes[side].len() == self.plan.pipe;
        let bytes = l.pipes[side].read(&mut self.rng);
        if l.pipes[side].is_readable() {
            let epoch = l.epoch;
            self.later(5, Event::Read { link, side, epoch });
        }
        let (writer, reader) = (self.links[link].ends[side], self.links[link].ends[1 - side]);
        if was_full && !self.processes[writer].ready.contains(&ProcId(reader as u32)) {
            self.processes[writer].ready.push(ProcId(reader as u32));
            self.attend(writer);
        }
        if let Err(error) = self.feed(link, 1 - side, &bytes) {
            self.rules.fail(error);
        }
        self.attend(reader);
    }

    /// Feeds bytes to the engine of the process at `side`.
    fn feed(&mut self, link: usize, side: usize, mut bytes: &[u8]) -> Result<(), String> {
        let (process, peer) = (self.links[link].ends[side], self.links[link].ends[1 - side]);
        let mut parser = std::mem::take(&mut self.links[link].parsers[side]);
        while !bytes.is_empty() || parser.frame.is_some() {
            if parser.frame.is_none() {
                let wanted = head_wanted(&parser.head)?.min(bytes.len());
                parser.head.extend_from_slice(&bytes[..wanted]);
                bytes = &bytes[wanted..];
                let Some(parsed) = parse(&parser.head).map_err(|error| error.to_string())? else {
                    continue;
                };
                parser.head.clear();
                let sink = self.begin_frame(link, side, &parsed.header, parsed.frame)?;
                parser.frame = Some((parsed.header, sink, 0));
            }
            let Some((header, sink, at)) = parser.frame.take() else { continue };
            let here = self.land(process, &sink, at, bytes);
            bytes = &bytes[here..];
            let at = at + here as u32;
            if at < sink.len() {
                parser.frame = Some((header, sink, at));
                break;
            }
            let ended = self.processes[process].endpoint.frame_end(ProcId(peer as u32), sink);
            ended.map_err(|error| error.to_string())?;
            if self.mutation.strikes(Mutation::LandLate, &mut self.rng) {
                self.rules.store_again(process);
            }
        }
        self.links[link].parsers[side] = parser;
        self.check_bounds(process, peer)
    }

    /// Stores payload, in either of the two ways. How much of `bytes` was stored.
    fn land(&mut self, process: usize, sink: &Sink, at: u32, bytes: &[u8]) -> usize {
        let mut data = bytes[..bytes.len().min((sink.len() - at) as usize)].to_vec();
        if !data.is_empty() && self.mutation.strikes(Mutation::Corrupt, &mut self.rng) {
            data[0] ^= 1;
        }
        let endpoint = &mut self.processes[process].endpoint;
        if self.mutation.strikes(Mutation::Panic, &mut self.rng) {
            endpoint.sink_write(sink, sink.len(), &[0]);
        }
        if self.rng.chance(30) {
            endpoint.sink_write(sink, at, &data);
            return data.len();
        }
        let mut stored = 0;
        while stored < data.len() {
            stored += endpoint.sink_slices(sink, at + stored as u32, |slices| {
                let mut rest = &data[stored..];
                for slice in slices {
                    let here = rest.len().min(slice.len());
                    slice[..here].copy_from_slice(&rest[..here]);
                    rest = &rest[here..];
                }
                data.len() - stored - rest.len()
            });
        }
        stored
    }

    fn begin_frame(
        &mut self,
        link: usize,
        side: usize,
        header: &Header,
        frame: Frame,
    ) -> Result<Sink, String> {
        let (process, peer) = (self.links[link].ends[side], self.links[link].ends[1 - side]);
        let (from, strand) = (ProcId(peer as u32), self.links[link].strand);
        trace!(self, "p{process} reads from p{peer} on {strand} {} {frame:?}", header.seq);
        let payload = u64::from(header.payload_len());
        match frame {
            Frame::Envelope(envelope) => {
                self.envelope_arrives(peer, process, &envelope);
                self.payload_comes(peer, process, envelope.message, payload);
            }
            Frame::Data { message, offset } => {
                self.payload_comes(peer, process, message, offset.saturating_add(payload));
            }
            _ => {}
        }
        let frame = match frame {
            Frame::Credit { .. } if self.mutation == Mutation::LoseCredit => {
                Frame::Credit { envelopes: 0, bytes: 0 }
            }
            other => other,
        };
        let sink = self.processes[process].endpoint.frame(from, strand, header, frame);
        while let Some((_, strand)) = self.processes[process].endpoint.overtaken() {
            self.end_overtaken(process, peer, strand);
        }
        sink.map_err(|error| error.to_string())
    }

    /// The peer has lost a connection that `process` still reads: it reads no more from it.
    fn end_overtaken(&mut self, process: usize, peer: usize, strand: Strand) {
        let link = self.links_of(process, peer).find(|&link| self.links[link].strand == strand);
        let link = link.expect("a connection of the two");
        if self.links[link].state == LinkState::Up {
            self.rules.fail(format!("p{peer} writes a frame on {strand} and on another"));
        }
        self.notice(link, self.links[link].side(process));
    }

    /// An envelope that was not there yet: messages of a pair arrive in the order of sending.
    fn envelope_arrives(&mut self, from: usize, to: usize, envelope: &Envelope) {
        let count = self.arrived.entry((from, to)).or_default();
        if envelope.message <= *count {
            return;
        }
        *count += 1;
        let sent = self.pairs.get(&(from, to)).and_then(|all| all.get(*count as usize - 1));
        let Some(&message) = sent else {
            return self.rules.fail(format!("p{from} never sent {envelope:?} to p{to}"));
        };
        let m = &self.rules.messages[message];
        let context = self.plan.comms[m.comm].context;
        let right = (envelope.context, envelope.source.0, envelope.tag, envelope.len)
            == (context, m.source, m.tag, m.len as u64);
        if !right || envelope.message != *count {
            return self.rules.fail(format!("{envelope:?} is not message {message}"));
        }
        self.rules.arrived(message);
        self.processes[to].stirred = true;
    }

    /// Of a message bytes up to `end` come.
    fn payload_comes(&mut self, from: usize, to: usize, number: u64, end: u64) {
        let sent = self.pairs.get(&(from, to));
        let message = sent.and_then(|all| all.get(number.checked_sub(1)? as usize)).copied();
        if let Some(message) = message {
            self.rules.reached(message, end);
        }
    }

    /// What a peer has here unmatched is within its credit, by our own count.
    fn check_bounds(&self, process: usize, peer: usize) -> Result<(), String> {
        let config = &self.plan.config;
        let Unmatched { messages, bytes } = self.rules.unmatched_of(peer, process);
        if bytes > config.credit_bytes || messages > MOST_GRANTS * config.credit_envelopes {
            return Err(format!("p{peer} has {messages} messages, {bytes} bytes at p{process}"));
        }
        Ok(())
    }

    /// Whether a message may rightly be with its sender though it is waited for: so much of what was sent before it is unmatched
    /// that its receiver lends no more.
    pub fn is_held_back(&self, message: MessageIndex) -> bool {
        let m = &self.rules.messages[message];
        let had = self.rules.unmatched_of(m.from, m.to).messages;
        m.place == Where::Flying && had >= MOST_GRANTS * self.plan.config.credit_envelopes
    }

    /// Whether the two ends have ever been connected, by pairs of processes.
    pub fn connected_pairs(&self) -> impl Iterator<Item = [usize; 2]> {
        let used = self.links.iter().filter(|link| link.epoch > 0);
        used.map(|link| link.ends).flat_map(|[a, b]| [[a, b], [b, a]])
    }
}

/// How many more bytes a header with fields needs.
fn head_wanted(head: &[u8]) -> Result<usize, String> {
    let Some(header) = head.first_chunk::<HEADER_LEN>() else {
        return Ok(HEADER_LEN - head.len());
    };
    let header = Header::decode(header).map_err(|error| error.to_string())?;
    Ok(header.head_len() - head.len())
}
