//! The relay's side.

use gridmpi_wire::{
    Inbox, JobKey, LEG_MAGIC, LegAnswer, LegChallenge, LegHello, LegRequest, LegVerdict, Nonce,
    TokenId,
};

use crate::LegError;

/// The longest message that comes.
const LONGEST: usize = LegRequest::LEN;
const _: () = assert!(LegHello::LEN <= LONGEST);

/// A process that has connected and not yet said what it wants.
#[derive(Debug)]
pub struct Host {
    inbox: Inbox<LONGEST>,
    nonce: Nonce,
    said: Option<Said>,
}

#[derive(Debug)]
struct Said {
    token: JobKey,
    hello: LegHello,
    challenge: LegChallenge,
}

/// What the relay does next.
#[derive(Debug)]
pub enum HostStep {
    /// Read on.
    More,
    /// Send this and read on.
    Send([u8; LegChallenge::LEN]),
    /// Send this and close.
    Refuse([u8; LegChallenge::LEN], LegVerdict),
    /// The process knows the token and wants this; what it sends from now on is the circuit's. Decide, and send
    /// [`Request::answer`].
    Asked(Box<Request>),
}

/// What a process that has proven itself wants.
#[derive(Debug)]
pub struct Request {
    said: Said,
    request: LegRequest,
}

impl Host {
    /// A connection was accepted. `nonce` must be fresh and unpredictable.
    #[must_use]
    pub fn new(nonce: Nonce) -> Self {
        Self { inbox: Inbox::new(LegHello::LEN), nonce, said: None }
    }

    /// Where to read to, and at most how much; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// `count` bytes were read into [`Self::space`]. `token` finds a token by its name.
    ///
    /// # Errors
    /// The other side is not what it should be: close, and say nothing.
    pub fn read(
        &mut self,
        count: usize,
        token: impl FnOnce(&TokenId) -> Option<JobKey>,
    ) -> Result<HostStep, LegError> {
        match self.said.take() {
            None => self.read_hello(count, token),
            Some(said) => self.read_request(count, said),
        }
    }

    fn read_hello(
        &mut self,
        count: usize,
        token: impl FnOnce(&TokenId) -> Option<JobKey>,
    ) -> Result<HostStep, LegError> {
        let Some(bytes) = self.inbox.filled(count) else {
            self.inbox.check_magic(&LEG_MAGIC)?;
            return Ok(HostStep::More);
        };
        let hello = LegHello::decode(&bytes)?;
        let unsigned = |version, verdict| LegChallenge {
            magic: LEG_MAGIC,
            version,
            verdict,
            nonce: self.nonce,
            mac: [0; 32],
        };
        let Some(token) = token(&hello.token) else {
            let verdict = LegVerdict::UnknownToken;
            return Ok(HostStep::Refuse(unsigned(0, verdict).encode(), verdict));
        };
        let Some(version) = hello.choose_version() else {
            let verdict = LegVerdict::NoCommonVersion;
            let challenge = unsigned(0, verdict).signed(&token, &hello);
            return Ok(HostStep::Refuse(challenge.encode(), verdict));
        };
        let challenge = unsigned(version, LegVerdict::Accepted).signed(&token, &hello);
        self.said = Some(Said { token, hello, challenge });
        self.inbox = Inbox::new(LegRequest::LEN);
        Ok(HostStep::Send(challenge.encode()))
    }

    fn read_request(&mut self, count: usize, said: Said) -> Result<HostStep, LegError> {
        let Some(bytes) = self.inbox.filled(count) else {
            self.said = Some(said);
            return Ok(HostStep::More);
        };
        let request = LegRequest::decode(&bytes)?;
        if !request.is_genuine(&said.token, &said.hello, &said.challenge) {
            return Err(LegError::NotGenuine);
        }
        Ok(HostStep::Asked(Box::new(Request { said, request })))
    }
}

impl Request {
    /// What is wanted, by whom.
    #[must_use]
    pub fn what(&self) -> &LegRequest {
        &self.request
    }

    /// The token that was proven.
    #[must_use]
    pub fn token(&self) -> TokenId {
        self.said.hello.token
    }

    /// The relay's last message before the circuit's bytes, or before it closes.
    #[must_use]
    pub fn answer(&self, verdict: LegVerdict) -> [u8; LegAnswer::LEN] {
        let Said { token, hello, challenge } = &self.said;
        let unsigned = LegAnswer { verdict, mac: [0; 32] };
        unsigned.signed(token, (hello, challenge, &self.request)).encode()
    }
}
