//! The client's end of a session with the coordinator: a thread that holds the connection, and makes it again when it is lost.

use crate::aside;
use crate::channel::{ChannelError, TABLE, WORD};
use crate::client::broken;
use crate::connect::tune_briskly;
use crate::error::BootstrapError;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::model::NetworkInfo;
use crate::reach::{ANSWER, Caller, Missed, REACH, Reached};
use crate::session::{End, Envelope, Hearer, Line, Opening, Patience, Session, SessionId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// First pause between two attempts; doubled each time, up to [`PAUSE_MOST`].
const PAUSE_LEAST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(2);
/// A connection that has stood for so long is made again at once when it is lost.
const STEADY: Duration = Duration::from_secs(2);
/// Time for the first attempt, so that one that meets a silent path does not cost much; doubled each time, up to [`REACH`].
const ATTEMPT: Duration = Duration::from_millis(2500);
/// Time for another way beside a silent one.
const BESIDE: Duration = Duration::from_secs(5);
const STACK: usize = 512 << 10;

/// Times that tests have shorter.
#[derive(Clone, Copy)]
struct Times {
    /// A coordinator that is not where it was does not come back. Time for what is only on the way to it, such as a gateway that
    /// starts again.
    nowhere: Duration,
    /// For the coordinator's first answer on a connection.
    answer: Duration,
    /// For signs of the coordinator, where there are relays between.
    signs: Patience,
}

const TIMES: Times = Times {
    nowhere: Duration::from_secs(5),
    answer: ANSWER,
    signs: Patience { answer: Duration::from_secs(10), rest: Duration::from_secs(5) },
};

/// What a keeper tells.
pub(crate) enum News {
    Said(FromCoordinator),
    /// The connection is lost, and dialled again.
    Away(String),
    /// It stands again.
    Back,
    /// The session is over; the last news.
    Gone(String),
}

/// Holds the session until dropped. Methods may be called from any thread.
pub(crate) struct Keeper {
    session: Arc<Session<ToCoordinator>>,
}

impl Keeper {
    /// Connects, says `first`, and passes on what comes from a thread of its own.
    pub(crate) fn start(
        caller: Caller,
        first: ToCoordinator,
        deadline: Instant,
        tell: impl FnMut(News) + Send + 'static,
    ) -> Result<Self, BootstrapError> {
        Self::start_with(TIMES, caller, first, deadline, tell)
    }

    fn start_with(
        times: Times,
        caller: Caller,
        first: ToCoordinator,
        deadline: Instant,
        tell: impl FnMut(News) + Send + 'static,
    ) -> Result<Self, BootstrapError> {
        let session = Arc::new(Session::new(0));
        session.say(Arc::new(first));
        let id = SessionId::random().map_err(BootstrapError::gone)?;
        let mut work = Work {
            caller: caller.clone(),
            id,
            session: Arc::clone(&session),
            direct: None,
            times,
            ear: Ear {
                tell,
                patience: NetworkInfo::default().reconnect(),
                state: Job::On,
                is_told: false,
            },
        };
        let open = |reached, deadline| work.open(reached, deadline);
        let line = caller.reach(times.answer, deadline, open)?;
        let serve = move || work.run(line);
        aside::spawn("gridmpi-job", STACK, serve).map_err(BootstrapError::gone)?;
        Ok(Self { session })
    }

    /// Says something. Waits until the coordinator has had it, the session is over, or time is; whether it has.
    pub(crate) fn say(&self, message: ToCoordinator, deadline: Instant) -> bool {
        self.session.say(Arc::new(message));
        self.session.wait_heard(deadline)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.session.close();
    }
}

/// How far the job is, as the coordinator has said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    On,
    /// It ends; the coordinator may leave.
    Ending,
    /// We are none of it.
    Refused,
}

/// Hears the coordinator.
struct Ear<T> {
    tell: T,
    /// How long a lost connection is tried to be made again.
    patience: Duration,
    state: Job,
    /// The job's table has come, or terms, after which there is none.
    is_told: bool,
}

impl<T: FnMut(News)> Hearer<FromCoordinator> for Ear<T> {
    fn up(&mut self, first: bool) {
        if !first {
            (self.tell)(News::Back);
        }
    }

    fn hear(&mut self, message: FromCoordinator) {
        match &message {
            FromCoordinator::Table(table) => {
                (self.patience, self.is_told) = (table.network.reconnect(), true);
            }
            FromCoordinator::Joined(terms) => {
                (self.patience, self.is_told) = (Duration::from_secs(terms.reconnect_s), true);
            }
            FromCoordinator::Ended { .. } => self.state = Job::Ending,
            FromCoordinator::Refused { .. } => self.state = Job::Refused,
            FromCoordinator::Signal { .. } => {}
        }
        (self.tell)(News::Said(message));
    }

    fn longest(&self) -> usize {
        if self.is_told { WORD } else { TABLE }
    }

    fn down(&mut self, problem: &ChannelError) {
        if self.state != Job::Refused {
            (self.tell)(News::Away(problem.to_string()));
        }
    }
}

struct Work<T> {
    caller: Caller,
    id: SessionId,
    session: Arc<Session<ToCoordinator>>,
    /// Where the last connection led to, if no relay was between.
    direct: Option<SocketAddr>,
    times: Times,
    ear: Ear<T>,
}

impl<T: FnMut(News)> Work<T> {
    fn run(mut self, mut line: Line) {
        let mut pause = Duration::ZERO;
        let mut since = Instant::now();
        loop {
            let other = match self.session.serve(&mut line, &mut self.ear) {
                End::Closed | End::Replaced => return,
                End::Silent => match self.beside(&line) {
                    Ok(None) => continue,
                    other => other,
                },
                End::Broken(_) if self.ear.state == Job::Refused => return self.session.close(),
                End::Broken(problem) => {
                    drop(line);
                    if since.elapsed() >= STEADY {
                        pause = Duration::ZERO;
                    }
                    self.again(&problem, &mut pause)
                }
            };
            (line, since) = match other {
                Ok(Some(other)) => (other, Instant::now()),
                Ok(None) => return,
                Err(why) => {
                    (self.ear.tell)(News::Gone(why));
                    return self.session.close();
                }
            };
        }
    }

    /// A connection by another way than one that is silent, if there is any. Else that stands: it may be the coordinator that is stopped,
    /// not a relay, and it goes on some time.
    fn beside(&mut self, silent: &Line) -> Result<Option<Line>, String> {
        match self.once(Instant::now() + BESIDE) {
            Ok(line) => {
                silent.break_off();
                (self.ear.tell)(News::Away("no answer through a relay".to_owned()));
                Ok(Some(line))
            }
            Err(Missed { error: BootstrapError::Refused(reason), .. }) => Err(reason),
            Err(_) => Ok(None),
        }
    }

    /// Says which session this is, and how far we are in it.
    fn open(&mut self, reached: Reached, deadline: Instant) -> Result<Line, BootstrapError> {
        let direct = reached.direct();
        let (mut reader, mut writer) = reached.channel.split().map_err(BootstrapError::gone)?;
        tune_briskly(reader.stream()).map_err(BootstrapError::gone)?;
        let told = self.session.heard();
        let opening =
            Opening { session: self.id, cluster: self.caller.cluster.clone(), received: told };
        writer.send(&opening, deadline).map_err(broken)?;
        let answer = reader.receive(deadline).map_err(broken)?;
        let next = match answer {
            Envelope::<FromCoordinator> { received, message: None, .. } => received,
            Envelope { message: Some((_, FromCoordinator::Refused { reason })), .. } => {
                return Err(BootstrapError::Refused(reason));
            }
            other => return Err(BootstrapError::Protocol(format!("{other:?} for an answer"))),
        };
        self.direct = direct;
        // The other end of a direct connection is the coordinator's own kernel.
        let signs = self.direct.is_none().then_some(self.times.signs);
        Ok(Line::new((reader, writer), told, next, signs))
    }

    /// Another connection in place of a lost one; none if the session has been closed. An error is for the user.
    fn again(
        &mut self,
        problem: &ChannelError,
        pause: &mut Duration,
    ) -> Result<Option<Line>, String> {
        if !problem.is_passing() {
            return Err(problem.to_string());
        }
        let lost = Instant::now();
        let until = lost + self.ear.patience;
        let mut attempt = ATTEMPT;
        let mut nowhere_since = None;
        loop {
            if !self.session.rest(*pause) {
                return Ok(None);
            }
            *pause = (*pause * 2).clamp(PAUSE_LEAST, PAUSE_MOST);
            let missed = match self.once(until.min(Instant::now() + attempt)) {
                Ok(line) => return Ok(Some(line)),
                Err(missed) => missed,
            };
            attempt = (attempt * 2).min(REACH);
            let now = Instant::now();
            if let BootstrapError::Refused(reason) = missed.error {
                return Err(reason);
            }
            nowhere_since = nowhere_since.or(Some(now)).filter(|_| self.is_nowhere(&missed));
            let is_late =
                now >= until || nowhere_since.is_some_and(|since| now >= since + self.nowhere());
            if is_late {
                let seconds = lost.elapsed().as_secs();
                let error = missed.error;
                return Err(format!("{problem}; not to be reached again for {seconds} s: {error}"));
            }
        }
    }

    fn once(&mut self, deadline: Instant) -> Result<Line, Missed> {
        let reached = self.caller.reach_once(deadline)?;
        reached.open(self.times.answer, deadline, |reached, deadline| self.open(reached, deadline))
    }

    /// Whether nobody can be where the coordinator was. Addresses that have not led to it say nothing of it, and relays may not know it
    /// for a while: so who came through one gives up on such grounds only when the job ends anyway.
    fn is_nowhere(&self, missed: &Missed) -> bool {
        match self.direct {
            Some(at) => missed.deserted.contains(&at),
            None => missed.is_nowhere && self.ear.state == Job::Ending,
        }
    }

    fn nowhere(&self) -> Duration {
        if self.ear.state == Job::Ending { Duration::ZERO } else { self.times.nowhere }
    }
}
