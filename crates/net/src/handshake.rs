//! Both sides of the handshake, without I/O. Each side reads exactly the bytes of the message that
//! is due, and stops at the first that cannot be right.

use gridmpi_wire::{
    Challenge, Hello, JobId, JobKey, MAGIC, Nonce, ProcId, Proof, Strand, VERSION_MAX, VERSION_MIN,
    Verdict, Welcome, WireError, choose_version,
};

use crate::HandshakeError;

/// Who we are, to peers.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This process.
    pub me: ProcId,
    /// Processes in the job.
    pub procs: u32,
    /// The job.
    pub job: JobId,
    /// Its secret.
    pub key: JobKey,
}

/// The longest message of the handshake.
const LONGEST: usize = Challenge::LEN;
const _: () = assert!(Hello::LEN <= LONGEST && Proof::LEN <= LONGEST && Welcome::LEN <= LONGEST);

/// What comes, message by message.
type Inbox = gridmpi_wire::Inbox<LONGEST>;

/// The listener's side.
#[derive(Debug)]
pub struct Answer {
    inbox: Inbox,
    nonce: Nonce,
    said: Option<(Hello, Challenge)>,
}

/// What the listener does next.
#[derive(Debug)]
pub enum AnswerStep {
    /// Read on.
    More,
    /// Send this and read on.
    Send([u8; Challenge::LEN]),
    /// Send this and close.
    Refuse([u8; Challenge::LEN]),
    /// The peer has proven itself: decide, and send [`Proven::welcome`].
    Proven(Proven),
}

/// A dialer that has proven itself.
#[derive(Debug)]
pub struct Proven {
    /// Who.
    pub from: ProcId,
    /// The frame it expects next from us.
    pub resume: u64,
    /// Which of our connections this is to be.
    pub strand: Strand,
    standing: u16,
    said: (Hello, Challenge, Proof),
}

impl Answer {
    /// A connection was accepted. `nonce` must be fresh and unpredictable.
    #[must_use]
    pub fn new(nonce: Nonce) -> Self {
        Self { inbox: Inbox::new(Hello::LEN), nonce, said: None }
    }

    /// Where to read to, and at most how much; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// Who says that it has dialled, once its hello has come. It has not proven it.
    #[must_use]
    pub fn from(&self) -> Option<ProcId> {
        self.said.as_ref().map(|(hello, _)| hello.from)
    }

    /// `count` bytes were read into [`Self::space`].
    ///
    /// # Errors
    /// The peer is not what it should be: close, and say nothing.
    pub fn read(&mut self, count: usize, us: &Identity) -> Result<AnswerStep, HandshakeError> {
        match self.said {
            None => self.read_hello(count, us),
            Some(said) => self.read_proof(count, us, said),
        }
    }

    fn read_hello(&mut self, count: usize, us: &Identity) -> Result<AnswerStep, HandshakeError> {
        let Some(bytes) = self.inbox.filled(count) else {
            self.inbox.check_magic(&MAGIC)?;
            return Ok(AnswerStep::More);
        };
        let hello = Hello::decode(&bytes)?;
        if hello.job != us.job {
            return Err(HandshakeError::OtherJob);
        }
        if hello.to != us.me {
            return Err(HandshakeError::NotForMe(hello.to));
        }
        if hello.from == us.me || hello.from.0 >= us.procs {
            return Err(HandshakeError::WrongPeer(hello.from));
        }
        let challenge = |version, verdict| {
            let unsigned =
                Challenge { magic: MAGIC, version, verdict, nonce: self.nonce, mac: [0; 32] };
            unsigned.signed(&us.key, &hello)
        };
        let Some(version) = choose_version(&hello) else {
            return Ok(AnswerStep::Refuse(challenge(0, Verdict::NoCommonVersion).encode()));
        };
        let challenge = challenge(version, Verdict::Accepted);
        self.said = Some((hello, challenge));
        self.inbox = Inbox::new(Proof::LEN);
        Ok(AnswerStep::Send(challenge.encode()))
    }

    fn read_proof(
        &mut self,
        count: usize,
        us: &Identity,
        (hello, challenge): (Hello, Challenge),
    ) -> Result<AnswerStep, HandshakeError> {
        let Some(bytes) = self.inbox.filled(count) else { return Ok(AnswerStep::More) };
        let proof = Proof::decode(&bytes)?;
        if !proof.is_genuine(&us.key, &hello, &challenge) {
            return Err(HandshakeError::NotGenuine);
        }
        let said = (hello, challenge, proof);
        let Proof { resume, strand, standing, .. } = proof;
        Ok(AnswerStep::Proven(Proven { from: hello.from, resume, strand, standing, said }))
    }
}

impl Proven {
    /// Whether the dialer has, or has asked for, that connection between us.
    #[must_use]
    pub const fn has(&self, strand: Strand) -> bool {
        self.standing & bit(strand) != 0
    }

    /// The listener's last message. `expects` is the frame that we expect next from the peer.
    #[must_use]
    pub fn welcome(&self, us: &Identity, verdict: Verdict, expects: u64) -> [u8; Welcome::LEN] {
        let unsigned = Welcome { verdict, resume: expects, mac: [0; 32] };
        unsigned.signed(&us.key, (&self.said.0, &self.said.1, &self.said.2)).encode()
    }
}

const fn bit(strand: Strand) -> u16 {
    const { assert!(Strand::MAX <= u16::BITS as usize) };
    1 << strand.index()
}

/// What the dialer says of itself in its proof.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    resume: u64,
    strand: Strand,
    standing: u16,
}

impl Claim {
    /// It expects frame `resume` next, and wants this connection.
    #[must_use]
    pub const fn new(resume: u64, strand: Strand) -> Self {
        Self { resume, strand, standing: bit(strand) }
    }

    /// It has that connection, too, or has asked for it.
    #[must_use]
    pub const fn with(mut self, other: Strand) -> Self {
        self.standing |= bit(other);
        self
    }
}

/// The dialer's side.
#[derive(Debug)]
pub struct Ask {
    inbox: Inbox,
    hello: Hello,
    said: Option<(Challenge, Proof)>,
}

/// What the dialer does next.
#[derive(Debug)]
pub enum AskStep {
    /// Read on.
    More,
    /// Send this and read on.
    Send([u8; Proof::LEN]),
    /// The connection stands; the peer expects this frame next.
    Welcomed(u64),
}

impl Ask {
    /// A connection was made to where `to` should listen: send the bytes, then read. `nonce` must be
    /// fresh and unpredictable.
    #[must_use]
    pub fn new(us: &Identity, to: ProcId, nonce: Nonce) -> (Self, [u8; Hello::LEN]) {
        let hello = Hello {
            magic: MAGIC,
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            from: us.me,
            to,
            job: us.job,
            nonce,
        };
        (Self { inbox: Inbox::new(Challenge::LEN), hello, said: None }, hello.encode())
    }

    /// Where to read to, and at most how much; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// Whether the proof has been sent: the listener may count the connection as standing.
    #[must_use]
    pub fn has_proven(&self) -> bool {
        self.said.is_some()
    }

    /// `count` bytes were read into [`Self::space`]. `claim` is what holds now.
    ///
    /// # Errors
    /// The peer is not what it should be, or does not want us: close.
    pub fn read(
        &mut self,
        count: usize,
        us: &Identity,
        claim: Claim,
    ) -> Result<AskStep, HandshakeError> {
        match self.said {
            None => self.read_challenge(count, us, claim),
            Some(said) => self.read_welcome(count, us, said),
        }
    }

    fn read_challenge(
        &mut self,
        count: usize,
        us: &Identity,
        claim: Claim,
    ) -> Result<AskStep, HandshakeError> {
        let Some(bytes) = self.inbox.filled(count) else {
            self.inbox.check_magic(&MAGIC)?;
            return Ok(AskStep::More);
        };
        let challenge = Challenge::decode(&bytes)?;
        if !challenge.is_genuine(&us.key, &self.hello) {
            return Err(HandshakeError::NotGenuine);
        }
        match challenge.verdict {
            Verdict::Accepted => {}
            Verdict::NoCommonVersion => return Err(HandshakeError::NoCommonVersion),
            verdict => return Err(HandshakeError::Refused(verdict)),
        }
        if !(VERSION_MIN..=VERSION_MAX).contains(&challenge.version) {
            return Err(WireError::Field("version").into());
        }
        let Claim { resume, strand, standing } = claim;
        let proof = Proof { resume, strand, standing, mac: [0; 32] };
        let proof = proof.signed(&us.key, &self.hello, &challenge);
        self.said = Some((challenge, proof));
        self.inbox = Inbox::new(Welcome::LEN);
        Ok(AskStep::Send(proof.encode()))
    }

    fn read_welcome(
        &mut self,
        count: usize,
        us: &Identity,
        (challenge, proof): (Challenge, Proof),
    ) -> Result<AskStep, HandshakeError> {
        let Some(bytes) = self.inbox.filled(count) else { return Ok(AskStep::More) };
        let welcome = Welcome::decode(&bytes)?;
        if !welcome.is_genuine(&us.key, (&self.hello, &challenge, &proof)) {
            return Err(HandshakeError::NotGenuine);
        }
        match welcome.verdict {
            Verdict::Accepted => Ok(AskStep::Welcomed(welcome.resume)),
            verdict => Err(HandshakeError::Refused(verdict)),
        }
    }
}
