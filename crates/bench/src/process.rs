//! Commands with a deadline.

use crate::error::BenchError;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest part of what a failed command said that is passed on, bytes.
const TAIL: usize = 600;

/// How long a command may take to end that is asked to.
const GRACE: Duration = Duration::from_secs(15);
/// How often it is looked whether there is enough of what a command does.
const LOOK: Duration = Duration::from_millis(100);

/// What a command said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A command under way. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    name: String,
    pid: u32,
    started: Instant,
    ended: Receiver<(std::io::Result<ExitStatus>, Said)>,
    lines: Receiver<String>,
    is_over: bool,
}

/// Starts a command without input; `name` is what errors call it.
///
/// # Errors
/// It cannot be started.
pub fn start(name: &str, command: &mut Command) -> Result<Running, BenchError> {
    command.stdin(Stdio::null());
    spawn(name, command).map(|(running, _)| running)
}

/// Starts a command that does what it is told; `name` is what errors call it. It is told by what is returned beside it.
///
/// # Errors
/// It cannot be started.
pub fn converse(name: &str, command: &mut Command) -> Result<(Running, ChildStdin), BenchError> {
    command.stdin(Stdio::piped());
    let (running, input) = spawn(name, command)?;
    let no_input = || BenchError::Output(format!("{name} has no standard input"));
    Ok((running, input.ok_or_else(no_input)?))
}

fn spawn(name: &str, command: &mut Command) -> Result<(Running, Option<ChildStdin>), BenchError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| BenchError::Start { command: name.to_owned(), error })?;
    let (pid, input) = (child.id(), child.stdin.take());
    let (tell_end, ended) = channel();
    let (tell_line, lines) = channel();
    // Both end with the command, which `Running` bounds.
    thread::spawn(move || {
        // Nobody listens any more after a deadline.
        let _ = tell_end.send(watch(child, &|line| drop(tell_line.send(line))));
    });
    let name = name.to_owned();
    Ok((Running { name, pid, started: Instant::now(), ended, lines, is_over: false }, input))
}

fn watch(mut child: Child, tell_line: &dyn Fn(String)) -> (std::io::Result<ExitStatus>, Said) {
    let errors = child.stderr.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let mut said = Said::default();
    if let Some(pipe) = child.stdout.take() {
        for line in std::io::BufRead::lines(std::io::BufReader::new(pipe)).map_while(Result::ok) {
            said.out.push_str(&line);
            said.out.push('\n');
            tell_line(line);
        }
    }
    said.err = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    (child.wait(), said)
}

/// Runs a command to its end.
///
/// # Errors
/// It cannot be started, fails, or does not end in time.
pub fn run(name: &str, command: &mut Command, until: Instant) -> Result<Said, BenchError> {
    start(name, command)?.finish(until)
}

impl Running {
    /// Waits until it says a line that contains `text`, and passes that on.
    ///
    /// # Errors
    /// It ends without, or the time is over.
    pub fn expect(&mut self, text: &str, until: Instant) -> Result<String, BenchError> {
        loop {
            let line = self.line(text, until)?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// The next line it says; `text` is what errors say that it has not said.
    ///
    /// # Errors
    /// It ends without, or the time is over.
    pub fn line(&mut self, text: &str, until: Instant) -> Result<String, BenchError> {
        match self.lines.recv_timeout(left(until)) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.late(until)),
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("{} ended without saying `{text}`", self.name);
                Err(BenchError::Output(message))
            }
        }
    }

    /// The lines it has said that nobody has waited for.
    pub fn said(&self) -> impl Iterator<Item = String> {
        self.lines.try_iter()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it has ended well.
    ///
    /// # Errors
    /// It fails or does not end in time.
    pub fn finish(mut self, until: Instant) -> Result<Said, BenchError> {
        match self.ended.recv_timeout(left(until)) {
            Ok((status, said)) => self.judge(status, said),
            Err(_) => Err(self.late(until)),
        }
    }

    /// Waits until there is enough of what it does, or it has ended well. Then it is asked to end, and may clean up.
    ///
    /// # Errors
    /// It fails before, or the time is over.
    pub fn until(mut self, is_enough: impl Fn() -> bool, until: Instant) -> Result<(), BenchError> {
        while !is_enough() {
            match self.ended.recv_timeout(LOOK.min(left(until))) {
                Ok((status, said)) => return self.judge(status, said).map(drop),
                Err(_) if left(until).is_zero() => return Err(self.late(until)),
                Err(_) => {}
            }
        }
        self.signal(Signal::TERM);
        self.is_over = self.ended.recv_timeout(GRACE).is_ok();
        Ok(())
    }

    /// While it has not been waited for, the id is its own.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    fn judge(
        &mut self,
        status: std::io::Result<ExitStatus>,
        said: Said,
    ) -> Result<Said, BenchError> {
        self.is_over = true;
        let code = match status {
            Ok(status) if status.success() => return Ok(said),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let all = format!("{}{}", said.err, said.out);
        Err(BenchError::Failed { command: self.name.clone(), code, message: tail(&all) })
    }

    fn late(&self, until: Instant) -> BenchError {
        let limit = until.saturating_duration_since(self.started);
        BenchError::Late { command: self.name.clone(), limit }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over && self.ended.try_recv().is_err() {
            self.signal(Signal::KILL);
        }
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The end of a text, on one line.
fn tail(text: &str) -> String {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('@'));
    let joined = lines.collect::<Vec<_>>().join("; ");
    let mut from = joined.len().saturating_sub(TAIL);
    while !joined.is_char_boundary(from) {
        from += 1;
    }
    joined[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn what_a_command_says_is_kept() {
        let said = run("it", &mut shell("echo a; echo b >&2; echo c"), soon()).unwrap();
        assert_eq!((said.out.as_str(), said.err.as_str()), ("a\nc\n", "b\n"));
    }

    #[test]
    fn a_failure_says_why() {
        let error = run("it", &mut shell("echo no luck >&2; exit 3"), soon()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("it ended with") && text.contains("no luck"), "{text}");
    }

    #[test]
    fn a_late_command_is_ended() {
        let started = start("it", &mut shell("echo up; exec cat /dev/zero >/dev/null"));
        let mut running = started.unwrap();
        running.expect("up", soon()).unwrap();
        let error = running.finish(Instant::now()).unwrap_err();
        assert!(matches!(error, BenchError::Late { .. }), "{error}");
    }

    #[test]
    fn what_has_done_enough_is_asked_to_end() {
        let file = std::env::temp_dir().join(format!("gridmpi-enough-{}", std::process::id()));
        let script = format!(
            "trap 'echo end >{0}; exit 1' TERM; echo go >{0}; while :; do sleep 0.1; done",
            file.display()
        );
        let said = || std::fs::read_to_string(&file).unwrap_or_default();
        let running = start("it", &mut shell(&script)).unwrap();
        running.until(|| said().contains("go"), soon()).unwrap();
        assert_eq!(said(), "end\n");
        std::fs::remove_file(&file).unwrap();
        let failed = start("it", &mut shell("exit 3")).unwrap();
        assert!(matches!(failed.until(|| false, soon()), Err(BenchError::Failed { .. })));
    }

    #[test]
    fn an_end_without_the_line_is_an_error() {
        let mut running = start("it", &mut shell("echo other")).unwrap();
        assert!(running.expect("up", soon()).is_err());
    }
}
