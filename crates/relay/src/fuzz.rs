//! Entry points for fuzzing: whatever comes from outside must end in a value or an error, and leave the books right.

use std::ops::Range;
use std::time::Duration;

use gridmpi_wire::{CircuitId, Errand, LegNotice, LegRequest, ProcId, RelayAddress};

use crate::cell::{Cell, Item, Parser, RelayId};
use crate::core::{Action, Core, Limits, LinkKey, Piece, Pull, Pushed, Wire, Wires};

/// Bytes of a connection between relays, in two pieces: what is taken apart is well formed, and the same however it is cut.
pub fn cells(bytes: &[u8]) {
    let (Some((&first, bytes)), whole) =
        (bytes.split_first(), read(&[bytes.get(1..).unwrap_or_default()]))
    else {
        return;
    };
    let (one, two) = bytes.split_at(usize::from(first).min(bytes.len()));
    assert_eq!(read(&[one, two]), whole);
}

/// A circuit, and a cell or bytes.
type Seen = (u32, Option<Cell>, Vec<u8>);

/// What the pieces hold: cells, and the bytes of circuits one by one; and whether it ended in an error.
fn read(pieces: &[&[u8]]) -> (Vec<Seen>, bool) {
    let (mut parser, mut all) = (Parser::default(), Vec::<Seen>::new());
    for piece in pieces {
        let mut at = 0;
        loop {
            match parser.next(piece, &mut at) {
                Ok(None) => break,
                Ok(Some(Item::Cell(circuit, cell))) => {
                    let mut bytes = Vec::new();
                    cell.encode(circuit, &mut bytes);
                    let again = Parser::default().next(&bytes, &mut 0);
                    assert_eq!(again, Ok(Some(Item::Cell(circuit, cell.clone()))));
                    all.push((circuit, Some(cell), Vec::new()));
                }
                Ok(Some(Item::Data(circuit, range))) => {
                    let data = piece.get(range).unwrap_or_default();
                    assert!(!data.is_empty());
                    match all.last_mut() {
                        Some((before, None, bytes)) if *before == circuit => {
                            bytes.extend_from_slice(data)
                        }
                        _ => all.push((circuit, None, data.to_vec())),
                    }
                }
                Err(_) => return (all, true),
            }
        }
    }
    (all, false)
}

/// Everything outside a relay, which gives and takes as the fuzzer pleases.
#[derive(Default)]
struct Outside {
    pulled: Vec<u8>,
    is_pushed: bool,
    /// How much legs give, and how much they take.
    give: usize,
    take: usize,
    notices: Vec<CircuitId>,
    /// Connections that the relay has closed.
    closed: Vec<Wire>,
}

impl Wires for Outside {
    fn pull(&mut self, _: Wire, most: usize) -> Pull {
        if std::mem::take(&mut self.is_pushed) {
            self.pulled.clear();
        }
        let count = most.min(self.give);
        match self.give {
            0 => Pull::Empty,
            1 => Pull::End,
            2 => Pull::Failed,
            _ => {
                let start = self.pulled.len();
                self.pulled.resize(start + count, 7);
                self.give = 0;
                Pull::Bytes { range: start..start + count, is_last: count.is_multiple_of(2) }
            }
        }
    }

    fn pulled(&self, range: Range<usize>) -> &[u8] {
        self.pulled.get(range).expect("what was pulled")
    }

    fn push(&mut self, wire: Wire, pieces: &[Piece<'_>]) -> Pushed {
        self.is_pushed = true;
        let count = pieces.iter().map(Piece::len).sum();
        // The first two are relays.
        let bytes = if wire.0 < 2 { count } else { self.take.min(count) };
        self.take = self.take.saturating_sub(count);
        Pushed { bytes, is_blocked: self.take == 0 }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Notice(_, LegNotice::Called { circuit, .. }) => self.notices.push(circuit),
            Action::Close(wire) | Action::Reset(wire) | Action::Dead(wire) | Action::Deaf(wire) => {
                self.closed.push(wire)
            }
            Action::Notice(_, LegNotice::Beside(_)) | Action::Answer(..) | Action::Shutdown(_) => {}
        }
    }
}

const JOB: [u8; 16] = [0; 16];

/// A relay between two others that send any bytes and processes that do anything.
pub fn core(bytes: &[u8]) {
    let limits =
        Limits { memory: 300_000, circuits: 20, routes: 5, cells: 1000, ..Limits::default() };
    let (mut core, mut outside) = (Core::new(RelayId([1; 16]), limits), Outside::default());
    let mut now = Duration::ZERO;
    let peer = |n: usize| {
        let name = RelayId([2 + n as u8; 16]);
        (name, name.into())
    };
    let mut trunks = [0, 1].map(|n| Some(core.trunk_up(Wire(n as u64), peer(n), n == 0, None)));
    let mut legs: Vec<LinkKey> = Vec::new();
    let mut next = 2;
    let mut ask = |core: &mut Core, legs: &mut Vec<LinkKey>, from: u32, errand| {
        next += 1;
        let request = LegRequest { errand, job: JOB, from: ProcId(from), mac: [0; 32] };
        legs.extend(core.ask(Wire(next), &request));
    };
    ask(&mut core, &mut legs, 0, Errand::Register { first: ProcId(0), count: 2 });
    let mut rest = bytes;
    while let Some(([what, amount], behind)) = rest.split_first_chunk::<2>() {
        rest = behind;
        let amount = usize::from(*amount);
        let leg = legs.get(amount.checked_rem(legs.len()).unwrap_or(0)).copied();
        match what % 11 {
            n @ 0..=3 => {
                let at = usize::from(n % 2);
                let (inbound, behind) = rest.split_at(amount.min(rest.len()));
                rest = behind;
                if let Some(link) = trunks.get(at).copied().flatten() {
                    let broken = core.receive(link, inbound, 0..inbound.len()).is_err();
                    core.flush(inbound, &mut outside);
                    if broken {
                        core.gone(link);
                        if let Some(trunk) = trunks.get_mut(at) {
                            *trunk = Some(core.trunk_up(Wire(at as u64), peer(at), at == 0, None));
                        }
                    }
                }
            }
            4 => ask(&mut core, &mut legs, 1, Errand::Open { to: ProcId(amount as u32 % 8) }),
            5 => {
                if let Some(circuit) = outside.notices.pop() {
                    ask(&mut core, &mut legs, 0, Errand::Accept { circuit });
                }
            }
            6 => {
                outside.give = amount * 100;
                leg.into_iter().for_each(|leg| core.readable(leg));
            }
            7 => {
                outside.take = amount * 1000;
                let all = legs.iter().copied().chain(trunks.into_iter().flatten());
                all.for_each(|link| core.writable(link));
            }
            8 => {
                now += Duration::from_millis(amount as u64 * 10);
                core.at(now);
                core.tick();
            }
            9 => {
                let relay = |n: usize| RelayAddress::new(([10, 0, 0, 1], n as u16).into());
                core.set_beside((amount..amount + amount % 3).filter_map(relay).collect());
            }
            _ => leg.into_iter().for_each(|leg| core.gone(leg)),
        }
        core.flush(&[], &mut outside);
        for _ in 0..100 {
            if !core.has_more() {
                break;
            }
            core.flush(&[], &mut outside);
        }
        for at in 0..2 {
            if outside.closed.contains(&Wire(at as u64))
                && let Some(trunk) = trunks.get_mut(at)
            {
                *trunk = Some(core.trunk_up(Wire(at as u64), peer(at), at == 0, None));
            }
        }
        outside.closed.clear();
        core.check();
        core.take_sooner();
    }
    core.end();
    core.flush(&[], &mut outside);
    core.check();
    assert_eq!(core.circuits(), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let cell = prop_oneof![
            (1u32..20, 0u32..4).prop_map(|(c, to)| {
                (c, Cell::Open { job: JOB, from: ProcId(9), to: ProcId(to), hops: 4 })
            }),
            (1u32..20, 1u32..20_000).prop_map(|(c, n)| (c, Cell::Credit(n))),
            (1u32..20).prop_map(|c| (c, Cell::Blocked)),
            (1u32..20).prop_map(|c| (c, Cell::Fin)),
            (1u32..20).prop_map(|c| (c, Cell::Answer(gridmpi_wire::LegVerdict::Accepted))),
            (0u32..8).prop_map(|n| {
                let span = crate::cell::Span { job: JOB, first: ProcId(n), count: 1 };
                (0, Cell::Route(span, vec![RelayId([2; 16])]))
            }),
        ];
        let said = cell.prop_map(|(circuit, cell)| {
            let mut bytes = Vec::new();
            cell.encode(circuit, &mut bytes);
            [&[0, bytes.len() as u8][..], &bytes].concat()
        });
        let data = (1u32..20, 1usize..200).prop_map(|(circuit, count)| {
            let head = crate::cell::data_head(circuit, count);
            [&[0, (8 + count) as u8][..], &head, &vec![1; count]].concat()
        });
        let other = (4u8..11, any::<u8>()).prop_map(|(what, amount)| vec![what, amount]);
        prop_oneof![said, data, other]
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            super::cells(&bytes);
            super::core(&bytes);
        }

        #[test]
        fn any_sequence_of_cells_and_events_leaves_the_books_right(
            pieces in prop::collection::vec(piece(), 0..80),
        ) {
            super::core(&pieces.concat());
        }
    }
}
