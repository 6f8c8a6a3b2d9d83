//! When a connection that rests is looked after (tcp(7), `TCP_KEEPIDLE`).

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// After how long this socket is to look after a connection that rests: `most` at most, half of it at least, by whole seconds as the
/// kernel counts, never less than one. Thousands of connections that came about together would look together otherwise; so many packets
/// at once overflow queues, and who is not answered several times is lost.
#[must_use]
pub fn rest_of(socket: &impl AsFd, most: Duration) -> Duration {
    spread(socket.as_fd().as_raw_fd().unsigned_abs(), most)
}

fn spread(number: u32, most: Duration) -> Duration {
    let whole = most.as_secs().max(1);
    // Sockets that are made one after the other have numbers one after the other.
    let less = u64::from(number) % (whole / 2 + 1);
    Duration::from_secs(whole - less)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn connections_that_are_made_together_do_not_look_together_nor_late() {
        let seconds = |most: f64| {
            let of = |number| spread(number, Duration::from_secs_f64(most)).as_secs();
            (10..60).map(of).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(seconds(10.0), [5, 6, 7, 8, 9, 10]);
        assert_eq!(seconds(30.0), (15..=30).collect::<Vec<_>>());
        assert_eq!(seconds(1.0), [1]);
        assert_eq!(seconds(0.2), [1]);
    }
}
