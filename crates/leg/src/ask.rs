//! The process's side.

use gridmpi_wire::{
    Errand, Inbox, JobId, JobKey, LEG_MAGIC, LEG_VERSION_MAX, LEG_VERSION_MIN, LegAnswer,
    LegChallenge, LegHello, LegRequest, LegVerdict, Nonce, ProcId, WireError,
};

use crate::LegError;

/// Who asks: the same for all legs of a process.
#[derive(Clone, Debug)]
pub struct Asker {
    /// This process.
    pub me: ProcId,
    /// The job.
    pub job: JobId,
    /// The relay's token.
    pub token: JobKey,
}

/// The longest message that comes.
const LONGEST: usize = LegChallenge::LEN;
const _: () = assert!(LegAnswer::LEN <= LONGEST);

/// A request on its way.
#[derive(Debug)]
pub struct Ask {
    inbox: Inbox<LONGEST>,
    hello: LegHello,
    errand: Errand,
    said: Option<(LegChallenge, LegRequest)>,
}

/// What the process does next.
#[derive(Debug)]
pub enum AskStep {
    /// Read on.
    More,
    /// Send this and read on. Where a circuit is wanted its first bytes may follow at once: the relay keeps them until
    /// the circuit stands.
    Send([u8; LegRequest::LEN]),
    /// Done: what comes now is the circuit's, or notices.
    Done,
}

impl Ask {
    /// A connection to the relay was made: send the bytes, then read. `nonce` must be fresh and unpredictable.
    #[must_use]
    pub fn new(asker: &Asker, errand: Errand, nonce: Nonce) -> (Self, [u8; LegHello::LEN]) {
        let hello = LegHello {
            magic: LEG_MAGIC,
            version_min: LEG_VERSION_MIN,
            version_max: LEG_VERSION_MAX,
            token: asker.token.token_id(),
            nonce,
        };
        (Self { inbox: Inbox::new(LegChallenge::LEN), hello, errand, said: None }, hello.encode())
    }

    /// Where to read to, and at most how much; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.inbox.space()
    }

    /// `count` bytes were read into [`Self::space`].
    ///
    /// # Errors
    /// The relay is not what it should be, or does not do it: close.
    pub fn read(&mut self, count: usize, asker: &Asker) -> Result<AskStep, LegError> {
        match self.said {
            None => self.read_challenge(count, asker),
            Some(said) => self.read_answer(count, asker, said),
        }
    }

    fn read_challenge(&mut self, count: usize, asker: &Asker) -> Result<AskStep, LegError> {
        let Some(bytes) = self.inbox.filled(count) else {
            self.inbox.check_magic(&LEG_MAGIC)?;
            return Ok(AskStep::More);
        };
        let challenge = LegChallenge::decode(&bytes)?;
        // Who does not know the token cannot sign that it does not.
        if challenge.verdict == LegVerdict::UnknownToken {
            return Err(LegError::Refused(challenge.verdict));
        }
        if !challenge.is_genuine(&asker.token, &self.hello) {
            return Err(LegError::NotGenuine);
        }
        if challenge.verdict != LegVerdict::Accepted {
            return Err(LegError::Refused(challenge.verdict));
        }
        if !(LEG_VERSION_MIN..=LEG_VERSION_MAX).contains(&challenge.version) {
            return Err(WireError::Field("version").into());
        }
        let request =
            LegRequest { errand: self.errand, job: asker.job, from: asker.me, mac: [0; 32] };
        let request = request.signed(&asker.token, &self.hello, &challenge);
        self.said = Some((challenge, request));
        self.inbox = Inbox::new(LegAnswer::LEN);
        Ok(AskStep::Send(request.encode()))
    }

    fn read_answer(
        &mut self,
        count: usize,
        asker: &Asker,
        (challenge, request): (LegChallenge, LegRequest),
    ) -> Result<AskStep, LegError> {
        let Some(bytes) = self.inbox.filled(count) else { return Ok(AskStep::More) };
        let answer = LegAnswer::decode(&bytes)?;
        if !answer.is_genuine(&asker.token, (&self.hello, &challenge, &request)) {
            return Err(LegError::NotGenuine);
        }
        match answer.verdict {
            LegVerdict::Accepted => Ok(AskStep::Done),
            verdict => Err(LegError::Refused(verdict)),
        }
    }
}
