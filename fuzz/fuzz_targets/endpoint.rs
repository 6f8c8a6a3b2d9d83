//! An endpoint between a program and an authenticated peer that says anything.
#![no_main]

use arbitrary::Arbitrary;
use gridmpi_buffer::{Layout, RecvBuffer, SendBuffer};
use gridmpi_engine::{Config, Endpoint, Mode, Patience, RequestId, Source, TagMatch};
use gridmpi_wire::{
    Carries, ContextId, Demand, Envelope, Frame, Grant, Header, Limit, Part, ProcId, Rank, Seen,
    Share, Start, Strand, Transfer, parse,
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const PEER: ProcId = ProcId(1);
const CHUNK: u32 = 512;
const STRANDS: usize = 3;

/// What the program sends from.
static MEMORY: [u8; 1 << 16] = [3; 1 << 16];

/// So many bytes of the program's.
fn lent(len: u16) -> SendBuffer {
    // SAFETY: it lives for ever, and nobody writes to it.
    unsafe { SendBuffer::from_user(MEMORY.as_ptr(), len.into(), Arc::new(Layout::bytes(1))) }
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A frame that is nearly right.
    Frame {
        what: What,
        payload: u16,
        strand: u8,
        seq: i8,
        acks: bool,
        is_cut: bool,
    },
    /// Bytes as they come.
    Bytes(u8, Vec<u8>),
    Send {
        len: u16,
        tag: u8,
        mode: u8,
    },
    Receive {
        is_any: bool,
        tag: Option<u8>,
        capacity: u16,
    },
    Probe {
        tag: Option<u8>,
        claim: bool,
        capacity: u16,
    },
    Cancel {
        index: u8,
    },
    Take {
        index: u8,
    },
    Detach {
        index: u8,
    },
    Transmit {
        strand: u8,
        max: u16,
        accept: u16,
    },
    Reconnect {
        strand: u8,
        wanted: i8,
    },
    Tick {
        is_long: bool,
    },
    Close,
}

#[derive(Arbitrary, Debug)]
enum What {
    Envelope {
        context: bool,
        source: u8,
        tag: u8,
        message: i8,
        len: u64,
        eager: u64,
        is_small: bool,
        synchronous: bool,
    },
    Data {
        message: u8,
        offset: u32,
    },
    /// Data that goes on where the last Data or Envelope ended.
    Next,
    ClearToSend {
        message: u8,
    },
    Matched {
        message: u8,
    },
    Credit {
        envelopes: u8,
        bytes: u16,
    },
    Close,
    Ack,
    Ping,
    Pong,
    Transfer {
        from: u32,
        to: u32,
        is_active: bool,
    },
    Grant {
        cluster: u32,
        rate: u64,
        node: u64,
        is_settled: bool,
        is_quiet: bool,
    },
    Share {
        to: u32,
        share: u32,
    },
    Start {
        cluster: u32,
        rate: u64,
        link: u64,
    },
    Part {
        from: u32,
        to: u32,
        process: u32,
        is_active: bool,
    },
    Limit {
        process: u32,
        cluster: u32,
        rate: u64,
    },
    Carries {
        cluster: u32,
        rate: u64,
    },
    Demand {
        cluster: u32,
        rate: u64,
    },
    Seen {
        cluster: u32,
        arrived: u64,
        resent: u64,
        queued: u32,
    },
}

struct Model {
    endpoint: Endpoint,
    /// With whether it may wait for others than the peer.
    requests: Vec<(RequestId, bool)>,
    /// Of each connection the number of frames that our side has written whole, and the bytes after them.
    out: [(u64, Vec<u8>); STRANDS],
    /// The highest number written.
    top: u64,
    /// How many frames of `Data` have come since the last of the others.
    data_before: u16,
    /// Messages the peer has begun, and where the last one stands.
    messages: u64,
    offset: u64,
}

/// What the peer did is not allowed: the end.
struct Misbehaved;

fn strand(number: u8) -> Strand {
    Strand::new(number as usize % STRANDS).expect("below the bound")
}

fn tag_match(tag: Option<u8>) -> TagMatch {
    tag.map_or(TagMatch::Any, |tag| TagMatch::Is((tag % 4).into()))
}

impl Model {
    fn new() -> Self {
        let mut config = Config::new(ProcId(0));
        config.credit_bytes = 16 << 10;
        config.eager_limit = 16 << 10;
        config.credit_envelopes = 16;
        config.chunk = CHUNK;
        // Whatever is not copied at once may have to wait for acknowledgements.
        config.copy_limit = 64;
        config.tail_limit = 2 << 10;
        let mut endpoint = Endpoint::new(config);
        endpoint.connected(PEER, Strand::FIRST, 1).expect("the first frame exists");
        let (requests, out) = (Vec::new(), Default::default());
        Self { endpoint, requests, out, top: 0, data_before: 0, messages: 0, offset: 0 }
    }

    fn frame_of(&mut self, what: What) -> Frame {
        match what {
            What::Envelope { context, source, tag, message, len, eager, is_small, synchronous } => {
                let len = if is_small { len % 4096 } else { len };
                let eager = if is_small { eager % (len + 1) } else { eager.min(len) };
                let message =
                    (self.messages + 1).saturating_add_signed((message / 100).into()).max(1);
                Frame::Envelope(Envelope {
                    context: if context { ContextId::WORLD } else { ContextId(4) },
                    source: Rank(u32::from(source % 2)),
                    tag: (tag % 4).into(),
                    message,
                    len,
                    eager,
                    synchronous,
                })
            }
            What::Data { message, offset } => {
                Frame::Data { message: u64::from(message).max(1), offset: offset.into() }
            }
            What::Next => Frame::Data { message: self.messages.max(1), offset: self.offset },
            What::ClearToSend { message } => {
                Frame::ClearToSend { message: u64::from(message).max(1) }
            }
            What::Matched { message } => Frame::Matched { message: u64::from(message).max(1) },
            What::Credit { envelopes, bytes } => {
                Frame::Credit { envelopes: envelopes.into(), bytes: bytes.into() }
            }
            What::Close => Frame::Close,
            What::Ack => Frame::Ack,
            What::Ping => Frame::Ping,
            What::Pong => Frame::Pong,
            What::Transfer { from, to, is_active } => {
                Frame::Transfer(Transfer { from, to, is_active })
            }
            What::Grant { cluster, rate, node, is_settled, is_quiet } => {
                Frame::Grant(Grant { cluster, rate, node, is_settled, is_quiet })
            }
            What::Share { to, share } => Frame::Share(Share { to, share }),
            What::Start { cluster, rate, link } => Frame::Start(Start { cluster, rate, link }),
            What::Part { from, to, process, is_active } => {
                Frame::Part(Part { from, to, process, is_active })
            }
            What::Limit { process, cluster, rate } => {
                Frame::Limit(Limit { process, cluster, rate })
            }
            What::Carries { cluster, rate } => Frame::Carries(Carries { cluster, rate }),
            What::Demand { cluster, rate } => Frame::Demand(Demand { cluster, rate }),
            What::Seen { cluster, arrived, resent, queued } => {
                Frame::Seen(Seen { cluster, arrived, resent, queued })
            }
        }
    }

    fn frame(
        &mut self,
        what: What,
        payload: u16,
        strand: Strand,
        (seq, acks, is_cut): (i8, bool, bool),
    ) -> Result<(), Misbehaved> {
        let frame = self.frame_of(what);
        let kind = frame.kind();
        let payload = match frame {
            Frame::Envelope(envelope) => u64::from(payload).min(envelope.eager) as u32,
            Frame::Data { .. } => u32::from(payload).max(1),
            _ => 0,
        };
        let expects = self.endpoint.expects(PEER);
        let seq = if kind.is_sequenced() {
            expects.saturating_add_signed((seq / 60).into()).max(1)
        } else {
            0
        };
        let ack = if acks { self.out[strand.index()].0 } else { 0 };
        let data_before = if kind.is_ordered() { self.data_before } else { 0 };
        let bytes = frame.encode_behind(data_before, seq, ack, payload);
        let parsed = parse(&bytes).ok().flatten().ok_or(Misbehaved)?;
        self.deliver(strand, &parsed.header, parsed.frame, is_cut)?;
        if !is_cut && seq == expects {
            self.data_before =
                if kind.is_ordered() { 0 } else { self.data_before.saturating_add(1) };
        }
        match frame {
            Frame::Envelope(envelope) if !is_cut && seq == expects => {
                (self.messages, self.offset) = (envelope.message, payload.into());
            }
            Frame::Data { .. } if !is_cut && seq == expects => self.offset += u64::from(payload),
            _ => {}
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        strand: Strand,
        header: &Header,
        frame: Frame,
        is_cut: bool,
    ) -> Result<(), Misbehaved> {
        let len = header.payload_len();
        let sink = self.endpoint.frame(PEER, strand, header, frame).map_err(|_| Misbehaved)?;
        assert_eq!(sink.len(), len);
        let half = len / 2;
        self.endpoint.sink_write(&sink, 0, &vec![7; half as usize]);
        if is_cut {
            self.reconnect(strand, 0)?;
            return Ok(());
        }
        let mut at = half;
        while at < len {
            let count = self.endpoint.sink_slices(&sink, at, |slices| {
                let mut count = 0;
                for slice in slices {
                    slice.fill(8);
                    count += slice.len() as u32;
                }
                count
            });
            assert!(count <= len - at);
            if count == 0 {
                self.endpoint.sink_write(&sink, at, &vec![7; (len - at) as usize]);
                break;
            }
            at += count;
        }
        self.endpoint.frame_end(PEER, sink).map_err(|_| Misbehaved)
    }

    fn reconnect(&mut self, strand: Strand, wanted: i8) -> Result<(), Misbehaved> {
        self.endpoint.disconnected(PEER, strand);
        self.out[strand.index()] = Default::default();
        // Mostly what must be good: it need not know what was said since.
        let wanted = if wanted < 100 {
            1
        } else {
            (self.top + 1).saturating_add_signed(i64::from(wanted) - 120)
        };
        self.endpoint.connected(PEER, strand, wanted).map_err(|_| Misbehaved)
    }

    fn transmit(&mut self, strand: Strand, max: u16, accept: u16) {
        let (written, out) = &mut self.out[strand.index()];
        let mut peers = Vec::new();
        self.endpoint.wants_transmit(&mut peers);
        let mut room = usize::from(accept);
        let write = |slices: &[std::io::IoSlice<'_>]| {
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            assert_ne!(offered, 0);
            let count = offered.min(room);
            room -= count;
            let bytes = slices.iter().flat_map(|slice| slice.iter().copied());
            out.extend(bytes.take(count));
            if count == 0 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        };
        self.endpoint.transmit(PEER, strand, max.into(), write).expect("the model does not fail");
        while let Some(parsed) = parse(out).expect("our own frames are good") {
            let header = parsed.header;
            let len = header.head_len() + header.payload_len() as usize;
            if out.len() < len {
                break;
            }
            out.drain(..len);
            *written += u64::from(header.seq > 0);
            self.top = self.top.max(header.seq);
        }
    }

    fn index(&self, index: u8) -> Option<usize> {
        (!self.requests.is_empty()).then(|| index as usize % self.requests.len())
    }

    fn step(&mut self, step: Step) -> Result<(), Misbehaved> {
        match step {
            Step::Frame { what, payload, strand: number, seq, acks, is_cut } => {
                self.frame(what, payload, strand(number), (seq, acks, is_cut))?;
            }
            Step::Bytes(number, bytes) => match parse(&bytes) {
                Ok(Some(parsed)) => {
                    self.deliver(strand(number), &parsed.header, parsed.frame, false)?;
                }
                Ok(None) => {}
                Err(_) => return Err(Misbehaved),
            },
            Step::Send { len, tag, mode } => {
                let mode = [Mode::Standard, Mode::Synchronous, Mode::Buffered][mode as usize % 3];
                let buffer = lent(len);
                let tag = i32::from(tag % 4);
                let context = ContextId::WORLD;
                let request = self.endpoint.send(PEER, context, Rank(0), tag, mode, buffer);
                self.requests.push((request, false));
            }
            Step::Receive { is_any, tag, capacity } => {
                let source = if is_any { Source::Any } else { Source::Remote(Rank(1), PEER) };
                let buffer = RecvBuffer::owned((capacity % 8192).into());
                let (context, tag) = (ContextId::WORLD, tag_match(tag));
                let request = self.endpoint.receive(context, source, tag, buffer);
                self.requests.push((request, is_any));
            }
            Step::Probe { tag, claim, capacity } => {
                let (context, source) = (ContextId::WORLD, Source::Any);
                let probed = self.endpoint.probe(context, source, tag_match(tag));
                if claim {
                    let claimed = self.endpoint.claim(context, source, tag_match(tag));
                    assert_eq!(claimed.map(|(_, probed)| probed), probed);
                    if let Some((message, _)) = claimed {
                        let buffer = RecvBuffer::owned((capacity % 8192).into());
                        let request = self.endpoint.receive_claimed(message, buffer);
                        self.requests.push((request, false));
                    }
                }
            }
            Step::Cancel { index } => {
                if let Some(index) = self.index(index) {
                    self.endpoint.cancel(self.requests[index].0);
                }
            }
            Step::Take { index } => {
                if let Some(index) = self.index(index)
                    && self.endpoint.take(self.requests[index].0).is_some()
                {
                    self.requests.swap_remove(index);
                }
            }
            Step::Detach { index } => {
                if let Some(index) = self.index(index) {
                    self.endpoint.detach(self.requests.swap_remove(index).0);
                }
            }
            Step::Transmit { strand: number, max, accept } => {
                self.transmit(strand(number), max, accept);
            }
            Step::Reconnect { strand: number, wanted } => {
                self.reconnect(strand(number), wanted)?;
            }
            Step::Tick { is_long } => {
                self.endpoint.tick(Patience::ALL[usize::from(is_long)]);
            }
            Step::Close => self.endpoint.close(),
        }
        Ok(())
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut model = Model::new();
    let mut is_closed = false;
    for step in steps {
        // A program sends nothing after MPI_Finalize.
        if is_closed && matches!(step, Step::Send { .. }) {
            continue;
        }
        is_closed |= matches!(step, Step::Close);
        if model.step(step).is_err() {
            break;
        }
    }
    model.endpoint.peer_lost(PEER, "the end");
    for (request, is_any) in model.requests {
        assert!(is_any || model.endpoint.peek(request).is_some(), "a request outlives its peer");
    }
});
