//! Writing to streams that others may have made non-blocking, as ssh does with those that it shares.

use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

/// Waits where the stream would have it come again later.
pub(crate) struct Patient<W>(pub(crate) W);

impl<W: Write + AsFd> Patient<W> {
    fn until_done<T>(&mut self, mut go: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match go(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Whatever comes of it, the next attempt tells.
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None);
                }
                done => return done,
            }
        }
    }
}

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|to| to.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_done(Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_stream_that_does_not_block_is_waited_for() {
        let (mut from, to) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&to, true).unwrap();
        let text = "0123456789".repeat(100_000);
        let expected = text.clone();
        let writer = std::thread::spawn(move || Patient(to).write_all(text.as_bytes()));
        let mut got = String::new();
        from.read_to_string(&mut got).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(got, expected);
    }
}
