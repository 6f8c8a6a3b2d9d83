//! Records are of use only when they are whole: the kernel is told how much of the one that comes is missing, so that nobody is woken for less.

use std::os::fd::OwnedFd;

use crate::options::set_least_readable;

/// Less comes in one packet or two: not worth a system call.
const WORTH: usize = 3000;

/// Where one is in what TLS sends (RFC 8446 §5.1).
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// What has come of a head.
    head: [u8; 5],
    head_len: usize,
    /// What is missing of the record behind the last head.
    rest: usize,
}

impl Records {
    /// These bytes have come.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = bytes.len().min(self.missing());
            if self.rest > 0 {
                self.rest -= count;
            } else {
                self.head[self.head_len..][..count].copy_from_slice(&bytes[..count]);
                self.head_len += count;
                if self.head_len == self.head.len() {
                    self.head_len = 0;
                    self.rest = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
                }
            }
            bytes = &bytes[count..];
        }
    }

    /// Bytes without which nothing can be made of what comes next, 1 at least.
    pub(crate) const fn missing(&self) -> usize {
        if self.rest > 0 { self.rest } else { self.head.len() - self.head_len }
    }
}

/// For how many bytes in it a socket is ready to be read. Where less than that fits into its buffer the kernel sees to it that it is all the same.
#[derive(Debug)]
pub(crate) struct Least(usize);

impl Default for Least {
    fn default() -> Self {
        Self(1)
    }
}

impl Least {
    /// So many bytes are missing. Never more than that is waited for from now on.
    pub(crate) fn await_missing(&mut self, fd: &OwnedFd, missing: usize) {
        let least = if missing < WORTH { 1 } else { missing };
        let is_too_much = self.0 > missing;
        if (is_too_much || least >= self.0 + WORTH) && set_least_readable(fd, least).is_ok() {
            self.0 = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of records of these lengths, cut into pieces of that many bytes: what is missing after each piece.
    fn missing(lengths: &[u16], piece: usize) -> Vec<usize> {
        let record = |len: &u16| {
            let [high, low] = len.to_be_bytes();
            [&[23, 3, 3, high, low][..], &vec![7; usize::from(*len)]].concat()
        };
        let bytes: Vec<u8> = lengths.iter().flat_map(record).collect();
        let mut records = Records::default();
        let after = |piece| {
            records.pass(piece);
            records.missing()
        };
        bytes.chunks(piece).map(after).collect()
    }

    #[test]
    fn what_is_missing_of_a_record_is_known() {
        assert_eq!(missing(&[10, 3], 5), [10, 5, 5, 3, 5]);
        assert_eq!(missing(&[10, 3], 3), [2, 9, 6, 3, 5, 2, 2, 5]);
        assert_eq!(missing(&[16_000], 1448)[..3], [14_557, 13_109, 11_661]);
        assert_eq!(missing(&[100; 50], 5250), [5]);
        assert_eq!(missing(&[0, 0], 7), [3, 5], "rustls says what is wrong with that");
    }

    #[test]
    fn a_socket_is_ready_when_what_was_missing_is_there_and_not_before() {
        use std::io::Write;
        use std::time::Duration;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut writer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        writer.set_nodelay(true).unwrap();
        let fd = OwnedFd::from(listener.accept().unwrap().0);
        let poller = crate::poller::Poller::new().unwrap();
        let mut slots = crate::poller::Slots::<()>::default();
        poller.add(&fd, slots.reserve(), crate::poller::Interest::Read).unwrap();
        let mut is_ready = |wait| {
            let mut ready = Vec::new();
            poller.wait(Some(Duration::from_millis(wait)), &mut ready).unwrap();
            !ready.is_empty()
        };
        let mut least = Least::default();
        least.await_missing(&fd, 16_000);
        writer.write_all(&[0; 15_999]).unwrap();
        assert!(!is_ready(50));
        writer.write_all(&[0; 1]).unwrap();
        assert!(is_ready(10_000));
        // Without a byte having been read.
        least.await_missing(&fd, 20_000);
        assert!(!is_ready(0));
        least.await_missing(&fd, 5);
        assert!(is_ready(10_000));
        // The end is told at once.
        least.await_missing(&fd, 60_000);
        drop(writer);
        assert!(is_ready(10_000));
    }
}
