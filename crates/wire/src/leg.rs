//! What a process and a relay of its cluster say before a connection carries a circuit: `LegHello`, `LegChallenge`,
//! `LegRequest`, `LegAnswer`; and what a relay tells a process that has registered, `LegNotice`.
//!
//! As in the handshake between processes every message has a fixed length. Both sides prove that they know the relay's
//! token. Specified in `docs/relay.md`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::field::{Field, Reader, Writer, wire_struct};
use crate::handshake::{message_codec, unsigned};
use crate::{JobId, JobKey, Mac, Nonce, ProcId, Role, WireError};

/// First bytes of every connection to a relay.
pub const LEG_MAGIC: [u8; 8] = *b"\x8aGridRly";

/// The lowest version of the legs' protocol that this build speaks. In version 1 notices told of circuits only.
pub const LEG_VERSION_MIN: u16 = 2;

/// The highest version of the legs' protocol that this build speaks.
pub const LEG_VERSION_MAX: u16 = 2;

/// Most relays that a process uses beside those that its job names, and that a relay may name.
pub const MOST_BESIDE: usize = 16;

/// Names a relay's token without showing it; not secret.
pub type TokenId = [u8; 16];

/// Names a circuit that waits at a relay for the process it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub u64);

impl ProcId {
    /// The job's coordinator, as the end of a circuit. No rank bears this number.
    pub const COORDINATOR: Self = Self(u32::MAX);

    /// One who looks for the coordinator and has no number in the job yet.
    pub const NEWCOMER: Self = Self(u32::MAX - 1);
}

impl JobKey {
    /// The name of the relay token that these bytes are.
    #[must_use]
    pub fn token_id(&self) -> TokenId {
        let tag = self.sign(Role::TokenId, &[]);
        let mut id = TokenId::default();
        let len = id.len();
        id.copy_from_slice(&tag[..len]);
        id
    }
}

/// What a relay decides about a request, or about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LegVerdict {
    /// It is done: the circuit stands, the process is registered.
    Accepted = 0,
    /// The two builds have no version of the protocol in common.
    NoCommonVersion = 1,
    /// The relay does not know the token.
    UnknownToken = 2,
    /// The token may not be used for this job.
    JobNotAllowed = 3,
    /// No relay that can be reached knows the process: perhaps it has not come yet.
    NoRoute = 4,
    /// The process, or the way to it, did not answer in time.
    Unanswered = 5,
    /// No circuit of that name waits for this process.
    NoSuchCircuit = 6,
    /// The relay has no memory or descriptors left for it.
    Full = 7,
    /// The relay is ending and takes nothing new.
    Draining = 8,
}

impl LegVerdict {
    const ALL: [Self; 9] = [
        Self::Accepted,
        Self::NoCommonVersion,
        Self::UnknownToken,
        Self::JobNotAllowed,
        Self::NoRoute,
        Self::Unanswered,
        Self::NoSuchCircuit,
        Self::Full,
        Self::Draining,
    ];
}

impl fmt::Display for LegVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::NoCommonVersion => "the relay runs another version of GridMPI",
            Self::UnknownToken => "the relay does not know the token",
            Self::JobNotAllowed => "the relay's token is not allowed for this job",
            Self::NoRoute => "no relay that it reaches knows the process",
            Self::Unanswered => "the process behind the relay did not answer in time",
            Self::NoSuchCircuit => "the circuit has been given up",
            Self::Full => "the relay has no room for another circuit",
            Self::Draining => "the relay is ending",
        })
    }
}

impl Field for LegVerdict {
    const LEN: usize = 1;
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(&[*self as u8]);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        let code = usize::from(u8::get(from, name)?);
        Self::ALL.get(code).copied().ok_or(WireError::Field("verdict"))
    }
}

/// What a process wants of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// To be found here by those who open circuits to it, as long as the connection stands. Its cluster's processes are
    /// `count` from `first` on, itself among them.
    Register {
        /// The lowest process of its cluster.
        first: ProcId,
        /// How many the cluster has, at least 1.
        count: u32,
    },
    /// A circuit to a process of another cluster.
    Open {
        /// That process.
        to: ProcId,
    },
    /// The circuit of which a notice has told.
    Accept {
        /// Its name.
        circuit: CircuitId,
    },
}

impl Field for CircuitId {
    const LEN: usize = 8;
    fn put(&self, out: &mut Writer<'_>) {
        self.0.put(out);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        Ok(Self(u64::get(from, name)?))
    }
}

impl Field for Errand {
    const LEN: usize = 1 + 4 + 4 + 8;
    fn put(&self, out: &mut Writer<'_>) {
        let (kind, process, count, circuit) = match *self {
            Self::Register { first, count } => (1u8, first, count, 0),
            Self::Open { to } => (2, to, 0, 0),
            Self::Accept { circuit } => (3, ProcId(0), 0, circuit.0),
        };
        kind.put(out);
        process.put(out);
        count.put(out);
        circuit.put(out);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        let kind = u8::get(from, name)?;
        let process = ProcId::get(from, name)?;
        let count = u32::get(from, name)?;
        let circuit = CircuitId::get(from, name)?;
        match (kind, process, count, circuit) {
            (1, first, 1.., CircuitId(0)) => Ok(Self::Register { first, count }),
            (2, to, 0, CircuitId(0)) => Ok(Self::Open { to }),
            (3, ProcId(0), 0, circuit) => Ok(Self::Accept { circuit }),
            _ => Err(WireError::Field("errand")),
        }
    }
}

wire_struct! {
    /// The process's first message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LegHello {
        /// [`LEG_MAGIC`].
        magic: [u8; 8],
        /// Lowest version the process speaks.
        version_min: u16,
        /// Highest version the process speaks.
        version_max: u16,
        /// The token that it will prove to know.
        token: TokenId,
        /// The process's nonce.
        nonce: Nonce,
    }
}

wire_struct! {
    /// The relay's answer: it knows the token, and asks the process to show the same.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LegChallenge {
        /// [`LEG_MAGIC`].
        magic: [u8; 8],
        /// The version to be spoken; 0 when `verdict` refuses.
        version: u16,
        /// Whether the connection goes on.
        verdict: LegVerdict,
        /// The relay's nonce.
        nonce: Nonce,
        /// Tag over the hello and the fields above; zeros where the token is not known.
        mac: Mac,
    }
}

wire_struct! {
    /// The process's answer: it knows the token, and says what it wants. What follows it is the circuit's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LegRequest {
        /// What is wanted.
        errand: Errand,
        /// The job.
        job: JobId,
        /// The process that asks.
        from: ProcId,
        /// Tag over hello, challenge and the fields above.
        mac: Mac,
    }
}

wire_struct! {
    /// What has come of the request. What follows it is the circuit's, or notices.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LegAnswer {
        /// Whether it is done.
        verdict: LegVerdict,
        /// Tag over hello, challenge, request and the field above.
        mac: Mac,
    }
}

/// To a process that has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegNotice {
    /// Somebody opens a circuit to it, and waits for its `Accept`.
    Called {
        /// Who.
        from: ProcId,
        /// The circuit.
        circuit: CircuitId,
    },
    /// There is another relay that processes of its cluster may use.
    Beside(RelayAddress),
}

/// Where a relay can be dialled: no port 0, no address that stands for all, for many or for none, and none that means something
/// else on another interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayAddress(SocketAddr);

impl RelayAddress {
    /// The relay that listens there; `None` where none can.
    #[must_use]
    pub fn new(address: SocketAddr) -> Option<Self> {
        let ip = address.ip().to_canonical();
        let is_of_one = match ip {
            IpAddr::V4(ip) => !ip.is_broadcast(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        let can_be = is_of_one && address.port() > 0 && !ip.is_unspecified() && !ip.is_multicast();
        can_be.then(|| Self(SocketAddr::new(ip, address.port())))
    }

    /// The address; one of IPv4 never in the clothes of IPv6.
    #[must_use]
    pub const fn socket(self) -> SocketAddr {
        self.0
    }
}

impl Field for RelayAddress {
    const LEN: usize = 16 + 2;
    fn put(&self, out: &mut Writer<'_>) {
        let ip = match self.0.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out.bytes(&ip.octets());
        self.0.port().put(out);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        let ip = Ipv6Addr::from(from.array::<16>(name)?);
        let port = u16::get(from, name)?;
        Self::new(SocketAddr::new(ip.into(), port)).ok_or(WireError::Field("address"))
    }
}

/// Zeros behind a circuit's notice, so that all notices are of one length.
const FILL: usize = RelayAddress::LEN - ProcId::LEN - CircuitId::LEN;

impl Field for LegNotice {
    const LEN: usize = 1 + RelayAddress::LEN;
    fn put(&self, out: &mut Writer<'_>) {
        match self {
            Self::Called { from, circuit } => {
                1u8.put(out);
                from.put(out);
                circuit.put(out);
                [0; FILL].put(out);
            }
            Self::Beside(relay) => {
                2u8.put(out);
                relay.put(out);
            }
        }
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        match u8::get(from, name)? {
            1 => {
                let called = Self::Called {
                    from: ProcId::get(from, name)?,
                    circuit: CircuitId::get(from, name)?,
                };
                let fill = <[u8; FILL]>::get(from, name)?;
                if fill == [0; FILL] { Ok(called) } else { Err(WireError::Field("circuit")) }
            }
            2 => Ok(Self::Beside(RelayAddress::get(from, name)?)),
            _ => Err(WireError::Field("notice")),
        }
    }
}

message_codec!(LegHello, LegChallenge, LegRequest, LegAnswer, LegNotice);

impl LegHello {
    fn check(&self) -> Result<(), WireError> {
        if self.magic != LEG_MAGIC {
            return Err(WireError::Magic);
        }
        if self.version_min == 0 || self.version_min > self.version_max {
            return Err(WireError::Field("version_min"));
        }
        Ok(())
    }

    /// The highest version that both this build and the process speak.
    #[must_use]
    pub fn choose_version(&self) -> Option<u16> {
        let version = self.version_max.min(LEG_VERSION_MAX);
        (version >= self.version_min.max(LEG_VERSION_MIN)).then_some(version)
    }
}

impl LegChallenge {
    fn check(&self) -> Result<(), WireError> {
        if self.magic == LEG_MAGIC { Ok(()) } else { Err(WireError::Magic) }
    }

    /// Fills in the tag.
    #[must_use]
    pub fn signed(mut self, token: &JobKey, hello: &LegHello) -> Self {
        let own = self.encode();
        self.mac = token.sign(Role::LegChallenge, &[&hello.encode(), unsigned(&own)]);
        self
    }

    /// Whether the tag proves the token, in constant time.
    #[must_use]
    pub fn is_genuine(&self, token: &JobKey, hello: &LegHello) -> bool {
        let own = self.encode();
        token.verify(Role::LegChallenge, &[&hello.encode(), unsigned(&own)], &self.mac)
    }
}

impl LegRequest {
    fn check(&self) -> Result<(), WireError> {
        match self.errand {
            Errand::Register { first, count } => {
                let is_among = self.from.0.checked_sub(first.0).is_some_and(|at| at < count);
                if is_among { Ok(()) } else { Err(WireError::Field("count")) }
            }
            Errand::Open { to } if to == self.from => Err(WireError::Field("to")),
            _ => Ok(()),
        }
    }

    /// Fills in the tag.
    #[must_use]
    pub fn signed(mut self, token: &JobKey, hello: &LegHello, challenge: &LegChallenge) -> Self {
        let own = self.encode();
        let parts: [&[u8]; 3] = [&hello.encode(), &challenge.encode(), unsigned(&own)];
        self.mac = token.sign(Role::LegRequest, &parts);
        self
    }

    /// Whether the tag proves the token, in constant time.
    #[must_use]
    pub fn is_genuine(&self, token: &JobKey, hello: &LegHello, challenge: &LegChallenge) -> bool {
        let own = self.encode();
        let parts: [&[u8]; 3] = [&hello.encode(), &challenge.encode(), unsigned(&own)];
        token.verify(Role::LegRequest, &parts, &self.mac)
    }
}

impl LegAnswer {
    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }

    /// Fills in the tag.
    #[must_use]
    pub fn signed(
        mut self,
        token: &JobKey,
        before: (&LegHello, &LegChallenge, &LegRequest),
    ) -> Self {
        let own = self.encode();
        let (hello, challenge, request) = (before.0.encode(), before.1.encode(), before.2.encode());
        self.mac = token.sign(Role::LegAnswer, &[&hello, &challenge, &request, unsigned(&own)]);
        self
    }

    /// Whether the tag proves the token, in constant time.
    #[must_use]
    pub fn is_genuine(
        &self,
        token: &JobKey,
        before: (&LegHello, &LegChallenge, &LegRequest),
    ) -> bool {
        let own = self.encode();
        let (hello, challenge, request) = (before.0.encode(), before.1.encode(), before.2.encode());
        let parts: [&[u8]; 4] = [&hello, &challenge, &request, unsigned(&own)];
        token.verify(Role::LegAnswer, &parts, &self.mac)
    }
}

impl LegNotice {
    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }
}
