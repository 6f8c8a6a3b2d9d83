//! Blocking sockets from node `a1` to node `b1`: the same path as a program's messages, and the same clock.
//!
//! iperf3 has another: its time begins a round trip earlier, ends without the bytes that are in the sender's kernel then, and
//! its processor time is a share of yet another span.

use crate::error::BenchError;
use crate::place::Route;
use crate::process::Running;
use crate::samples::Samples;
use crate::session::Session;
use std::ffi::OsStr;
use std::time::Instant;

/// What one transfer took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Bytes that arrived.
    pub bytes: f64,
    /// From the first send to the last byte received, seconds.
    pub seconds: f64,
    /// Processor time of both processes meanwhile, seconds.
    pub cpu: f64,
}

impl Transfer {
    /// What a program said of so many bytes.
    ///
    /// # Errors
    /// It did not say how long they took, and what they cost.
    pub fn of(samples: &Samples, bytes: u64) -> Result<Self, BenchError> {
        let sum = |name: &str| samples.get(name).map(|values| values.iter().sum::<f64>());
        Ok(Self { bytes: bytes as f64, seconds: sum("seconds")?, cpu: sum("cpu")? })
    }
}

/// Sends so many bytes over a connection of their own.
///
/// # Errors
/// The program does not compile, or a side fails.
pub fn send(session: &mut Session, route: Route, bytes: u64) -> Result<Transfer, BenchError> {
    let program = session.program("sockets")?;
    session.lab(route)?;
    let until = session.until()?;
    let lab = session.lab(route)?;
    let start = |node: &str, words: &[&str]| {
        let words = words.iter().map(OsStr::new);
        lab.start(node, &std::iter::once(program.as_os_str()).chain(words).collect::<Vec<_>>())
    };
    transfer(start, &lab.wide_address("b1"), bytes, until)
}

/// Starts both sides, each on its node.
fn transfer(
    start: impl Fn(&str, &[&str]) -> Result<Running, BenchError>,
    address: &str,
    bytes: u64,
    until: Instant,
) -> Result<Transfer, BenchError> {
    let mut receiver = start("b1", &[address])?;
    let line = receiver.expect("listening ", until)?;
    let port = line.strip_prefix("listening ").unwrap_or(&line);
    let sender = start("a1", &[address, port, &bytes.to_string()])?;
    let said = sender.finish(until)?;
    receiver.finish(until)?;
    Transfer::of(&Samples::parse(&said.out), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use crate::programs::{KNOWN, Programs};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn all_bytes_count_until_the_last_is_received() {
        let until = Instant::now() + Duration::from_secs(60);
        let programs = Programs::new(KNOWN[0].clone()).unwrap();
        let program = programs.get("sockets", until).unwrap();
        let start =
            |_: &str, words: &[&str]| process::start("sockets", Command::new(&program).args(words));
        let began = Instant::now();
        // The last piece is not a whole one.
        let sent = transfer(start, "127.0.0.1", (64 << 20) + 7, until).unwrap();
        let all = began.elapsed().as_secs_f64();
        assert_eq!(sent.bytes, f64::from((64 << 20) + 7));
        assert!(sent.seconds > 0.0 && sent.seconds < all, "{sent:?}, {all} s");
        assert!(sent.cpu > 0.0, "{sent:?}");
        assert!(Transfer::of(&Samples::parse("@seconds 1"), 1).is_err());
    }
}
