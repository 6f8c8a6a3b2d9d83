//! What a relay is told to be.

use std::net::SocketAddr;
use std::time::Duration;

use gridmpi_wire::{JobId, JobKey, RelayAddress};

use crate::core::Limits;
use crate::routes::Account;
use crate::tls::{Fingerprint, Identity};

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where legs and other relays come to.
    pub listen: Vec<SocketAddr>,
    /// Its certificate and key; without it it cannot speak TLS.
    pub identity: Option<Identity>,
    /// Who may use this relay.
    pub tokens: Vec<Token>,
    /// The relays that it knows.
    pub peers: Vec<Peer>,
    /// Other relays of the clusters whose processes use this one, as these reach them; at most
    /// [`MOST_BESIDE`](gridmpi_wire::MOST_BESIDE). Processes that are registered here use them, too.
    pub beside: Vec<RelayAddress>,
    /// Its bounds.
    pub limits: Limits,
    /// What is sent to all other relays together at most, bytes per second.
    pub rate: Option<u64>,
    /// How long to look for more before sleeping, while that has been worth it lately.
    pub busy_poll: Duration,
    /// How long circuits may go on once the relay is asked to end.
    pub drain: Duration,
    /// Bounds of those who have not proven themselves.
    pub unproven: Unproven,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            identity: None,
            tokens: Vec::new(),
            peers: Vec::new(),
            beside: Vec::new(),
            limits: Limits::default(),
            rate: None,
            busy_poll: Duration::from_micros(50),
            drain: Duration::from_secs(30),
            unproven: Unproven::default(),
        }
    }
}

/// Bounds of connections that have not proven themselves.
#[derive(Clone, Debug)]
pub struct Unproven {
    /// How many at a time.
    pub most: usize,
    /// When each must have ended.
    pub end: Duration,
}

impl Default for Unproven {
    fn default() -> Self {
        Self { most: 64, end: Duration::from_secs(5) }
    }
}

/// Who knows it may use the relay.
#[derive(Clone, Debug)]
pub struct Token {
    /// What messages call it.
    pub name: String,
    /// The secret.
    pub key: JobKey,
    /// The jobs that it is good for; `None`: all.
    pub jobs: Option<Vec<JobId>>,
}

/// The most connections that a relay makes to another.
pub(crate) const MOST_CONNECTIONS: usize = 64;

/// Another relay.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What messages call it.
    pub name: String,
    /// Where to dial it, as host:port; `None`: it dials us.
    pub address: Option<String>,
    /// How it proves itself.
    pub proof: Proof,
    /// How many connections we make to it, at least 1.
    pub connections: usize,
    /// What is sent to it at most, bytes per second.
    pub rate: Option<u64>,
    /// The jobs whose circuits may cross to it and from it; `None`: all. It is told of no others, and not believed of others.
    pub jobs: Option<Vec<JobId>>,
}

impl Proof {
    /// To whom it is put down what the other says.
    pub(crate) fn account(&self) -> Account {
        match self {
            Self::Fingerprint(fingerprint) => fingerprint.relay().into(),
            Self::Secret(secret) => Account(secret.token_id()),
        }
    }
}

/// How two relays know each other.
#[derive(Clone, Debug)]
pub enum Proof {
    /// By TLS: the SHA-256 of the other's certificate.
    Fingerprint(Fingerprint),
    /// By a secret that both know. What they carry is not encrypted.
    Secret(JobKey),
}
