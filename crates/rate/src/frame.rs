//! What data takes of a link: rates are those of whole frames on the wire, while TCP and programs count payload.
//!
//! For Ethernet's usual frames of 1,500 bytes. Larger ones are paced some 5 % slower than they may be.

/// What TCP carries in a full frame, with its timestamps: bytes.
pub const SEGMENT: usize = 1448;

/// What a full frame takes of the wire, with preamble, checksum and the gap after it: bytes.
pub const FRAME: usize = 1538;

/// Of a full frame, what TCP carries.
pub const PAYLOAD: f64 = SEGMENT as f64 / FRAME as f64;

/// What the acknowledgement of a received byte takes on the way back: one bare frame of 90 bytes for two full ones.
pub const ACKNOWLEDGEMENT: f64 = 90.0 / (2 * FRAME) as f64;
