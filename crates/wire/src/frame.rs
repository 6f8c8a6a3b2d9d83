//! The table of frames, and what each means.

use crate::field::{Field, Reader, Writer, wire_struct};
use crate::{ContextId, Rank, WireError};

wire_struct! {
    /// What a message is matched by (MPI 4.1 §3.2.3), and how its bytes will come.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Envelope {
        /// The communicator's context, and whether the program or a collective sent it.
        context: ContextId,
        /// The sender's rank in that communicator.
        source: Rank,
        /// The message's tag.
        tag: i32,
        /// The message's number among those of this ordered pair of processes, from 1.
        message: u64,
        /// Length of the whole message in bytes.
        len: u64,
        /// How many leading bytes come without `ClearToSend`; at most `len`.
        eager: u64,
        /// The sender waits for `Matched` (MPI 4.1 §3.4, synchronous mode).
        synchronous: bool,
    }
}

wire_struct! {
    /// Somebody begins or ceases to send much from one node to another: a process tells the rate broker of its cluster, and
    /// brokers tell each other.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Transfer {
        /// The sending node, by its number in the job.
        from: u32,
        /// The receiving node.
        to: u32,
        /// Whether it begins.
        is_active: bool,
    }
}

wire_struct! {
    /// How fast the receiver of this may send to all of a cluster from now on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Grant {
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Bits per second, headers included; all ones: as fast as may be.
        rate: u64,
        /// What its node may send there, all its processes together; all ones: as fast as may be.
        node: u64,
        /// More than what they begin with, and a quarter, may be used.
        is_settled: bool,
        /// Nobody else has more than everybody's share there for long: what is over soon need not be claimed for a while.
        is_quiet: bool,
    }
}

wire_struct! {
    /// Which part of that is for one node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Share {
        /// The receiving node, by its number in the job.
        to: u32,
        /// By what an equal part would be, in 65,536ths.
        share: u32,
    }
}

wire_struct! {
    /// What has come of what the sender of this sent to a cluster since it last said so.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Seen {
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Full segments that have arrived.
        arrived: u64,
        /// Segments that were sent again.
        resent: u64,
        /// How much longer than the shortest ones round trips take at least, µs; all ones: not known.
        queued: u32,
    }
}

wire_struct! {
    /// With what the receiver of this may begin to send to a cluster from now on, until a grant says more or less: with `rate`, and what is over soon with
    /// `short`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Start {
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Bits per second, headers included; all ones: as fast as may be.
        rate: u64,
        /// In the same terms.
        short: u64,
        /// What the link there carries, likewise.
        link: u64,
    }
}

wire_struct! {
    /// For a while so much is left of the links to a cluster to each of those that send at the same time: the receiver of this need not claim what is
    /// over soon by that.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Room {
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Bits per second, headers included; all ones: as fast as may be.
        rate: u64,
    }
}

wire_struct! {
    /// How much of what it is granted the sender of this uses towards a cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Demand {
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Bits per second, headers included; all ones: all that it gets.
        rate: u64,
    }
}

wire_struct! {
    /// A process has a part of its own in a transfer, or no longer: a rate broker tells others, where somebody uses less than it gets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Part {
        /// The sending node, by its number in the job.
        from: u32,
        /// The receiving node.
        to: u32,
        /// A process of the sending node.
        process: u32,
        /// Whether it begins.
        is_active: bool,
    }
}

wire_struct! {
    /// How much a process uses towards a cluster: a rate broker tells others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limit {
        /// A process of the teller's cluster.
        process: u32,
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Bits per second, headers included; all ones: all that it gets.
        rate: u64,
    }
}

wire_struct! {
    /// What the link from the teller's cluster to another has turned out to carry: a rate broker tells others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Carries {
        /// The receiving cluster, by its number in the job.
        cluster: u32,
        /// Bits per second, headers included; all ones: no bound.
        rate: u64,
    }
}

macro_rules! frame_table {
    ($($(#[$doc:meta])* $code:literal $name:ident $sequenced:ident $payload:ident
        $(($inner:ident: $tuple:ty))? $({ $($(#[$field_doc:meta])* $field:ident: $ty:ty),* })?;)*
    ) => {
        /// One frame's fields; its payload, where it has one, follows it and is handled apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Frame {
            $($(#[$doc])* $name $(($tuple))? $({ $($(#[$field_doc])* $field: $ty),* })?,)*
        }

        /// A frame's kind: its code on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $code,)*
        }

        impl Kind {
            /// Every kind, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The kind with this code.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Whether frames of this kind are numbered, retained and acknowledged.
            #[must_use]
            pub const fn is_sequenced(self) -> bool {
                match self { $(Self::$name => frame_table!(@$sequenced),)* }
            }

            /// Whether frames of this kind are numbered and handled in the order of their numbers: all
            /// but `Data`, which says itself where its bytes belong.
            #[must_use]
            pub const fn is_ordered(self) -> bool {
                self.is_sequenced() && !matches!(self, Self::Data)
            }

            /// Whether frames of this kind are words about rates, which processes and brokers exchange.
            #[must_use]
            pub const fn is_about_rates(self) -> bool {
                match self { $(Self::$name => frame_table!(@about_rates $sequenced),)* }
            }

            /// Whether bytes of a message may follow the fields.
            #[must_use]
            pub const fn has_payload(self) -> bool {
                match self { $(Self::$name => frame_table!(@$payload),)* }
            }

            /// Bytes of the fields.
            #[must_use]
            pub const fn fields_len(self) -> usize {
                match self {
                    $(Self::$name =>
                        0 $(+ <$tuple as Field>::LEN)? $($(+ <$ty as Field>::LEN)*)?,)*
                }
            }
        }

        impl Frame {
            /// This frame's kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$name { .. } => Kind::$name,)* }
            }

            pub(crate) fn put(&self, out: &mut Writer<'_>) {
                match self {
                    $(Self::$name $(($inner))? $({ $($field),* })? => {
                        $($inner.put(out);)?
                        $($($field.put(out);)*)?
                    })*
                }
                let _ = out;
            }

            pub(crate) fn get(kind: Kind, from: &mut Reader<'_>) -> Result<Self, WireError> {
                let _ = &from;
                Ok(match kind {
                    $(Kind::$name => Self::$name
                        $((<$tuple as Field>::get(from, stringify!($inner))?))?
                        $({ $($field: <$ty as Field>::get(from, stringify!($field))?),* })?,)*
                })
            }
        }
    };
    (@sequenced) => { true };
    (@word) => { true };
    (@unsequenced) => { false };
    (@payload) => { true };
    (@bare) => { false };
    (@about_rates word) => { true };
    (@about_rates $other:ident) => { false };
}

// A line an item: code, name, whether numbered (a word about rates is), whether message bytes follow, fields in order.
frame_table! {
    /// A message begins; the first bytes of it may follow inline.
    1 Envelope sequenced payload (envelope: Envelope);
    /// More bytes of a message, at `offset`.
    2 Data sequenced payload { #[doc = "The message they belong to."] message: u64, #[doc = "Where in the message, in bytes."] offset: u64 };
    /// The receiver has matched the message: send what lies beyond the eager part.
    3 ClearToSend sequenced bare { #[doc = "The message that may go on."] message: u64 };
    /// A receive has matched this synchronous message (MPI 4.1 §3.4).
    4 Matched sequenced bare { #[doc = "The matched message."] message: u64 };
    /// All credit ever returned to the sender, so that a repeated frame changes nothing.
    5 Credit sequenced bare { #[doc = "Envelopes returned since the stream began."] envelopes: u64, #[doc = "Bytes returned since the stream began."] bytes: u64 };
    /// Orderly end: nothing numbered follows in this direction.
    6 Close sequenced bare;
    /// Carries the header's `ack` when nothing else does.
    7 Ack unsequenced bare;
    /// Asks for a `Pong`: is the peer there?
    8 Ping unsequenced bare;
    /// Answers a `Ping`.
    9 Pong unsequenced bare;
    /// To or between rate brokers: a transfer begins or ends.
    10 Transfer word bare (transfer: Transfer);
    /// From a rate broker: a rate.
    11 Grant word bare (grant: Grant);
    /// From a rate broker: the rate that transfers begin with.
    12 Start word bare (start: Start);
    /// From a rate broker: a part of a rate.
    13 Share word bare (share: Share);
    /// To a rate broker: how a link does.
    14 Seen word bare (seen: Seen);
    /// To a rate broker: what is used of a rate.
    15 Demand word bare (demand: Demand);
    /// Between rate brokers: one process's part of a transfer.
    16 Part word bare (part: Part);
    /// Between rate brokers: what a process uses.
    17 Limit word bare (limit: Limit);
    /// Between rate brokers: what a link carries.
    18 Carries word bare (carries: Carries);
    /// From a rate broker: what need not be claimed.
    19 Room word bare (room: Room);
}

impl Frame {
    /// The message that this frame speaks of, if it is of one.
    #[must_use]
    pub const fn message(&self) -> Option<u64> {
        match self {
            Self::Envelope(Envelope { message, .. })
            | Self::Data { message, .. }
            | Self::ClearToSend { message }
            | Self::Matched { message } => Some(*message),
            _ => None,
        }
    }

    /// What the fields alone can show to be wrong; the engine checks the rest against its state.
    pub(crate) fn check(&self, payload_len: u32) -> Result<(), WireError> {
        let payload_len = u64::from(payload_len);
        if self.message() == Some(0) {
            return Err(WireError::Field("message"));
        }
        match *self {
            Self::Envelope(envelope) if envelope.eager > envelope.len => {
                Err(WireError::Field("eager"))
            }
            Self::Envelope(envelope) if payload_len > envelope.eager => {
                Err(WireError::Field("payload"))
            }
            Self::Data { .. } if payload_len == 0 => Err(WireError::Field("payload")),
            Self::Data { offset, .. } if offset.checked_add(payload_len).is_none() => {
                Err(WireError::Field("offset"))
            }
            _ => Ok(()),
        }
    }
}
