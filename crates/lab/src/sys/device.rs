//! Offloads of a network interface, as `ethtool -K` sets them, and its flags.

use super::{check, socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `linux/ethtool.h`: commands that set one offload.
const SET_TSO: u32 = 0x1f;
const SET_GSO: u32 = 0x24;
const SET_GRO: u32 = 0x2c;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Turns segmentation and its reverse (TSO, GSO, GRO) off at a device of the calling thread's
/// network namespace, so that every packet is one of the medium.
///
/// # Errors
/// When there is no such device or it refuses.
pub fn no_super_packets(device: &str) -> io::Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    [SET_TSO, SET_GSO, SET_GRO].iter().try_for_each(|command| set(&socket, device, *command, 0))
}

fn set(socket: &OwnedFd, device: &str, command: u32, data: u32) -> io::Result<()> {
    let mut value = EthtoolValue { command, data };
    let mut request = request_of(device)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names a device and points to a value that outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) }).map(drop)
}

/// The flags (`IFF_...`) of a device of the network namespace that the socket is in, whatever its kind.
///
/// # Errors
/// When there is no such device.
pub(super) fn flags(socket: &OwnedFd, device: &str) -> io::Result<libc::c_short> {
    let mut request = request_of(device)?;
    // SAFETY: the request names a device; the kernel fills in its flags.
    unsafe {
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request))?;
        Ok(request.ifr_ifru.ifru_flags)
    }
}

/// A request about a device.
fn request_of(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
