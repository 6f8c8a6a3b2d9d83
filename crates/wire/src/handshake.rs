//! The four messages that open a connection: `Hello`, `Challenge`, `Proof`, `Welcome`.
//!
//! All have a fixed length, so that a side reads exactly that and no more before it knows who is
//! there. Both sides prove the job's key over both nonces and everything said before.

use std::fmt;

use crate::field::{Field, Reader, Writer, wire_struct};
use crate::{JobKey, Mac, ProcId, Role, Strand, WireError};

/// First bytes of every connection; not the start of any printable protocol, so that a stray HTTP
/// or SSH client is known at its first bytes.
pub const MAGIC: [u8; 8] = *b"\x8aGridMPI";

/// The lowest version of the protocol that this build speaks.
pub const VERSION_MIN: u16 = 1;

/// The highest version of the protocol that this build speaks.
pub const VERSION_MAX: u16 = 1;

/// Bytes of a [`Nonce`].
pub const NONCE_LEN: usize = 32;

/// Fresh random bytes, never used for two connections.
pub type Nonce = [u8; NONCE_LEN];

/// Names a job; not secret.
pub type JobId = [u8; 16];

/// What the listener decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Go on.
    Accepted = 0,
    /// The two builds have no version of the protocol in common.
    NoCommonVersion = 1,
    /// The listener already has, or prefers, another connection with this peer.
    Duplicate = 2,
    /// The listener has given this peer up, or has itself ended.
    Gone = 3,
    /// The stream cannot resume at the frame that the dialer expects.
    CannotResume = 4,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::NoCommonVersion => "no version of the protocol in common",
            Self::Duplicate => "it holds on to another connection",
            Self::Gone => "it has given this process up, or is ending",
            Self::CannotResume => "it does not have the frames to go on from",
        })
    }
}

impl Field for Verdict {
    const LEN: usize = 1;
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(&[*self as u8]);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        Ok(match u8::get(from, name)? {
            0 => Self::Accepted,
            1 => Self::NoCommonVersion,
            2 => Self::Duplicate,
            3 => Self::Gone,
            4 => Self::CannotResume,
            _ => return Err(WireError::Field("verdict")),
        })
    }
}

wire_struct! {
    /// The dialer's first message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Hello {
        /// [`MAGIC`]. First, so that a listener can drop noise at the first bytes.
        magic: [u8; 8],
        /// Lowest version the dialer speaks.
        version_min: u16,
        /// Highest version the dialer speaks.
        version_max: u16,
        /// The dialer.
        from: ProcId,
        /// Whom it wants to reach.
        to: ProcId,
        /// The job that both belong to.
        job: JobId,
        /// The dialer's nonce.
        nonce: Nonce,
    }
}

wire_struct! {
    /// The listener's answer: it knows the key, and asks the dialer to show the same.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Challenge {
        /// [`MAGIC`].
        magic: [u8; 8],
        /// The version to be spoken; 0 when `verdict` refuses.
        version: u16,
        /// Whether the handshake goes on.
        verdict: Verdict,
        /// The listener's nonce.
        nonce: Nonce,
        /// Tag with [`Role::Challenge`] over the hello and this message's fields above.
        mac: Mac,
    }
}

wire_struct! {
    /// The dialer's answer: it knows the key, and says where its half of the stream goes on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Proof {
        /// Number of the next frame the dialer expects from the listener, from 1.
        resume: u64,
        /// Which of the connections between the two this is to be.
        strand: Strand,
        /// Those that stand, as the dialer sees it: a bit each, that of the lowest number the lowest.
        standing: u16,
        /// Tag with [`Role::Proof`] over hello, challenge and the fields above.
        mac: Mac,
    }
}

wire_struct! {
    /// The listener's last word; frames follow in both directions when it accepts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Welcome {
        /// Whether the connection is used.
        verdict: Verdict,
        /// Number of the next frame the listener expects from the dialer, from 1.
        resume: u64,
        /// Tag with [`Role::Welcome`] over hello, challenge, proof and the fields above.
        mac: Mac,
    }
}

/// Gives messages of fixed length, which have a `check` of their own, their length and codec.
macro_rules! message_codec {
    ($($name:ident),*) => {$(
        impl $name {
            /// Bytes of the message on the wire.
            pub const LEN: usize = <Self as Field>::LEN;

            /// The message's bytes.
            #[must_use]
            pub fn encode(&self) -> [u8; <Self as Field>::LEN] {
                let mut bytes = [0; <Self as Field>::LEN];
                self.put(&mut Writer::new(&mut bytes));
                bytes
            }

            /// The message in these bytes. Tags are not checked here.
            ///
            /// # Errors
            /// A value that the specification excludes, or a wrong magic.
            pub fn decode(bytes: &[u8; <Self as Field>::LEN]) -> Result<Self, WireError> {
                let message = <Self as Field>::get(&mut Reader::new(bytes), stringify!($name))?;
                message.check()?;
                Ok(message)
            }
        }
    )*};
}
pub(crate) use message_codec;

message_codec!(Hello, Challenge, Proof, Welcome);

impl Hello {
    fn check(&self) -> Result<(), WireError> {
        if self.magic != MAGIC {
            return Err(WireError::Magic);
        }
        if self.version_min == 0 || self.version_min > self.version_max {
            return Err(WireError::Field("version_min"));
        }
        Ok(())
    }
}

/// The highest version that both this build and the dialer speak.
#[must_use]
pub fn choose_version(hello: &Hello) -> Option<u16> {
    let version = hello.version_max.min(VERSION_MAX);
    (version >= hello.version_min.max(VERSION_MIN)).then_some(version)
}

/// All bytes of a message but its tag, which comes last in each.
pub(crate) fn unsigned(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() - crate::MAC_LEN]
}

impl Challenge {
    fn check(&self) -> Result<(), WireError> {
        match self.verdict {
            _ if self.magic != MAGIC => Err(WireError::Magic),
            Verdict::Accepted | Verdict::NoCommonVersion => Ok(()),
            Verdict::Duplicate | Verdict::Gone | Verdict::CannotResume => {
                Err(WireError::Field("verdict"))
            }
        }
    }

    /// Fills in the tag.
    #[must_use]
    pub fn signed(mut self, key: &JobKey, hello: &Hello) -> Self {
        let own = self.encode();
        self.mac = key.sign(Role::Challenge, &[&hello.encode(), unsigned(&own)]);
        self
    }

    /// Whether the tag proves the key, in constant time.
    #[must_use]
    pub fn is_genuine(&self, key: &JobKey, hello: &Hello) -> bool {
        let own = self.encode();
        key.verify(Role::Challenge, &[&hello.encode(), unsigned(&own)], &self.mac)
    }
}

impl Proof {
    fn check(&self) -> Result<(), WireError> {
        if self.resume == 0 { Err(WireError::Field("resume")) } else { Ok(()) }
    }

    /// Fills in the tag.
    #[must_use]
    pub fn signed(mut self, key: &JobKey, hello: &Hello, challenge: &Challenge) -> Self {
        let own = self.encode();
        let parts: [&[u8]; 3] = [&hello.encode(), &challenge.encode(), unsigned(&own)];
        self.mac = key.sign(Role::Proof, &parts);
        self
    }

    /// Whether the tag proves the key, in constant time.
    #[must_use]
    pub fn is_genuine(&self, key: &JobKey, hello: &Hello, challenge: &Challenge) -> bool {
        let own = self.encode();
        let parts: [&[u8]; 3] = [&hello.encode(), &challenge.encode(), unsigned(&own)];
        key.verify(Role::Proof, &parts, &self.mac)
    }
}

impl Welcome {
    fn check(&self) -> Result<(), WireError> {
        match self.verdict {
            Verdict::NoCommonVersion => Err(WireError::Field("verdict")),
            _ if self.resume == 0 => Err(WireError::Field("resume")),
            _ => Ok(()),
        }
    }

    /// Fills in the tag.
    #[must_use]
    pub fn signed(mut self, key: &JobKey, before: (&Hello, &Challenge, &Proof)) -> Self {
        let own = self.encode();
        let (hello, challenge, proof) = (before.0.encode(), before.1.encode(), before.2.encode());
        self.mac = key.sign(Role::Welcome, &[&hello, &challenge, &proof, unsigned(&own)]);
        self
    }

    /// Whether the tag proves the key, in constant time.
    #[must_use]
    pub fn is_genuine(&self, key: &JobKey, before: (&Hello, &Challenge, &Proof)) -> bool {
        let own = self.encode();
        let (hello, challenge, proof) = (before.0.encode(), before.1.encode(), before.2.encode());
        key.verify(Role::Welcome, &[&hello, &challenge, &proof, unsigned(&own)], &self.mac)
    }
}
