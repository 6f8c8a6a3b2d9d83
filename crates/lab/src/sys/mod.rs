//! What the lab needs of the kernel below the standard library: the only `unsafe` code of this
//! room. Each function here is safe to call; the comments say why.
#![allow(unsafe_code)]

pub mod carrier;
pub mod clock;
pub mod conntrack;
pub mod device;
pub mod namespace;
pub mod process;
pub mod ring;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Turns the -1 of a system call into the error it stands for.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket that programs started from here do not have.
fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: plain call; the result is checked before it is owned.
    unsafe {
        let fd = check(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Waits until one of `fds` can be read or has ended, at most `timeout` (`None`: for ever);
/// says which. An interrupting signal counts as nothing ready.
///
/// # Errors
/// When the kernel refuses.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let entry =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<_> = fds.iter().map(entry).collect();
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (count, mask) = (entries.len() as libc::nfds_t, std::ptr::null());
    // SAFETY: the array is valid for its length; the kernel writes only `revents`, and reads the time.
    let result = unsafe { libc::ppoll(entries.as_mut_ptr(), count, timeout, mask) };
    match check(result) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    Ok(entries.iter().map(|entry| entry.revents != 0).collect())
}
