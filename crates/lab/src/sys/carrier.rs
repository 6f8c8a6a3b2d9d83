//! Whether network devices pass frames yet. A cable whose second end was just set up does not: the kernel's link watch starts both ends' queues
//! some time later, and until then throws away, without an error, what is sent.

use super::device::flags;
use super::{check, socket, wait_readable};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// `IFF_RUNNING`: up, and its queue is started (`netif_oper_up` of the kernel).
const RUNNING: libc::c_short = libc::IFF_RUNNING as libc::c_short;

/// Watches the devices of one network namespace.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Of the calling thread's namespace; may be asked from any other.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn here() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let socket = socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)?;
        // SAFETY: all-zero bytes are a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is valid for its length.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(Self(socket))
    }

    /// Waits until every one of `devices` passes frames; the name of one that still does not after `timeout`, if there is one.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn first_idle(&self, devices: &[String], timeout: Duration) -> io::Result<Option<String>> {
        let deadline = Instant::now() + timeout;
        for device in devices {
            while flags(&self.0, device)? & RUNNING == 0 {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Some(device.clone()));
                }
                wait_readable(&[self.0.as_fd()], Some(left))?;
                self.drain();
            }
        }
        Ok(None)
    }

    /// Forgets what was told: the devices themselves are asked again.
    fn drain(&self) {
        let mut told = [0_u8; 8192];
        // SAFETY: the buffer is valid for its length. Messages that had no room are an error, once, and behind it others.
        while unsafe { libc::recv(self.0.as_raw_fd(), told.as_mut_ptr().cast(), told.len(), 0) } > 0
        {
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_runs_is_waited_for_no_more_and_one_that_is_not_there_is_an_error() {
        let watch = Watch::here().unwrap();
        let none = watch.first_idle(&["lo".to_owned()], Duration::from_secs(10)).unwrap();
        assert_eq!(none, None);
        watch.first_idle(&["no-such-device".to_owned()], Duration::ZERO).unwrap_err();
    }
}
