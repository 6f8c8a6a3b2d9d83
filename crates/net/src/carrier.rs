//! What bytes pass over: a socket, bare, with TLS 1.3 on it or with checked records (`checked`).
//!
//! TLS is rustls over buffers: what is read from the socket is decrypted at once, what is to be written is encrypted until
//! the socket takes no more. Nothing stays behind between calls that no event would bring back: a reader drains what is
//! decrypted, a writer watches the socket as long as something is encrypted and not sent.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;

use gridmpi_wire::{MAX_RECORD, RECORD_HEAD};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::Connection;

use crate::Security;
use crate::checked::Checked;

/// Most bytes encrypted ahead of the socket.
const AHEAD: usize = 256 * 1024;

/// What is divided into packets is in pieces no shorter, bytes.
const LEAST_PIECE: usize = 8;

/// Most bytes of a TLS record (RFC 8446 §5.1), and what TLS 1.3 has beside them: head, type and tag.
const TLS_RECORD: usize = 16 * 1024;
const TLS_BESIDE: usize = 5 + 1 + 16;

/// A socket, which does not block.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) fd: OwnedFd,
    over: Over,
    /// How what is sent from now on becomes packets.
    pub(crate) packets: Packets,
}

/// How what is sent becomes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packets {
    /// As full as they can be.
    Full,
    /// What is sent at a time goes in one of its own, even if the last has not left.
    Apart,
    /// The same, and what is sent at a time is divided into so many, unless it is too short for that.
    Many(u32),
}

/// What is on the socket.
#[derive(Debug)]
enum Over {
    Nothing,
    Tls(Box<Tls>),
    Checked(Box<Checked>),
}

struct Tls {
    connection: Connection,
    /// Decrypted and not yet read.
    readable: usize,
    /// The last look has left nothing in the socket: if more comes an event tells of it.
    is_drained: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("readable", &self.readable).finish_non_exhaustive()
    }
}

impl Carrier {
    /// The socket as it is.
    pub(crate) fn bare(fd: OwnedFd) -> Self {
        Self { fd, over: Over::Nothing, packets: Packets::Full }
    }

    /// From here on it is TLS, and we have dialled: says the first word.
    pub(crate) fn secure_dialled(&mut self, security: &Security) -> io::Result<()> {
        self.secure(security.client().map_err(io::Error::other)?.into());
        self.flush()
    }

    /// From here on it is TLS, and the other side has dialled.
    pub(crate) fn secure_accepted(&mut self, security: &Security) -> io::Result<()> {
        self.secure(security.server().map_err(io::Error::other)?.into());
        Ok(())
    }

    fn secure(&mut self, mut connection: Connection) {
        connection.set_buffer_limit(Some(AHEAD));
        self.over = Over::Tls(Box::new(Tls { connection, readable: 0, is_drained: false }));
    }

    /// From here on it is checked records.
    pub(crate) fn check(&mut self) {
        self.over = Over::Checked(Box::default());
    }

    /// Whether what passes is encrypted, and the other end has a certificate of the job.
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self.over, Over::Tls(_))
    }

    /// Whether what passes bears checksums, and is neither encrypted nor proven.
    pub(crate) fn is_checked(&self) -> bool {
        matches!(self.over, Over::Checked(_))
    }

    /// Most bytes of a record, and what each takes beside them.
    const fn record(&self) -> (usize, usize) {
        match self.over {
            Over::Nothing => (1, 0),
            Over::Tls(_) => (TLS_RECORD, TLS_BESIDE),
            Over::Checked(_) => (MAX_RECORD, RECORD_HEAD),
        }
    }

    /// How many bytes there are on the wire of so many that are written at once.
    pub(crate) fn on_wire(&self, bytes: usize) -> usize {
        let (most, beside) = self.record();
        bytes.saturating_add(bytes.div_ceil(most).saturating_mul(beside))
    }

    /// How many bytes, 1 at least, can be written at once so that no more than these are on the wire.
    pub(crate) fn within(&self, on_wire: usize) -> usize {
        let (most, beside) = self.record();
        on_wire.saturating_sub(on_wire.div_ceil(most + beside).saturating_mul(beside)).max(1)
    }

    /// Something has come that no event will tell of: it is to be read before one waits.
    pub(crate) fn has_readable(&self) -> bool {
        match &self.over {
            Over::Nothing => false,
            Over::Tls(tls) => tls.readable > 0,
            Over::Checked(checked) => checked.has_readable(),
        }
    }

    /// Though less than fits was read, there may be more now.
    pub(crate) fn may_have_more(&self) -> bool {
        matches!(&self.over, Over::Checked(checked) if checked.may_have_more())
    }

    /// Something is to be sent when the socket has room, though the writer has handed it over.
    pub(crate) fn has_unsent(&self) -> bool {
        match &self.over {
            Over::Nothing => false,
            Over::Tls(tls) => tls.connection.wants_write(),
            Over::Checked(checked) => checked.has_unsent(),
        }
    }

    /// Reads as much as there is and fits. 0 is the end; less than fits means that there is no more now, unless
    /// [`Self::may_have_more`].
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let out = Out { fd: &self.fd, packets: self.packets };
        match &mut self.over {
            Over::Nothing => Ok(rustix::net::recv(&self.fd, into, RecvFlags::empty())?.0),
            Over::Tls(tls) => tls.read(out, into, true),
            Over::Checked(checked) => checked.read(&self.fd, into, true),
        }
    }

    /// The same, but only what [`Self::has_readable`] speaks of.
    pub(crate) fn read_rest(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let out = Out { fd: &self.fd, packets: self.packets };
        match &mut self.over {
            Over::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Over::Tls(tls) => tls.read(out, into, false),
            Over::Checked(checked) => checked.read(&self.fd, into, false),
        }
    }

    /// [`Self::read`] into several places, in order. What lies in them may be wrong as long as they are not filled, if it
    /// [is checked](Self::is_checked).
    pub(crate) fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let out = Out { fd: &self.fd, packets: self.packets };
        match &mut self.over {
            Over::Nothing => Ok(rustix::io::readv(&self.fd, slices)?),
            Over::Tls(tls) => tls.read_vectored(out, slices),
            Over::Checked(checked) => checked.read_vectored(&self.fd, slices),
        }
    }

    /// Hands over as much as goes now.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let out = Out { fd: &self.fd, packets: self.packets };
        match &mut self.over {
            Over::Nothing => out.send(slices),
            Over::Tls(tls) => tls.write(out, slices),
            Over::Checked(checked) => checked.write(out, slices),
        }
    }

    /// Hands over the whole of a short message; the buffer of a new socket takes it.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.write(&[IoSlice::new(bytes)])?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// The same, in these packets; what follows is in full ones.
    pub(crate) fn say(&mut self, bytes: &[u8], packets: Packets) -> io::Result<()> {
        self.packets = packets;
        let said = self.write_all(bytes);
        self.packets = Packets::Full;
        said
    }

    /// Sends what has been handed over, as far as it goes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let out = Out { fd: &self.fd, packets: self.packets };
        match &mut self.over {
            Over::Nothing => Ok(()),
            Over::Tls(tls) => tls.flush(out),
            Over::Checked(checked) => checked.flush(out),
        }
    }
}

impl Tls {
    fn read(&mut self, out: Out<'_>, into: &mut [u8], from_socket: bool) -> io::Result<usize> {
        let mut count = 0;
        while count < into.len() {
            if self.readable > 0 {
                let got = self.connection.reader().read(&mut into[count..])?;
                self.readable = self.readable.saturating_sub(got);
                count += got;
                continue;
            }
            if !from_socket || (count > 0 && self.is_drained) {
                break;
            }
            match self.take_in(out) {
                Ok(true) => {}
                Ok(false) => return Ok(count),
                Err(error) if count > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if count == 0 && !into.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(count)
        }
    }

    fn read_vectored(&mut self, out: Out<'_>, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for slice in slices.iter_mut().filter(|slice| !slice.is_empty()) {
            let from_socket = count == 0 || !self.is_drained;
            match self.read(out, slice, from_socket) {
                Ok(0) => break,
                Ok(got) => {
                    count += got;
                    if got < slice.len() {
                        break;
                    }
                }
                Err(error) if count == 0 => return Err(error),
                // Told again by the next call.
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// Reads from the socket once and decrypts. Whether there may be more.
    fn take_in(&mut self, out: Out<'_>) -> io::Result<bool> {
        let mut bare = Bare { out, came_short: false };
        let came = self.connection.read_tls(&mut bare)?;
        self.is_drained = bare.came_short;
        if came == 0 {
            return Ok(false);
        }
        let state = self.connection.process_new_packets();
        // Also what tells the other side what is wrong with it.
        let flushed = self.flush(out);
        let state = state
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}")))?;
        flushed?;
        self.readable = state.plaintext_bytes_to_read();
        Ok(self.readable > 0 || !state.peer_has_closed())
    }

    fn write(&mut self, out: Out<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            // It is kept until then: nothing is sent in clear.
            return self.hand_over(out, slices);
        }
        self.flush(out)?;
        if self.connection.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.hand_over(out, slices)
    }

    fn hand_over(&mut self, out: Out<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.connection.writer().write_vectored(slices)?;
        self.flush(out)?;
        Ok(count)
    }

    fn flush(&mut self, out: Out<'_>) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Bare { out, came_short: false }) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The socket under TLS.
struct Bare<'a> {
    out: Out<'a>,
    /// The last read could have taken more than there was.
    came_short: bool,
}

impl Read for Bare<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = rustix::net::recv(self.out.fd, &mut *into, RecvFlags::empty())?.0;
        self.came_short = count < into.len();
        Ok(count)
    }
}

impl Write for Bare<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.send(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.out.send(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The way out of a socket.
#[derive(Clone, Copy)]
pub(crate) struct Out<'a> {
    fd: &'a OwnedFd,
    packets: Packets,
}

impl<'a> Out<'a> {
    #[cfg(test)]
    pub(crate) const fn usual(fd: &'a OwnedFd) -> Self {
        Self { fd, packets: Packets::Full }
    }

    /// `writev` without SIGPIPE.
    pub(crate) fn send(self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.packets {
            Packets::Full => self.send_with(SendFlags::empty(), slices),
            Packets::Apart => self.send_with(SendFlags::EOR, slices),
            Packets::Many(most) => self.send_divided(slices, most as usize),
        }
    }

    fn send_with(self, flags: SendFlags, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.fd, slices, &mut control, SendFlags::NOSIGNAL | flags)?)
    }

    fn send_divided(self, slices: &[IoSlice<'_>], most: usize) -> io::Result<usize> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let count = most.min(all.len() / LEAST_PIECE).max(1);
        let mut sent = 0;
        for number in 1..=count {
            let piece = &all[sent..all.len() * number / count];
            match self.send_with(SendFlags::EOR, &[IoSlice::new(piece)]) {
                Ok(taken) if taken == piece.len() => sent += taken,
                Ok(taken) => return Ok(sent + taken),
                // What is wrong is said to who comes with the rest.
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_sock::TcpInfo;
    use gridmpi_wire::JobKey;
    use std::net::{TcpListener, TcpStream};

    fn connected() -> [Carrier; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0].map(|end| {
            end.set_nonblocking(true).unwrap();
            end.set_nodelay(true).unwrap();
            Carrier::bare(end.into())
        })
    }

    fn came_in(carrier: &Carrier) -> u32 {
        TcpInfo::of(&carrier.fd).unwrap().data_segs_in
    }

    #[test]
    fn what_is_said_is_divided_into_so_many_packets_and_arrives_as_it_was() {
        let short = 2 * LEAST_PIECE as u8 + 1;
        for (lens, most, packets) in [
            (&[97][..], 8, 8),
            (&[1, 0, 60, 36], 8, 8),
            (&[20, 20, 20], 2, 2),
            (&[short], 20, 2),
            (&[3], 20, 1),
        ] {
            let [mut near, mut far] = connected();
            let pieces: Vec<Vec<u8>> = lens.iter().map(|&len| (0..len).collect()).collect();
            let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let all = pieces.concat();
            let mut came = [0; 100];
            near.packets = Packets::Many(most);
            assert_eq!(near.write(&slices).unwrap(), all.len());
            assert_eq!(far.read(&mut came).unwrap(), all.len());
            assert_eq!((&came[..all.len()], came_in(&far)), (&all[..], packets), "{lens:?}");
            near.say(&all, Packets::Many(most)).unwrap();
            near.write_all(&all).unwrap();
            assert_eq!(far.read(&mut came[..all.len()]).unwrap(), all.len());
            assert_eq!(came_in(&far), 2 * packets + 1, "{lens:?}");
        }
    }

    #[test]
    fn tls_begins_in_many_packets_as_in_few() {
        let security = Security::of_job([7; 16], &JobKey::new([9; 32])).unwrap();
        let [mut near, mut far] = connected();
        near.secure_dialled(&security).unwrap();
        far.secure_accepted(&security).unwrap();
        near.packets = Packets::Many(18);
        near.write_all(b"proof").unwrap();
        let before = came_in(&far);
        let mut came = [0; 9];
        let mut read = |carrier: &mut Carrier| match carrier.read(&mut came) {
            Ok(count) => Some(came[..count].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        };
        // What TLS says goes between reads, in three turns.
        assert_eq!((read(&mut far), read(&mut near)), (None, None));
        assert_eq!(read(&mut far).as_deref(), Some(&b"proof"[..]));
        let packets = came_in(&far) - before;
        // That it changes ciphers is too short to be divided.
        assert!((18..=19).contains(&packets), "{packets}");
    }

    #[test]
    fn what_is_written_and_what_is_on_the_wire() {
        let (_, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut carrier = Carrier::bare(socket.into());
        assert_eq!((carrier.on_wire(1000), carrier.within(1000)), (1000, 1000));
        assert_eq!(carrier.within(usize::MAX), usize::MAX);
        carrier.check();
        assert_eq!((carrier.on_wire(1000), carrier.within(1012)), (1012, 1000));
        assert_eq!(carrier.on_wire(MAX_RECORD + 1), MAX_RECORD + 1 + 2 * RECORD_HEAD);
        for on_wire in [1448, 11_584, 65_547, 65_548, 65_549, 200_000] {
            let bytes = carrier.within(on_wire);
            assert!(
                (on_wire - RECORD_HEAD..=on_wire).contains(&carrier.on_wire(bytes)),
                "{on_wire}"
            );
        }
        assert_eq!(carrier.within(3), 1);
    }
}
