use super::*;
use gridmpi_wire::{ContextId, Rank};

const A: ProcId = ProcId(0);

fn envelope(message: u64, len: u64, eager: u64) -> Envelope {
    let (context, source) = (ContextId::WORLD, Rank(0));
    Envelope { context, source, tag: 1, message, len, eager, synchronous: false }
}

/// How often the heap of an unexpected message grows while its bytes come one by one.
#[test]
fn a_heap_grows_seldom_however_short_the_frames_and_never_beyond_what_may_come() {
    let unexpected = || Place::Unexpected { handle: 0, heap: RecvBuffer::empty() };
    for eager in [1, 2, 3000, 4096, 5000] {
        let mut incoming = Incoming::new(A, envelope(1, 10_000, eager), unexpected());
        let mut growths = 0;
        for len in 1..=eager {
            let before = incoming.buffer().capacity();
            incoming.make_room(len);
            let after = incoming.buffer().capacity();
            assert!(len <= after && after <= eager, "{after} for {len} of {eager}");
            growths += u32::from(after != before);
        }
        assert!(growths <= 14, "{growths} times for {eager} bytes");
        assert_eq!(incoming.reached, eager);
    }
    // Of long ones it takes a block at a time.
    let mut incoming = Incoming::new(A, envelope(1, 16 << 20, 16 << 20), unexpected());
    let mut growths = 0;
    for len in (1..=16 << 20).step_by(1000).chain([16 << 20]) {
        let before = incoming.buffer().capacity();
        incoming.make_room(len);
        let after = incoming.buffer().capacity();
        assert!(after <= len + MOST_AHEAD);
        growths += u32::from(after != before);
    }
    assert!(growths <= 18 + 64, "{growths} times");
}
