//! A conversation that outlives its connections: what the other end may not have is kept and said again over the next one, so
//! that nothing is lost and nothing heard twice. Both ends run the same code.
//!
//! Messages of a direction are numbered from 0. On a connection each end first says how many it has had, and the other goes on
//! from there; every frame after that says it again, which lets the other end forget them.
//!
//! A connection may stand and lead nowhere: a relay between that hangs has a kernel that goes on. So an end that could find another
//! way watches for signs of the other, and asks for one when nothing has come for a while. It asks, and the other answers: the
//! answer is no question.

use crate::bell::Bell;
use crate::channel::{ChannelError, Reader, WORD, Writer};
use crate::lock;
use crate::model::ClusterName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for one frame, once it has begun to go or to come.
const FRAME: Duration = Duration::from_secs(30);
/// A frame of more bytes may be on its way for long.
const LONG: usize = 64 << 10;

/// Names a session. Drawn by the client, so that only it can resume it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionId([u8; 16]);

impl SessionId {
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        let none = |_| io::Error::other("the system has no random source");
        getrandom::fill(&mut bytes).map_err(none)?;
        Ok(Self(bytes))
    }
}

/// The client's first frame on each connection of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) session: SessionId,
    pub(crate) cluster: ClusterName,
    /// How many messages of the coordinator's it has had.
    pub(crate) received: u64,
}

/// Every other frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope<M> {
    /// How many messages of the other end's its sender has had.
    pub(crate) received: u64,
    /// One of its sender's, and its number.
    pub(crate) message: Option<(u64, M)>,
    /// Its sender wants a sign: any envelope. One that is sent as such asks for none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) asks: bool,
}

impl<M> Envelope<M> {
    pub(crate) const fn saying(received: u64, number: u64, message: M) -> Self {
        Self { received, message: Some((number, message)), asks: false }
    }
}

impl Envelope<()> {
    /// Nothing but the count.
    pub(crate) const fn count(received: u64) -> Self {
        Self { received, message: None, asks: false }
    }

    const fn question(received: u64) -> Self {
        Self { asks: true, ..Self::count(received) }
    }
}

/// How long an end waits for signs of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// When it has said or asked something.
    pub(crate) answer: Duration,
    /// Before it asks, when nothing comes.
    pub(crate) rest: Duration,
}

/// What an end knows of the other's life.
struct Watch {
    patience: Patience,
    /// When something came last.
    heard: Instant,
    /// Something is to come by then.
    answer_by: Option<Instant>,
}

impl Watch {
    fn expect(&mut self, length: usize) {
        let most = if length > LONG { self.patience.answer + FRAME } else { self.patience.answer };
        self.answer_by.get_or_insert_with(|| Instant::now() + most);
    }

    /// Something has come; `owes`: the other end has still not counted all that was said to it.
    fn hear(&mut self, owes: bool) {
        self.heard = Instant::now();
        self.answer_by = owes.then(|| self.heard + self.patience.answer);
    }

    fn due(&self) -> Instant {
        self.answer_by.unwrap_or(self.heard + self.patience.rest)
    }
}

/// An open connection of a session, on which both ends have said how much they have had.
pub(crate) struct Line {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// How many messages the other end was told that we have had.
    pub(crate) told: u64,
    /// The number of our next one: how many it has had.
    pub(crate) next: u64,
    /// The other end wants a sign.
    is_asked: bool,
    watch: Option<Watch>,
    held: Option<Held>,
}

/// Which of a session's connections this is, and what wakes its service.
type Held = (u64, Arc<Bell>);

impl Line {
    /// With `patience` it is watched: the other end's silence ends its service.
    pub(crate) fn new(
        (reader, writer): (Reader, Writer),
        told: u64,
        next: u64,
        patience: Option<Patience>,
    ) -> Self {
        let watch =
            patience.map(|patience| Watch { patience, heard: Instant::now(), answer_by: None });
        Self { reader, writer, told, next, is_asked: false, watch, held: None }
    }

    /// Sends it. How long it was.
    fn send<M: Serialize>(&mut self, envelope: &Envelope<M>) -> Result<usize, ChannelError> {
        let length = self.writer.send(envelope, Instant::now() + FRAME)?;
        (self.told, self.is_asked) = (envelope.received, false);
        Ok(length)
    }

    /// Something was sent that must be answered.
    fn expect(&mut self, length: usize) {
        if let Some(watch) = &mut self.watch {
            watch.expect(length);
        }
    }

    /// It is over. An orderly end would say that this process has ended.
    pub(crate) fn break_off(&self) {
        let _ = socket2::SockRef::from(self.reader.stream()).set_linger(Some(Duration::ZERO));
    }
}

/// Who hears what comes of a session. Nothing here may wait.
pub(crate) trait Hearer<In> {
    /// A connection serves the session from now on; its `first` one.
    fn up(&mut self, first: bool);
    /// The other end's next message.
    fn hear(&mut self, message: In);
    /// Most bytes that the next frame may have.
    fn longest(&self) -> usize {
        WORD
    }
    /// That connection has ended, and none has taken its place yet.
    fn down(&mut self, problem: &ChannelError);
}

/// How a connection's service ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The session has been closed, and all was said.
    Closed,
    /// Another connection has taken its place.
    Replaced,
    /// Nothing has come for too long. It may yet: it can be served on.
    Silent,
    Broken(ChannelError),
}

/// What was said and may not have been heard.
struct Kept<M> {
    /// Number of the first.
    first: u64,
    messages: VecDeque<Arc<M>>,
}

impl<M> Kept<M> {
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    fn get(&self, number: u64) -> Option<Arc<M>> {
        let position = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.messages.get(position).cloned()
    }

    /// Whether the other end can have had so many, neither more than were said nor fewer than it once had.
    fn is_plausible(&self, heard: u64) -> bool {
        (self.first..=self.end()).contains(&heard)
    }

    fn forget(&mut self, heard: u64) -> Result<(), ChannelError> {
        if heard > self.end() {
            return Err(ChannelError::Unsaid);
        }
        let done = usize::try_from(heard.saturating_sub(self.first)).unwrap_or(0);
        self.messages.drain(..done);
        self.first = self.first.max(heard);
        Ok(())
    }
}

/// What wakes and ends the service of a connection.
struct Hold {
    stream: TcpStream,
    bell: Arc<Bell>,
}

struct State<Out> {
    kept: Kept<Out>,
    /// The connection that serves it.
    line: Option<Hold>,
    /// How many have.
    lines: u64,
    is_closed: bool,
}

/// One end of a session. Methods may be called from any thread; those that wait say so.
pub(crate) struct Session<Out> {
    state: Mutex<State<Out>>,
    changed: Condvar,
    /// How many messages have been heard. Held while one is, so that they are in order and each once.
    heard: Mutex<u64>,
}

/// What is to be done next on a connection.
enum Step<Out> {
    Say(u64, Arc<Out>),
    Wait,
    End(End),
}

impl<Out: Serialize> Session<Out> {
    /// One in which so many messages have been heard.
    pub(crate) fn new(heard: u64) -> Self {
        let kept = Kept { first: 0, messages: VecDeque::new() };
        let state = State { kept, line: None, lines: 0, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), heard: Mutex::new(heard) }
    }

    pub(crate) fn heard(&self) -> u64 {
        *lock(&self.heard)
    }

    /// Whether the other end can have had so many of our messages.
    pub(crate) fn is_plausible(&self, heard: u64) -> bool {
        lock(&self.state).kept.is_plausible(heard)
    }

    /// How many messages are kept for the other end.
    pub(crate) fn backlog(&self) -> usize {
        lock(&self.state).kept.messages.len()
    }

    /// Says something, as soon as there is a connection.
    pub(crate) fn say(&self, message: Arc<Out>) {
        let mut state = lock(&self.state);
        state.kept.messages.push_back(message);
        state.wake();
    }

    /// Waits until the other end has had all that was said. Whether it has: not when the session is closed before, or time is over.
    pub(crate) fn wait_heard(&self, deadline: Instant) -> bool {
        let is_waiting = |state: &State<Out>| !state.kept.messages.is_empty() && !state.is_closed;
        self.wait(deadline, is_waiting).kept.messages.is_empty()
    }

    /// No connection serves it when all that was said has gone out; none will any more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.wake();
        self.changed.notify_all();
    }

    /// Waits until no connection serves it.
    pub(crate) fn wait_idle(&self, deadline: Instant) {
        drop(self.wait(deadline, |state| state.line.is_some()));
    }

    /// Waits for so long. Whether the session is still open then.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        !self.wait(Instant::now() + time, |state| !state.is_closed).is_closed
    }

    fn wait(
        &self,
        deadline: Instant,
        is_waiting: impl Fn(&State<Out>) -> bool,
    ) -> MutexGuard<'_, State<Out>> {
        let mut state = lock(&self.state);
        while is_waiting(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Serves the session over a connection, which takes the place of the one before, until it ends in whatever way. Waits.
    pub(crate) fn serve<In: DeserializeOwned>(
        &self,
        line: &mut Line,
        hearer: &mut impl Hearer<In>,
    ) -> End {
        let end = self.attend(line, hearer).unwrap_or_else(End::Broken);
        if matches!(end, End::Broken(_)) {
            line.break_off();
        }
        end
    }

    fn attend<In: DeserializeOwned>(
        &self,
        line: &mut Line,
        hearer: &mut impl Hearer<In>,
    ) -> Result<End, ChannelError> {
        let (mine, bell) = match line.held.clone() {
            Some(held) => held,
            None => line.held.insert(self.begin(line, hearer)?).clone(),
        };
        let end = self.pump(line, mine, &bell, hearer).unwrap_or_else(End::Broken);
        if !matches!(end, End::Silent) {
            self.finish(mine, &end, hearer);
        }
        Ok(end)
    }

    fn begin<In>(&self, line: &Line, hearer: &mut impl Hearer<In>) -> Result<Held, ChannelError> {
        let bell = Arc::new(Bell::new()?);
        let hold = Hold { stream: line.reader.stream().try_clone()?, bell: Arc::clone(&bell) };
        let mut state = lock(&self.state);
        if !state.kept.is_plausible(line.next) {
            return Err(ChannelError::Unsaid);
        }
        state.kept.forget(line.next)?;
        state.lines += 1;
        if let Some(old) = state.line.replace(hold) {
            let _ = old.stream.shutdown(Shutdown::Both);
        }
        hearer.up(state.lines == 1);
        self.changed.notify_all();
        Ok((state.lines, bell))
    }

    fn finish<In>(&self, mine: u64, end: &End, hearer: &mut impl Hearer<In>) {
        let mut state = lock(&self.state);
        if state.lines == mine {
            state.line = None;
            if let End::Broken(problem) = end {
                hearer.down(problem);
            }
            self.changed.notify_all();
        }
    }

    fn pump<In: DeserializeOwned>(
        &self,
        line: &mut Line,
        mine: u64,
        bell: &Bell,
        hearer: &mut impl Hearer<In>,
    ) -> Result<End, ChannelError> {
        loop {
            let received = self.heard();
            match self.step(mine, line.next) {
                Step::Say(number, message) => {
                    let length = line.send(&Envelope::saying(received, number, &*message))?;
                    line.next = number + 1;
                    line.expect(length);
                }
                Step::Wait | Step::End(End::Closed) if line.told < received || line.is_asked => {
                    line.send(&Envelope::count(received))?;
                }
                Step::Wait => match wait_for(line, bell)? {
                    Woken::Came => self.take(line, hearer)?,
                    Woken::Rung => {}
                    Woken::Late => match &mut line.watch {
                        Some(Watch { answer_by: by @ Some(_), .. }) => {
                            *by = None;
                            return Ok(End::Silent);
                        }
                        _ => {
                            let length = line.send(&Envelope::question(received))?;
                            line.expect(length);
                        }
                    },
                },
                Step::End(end) => return Ok(end),
            }
        }
    }

    fn step(&self, mine: u64, next: u64) -> Step<Out> {
        let state = lock(&self.state);
        // What an earlier connection brought after all need not be said again.
        let next = state.kept.first.max(next);
        match state.kept.get(next) {
            _ if state.lines != mine => Step::End(End::Replaced),
            Some(message) => Step::Say(next, message),
            None if state.is_closed => Step::End(End::Closed),
            None => Step::Wait,
        }
    }

    /// Reads a frame and acts on it.
    fn take<In: DeserializeOwned>(
        &self,
        line: &mut Line,
        hearer: &mut impl Hearer<In>,
    ) -> Result<(), ChannelError> {
        let longest = hearer.longest();
        let envelope: Envelope<In> = line.reader.receive_within(longest, Instant::now() + FRAME)?;
        let mut state = lock(&self.state);
        state.kept.forget(envelope.received)?;
        self.changed.notify_all();
        let owes = state.kept.first < line.next;
        drop(state);
        line.is_asked |= envelope.asks;
        if let Some(watch) = &mut line.watch {
            watch.hear(owes);
        }
        let Some((number, message)) = envelope.message else { return Ok(()) };
        let mut heard = lock(&self.heard);
        if number > *heard {
            return Err(ChannelError::Unsaid);
        }
        // Otherwise an earlier connection has brought it.
        if number == *heard {
            *heard += 1;
            hearer.hear(message);
        }
        Ok(())
    }
}

impl<Out> State<Out> {
    fn wake(&self) {
        if let Some(line) = &self.line {
            line.bell.ring();
        }
    }
}

/// What a wait for the other end has come to.
enum Woken {
    Came,
    Rung,
    /// Neither, and it was time for the former.
    Late,
}

/// Waits until something comes, the bell rings, or something is due. What has come counts, however late it is looked at.
fn wait_for(line: &Line, bell: &Bell) -> io::Result<Woken> {
    let left = line.watch.as_ref().map(|w| w.due().saturating_duration_since(Instant::now()));
    let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    let stream = line.reader.stream();
    let mut fds = [PollFd::new(stream, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(0) => return Ok(Woken::Late),
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(Woken::Rung),
        Err(error) => return Err(error.into()),
    }
    if !fds[1].revents().is_empty() {
        bell.quiet();
    }
    Ok(if fds[0].revents().is_empty() { Woken::Rung } else { Woken::Came })
}

#[cfg(test)]
mod tests;
