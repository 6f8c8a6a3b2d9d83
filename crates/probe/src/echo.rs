//! Small messages to and fro.

use crate::message::Purpose;
use crate::reach::{Dialler, Reach};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a message.
const SIZE: usize = 16;
/// Time to connect, and the longest that one message may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Round trips to one node, microseconds: at most `count`, one each `every`, until `over` or the deadline.
pub(crate) fn run(
    to: &Reach,
    dialler: &Dialler,
    (count, every): (u32, Duration),
    deadline: Instant,
    over: &AtomicBool,
) -> Result<Vec<u32>, String> {
    let broken = |error: std::io::Error| format!("an echo broke off: {error}");
    let mut line = dialler.dial(to, 0)?;
    line.send(&Purpose::Echo, Instant::now() + PATIENCE).map_err(|error| error.to_string())?;
    let mut stream = line.into_stream().map_err(broken)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    // The first one may meet a far end that is still waking up.
    trip(&mut stream, 0).map_err(broken)?;
    let mut trips = Vec::new();
    for number in 1..=count {
        if over.load(Ordering::Acquire) || Instant::now() >= deadline {
            break;
        }
        let took = trip(&mut stream, number).map_err(broken)?;
        trips.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        std::thread::sleep(every.saturating_sub(took));
    }
    Ok(trips)
}

fn trip(stream: &mut TcpStream, number: u32) -> std::io::Result<Duration> {
    let mut message = [0; SIZE];
    message[..4].copy_from_slice(&number.to_le_bytes());
    let began = Instant::now();
    stream.write_all(&message)?;
    let mut back = [0; SIZE];
    stream.read_exact(&mut back)?;
    if back == message { Ok(began.elapsed()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

/// Sends back what comes, until the far end has had enough.
pub(crate) fn answer(mut stream: TcpStream) {
    let patience =
        stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    let mut message = [0; SIZE];
    while patience.is_ok() && stream.read_exact(&mut message).is_ok() {
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}
