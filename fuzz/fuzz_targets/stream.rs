//! A stream and a far side that says anything.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use gridmpi_buffer::SendBuffer;
use gridmpi_trunk::{Bounds, Patience, Receive, Stream};
use gridmpi_wire::{ContextId, Envelope, Frame, Header, Kind, MAX_PAYLOAD, Rank, Strand};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Push {
        len: u16,
        is_ordered: bool,
    },
    Transmit {
        strand: u8,
        max: u16,
        accept: u32,
        behind: u32,
    },
    Receive {
        strand: u8,
        kind: u8,
        payload: u32,
        seq: i8,
        data_before: u8,
        ack: u8,
        is_whole: bool,
    },
    Resume {
        strand: u8,
        wanted: u8,
    },
    Disconnect {
        strand: u8,
    },
    Rate {
        strand: u8,
        rate: u16,
    },
    Tick {
        is_long: bool,
    },
    Ping,
    Own {
        message: u8,
    },
}

fn check(stream: &Stream) {
    assert!(stream.acknowledged() <= stream.written());
    assert!(stream.written() < stream.next_seq());
    assert!(stream.waiting_bytes() <= stream.queued_bytes());
    assert!(stream.queued_bytes() <= stream.unacknowledged_bytes());
    assert_eq!(stream.is_drained(), stream.acknowledged() + 1 == stream.next_seq());
    assert!(stream.is_connected() || !stream.wants_transmit());
}

/// Mostly one of a few.
fn strand(number: u8) -> Strand {
    Strand::new(usize::from(number) % 5 * usize::from(number % 3)).expect("below the bound")
}

fn push(stream: &mut Stream, opening: &mut u64, len: u16, is_ordered: bool) {
    let payload = SendBuffer::from_bytes(Bytes::from(vec![1; usize::from(len).max(1)]));
    let (message, eager) = (stream.next_seq(), payload.len());
    if is_ordered {
        let (context, source) = (ContextId::WORLD, Rank(0));
        let (tag, len, synchronous) = (0, eager, false);
        let envelope = Envelope { context, source, tag, message, len, eager, synchronous };
        *opening = stream.push(Frame::Envelope(envelope), payload);
    } else {
        stream.push_data(Frame::Data { message, offset: 0 }, payload, *opening);
    }
}

fn step(stream: &mut Stream, opening: &mut u64, step: Step) -> Option<()> {
    match step {
        Step::Push { len, is_ordered } => push(stream, opening, len, is_ordered),
        Step::Transmit { strand: number, max, accept, behind } => {
            let write = |slices: &[std::io::IoSlice<'_>]| {
                let offered: usize = slices.iter().map(|slice| slice.len()).sum();
                assert_ne!(offered, 0);
                match offered.min(accept as usize) {
                    0 => Err(std::io::ErrorKind::WouldBlock.into()),
                    count => Ok(count),
                }
            };
            stream.transmit(strand(number), max.into(), behind.into(), write).ok()?;
        }
        Step::Receive { strand: number, kind, payload, seq, data_before, ack, is_whole } => {
            let kind = Kind::ALL[kind as usize % Kind::ALL.len()];
            let payload = if kind.has_payload() { payload % (MAX_PAYLOAD + 1) } else { 0 };
            let seq = stream.expects().saturating_add_signed(seq.into()).max(1);
            let seq = if kind.is_sequenced() { seq } else { 0 };
            let body_len = kind.fields_len() as u32 + payload;
            let data_before = if kind.is_ordered() { data_before.into() } else { 0 };
            let header = Header { kind, body_len, seq, data_before, ack: ack.into() };
            let receive = stream.receive(strand(number), &header).ok()?;
            let before = stream.expects();
            if receive != Receive::Control && is_whole {
                let is_new = stream.received(strand(number), &header).ok()?;
                assert_eq!(is_new, receive == Receive::Deliver);
                assert_eq!(stream.expects() > before, is_new && seq == before);
                assert_eq!(stream.receive(strand(number), &header), Ok(Receive::Duplicate));
            }
        }
        Step::Resume { strand: number, wanted } => {
            stream.resume(strand(number), wanted.into()).ok()?;
        }
        Step::Disconnect { strand: number } => stream.disconnect(strand(number)),
        Step::Rate { strand: number, rate } => stream.set_rate(strand(number), rate.into()),
        Step::Tick { is_long } => {
            let is_due = stream.tick(Patience::ALL[usize::from(is_long)]);
            assert!(!is_due || stream.wants_transmit());
        }
        Step::Ping => stream.ping(),
        Step::Own { message } => stream.own_message(message.into()),
    }
    Some(())
}

fuzz_target!(|steps: Vec<Step>| {
    let mut stream = Stream::new(Bounds { early: 2000, away: 6 });
    let mut opening = 0;
    for next in steps {
        if step(&mut stream, &mut opening, next).is_none() {
            return;
        }
        check(&stream);
    }
});
