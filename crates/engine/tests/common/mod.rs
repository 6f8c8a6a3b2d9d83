//! Two endpoints and a wire between them that keeps everything until it is carried.
#![allow(dead_code)] // each test file uses its part

use bytes::Bytes;
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_engine::{
    Bounds, Completion, Config, Endpoint, LocalMatch, Mode, PeerMisbehaved, Progress, RequestId,
    Source, TagMatch,
};
use gridmpi_wire::{ContextId, ProcId, Rank, Strand, parse};
use std::collections::VecDeque;

pub const A: ProcId = ProcId(0);
pub const B: ProcId = ProcId(1);
pub const ONE: Strand = Strand::FIRST;
pub const CONTEXT: ContextId = ContextId::WORLD;

/// Limits so small that every mechanism is at work.
pub fn small(me: ProcId) -> Config {
    Config {
        eager_limit: 200,
        credit_bytes: 200,
        credit_envelopes: 4,
        chunk: 16,
        bounds: Bounds { early: 700, away: 4 },
        ..Config::new(me)
    }
}

pub struct Pair {
    pub a: Endpoint,
    pub b: Endpoint,
}

impl Pair {
    pub fn new(config: fn(ProcId) -> Config) -> Self {
        let (a, b) = (Endpoint::new(config(A)), Endpoint::new(config(B)));
        let mut pair = Self { a, b };
        pair.connect();
        pair
    }

    pub fn connect(&mut self) {
        let (a, b) = (self.a.expects(B), self.b.expects(A));
        self.a.connected(B, ONE, b).unwrap();
        self.b.connected(A, ONE, a).unwrap();
    }

    /// Carries bytes both ways until none are left.
    pub fn carry(&mut self) {
        loop {
            let (out, back) = (written(&mut self.a, B), written(&mut self.b, A));
            if out.is_empty() && back.is_empty() {
                return;
            }
            read(&mut self.b, A, &out).unwrap();
            read(&mut self.a, B, &back).unwrap();
        }
    }

    pub fn send(&mut self, tag: i32, mode: Mode, data: &[u8]) -> RequestId {
        self.a.send(B, CONTEXT, Rank(0), tag, mode, bytes(data))
    }

    pub fn receive(&mut self, tag: i32, capacity: u64) -> RequestId {
        let source = Source::Remote(Rank(0), A);
        self.b.receive(CONTEXT, source, TagMatch::Is(tag), RecvBuffer::owned(capacity))
    }
}

pub fn bytes(data: &[u8]) -> SendBuffer {
    SendBuffer::from_bytes(Bytes::copy_from_slice(data))
}

/// Everything that `endpoint` wants to write to `peer` now.
pub fn written(endpoint: &mut Endpoint, peer: ProcId) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let progress = endpoint.transmit(peer, ONE, 1 << 16, |slices| {
            slices.iter().for_each(|slice| out.extend_from_slice(slice));
            Ok(slices.iter().map(|slice| slice.len()).sum())
        });
        if progress.unwrap() == Progress::Idle {
            return out;
        }
    }
}

/// Feeds whole frames to `endpoint` as from `peer`; an unfinished one at the end is left begun.
pub fn read(endpoint: &mut Endpoint, peer: ProcId, mut bytes: &[u8]) -> Result<(), PeerMisbehaved> {
    while let Some(parsed) = parse(bytes).unwrap() {
        let len = parsed.header.payload_len();
        bytes = &bytes[parsed.header.head_len()..];
        let sink = endpoint.frame(peer, ONE, &parsed.header, parsed.frame)?;
        let mut at = 0;
        while at < len && !bytes.is_empty() {
            let copied = endpoint.sink_slices(&sink, at, |slices| {
                let here = bytes.len().min(slices[0].len());
                slices[0][..here].copy_from_slice(&bytes[..here]);
                here
            });
            bytes = &bytes[copied..];
            at += copied as u32;
        }
        if at < len {
            return Ok(());
        }
        endpoint.frame_end(peer, sink)?;
    }
    Ok(())
}

pub fn received(endpoint: &mut Endpoint, request: RequestId) -> Option<(Completion, Vec<u8>)> {
    let (completion, buffer) = endpoint.take_with_buffer(request)?;
    let mut data = buffer.and_then(RecvBuffer::into_bytes).unwrap_or_default().to_vec();
    data.truncate(completion.len as usize);
    Some((completion, data))
}

/// A vendor with a queue of messages (source, tag) that tells what it gave to whom.
#[derive(Default)]
pub struct Vendor {
    pub queue: VecDeque<(Rank, i32)>,
    pub given: Vec<(RequestId, Rank, i32)>,
    pub posted: Vec<(RequestId, Rank, TagMatch)>,
    /// Messages that come after so many more calls.
    pub later: VecDeque<(usize, Rank, i32)>,
}

impl Vendor {
    fn find(&mut self, source: Option<Rank>, tag: TagMatch) -> Option<usize> {
        while let Some((0, source, tag)) = self.later.front().copied() {
            self.later.pop_front();
            self.queue.push_back((source, tag));
        }
        if let Some(next) = self.later.front_mut() {
            next.0 -= 1;
        }
        let fits = |m: &(Rank, i32)| source.is_none_or(|s| s == m.0) && tag.accepts(m.1);
        self.queue.iter().position(fits)
    }
}

impl LocalMatch for Vendor {
    fn iprobe(&mut self, _: ContextId, source: Option<Rank>, tag: TagMatch) -> Option<(Rank, i32)> {
        self.find(source, tag).map(|at| self.queue[at])
    }

    fn improbe_receive(
        &mut self,
        request: RequestId,
        _: ContextId,
        source: Option<Rank>,
        tag: TagMatch,
    ) -> Option<(Rank, i32)> {
        let at = self.find(source, tag)?;
        let (source, tag) = self.queue.remove(at)?;
        self.given.push((request, source, tag));
        Some((source, tag))
    }

    fn post(&mut self, request: RequestId, _: ContextId, source: Rank, tag: TagMatch) {
        self.posted.push((request, source, tag));
    }
}
