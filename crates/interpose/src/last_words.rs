//! What was printed before the vendor aborts. Launchers end everything when they are told to abort, and may not have read
//! yet what lies in the pipe from the process that says why.

use crate::error::tell;
use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

/// A launcher that does not read at all delays an abort by this much.
const PATIENCE: Duration = Duration::from_millis(500);
/// No event tells that a pipe is empty.
const LOOK: Duration = Duration::from_millis(1);

/// Tells a person why, before a call in which the vendor aborts.
pub(crate) fn say(message: &str) {
    tell(message);
    await_reader();
}

/// Returns when the launcher has read what this process has written, or does not seem to.
pub(crate) fn await_reader() {
    let written = [libc::STDOUT_FILENO, libc::STDERR_FILENO];
    await_reader_of(written, PATIENCE, || thread::sleep(LOOK));
}

fn await_reader_of<const N: usize>(
    written: [c_int; N],
    patience: Duration,
    mut pause: impl FnMut(),
) {
    let deadline = Instant::now() + patience;
    while written.into_iter().any(is_unread) {
        if Instant::now() > deadline {
            return;
        }
        pause();
    }
}

/// Whether something written to `fd` waits at its other end.
fn is_unread(fd: c_int) -> bool {
    let (mut pipe, mut other) = (0, 0);
    // SAFETY: each asks for a number that it stores in its place; a wrong descriptor is an error.
    unsafe {
        match file_type(fd) {
            libc::S_IFIFO => libc::ioctl(fd, libc::FIONREAD, &raw mut pipe),
            // Sockets and terminals.
            libc::S_IFSOCK | libc::S_IFCHR => libc::ioctl(fd, libc::TIOCOUTQ, &raw mut other),
            _ => 0,
        };
    }
    pipe > 0 || other > 0
}

fn file_type(fd: c_int) -> libc::mode_t {
    // SAFETY: plain data, for which zeros are a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fills its argument, or fails.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        return 0;
    }
    stat.st_mode & libc::S_IFMT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn unread_until_read(mut write: impl Write + AsRawFd, mut read: impl Read) {
        let fd = write.as_raw_fd();
        assert!(!is_unread(fd));
        write.write_all(b"because").unwrap();
        assert!(is_unread(fd));
        read.read_exact(&mut [0; 7]).unwrap();
        assert!(!is_unread(fd));
    }

    #[test]
    fn knows_what_was_not_read() {
        let (reader, writer) = std::io::pipe().unwrap();
        unread_until_read(writer, reader);
        let (near, far) = UnixStream::pair().unwrap();
        unread_until_read(near, far);
        assert!(!is_unread(-1));
    }

    #[test]
    fn waits_for_one_who_reads_late_but_not_for_ever() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let fd = writer.as_raw_fd();
        writer.write_all(b"because").unwrap();
        await_reader_of([fd], Duration::ZERO, || ());
        assert!(is_unread(fd), "nobody has read");
        let mut pauses = 0;
        await_reader_of([-1, fd], Duration::from_secs(60), || {
            pauses += 1;
            if pauses == 3 {
                reader.read_exact(&mut [0; 7]).unwrap();
            }
        });
        assert_eq!((pauses, is_unread(fd)), (3, false));
    }
}
