//! Frames of a network interface through memory shared with the kernel (AF_PACKET, TPACKET_V2).
//!
//! A received frame stays in its slot of the ring until it has been sent on or thrown away, so
//! nothing is copied while it waits; the ring is the delay line's memory.

use super::{check, socket};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Size of the header that carries checksum and segmentation state along (`virtio_net_hdr`).
const VNET_HEADER: usize = 10;
/// Offset and meaning of fields in it (little-endian machines; the lab is for those).
const VNET_GSO_TYPE: usize = 1;
const VNET_HEADER_LENGTH: usize = 2;
const VNET_GSO_SIZE: usize = 4;
/// Most frames sent by one system call.
pub const BATCH: usize = 64;
const BLOCK: usize = 65_536;

fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a valid string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

fn packet_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let pointer = std::ptr::from_ref(value).cast();
    // SAFETY: `value` is valid for its size and only read.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, length) }).map(drop)
}

/// Binds to a device; with `protocol` 0 nothing is received.
fn bind(socket: &OwnedFd, device: &str, protocol: i32) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid address structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = interface_index(device)? as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is valid for its length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    check(result).map(drop)
}

/// A received frame that still lies in its slot. Give it back by [`Ring::release`].
#[derive(Debug)]
pub struct Frame {
    slot: u32,
    /// From the slot's begin to the virtio header, and from there to the frame's end.
    offset: u32,
    length: u32,
    /// When the kernel received it: [`super::clock::realtime`], ns.
    pub stamp: u64,
    /// Bytes of all its packets with their headers.
    pub bytes: u64,
    /// Number of packets of the medium that it stands for.
    pub packets: u32,
}

/// The receive ring of one device.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    memory: *mut u8,
    slot_size: usize,
    slots: u32,
    next: u32,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Receives from `device` into at least `slots` slots; `super_packets` makes them large.
    ///
    /// # Errors
    /// When the device does not exist or the kernel refuses (no CAP_NET_RAW, no memory).
    pub fn new(device: &str, slots: u32, super_packets: bool) -> io::Result<Self> {
        let slot_size = if super_packets { 65_536 } else { 2_048 };
        let blocks = slots.div_ceil((BLOCK / slot_size) as u32).max(1);
        let slots = blocks * (BLOCK / slot_size) as u32;
        let socket = packet_socket()?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks,
            tp_frame_size: slot_size as u32,
            tp_frame_nr: slots,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Self::map(&socket, blocks as usize * BLOCK)?;
        let ring = Self { socket, memory, slot_size, slots, next: 0 };
        bind(&ring.socket, device, libc::ETH_P_ALL)?;
        Ok(ring)
    }

    fn map(socket: &OwnedFd, length: usize) -> io::Result<*mut u8> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, flags, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(memory.cast()) }
    }

    fn slot(&self, slot: u32) -> *mut u8 {
        debug_assert!(slot < self.slots);
        // SAFETY: slots lie one behind the other within the mapping.
        unsafe { self.memory.add(slot as usize * self.slot_size) }
    }

    fn status(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: each slot begins with its status word, aligned, shared with the kernel.
        unsafe { AtomicU32::from_ptr(self.slot(slot).cast()) }
    }

    /// The next frame, if one has come. Frames that do not fit a slot come as `Err`.
    pub fn receive(&mut self) -> Option<Result<Frame, Oversize>> {
        let slot = self.next;
        if self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.next = (slot + 1) % self.slots;
        // SAFETY: the status says that the slot is ours; the kernel has written the header.
        let header = unsafe { self.slot(slot).cast::<libc::tpacket2_hdr>().read() };
        let offset = usize::from(header.tp_mac).saturating_sub(VNET_HEADER);
        let length = VNET_HEADER + header.tp_snaplen as usize;
        let whole = header.tp_snaplen == header.tp_len && offset + length <= self.slot_size;
        if !whole || offset < size_of::<libc::tpacket2_hdr>() {
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            return Some(Err(Oversize(header.tp_len)));
        }
        // SAFETY: within the slot, as just checked; the kernel leaves it alone until released.
        let vnet = unsafe { self.slot(slot).add(offset).cast::<[u8; VNET_HEADER]>().read() };
        let (bytes, packets) = on_the_medium(&vnet, header.tp_len);
        let stamp = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        let (offset, length) = (offset as u32, length as u32);
        Some(Ok(Frame { slot, offset, length, stamp, bytes, packets }))
    }

    /// What a frame of this ring consists of, from Ethernet's header on.
    #[must_use]
    pub fn contents(&self, frame: &Frame) -> &[u8] {
        self.whole(frame).get(VNET_HEADER..).unwrap_or_default()
    }

    /// The same from the virtio header on.
    fn whole(&self, frame: &Frame) -> &[u8] {
        let end = frame.offset as usize + frame.length as usize;
        assert!(frame.slot < self.slots && end <= self.slot_size, "a frame of another ring");
        // SAFETY: within the mapping, as just checked; the kernel leaves it alone until the frame is released, which takes it.
        unsafe {
            let base = self.slot(frame.slot).add(frame.offset as usize);
            std::slice::from_raw_parts(base, frame.length as usize)
        }
    }

    /// Gives a frame's slot back to the kernel.
    pub fn release(&self, frame: Frame) {
        self.status(frame.slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// Frames that the kernel had no slot for since the last call.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the structure is valid for writing `length` bytes.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &mut length,
            )
        };
        if result < 0 { 0 } else { u64::from(statistics.tp_drops) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.cast(), self.slots as usize * self.slot_size) };
    }
}

/// A frame too large for its slot; its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversize(pub u32);

/// Bytes and number of the packets that a frame stands for once it is cut into segments.
fn on_the_medium(vnet: &[u8; VNET_HEADER], length: u32) -> (u64, u32) {
    let field = |at: usize| u32::from(u16::from_le_bytes([vnet[at], vnet[at + 1]]));
    let (headers, segment) = (field(VNET_HEADER_LENGTH), field(VNET_GSO_SIZE));
    if vnet[VNET_GSO_TYPE] == 0 || segment == 0 || length <= headers {
        return (u64::from(length), 1);
    }
    let packets = (length - headers).div_ceil(segment).max(1);
    (u64::from(length) + u64::from(packets - 1) * u64::from(headers), packets)
}

/// Sends frames out of one device, past its queueing discipline.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

impl Sender {
    /// Sends from `device`.
    ///
    /// # Errors
    /// When the device does not exist or the kernel refuses.
    pub fn new(device: &str) -> io::Result<Self> {
        let socket = packet_socket()?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(16i32 << 20))
            .or_else(|_| set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &(4i32 << 20)))?;
        bind(&socket, device, 0)?;
        Ok(Self { socket })
    }

    /// Sends the first frames of `frames`, at most [`BATCH`]; says how many went out.
    ///
    /// # Errors
    /// When not even the first went out.
    pub fn send<'a>(
        &self,
        ring: &Ring,
        frames: impl Iterator<Item = &'a Frame>,
    ) -> io::Result<usize> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [nothing; BATCH];
        let mut count = 0;
        for (piece, frame) in pieces.iter_mut().zip(frames) {
            let whole = ring.whole(frame);
            let base = whole.as_ptr().cast_mut().cast();
            *piece = libc::iovec { iov_base: base, iov_len: whole.len() };
            count += 1;
        }
        // SAFETY: all-zero bytes are valid message headers; the pieces outlive the call and are
        // only read; the slots belong to us until released.
        let sent = unsafe {
            let mut messages: [libc::mmsghdr; BATCH] = std::mem::zeroed();
            for (message, piece) in messages.iter_mut().zip(&mut pieces) {
                message.msg_hdr.msg_iov = piece;
                message.msg_hdr.msg_iovlen = 1;
            }
            let fd = self.socket.as_raw_fd();
            libc::sendmmsg(fd, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        check(sent).map(|sent| sent as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn super_packets_count_as_their_segments() {
        assert_eq!(on_the_medium(&[0; VNET_HEADER], 1514), (1514, 1));
        // 66 bytes of headers, segments of 1,448, payload of 4,000: three packets.
        let vnet = [0, 1, 66, 0, 0xa8, 0x05, 0, 0, 0, 0];
        assert_eq!(on_the_medium(&vnet, 4_066), (4_066 + 2 * 66, 3));
        assert_eq!(on_the_medium(&vnet, 66), (66, 1));
    }
}
