//! Tells systemd how the relay is (sd_notify(3)): a datagram to the socket that it names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// A status has so many characters at most.
const STATUS: usize = 500;

/// It serves; `status` is what `systemctl status` shows of it.
pub(crate) fn notify_ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={}", line(status)));
}

/// It drains; `status` as in [`notify_ready`].
pub(crate) fn notify_stopping(status: &str) {
    notify(&format!("STOPPING=1\nSTATUS={}", line(status)));
}

/// One line, or what follows would be taken for further messages.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(STATUS).collect()
}

/// Says it, if anybody wants to know.
fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let socket = UnixDatagram::unbound();
    if let (Ok(address), Ok(socket)) = (address, socket) {
        // Nobody is there to be told of a failure.
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// It reads its settings anew; [`notify_ready`] follows.
pub(crate) fn notify_reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    const UNIT: &str = include_str!("../../../tools/gridmpi-relay.service");

    /// What a section of the unit says of a key.
    fn value<'a>(section: &str, key: &str) -> Option<&'a str> {
        let lines = UNIT.lines().skip_while(|line| *line != section).skip(1);
        let mut lines = lines.take_while(|line| !line.starts_with('['));
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    }

    #[test]
    fn the_unit_is_understood_by_systemd_as_old_as_249() {
        assert_eq!(value("[Service]", "Type"), Some("notify"));
        assert_eq!(value("[Service]", "ExecReload"), Some("/bin/kill -HUP $MAINPID"));
        assert_eq!(value("[Unit]", "StartLimitIntervalSec"), Some("0"));
        assert_eq!(value("[Service]", "Restart"), Some("on-failure"));
    }

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        assert_eq!(super::line("a\nREADY=1\tb"), "a READY=1 b");
        assert_eq!(super::line(&"ä".repeat(9000)).chars().count(), super::STATUS);
    }

    #[test]
    fn the_unit_gives_more_time_than_draining_takes() {
        let seconds = value("[Service]", "TimeoutStopSec").and_then(|text| text.parse().ok());
        let time = Duration::from_secs(seconds.expect("a number of seconds"));
        assert!(time > crate::Config::default().drain);
    }
}
