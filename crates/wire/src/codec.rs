//! Frames to bytes and back.

use crate::field::{Field, Reader, Writer, wire_struct};
use crate::{Frame, Kind, WireError};

/// Bytes of every frame's header.
pub const HEADER_LEN: usize = RawHeader::LEN;

/// The largest payload of one frame, in bytes.
pub const MAX_PAYLOAD: u32 = 256 * 1024;

/// The most that [`Header::data_before`] says; then there may be more.
pub const MAX_DATA_BEFORE: u16 = u16::MAX;

/// The longest header with fields, in bytes (an envelope's).
pub const MAX_HEAD: usize = HEADER_LEN + Kind::Envelope.fields_len();

const _: () = {
    let mut i = 0;
    while i < Kind::ALL.len() {
        assert!(HEADER_LEN + Kind::ALL[i].fields_len() <= MAX_HEAD, "MAX_HEAD is too small");
        i += 1;
    }
};

wire_struct! {
    /// The header as it lies on the wire, before any check.
    struct RawHeader {
        kind: u8,
        flags: u8,
        data_before: u16,
        body_len: u32,
        seq: u64,
        ack: u64,
    }
}

/// A checked header: the kind exists and the lengths and numbers are what it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Bytes that follow the header: the fields and the payload.
    pub body_len: u32,
    /// Number of a sequenced frame in its direction, from 1; 0 for an unsequenced one.
    pub seq: u64,
    /// How many `Data` frames have their numbers directly before this frame's, at most
    /// [`MAX_DATA_BEFORE`]: what comes before them is the frame that this one must follow. 0 for
    /// `Data` itself and for frames without a number.
    pub data_before: u16,
    /// How many numbered frames have come whole to the writer over this connection.
    pub ack: u64,
}

impl Header {
    /// Decodes and checks a header.
    ///
    /// # Errors
    /// Any [`WireError`] of a header: kind, reserved bits, body length, number.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, WireError> {
        let raw = RawHeader::get(&mut Reader::new(bytes), "header")?;
        let kind = Kind::from_code(raw.kind).ok_or(WireError::UnknownKind(raw.kind))?;
        if raw.flags != 0 || (raw.data_before != 0 && !kind.is_ordered()) {
            return Err(WireError::ReservedBits(raw.kind));
        }
        let least = kind.fields_len() as u32;
        let most = least + if kind.has_payload() { MAX_PAYLOAD } else { 0 };
        if !(least..=most).contains(&raw.body_len) {
            return Err(WireError::BodyLength { kind: raw.kind, len: raw.body_len });
        }
        if kind.is_sequenced() == (raw.seq == 0) {
            return Err(WireError::Sequence { kind: raw.kind, seq: raw.seq });
        }
        let RawHeader { body_len, seq, data_before, ack, .. } = raw;
        Ok(Self { kind, body_len, seq, data_before, ack })
    }

    /// Bytes of the header and the fields: where the payload begins.
    #[must_use]
    pub const fn head_len(&self) -> usize {
        HEADER_LEN + self.kind.fields_len()
    }

    /// Bytes of the payload; at most [`MAX_PAYLOAD`].
    #[must_use]
    pub const fn payload_len(&self) -> u32 {
        self.body_len.saturating_sub(self.kind.fields_len() as u32)
    }
}

/// An encoded header with its fields, on the stack. Dereferences to the bytes to write.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; MAX_HEAD],
    len: usize,
}

impl std::ops::Deref for Head {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Frame {
    /// Encodes the header and the fields of a frame that `payload_len` payload bytes follow.
    ///
    /// `seq` is 0 exactly for the unsequenced kinds; `payload_len` is at most [`MAX_PAYLOAD`] and 0
    /// for the kinds without a payload. Otherwise the far side will refuse the frame.
    #[must_use]
    pub fn encode(&self, seq: u64, ack: u64, payload_len: u32) -> Head {
        self.encode_behind(0, seq, ack, payload_len)
    }

    /// The same for a frame that must follow another one and has the numbers of `data_before` `Data`
    /// frames between; 0 for `Data` and for frames without a number.
    #[must_use]
    pub fn encode_behind(&self, data_before: u16, seq: u64, ack: u64, payload_len: u32) -> Head {
        let kind = self.kind();
        debug_assert_eq!(kind.is_sequenced(), seq != 0, "number {seq} on a {kind:?}");
        debug_assert!(payload_len <= if kind.has_payload() { MAX_PAYLOAD } else { 0 });
        let mut bytes = [0; MAX_HEAD];
        let mut out = Writer::new(&mut bytes);
        let body_len = kind.fields_len() as u32 + payload_len;
        debug_assert!(data_before == 0 || kind.is_ordered());
        RawHeader { kind: kind as u8, flags: 0, data_before, body_len, seq, ack }.put(&mut out);
        self.put(&mut out);
        let len = out.written();
        Head { bytes, len }
    }

    /// Decodes the fields that follow `header`, from exactly `kind.fields_len()` bytes or more.
    ///
    /// # Errors
    /// Fields that are cut short, or whose values exclude each other.
    pub fn decode(header: &Header, fields: &[u8]) -> Result<Self, WireError> {
        let frame = Self::get(header.kind, &mut Reader::new(fields))?;
        frame.check(header.payload_len())?;
        Ok(frame)
    }
}

/// A header with its fields, parsed off the front of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The header.
    pub header: Header,
    /// The fields.
    pub frame: Frame,
}

/// Parses one frame's header and fields off the front of `bytes`; `None` when more are needed.
/// The payload is the next [`Header::payload_len`] bytes from [`Header::head_len`] on.
///
/// # Errors
/// Any [`WireError`] of a frame. Nothing after the error can be trusted: close the connection.
pub fn parse(bytes: &[u8]) -> Result<Option<Parsed>, WireError> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let header = Header::decode(header)?;
    let Some(fields) = bytes.get(HEADER_LEN..header.head_len()) else { return Ok(None) };
    Ok(Some(Parsed { header, frame: Frame::decode(&header, fields)? }))
}
