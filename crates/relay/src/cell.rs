//! What relays say to each other on a trunk connection: cells. Specified in `docs/relay.md`.
//!
//! A cell is a head of eight bytes (kind 1, length of the body 3, circuit 4, little-endian) and a body. Every decoder is
//! total, and a length is checked before anything is kept for it.

use std::fmt;
use std::ops::Range;

use gridmpi_wire::{JobId, LegVerdict, ProcId};
use thiserror::Error;

/// Bytes of a cell's head.
pub const HEAD: usize = 8;

/// Most bytes that one cell of data carries.
pub const MAX_DATA: usize = 64 * 1024;

/// Most relays that a circuit leads through.
pub const MAX_HOPS: usize = 8;

/// What each side may send on a new circuit before it is granted more, bytes.
pub const FIRST_WINDOW: usize = 16 * 1024;

/// Most bytes that one side may ever be granted and not have used, on one circuit.
pub const MAX_WINDOW: usize = 64 << 20;

/// The longest body of a cell other than data.
const MAX_BODY: usize = 25 + 16 * MAX_HOPS;

/// Names a relay: the first half of its certificate's fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub [u8; 16]);

impl fmt::Display for RelayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RelayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The processes of one cluster of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The job.
    pub job: JobId,
    /// The lowest process.
    pub first: ProcId,
    /// How many, at least 1.
    pub count: u32,
}

impl Span {
    /// Whether the process is one of them.
    #[must_use]
    pub fn holds(&self, process: ProcId) -> bool {
        process.0.checked_sub(self.first.0).is_some_and(|at| at < self.count)
    }
}

/// Why a circuit ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The process at the other end has reset its connection, or is gone.
    Reset = 0,
    /// A connection between two relays on the way was lost.
    Lost = 1,
    /// The other end has not come in time.
    Unanswered = 2,
    /// A relay on the way is ending.
    Ending = 3,
}

impl Reason {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Reset, Self::Lost, Self::Unanswered, Self::Ending];

    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Lost => "lost",
            Self::Unanswered => "unanswered",
            Self::Ending => "ending",
        }
    }
}

/// A cell other than data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A new circuit; its number is higher than all that the sender has opened before, odd where the sender has dialled,
    /// even where it was dialled. Up to [`FIRST_WINDOW`] bytes of data may follow at once.
    Open {
        /// The job.
        job: JobId,
        /// Who opens it.
        from: ProcId,
        /// To whom.
        to: ProcId,
        /// Relays that it may still pass beyond the one that reads this.
        hops: u8,
    },
    /// What came of it. Accepted: up to [`FIRST_WINDOW`] bytes of data may follow.
    Answer(LegVerdict),
    /// So many bytes more may be sent on the circuit, at least 1.
    Credit(u32),
    /// The sender has more for the circuit than it may send.
    Blocked,
    /// The sender gives back so many bytes that it was granted.
    Return(u32),
    /// The sender will send no more data on the circuit.
    Fin,
    /// The circuit has ended.
    Reset(Reason),
    /// These processes can be reached through the sender, by these relays, the sender first. Takes the place of what was
    /// said of them before.
    Route(Span, Vec<RelayId>),
    /// They cannot any more.
    Withdraw(Span),
    /// To be sent back at once.
    Ping(u64),
    /// What was in the ping.
    Pong(u64),
}

/// Why cells were refused: the connection they came on is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CellError {
    /// No such kind.
    #[error("a cell of unknown kind {0}")]
    Kind(u8),
    /// A length that this kind cannot have.
    #[error("a cell of kind {kind} cannot have {len} bytes")]
    Length {
        /// Code of the kind.
        kind: u8,
        /// What the head says.
        len: usize,
    },
    /// A field's value is not allowed.
    #[error("a cell with an impossible {0}")]
    Field(&'static str),
    /// The circuit was never opened.
    #[error("a cell for circuit {0}, which was never opened")]
    NeverOpened(u32),
    /// A number that has been used, or is the other side's to give.
    #[error("circuit {0} cannot be opened: its number is not the sender's next")]
    Number(u32),
    /// More data than was granted.
    #[error("more data on circuit {0} than was granted")]
    Credit(u32),
    /// What the state of the circuit does not allow.
    #[error("{1} on circuit {0} out of turn")]
    Turn(u32, &'static str),
}

mod kind {
    pub(super) const OPEN: u8 = 1;
    pub(super) const ANSWER: u8 = 2;
    pub(super) const DATA: u8 = 3;
    pub(super) const CREDIT: u8 = 4;
    pub(super) const BLOCKED: u8 = 5;
    pub(super) const RETURN: u8 = 6;
    pub(super) const FIN: u8 = 7;
    pub(super) const RESET: u8 = 8;
    pub(super) const ROUTE: u8 = 9;
    pub(super) const WITHDRAW: u8 = 10;
    pub(super) const PING: u8 = 11;
    pub(super) const PONG: u8 = 12;
}

fn head(kind: u8, len: usize, circuit: u32) -> [u8; HEAD] {
    let [a, b, c, ..] = (len as u32).to_le_bytes();
    let [d, e, f, g] = circuit.to_le_bytes();
    [kind, a, b, c, d, e, f, g]
}

/// The head of a cell of data with `len` bytes, from 1 to [`MAX_DATA`].
#[must_use]
pub fn data_head(circuit: u32, len: usize) -> [u8; HEAD] {
    head(kind::DATA, len, circuit)
}

impl Cell {
    /// Appends the cell. `circuit` is 0 for those that concern none.
    pub fn encode(&self, circuit: u32, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(32);
        let kind = self.body(&mut body);
        out.extend_from_slice(&head(kind, body.len(), circuit));
        out.extend_from_slice(&body);
    }

    fn body(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Open { job, from, to, hops } => {
                out.extend_from_slice(job);
                out.extend_from_slice(&from.0.to_le_bytes());
                out.extend_from_slice(&to.0.to_le_bytes());
                out.push(*hops);
                kind::OPEN
            }
            Self::Answer(verdict) => {
                out.push(*verdict as u8);
                kind::ANSWER
            }
            Self::Credit(bytes) => {
                out.extend_from_slice(&bytes.to_le_bytes());
                kind::CREDIT
            }
            Self::Blocked => kind::BLOCKED,
            Self::Return(bytes) => {
                out.extend_from_slice(&bytes.to_le_bytes());
                kind::RETURN
            }
            Self::Fin => kind::FIN,
            Self::Reset(reason) => {
                out.push(*reason as u8);
                kind::RESET
            }
            Self::Route(span, path) => {
                put_span(span, out);
                out.push(path.len() as u8);
                path.iter().for_each(|relay| out.extend_from_slice(&relay.0));
                kind::ROUTE
            }
            Self::Withdraw(span) => {
                put_span(span, out);
                kind::WITHDRAW
            }
            Self::Ping(value) => {
                out.extend_from_slice(&value.to_le_bytes());
                kind::PING
            }
            Self::Pong(value) => {
                out.extend_from_slice(&value.to_le_bytes());
                kind::PONG
            }
        }
    }
}

fn put_span(span: &Span, out: &mut Vec<u8>) {
    out.extend_from_slice(&span.job);
    out.extend_from_slice(&span.first.0.to_le_bytes());
    out.extend_from_slice(&span.count.to_le_bytes());
}

/// Reads fields off the front of a body whose length is right.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], CellError> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(CellError::Field("end"))?;
        self.0 = rest;
        Ok(*field)
    }

    fn byte(&mut self) -> Result<u8, CellError> {
        Ok(self.array::<1>()?[0])
    }

    fn number(&mut self) -> Result<u32, CellError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn hops(&mut self) -> Result<u8, CellError> {
        match self.byte()? {
            hops if usize::from(hops) <= MAX_HOPS => Ok(hops),
            _ => Err(CellError::Field("hops")),
        }
    }

    fn amount(&mut self) -> Result<u32, CellError> {
        match self.number()? {
            bytes if bytes > 0 && bytes as usize <= MAX_WINDOW => Ok(bytes),
            _ => Err(CellError::Field("amount")),
        }
    }

    fn span(&mut self) -> Result<Span, CellError> {
        let span =
            Span { job: self.array()?, first: ProcId(self.number()?), count: self.number()? };
        if span.count == 0 { Err(CellError::Field("count")) } else { Ok(span) }
    }

    fn path(&mut self) -> Result<Vec<RelayId>, CellError> {
        let len = usize::from(self.byte()?);
        if len == 0 || len > MAX_HOPS || self.0.len() != 16 * len {
            return Err(CellError::Field("path"));
        }
        (0..len).map(|_| Ok(RelayId(self.array()?))).collect()
    }
}

/// Whether a body of this kind may have this length.
fn check_length(kind: u8, len: usize) -> Result<(), CellError> {
    let is_allowed = match kind {
        kind::DATA => (1..=MAX_DATA).contains(&len),
        kind::OPEN => len == 25,
        kind::ANSWER | kind::RESET => len == 1,
        kind::CREDIT | kind::RETURN => len == 4,
        kind::BLOCKED | kind::FIN => len == 0,
        kind::ROUTE => (25 + 16..=MAX_BODY).contains(&len),
        kind::WITHDRAW => len == 24,
        kind::PING | kind::PONG => len == 8,
        other => return Err(CellError::Kind(other)),
    };
    if is_allowed { Ok(()) } else { Err(CellError::Length { kind, len }) }
}

fn decode(kind: u8, circuit: u32, body: &[u8]) -> Result<Cell, CellError> {
    let mut fields = Fields(body);
    let has_circuit = !matches!(kind, kind::ROUTE | kind::WITHDRAW | kind::PING | kind::PONG);
    if has_circuit != (circuit != 0) {
        return Err(CellError::Field("circuit"));
    }
    Ok(match kind {
        kind::OPEN => Cell::Open {
            job: fields.array()?,
            from: ProcId(fields.number()?),
            to: ProcId(fields.number()?),
            hops: fields.hops()?,
        },
        kind::ANSWER => Cell::Answer(verdict(fields.byte()?)?),
        kind::CREDIT => Cell::Credit(fields.amount()?),
        kind::BLOCKED => Cell::Blocked,
        kind::RETURN => Cell::Return(fields.amount()?),
        kind::FIN => Cell::Fin,
        kind::RESET => {
            let code = usize::from(fields.byte()?);
            Cell::Reset(Reason::ALL.get(code).copied().ok_or(CellError::Field("reason"))?)
        }
        kind::ROUTE => Cell::Route(fields.span()?, fields.path()?),
        kind::WITHDRAW => Cell::Withdraw(fields.span()?),
        kind::PING => Cell::Ping(u64::from_le_bytes(fields.array()?)),
        kind::PONG => Cell::Pong(u64::from_le_bytes(fields.array()?)),
        other => return Err(CellError::Kind(other)),
    })
}

/// Those of the legs' verdicts that can be the answer of another relay.
fn verdict(code: u8) -> Result<LegVerdict, CellError> {
    use LegVerdict::{Accepted, Draining, Full, NoRoute, Unanswered};
    let all = [Accepted, NoRoute, Unanswered, Full, Draining];
    all.into_iter().find(|verdict| *verdict as u8 == code).ok_or(CellError::Field("verdict"))
}

/// What has come on a trunk connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Bytes of a circuit: where they stand in what was handed in. A cell may come as several of these.
    Data(u32, Range<usize>),
    /// Another cell.
    Cell(u32, Cell),
}

/// Takes a trunk connection's bytes apart, however they are cut.
#[derive(Debug)]
pub struct Parser {
    /// A head and body that has not wholly come.
    part: [u8; HEAD + MAX_BODY],
    have: usize,
    /// The circuit and the rest of a cell of data.
    data: Option<(u32, usize)>,
}

impl Default for Parser {
    fn default() -> Self {
        Self { part: [0; HEAD + MAX_BODY], have: 0, data: None }
    }
}

impl Parser {
    /// The next item of `bytes` from `at` on, which moves past it; `None` when all is taken.
    ///
    /// # Errors
    /// What comes is not the protocol: nothing more of it can be read.
    pub fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Option<Item>, CellError> {
        loop {
            let rest = bytes.get(*at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(None);
            }
            if let Some((circuit, left)) = self.data {
                let count = left.min(rest.len());
                self.data = (count < left).then_some((circuit, left - count));
                *at += count;
                return Ok(Some(Item::Data(circuit, *at - count..*at)));
            }
            if let Some(item) = self.head(rest, at)? {
                return Ok(Some(item));
            }
        }
    }

    /// Takes a head, with its body unless it is data. `None`: a head of data, or the bytes end.
    fn head(&mut self, rest: &[u8], at: &mut usize) -> Result<Option<Item>, CellError> {
        if self.have == 0 && rest.len() >= HEAD {
            // Most heads come whole.
            let (kind, len, circuit) = read_head(rest);
            check_length(kind, len)?;
            if kind == kind::DATA {
                *at += HEAD;
                return self.begin_data(circuit, len);
            }
        }
        let want = if self.have < HEAD { HEAD } else { HEAD + read_head(&self.part).1 };
        let count = (want - self.have).min(rest.len());
        let (Some(to), Some(from)) =
            (self.part.get_mut(self.have..self.have + count), rest.get(..count))
        else {
            return Err(CellError::Field("length"));
        };
        to.copy_from_slice(from);
        self.have += count;
        *at += count;
        if self.have < HEAD {
            return Ok(None);
        }
        let (kind, len, circuit) = read_head(&self.part);
        check_length(kind, len)?;
        if kind == kind::DATA {
            self.have = 0;
            return self.begin_data(circuit, len);
        }
        if self.have < HEAD + len {
            return Ok(None);
        }
        self.have = 0;
        let body = self.part.get(HEAD..HEAD + len).unwrap_or_default();
        Ok(Some(Item::Cell(circuit, decode(kind, circuit, body)?)))
    }

    fn begin_data(&mut self, circuit: u32, len: usize) -> Result<Option<Item>, CellError> {
        if circuit == 0 {
            return Err(CellError::Field("circuit"));
        }
        self.data = Some((circuit, len));
        Ok(None)
    }
}

/// Kind, length and circuit; the slice has a head's bytes at least.
fn read_head(bytes: &[u8]) -> (u8, usize, u32) {
    let Some([kind, a, b, c, d, e, f, g]) = bytes.first_chunk::<HEAD>().copied() else {
        return (0, 0, 0);
    };
    (kind, u32::from_le_bytes([a, b, c, 0]) as usize, u32::from_le_bytes([d, e, f, g]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span() -> impl Strategy<Value = Span> {
        (any::<JobId>(), any::<u32>(), 1u32..).prop_map(|(job, first, count)| Span {
            job,
            first: ProcId(first),
            count,
        })
    }

    fn cells() -> impl Strategy<Value = (u32, Cell)> {
        let on = 1u32..;
        prop_oneof![
            (on.clone(), any::<JobId>(), any::<u32>(), any::<u32>(), 0..=MAX_HOPS as u8).prop_map(
                |(circuit, job, from, to, hops)| {
                    (circuit, Cell::Open { job, from: ProcId(from), to: ProcId(to), hops })
                }
            ),
            (on.clone(), 1..=MAX_WINDOW as u32).prop_map(|(c, n)| (c, Cell::Credit(n))),
            (on.clone(), 1..=MAX_WINDOW as u32).prop_map(|(c, n)| (c, Cell::Return(n))),
            on.clone().prop_map(|c| (c, Cell::Blocked)),
            on.clone().prop_map(|c| (c, Cell::Fin)),
            on.clone().prop_map(|c| (c, Cell::Answer(LegVerdict::NoRoute))),
            on.prop_map(|c| (c, Cell::Reset(Reason::Ending))),
            (span(), prop::collection::vec(any::<[u8; 16]>(), 1..=MAX_HOPS)).prop_map(
                |(span, path)| (0, Cell::Route(span, path.into_iter().map(RelayId).collect()))
            ),
            span().prop_map(|span| (0, Cell::Withdraw(span))),
            any::<u64>().prop_map(|value| (0, Cell::Ping(value))),
            any::<u64>().prop_map(|value| (0, Cell::Pong(value))),
        ]
    }

    #[derive(Clone, Debug)]
    enum Sent {
        Cell(u32, Cell),
        Data(u32, Vec<u8>),
    }

    fn sent() -> impl Strategy<Value = Sent> {
        let data = (1u32.., prop::collection::vec(any::<u8>(), 1..300));
        prop_oneof![
            cells().prop_map(|(circuit, cell)| Sent::Cell(circuit, cell)),
            data.prop_map(|(circuit, bytes)| Sent::Data(circuit, bytes)),
        ]
    }

    proptest! {
        #[test]
        fn cells_come_out_as_they_went_in_however_they_are_cut(
            all in prop::collection::vec(sent(), 0..20),
            cuts in prop::collection::vec(1usize..200, 1..40),
        ) {
            let mut bytes = Vec::new();
            for sent in &all {
                match sent {
                    Sent::Cell(circuit, cell) => cell.encode(*circuit, &mut bytes),
                    Sent::Data(circuit, data) => {
                        bytes.extend_from_slice(&data_head(*circuit, data.len()));
                        bytes.extend_from_slice(data);
                    }
                }
            }
            let (mut parser, mut got, mut cuts) = (Parser::default(), Vec::new(), cuts.iter().cycle());
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let count = (*cuts.next().unwrap()).min(rest.len());
                let (piece, behind) = rest.split_at(count);
                let mut at = 0;
                while let Some(item) = parser.next(piece, &mut at).unwrap() {
                    match (item, got.last_mut()) {
                        (Item::Cell(circuit, cell), _) => got.push(Sent::Cell(circuit, cell)),
                        (Item::Data(circuit, range), last) => {
                            let data = piece[range].to_vec();
                            match last {
                                Some(Sent::Data(before, all)) if *before == circuit => all.extend(data),
                                _ => got.push(Sent::Data(circuit, data)),
                            }
                        }
                    }
                }
                rest = behind;
            }
            // Neighbouring data of one circuit need not be told apart.
            let mut expected: Vec<Sent> = Vec::new();
            for sent in all {
                match (sent, expected.last_mut()) {
                    (Sent::Data(c, data), Some(Sent::Data(before, all))) if *before == c => all.extend(data),
                    (sent, _) => expected.push(sent),
                }
            }
            prop_assert_eq!(format!("{got:?}"), format!("{expected:?}"));
        }

        #[test]
        fn noise_is_refused_or_read_and_never_more_than_it_is(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let (mut parser, mut at) = (Parser::default(), 0);
            while let Ok(Some(item)) = parser.next(&bytes, &mut at) {
                if let Item::Data(_, range) = item {
                    prop_assert!(range.end <= bytes.len() && !range.is_empty());
                }
            }
        }
    }

    #[test]
    fn lengths_are_refused_at_the_head() {
        for (kind, len) in
            [(3u8, 0usize), (3, MAX_DATA + 1), (1, 24), (9, 25), (9, 1 << 20), (4, 5)]
        {
            let mut at = 0;
            let bytes = head(kind, len, 1);
            let error = Parser::default().next(&bytes, &mut at).unwrap_err();
            assert_eq!(error, CellError::Length { kind, len });
        }
        assert_eq!(Parser::default().next(&head(13, 0, 1), &mut 0), Err(CellError::Kind(13)));
        assert_eq!(
            Parser::default().next(&head(7, 0, 0), &mut 0),
            Err(CellError::Field("circuit"))
        );
    }
}
