//! A stream and a far side that says anything.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use gridmpi_buffer::SendBuffer;
use gridmpi_trunk::{Receive, Stream};
use gridmpi_wire::{Frame, Header, Kind, MAX_PAYLOAD};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Push { len: u16 },
    Transmit { max: u16, accept: u32 },
    Receive { kind: u8, payload: u32, seq: i8, ack: u8, is_whole: bool },
    Resume { wanted: u8 },
    Disconnect,
    Tick,
    Ping,
    Own { message: u8 },
}

fn check(stream: &Stream) {
    assert!(stream.acknowledged() <= stream.written());
    assert!(stream.written() < stream.next_seq());
    assert!(stream.queued_bytes() <= stream.unacknowledged_bytes());
    assert_eq!(stream.is_drained(), stream.acknowledged() + 1 == stream.next_seq());
    assert!(stream.is_connected() || !stream.wants_transmit());
}

fn step(stream: &mut Stream, step: Step) -> Option<()> {
    match step {
        Step::Push { len } => {
            let frame = Frame::Data { message: stream.next_seq(), offset: 0 };
            let payload = Bytes::from(vec![1; usize::from(len).max(1)]);
            stream.push(frame, SendBuffer::from_bytes(payload));
        }
        Step::Transmit { max, accept } => {
            let write = |slices: &[std::io::IoSlice<'_>]| {
                let offered: usize = slices.iter().map(|slice| slice.len()).sum();
                assert_ne!(offered, 0);
                match offered.min(accept as usize) {
                    0 => Err(std::io::ErrorKind::WouldBlock.into()),
                    count => Ok(count),
                }
            };
            stream.transmit(max.into(), write).ok()?;
        }
        Step::Receive { kind, payload, seq, ack, is_whole } => {
            let kind = Kind::ALL[kind as usize % Kind::ALL.len()];
            let payload = if kind.has_payload() { payload % (MAX_PAYLOAD + 1) } else { 0 };
            let seq = stream.expects().saturating_add_signed(seq.into()).max(1);
            let seq = if kind.is_sequenced() { seq } else { 0 };
            let body_len = kind.fields_len() as u32 + payload;
            let header = Header { kind, body_len, seq, ack: ack.into() };
            let receive = stream.receive(&header).ok()?;
            if receive == Receive::Deliver && is_whole {
                stream.received(&header);
                assert_eq!(stream.expects(), seq + 1);
            }
        }
        Step::Resume { wanted } => stream.resume(wanted.into()).ok()?,
        Step::Disconnect => stream.disconnect(),
        Step::Tick => assert!(!stream.tick() || stream.wants_transmit()),
        Step::Ping => stream.ping(),
        Step::Own { message } => stream.own_message(message.into()),
    }
    Some(())
}

fuzz_target!(|steps: Vec<Step>| {
    let mut stream = Stream::new();
    for next in steps {
        if step(&mut stream, next).is_none() {
            return;
        }
        check(&stream);
    }
});
