//! When a connection that rests is looked after (tcp(7), `TCP_KEEPIDLE`, `TCP_KEEPINTVL`).

use rustix::io;
use rustix::net::sockopt;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Of the time until a connection that rests is looked after for the first time, the part that all have in common, at least.
const FIRST: u64 = 2;
/// The same of the time until it is looked after again when nobody has answered.
const AGAIN: u64 = 3;

/// Has the kernel look after a connection when it has rested for `first`, and again each `again` while nobody answers: each time is
/// that at most, by whole seconds as the kernel counts, never less than one, and shorter by what differs from socket to socket.
///
/// Thousands of connections that came about together would otherwise look together, and again together: the kernel's timers are
/// the coarser the longer they run, so many packets at once overflow queues (`netdev_max_backlog`, 1,000), those at the end of the row
/// lose each time, and who is not answered several times is lost.
///
/// # Errors
/// It is no socket of TCP.
pub fn look_after(socket: &impl AsFd, first: Duration, again: Duration) -> io::Result<()> {
    let (first, again) = spread(socket.as_fd().as_raw_fd().unsigned_abs(), first, again);
    sockopt::set_tcp_keepidle(socket, first)?;
    sockopt::set_tcp_keepintvl(socket, again)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// The two times of a socket. Sockets that are made one after the other have numbers one after the other; those that look together
/// first do not all look together again.
fn spread(number: u32, first: Duration, again: Duration) -> (Duration, Duration) {
    let (first, rest) = shorten(u64::from(number), first, FIRST);
    let (again, _) = shorten(rest, again, AGAIN);
    (first, again)
}

/// Shortens a time by a number, to 1 part of `parts` at least; what of the number is not used for that.
fn shorten(number: u64, most: Duration, parts: u64) -> (Duration, u64) {
    let whole = most.as_secs().max(1);
    let least = whole.div_ceil(parts);
    let choices = whole - least + 1;
    (Duration::from_secs(whole - number % choices), number / choices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all(first: f64, again: f64) -> BTreeSet<(u64, u64)> {
        let of = |number| {
            let (first, again) =
                spread(number, Duration::from_secs_f64(first), Duration::from_secs_f64(again));
            (first.as_secs(), again.as_secs())
        };
        (10..1000).map(of).collect()
    }

    #[test]
    fn connections_that_are_made_together_do_not_look_together_nor_late() {
        let first = |most| all(most, 1.0).into_iter().map(|(first, _)| first).collect::<Vec<_>>();
        assert_eq!(first(10.0), [5, 6, 7, 8, 9, 10]);
        assert_eq!(first(30.0), (15..=30).collect::<Vec<_>>());
        assert_eq!(first(1.0), [1]);
        assert_eq!(first(0.2), [1]);
    }

    #[test]
    fn those_that_look_together_do_not_look_together_again() {
        let every: BTreeSet<_> =
            (5..=10).flat_map(|first| [1, 2, 3].map(|again| (first, again))).collect();
        assert_eq!(all(10.0, 3.0), every);
        assert_eq!(all(1.0, 10.0), (4..=10).map(|again| (1, again)).collect());
        assert_eq!(all(0.0, 0.5), [(1, 1)].into());
    }

    #[test]
    fn the_kernel_is_told() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        look_after(&socket, Duration::from_secs(10), Duration::from_secs(3)).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let number = socket.as_fd().as_raw_fd().unsigned_abs();
        let told =
            (sockopt::tcp_keepidle(&socket).unwrap(), sockopt::tcp_keepintvl(&socket).unwrap());
        assert_eq!(told, spread(number, Duration::from_secs(10), Duration::from_secs(3)));
    }
}
