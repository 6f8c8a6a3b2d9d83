//! Deliberate faults: a checker that has never failed has shown nothing.

use crate::rng::Rng;
use gridmpi_engine::Config;

/// What is made wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// Nothing.
    #[default]
    None,
    /// Local receives go to the vendor though a held wildcard competes with them.
    IgnoreHold,
    /// Returned credit never reaches the sender.
    LoseCredit,
    /// A payload byte is changed now and then.
    Corrupt,
    /// A message inside a cluster overtakes others of its sender now and then.
    Overtake,
    /// A peer that has something to write is forgotten now and then.
    LoseWake,
    /// A send buffer is used again at once, not when the send is over.
    ReuseEarly,
    /// Bytes land once more in the memory of a receive that is over now and then.
    LandLate,
    /// Peers let each other have more messages unmatched than they should.
    LendMessages,
    /// And more bytes.
    LendBytes,
    /// A process that has a connection whose other end never heard of it is not told that it is gone.
    ForgetHalf,
    /// No connection is made again while streams end.
    RefuseLast,
    /// Who waits is not told of a completion now and then.
    LoseSign,
    /// The engine is called as it must not be, and panics.
    Panic,
}

impl Mutation {
    /// All faults.
    pub const ALL: [Self; 13] = [
        Self::IgnoreHold,
        Self::LoseCredit,
        Self::Corrupt,
        Self::Overtake,
        Self::LoseWake,
        Self::ReuseEarly,
        Self::LandLate,
        Self::LendMessages,
        Self::LendBytes,
        Self::ForgetHalf,
        Self::RefuseLast,
        Self::LoseSign,
        Self::Panic,
    ];

    /// Whether this is the fault `of`, and it happens now.
    pub const fn strikes(self, of: Self, rng: &mut Rng) -> bool {
        self as u8 == of as u8 && rng.chance(20)
    }

    /// The limits of every endpoint, of which `right` is what the model knows.
    pub fn grant(self, right: &Config) -> Config {
        match self {
            Self::LendMessages => {
                Config { credit_envelopes: 2 * right.credit_envelopes, ..right.clone() }
            }
            Self::LendBytes => Config { credit_bytes: 2 * right.credit_bytes, ..right.clone() },
            _ => right.clone(),
        }
    }
}
