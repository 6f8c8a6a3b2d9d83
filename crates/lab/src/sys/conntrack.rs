//! The kernel's memory of connections, as NAT and firewalls use it.

use super::socket;
use std::io;
use std::os::fd::AsRawFd;

/// `linux/netfilter/nfnetlink.h` and `nfnetlink_conntrack.h`: delete, and nothing named: all.
const DELETE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// Of `struct nlmsghdr` and `struct nfgenmsg`.
const LENGTH: u32 = 20;

/// Makes the calling thread's network namespace forget all connections.
///
/// # Errors
/// When the kernel cannot do it (it needs `CONFIG_NF_CT_NETLINK`), or it is not allowed.
pub fn forget_all() -> io::Result<()> {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)?;
    let mut request = Vec::with_capacity(LENGTH as usize);
    request.extend_from_slice(&LENGTH.to_ne_bytes());
    request.extend_from_slice(&DELETE.to_ne_bytes());
    request.extend_from_slice(&FLAGS.to_ne_bytes());
    // Number and sender, then family, version and resource: any.
    request.resize(LENGTH as usize, 0);
    // SAFETY: the buffer is valid for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0_u8; 256];
    // SAFETY: the buffer is valid for its length, and the kernel answers at once.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // `struct nlmsgerr` behind the head: 0, or an error's number below 0.
    let error = answer.get(16..LENGTH as usize).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) if got >= LENGTH as isize => Ok(()),
        Some(error) if error < 0 => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
