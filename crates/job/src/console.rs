//! Messages to the user: on stderr, each line ours by its beginning.
//!
//! They leave by a thread of their own: whoever reads them may rest for as long as he likes, and nobody who has something to say waits
//! for him, least of all the one who has to end a job.

use crate::patient::Patient;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The most that waits to be read, in bytes; what is said beyond it is left out.
const MOST: usize = 1 << 20;
/// Written at a time, as far as lines are not longer: what shows that somebody reads.
const PIECE: usize = 4 << 10;
/// At the end of the process, readers have this long to take something more.
const LAST: Duration = Duration::from_secs(1);

/// Writes `gridmpi: ` and the message.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::console::write(&format!($($arg)*))
    };
}
pub(crate) use say;

/// The one of this process; none where no thread can be had for it.
static CONSOLE: OnceLock<Option<Outlet>> = OnceLock::new();

/// Says something, without waiting. To be followed by [`flush`] before the process ends.
pub(crate) fn write(message: &str) {
    let text = lines(message);
    match CONSOLE.get_or_init(|| Outlet::start(Patient(io::stderr())).ok()) {
        Some(outlet) => outlet.put(text),
        // Nobody may be there to read it any more.
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// Waits until all that was said has been taken, or nothing of it for a while.
pub(crate) fn flush() {
    if let Some(Some(outlet)) = CONSOLE.get() {
        outlet.flush(LAST);
    }
}

fn lines(message: &str) -> String {
    let mut text = String::new();
    for (index, line) in message.trim_end().lines().enumerate() {
        text.push_str(if index == 0 { "gridmpi: " } else { "         " });
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Where texts wait for the thread that writes them, in their order.
struct Outlet(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was put in, or taken, or nothing is left.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    texts: VecDeque<String>,
    /// Bytes of them.
    waiting: usize,
    /// Messages that found no room.
    left_out: usize,
    /// The thread has a text in its hands.
    is_writing: bool,
    /// How often something has been taken.
    taken: u64,
}

impl Outlet {
    fn start(to: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("console".to_owned());
        thread.spawn(move || its.write_to(to))?;
        Ok(Self(shared))
    }

    fn put(&self, text: String) {
        let mut state = self.0.lock();
        // One text always finds room, however long it is.
        if state.waiting > 0 && state.waiting + text.len() > MOST {
            state.left_out += 1;
            return;
        }
        let text = state.gap().unwrap_or_default() + &text;
        state.waiting += text.len();
        state.texts.push_back(text);
        self.0.changed.notify_all();
    }

    /// Waits until everything has been taken; no longer when nothing was for so long.
    fn flush(&self, rest: Duration) {
        let mut state = self.0.lock();
        let mut until = Instant::now() + rest;
        while state.is_writing || !state.texts.is_empty() {
            let (left, before) = (until.saturating_duration_since(Instant::now()), state.taken);
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.taken != before {
                until = Instant::now() + rest;
            }
        }
    }
}

impl State {
    /// What is said, once, in the place of messages that were left out.
    fn gap(&mut self) -> Option<String> {
        let count = std::mem::take(&mut self.left_out);
        let gap = || lines(&format!("messages were left out here, {count}: nobody read them"));
        (count > 0).then(gap)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For as long as the process lives.
    fn write_to(&self, mut to: impl Write) {
        loop {
            let text = self.next();
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                match to.write(piece(rest)) {
                    Ok(count) if count > 0 => rest = &rest[count..],
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // Nobody may be there to read it any more, or the disk be full.
                    _ => rest = &[],
                }
                self.took();
            }
        }
    }

    fn next(&self) -> String {
        let mut state = self.lock();
        state.is_writing = false;
        loop {
            if let Some(text) = state.texts.pop_front() {
                state.waiting -= text.len();
                state.is_writing = true;
                return text;
            }
            if let Some(gap) = state.gap() {
                state.is_writing = true;
                return gap;
            }
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn took(&self) {
        self.lock().taken += 1;
        self.changed.notify_all();
    }
}

/// Whole lines, if there are any.
fn piece(text: &[u8]) -> &[u8] {
    let most = &text[..text.len().min(PIECE)];
    let end = most.iter().rposition(|byte| *byte == b'\n').map_or(most.len(), |at| at + 1);
    &most[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Takes what it is given when it is let, and passes it on.
    struct Gate(Receiver<()>, Sender<String>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.1.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (Outlet, Sender<()>, Receiver<String>) {
        let ((open, opened), (seen, read)) = (channel(), channel());
        (Outlet::start(Gate(opened, seen)).unwrap(), open, read)
    }

    #[test]
    fn who_speaks_does_not_wait_and_who_reads_misses_nothing() {
        let (outlet, open, read) = gated();
        let said: Vec<String> = (0..1000).map(|n| format!("{n}\n")).collect();
        said.iter().for_each(|text| outlet.put(text.clone()));
        said.iter().for_each(|_| open.send(()).unwrap());
        outlet.flush(Duration::from_secs(60));
        assert_eq!(read.try_iter().collect::<Vec<_>>(), said);
    }

    #[test]
    fn what_finds_no_room_is_counted_in_its_place() {
        let (outlet, open, read) = gated();
        let long = "x".repeat(2 * MOST);
        // The first is in the thread's hands, so that the queue is empty for the second.
        outlet.put("first\n".to_owned());
        while outlet.0.lock().waiting > 0 {
            std::thread::yield_now();
        }
        ["\n", "a\n", "b\n"].iter().for_each(|end| outlet.put(long.clone() + end));
        (0..2 * MOST / PIECE + 10).for_each(|_| open.send(()).unwrap());
        outlet.flush(Duration::from_secs(60));
        outlet.put("last\n".to_owned());
        outlet.flush(Duration::from_secs(60));
        let read: String = read.try_iter().collect();
        let rest = read.strip_prefix(&format!("first\n{long}\n")).unwrap();
        assert!(rest.starts_with("gridmpi: messages were left out here, 2: "), "{rest}");
        assert!(rest.ends_with("\nlast\n") && rest.lines().count() == 2, "{rest}");
    }

    #[test]
    fn the_end_does_not_wait_for_who_reads_nothing() {
        let (outlet, open, read) = gated();
        outlet.put("a\n".to_owned());
        outlet.flush(Duration::from_millis(10));
        assert!(read.try_recv().is_err());
        open.send(()).unwrap();
        outlet.flush(Duration::from_secs(60));
        assert_eq!(read.try_recv().unwrap(), "a\n");
        drop(open);
        outlet.put("nobody\n".to_owned());
        outlet.flush(Duration::from_secs(60));
    }

    #[test]
    fn each_line_is_ours_by_its_beginning() {
        assert_eq!(lines("one\ntwo\n"), "gridmpi: one\n         two\n");
        assert_eq!(lines("\n"), "");
    }
}
