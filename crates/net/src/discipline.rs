//! Who holds back what a socket may not send yet: TCP itself, or the queueing discipline of the interface.
//!
//! `SO_MAX_PACING_RATE` is obeyed either way. TCP reckons when each packet is due and notes it in the packet. Where an `fq` discipline
//! that paces has seen a packet of the socket, TCP hands packets over at once and `fq` keeps each until it is due (`sk_pacing_status`);
//! otherwise TCP waits with a timer of its own. With an offload horizon `fq` leaves the last of the waiting to the card. So rates are set in the
//! same way, and who paces is only said.
//!
//! The kernel is asked by netlink (rtnetlink(7)), which needs no privilege.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, send, socket,
};
use socket2::SockRef;

/// linux/rtnetlink.h, netlink.h.
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
/// Bytes of `nlmsghdr` and `tcmsg`.
const HEAD: usize = 16;
const TCMSG: usize = 20;
/// linux/pkt_sched.h: what is not for packets that leave (`TC_H_INGRESS`); attributes of a discipline, and of `fq`.
const INGRESS: u32 = 0xffff_fff1;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_FQ_RATE_ENABLE: u16 = 5;
const TCA_FQ_OFFLOAD_HORIZON: u16 = 18;

/// An answer is read in pieces of at most so many bytes, at most so many of them, each within so long.
const PIECE: usize = 32 << 10;
const PIECES: usize = 1024;
const WAIT: Duration = Duration::from_secs(1);

/// Longest name of a discipline that is believed: the kernel's are shorter (`IFNAMSIZ`).
const NAME_MOST: usize = 16;

/// Who holds packets back until they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacedBy {
    /// TCP, by a timer for each socket.
    Tcp,
    /// The `fq` discipline of the interface.
    Fq,
    /// The card, what is due within its horizon; `fq` the rest.
    Card,
}

impl PacedBy {
    /// One word, of at most 4 letters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Fq => "fq",
            Self::Card => "card",
        }
    }
}

/// How an interface queues what leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// The root discipline, as `tc` calls it: `fq`, `pfifo_fast`, `noqueue` …
    pub discipline: String,
    /// Who paces.
    pub paced_by: PacedBy,
}

/// How the interface with this name queues; `None` if it has no discipline, or is not there.
///
/// # Errors
/// The kernel was not to be asked.
pub fn queueing(interface: &str) -> io::Result<Option<Queueing>> {
    let Ok(index) = if_nametoindex(interface) else { return Ok(None) };
    Ok(judge(&ask()?, index))
}

/// How the interface with this address queues.
pub(crate) fn queueing_from(ip: IpAddr) -> io::Result<Option<Queueing>> {
    let has = |storage: &SockaddrStorage| {
        let v4 = storage.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip()))) == Some(ip)
    };
    let mut all = getifaddrs()?;
    match all.find(|one| one.address.as_ref().is_some_and(has)) {
        Some(one) => queueing(&one.interface_name),
        None => Ok(None),
    }
}

/// A discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Qdisc {
    interface: u32,
    handle: u32,
    parent: u32,
    kind: String,
    /// Of `fq`.
    paces: bool,
    has_horizon: bool,
}

/// All disciplines of this machine, or network namespace.
fn ask() -> io::Result<Vec<Qdisc>> {
    let asked = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    SockRef::from(&asked).set_read_timeout(Some(WAIT))?;
    send(std::os::fd::AsRawFd::as_raw_fd(&asked), &request(), MsgFlags::empty())?;
    let (mut all, mut piece) = (Vec::new(), vec![0; PIECE]);
    for _ in 0..PIECES {
        let len = recv(std::os::fd::AsRawFd::as_raw_fd(&asked), &mut piece, MsgFlags::empty())?;
        if read(piece.get(..len).unwrap_or_default(), &mut all)? {
            return Ok(all);
        }
    }
    Err(io::Error::other("the kernel's list of queueing disciplines has no end"))
}

/// For all disciplines of all interfaces.
fn request() -> [u8; HEAD + TCMSG] {
    let mut bytes = [0; HEAD + TCMSG];
    let len = (HEAD + TCMSG) as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&RTM_GETQDISC.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes
}

/// Reads a piece of an answer; whether it was the last.
fn read(mut piece: &[u8], all: &mut Vec<Qdisc>) -> io::Result<bool> {
    while let Some(len) = word(piece, 0) {
        let kind = half(piece, 4);
        let Some(body) = piece.get(HEAD..len as usize) else { break };
        match kind {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                let code = word(body, 0).map_or(0, |code| code.cast_signed().wrapping_neg());
                return Err(io::Error::from_raw_os_error(code));
            }
            Some(RTM_NEWQDISC) => all.extend(qdisc(body)),
            _ => {}
        }
        piece = piece.get((len as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn qdisc(body: &[u8]) -> Option<Qdisc> {
    let (interface, handle, parent) = (word(body, 4)?, word(body, 8)?, word(body, 12)?);
    let mut found =
        Qdisc { interface, handle, parent, kind: String::new(), paces: false, has_horizon: false };
    for (kind, value) in attributes(body.get(TCMSG..)?) {
        match kind {
            TCA_KIND => found.kind = name(value),
            TCA_OPTIONS if found.kind == "fq" => {
                // Where it does not say so it paces.
                found.paces = true;
                for (option, value) in attributes(value) {
                    match option {
                        TCA_FQ_RATE_ENABLE => found.paces = word(value, 0) != Some(0),
                        TCA_FQ_OFFLOAD_HORIZON => found.has_horizon = word(value, 0) > Some(0),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(found)
}

fn name(value: &[u8]) -> String {
    let until = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..until.min(NAME_MOST)).unwrap_or_default()).into_owned()
}

/// Kinds and values, as far as they are whole.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits say how the value is to be read.
        Some((kind & 0x3fff, value))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Packets end at a discipline that is nobody's parent: `fq` paces if all of those are `fq` (`mq` has one for each queue of the card).
fn judge(all: &[Qdisc], interface: u32) -> Option<Queueing> {
    let of_it = || all.iter().filter(|one| one.interface == interface && one.parent != INGRESS);
    let root = of_it().find(|one| one.parent == u32::MAX)?;
    let major = |number: u32| number >> 16;
    let is_parent = |one: &Qdisc| {
        let children = of_it().filter(|child| child.parent != u32::MAX);
        major(one.handle) != 0
            && children.into_iter().any(|child| major(child.parent) == major(one.handle))
    };
    let mut paced_by = PacedBy::Card;
    for leaf in of_it().filter(|one| !is_parent(one)) {
        let by = match (leaf.paces, leaf.has_horizon) {
            (false, _) => PacedBy::Tcp,
            (true, false) => PacedBy::Fq,
            (true, true) => PacedBy::Card,
        };
        paced_by = paced_by.min(by);
    }
    Some(Queueing { discipline: root.kind.clone(), paced_by })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from((HEAD as u32 + body.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    /// As the kernel tells of one (`tc_fill_qdisc`): with what is of no concern here, too.
    fn told(
        interface: u32,
        handle: u32,
        parent: u32,
        kind: &str,
        options: &[(u16, u32)],
    ) -> Vec<u8> {
        let mut body = vec![0; 4];
        for word in [interface, handle, parent, 2] {
            body.extend(word.to_ne_bytes());
        }
        let mut name = kind.as_bytes().to_vec();
        name.push(0);
        body.extend(attribute(TCA_KIND, &name));
        let options =
            options.iter().flat_map(|(kind, value)| attribute(*kind, &value.to_ne_bytes()));
        // NLA_F_NESTED is set by newer kernels.
        body.extend(attribute(TCA_OPTIONS | 0x8000, &options.collect::<Vec<u8>>()));
        body.extend(attribute(7, &[1; 44]));
        message(RTM_NEWQDISC, &body)
    }

    const FQ: [(u16, u32); 3] = [(1, 10_000), (TCA_FQ_RATE_ENABLE, 1), (TCA_FQ_OFFLOAD_HORIZON, 0)];

    fn judged(answer: &[u8], interface: u32) -> Option<(String, PacedBy)> {
        let mut all = Vec::new();
        assert!(read(answer, &mut all).unwrap(), "it has an end");
        judge(&all, interface).map(|queueing| (queueing.discipline, queueing.paced_by))
    }

    #[test]
    fn fq_is_known_wherever_all_packets_end_there() {
        let root = u32::MAX;
        let mut answer = [
            told(1, 0, root, "noqueue", &[]),
            told(2, 0x8001_0000, root, "fq", &FQ),
            told(2, 0xffff_0000, INGRESS, "clsact", &[]),
            // A card of two queues.
            told(3, 0x10_0000, root, "mq", &[]),
            told(3, 0, 0x10_0001, "fq", &FQ),
            told(3, 0, 0x10_0002, "fq", &FQ),
            // The same, one queue of which is another's.
            told(4, 0x20_0000, root, "mq", &[]),
            told(4, 0, 0x20_0001, "fq", &FQ),
            told(4, 0, 0x20_0002, "fq_codel", &[(1, 5000)]),
            // `tc qdisc replace ... fq nopacing`.
            told(5, 0x30_0000, root, "fq", &[(TCA_FQ_RATE_ENABLE, 0)]),
            told(6, 0x40_0000, root, "fq", &[(TCA_FQ_OFFLOAD_HORIZON, 2_000)]),
            told(7, 0x50_0000, root, "pfifo_fast", &[(5, 7)]),
        ]
        .concat();
        answer.extend(message(NLMSG_DONE, &[0; 4]));
        let expected = [
            (1, "noqueue", PacedBy::Tcp),
            (2, "fq", PacedBy::Fq),
            (3, "mq", PacedBy::Fq),
            (4, "mq", PacedBy::Tcp),
            (5, "fq", PacedBy::Tcp),
            (6, "fq", PacedBy::Card),
            (7, "pfifo_fast", PacedBy::Tcp),
        ];
        for (interface, discipline, by) in expected {
            assert_eq!(judged(&answer, interface), Some((discipline.to_owned(), by)));
        }
        assert_eq!(judged(&answer, 8), None);
    }

    #[test]
    fn what_is_cut_off_or_nonsense_is_no_trouble() {
        let whole = told(2, 0x8001_0000, u32::MAX, "fq", &FQ);
        for len in 0..whole.len() {
            let mut all = Vec::new();
            assert!(!read(&whole[..len], &mut all).unwrap() && all.is_empty(), "{len}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let mut all = Vec::new();
                let _ = read(&bytes, &mut all);
                let _ = judge(&all, 2);
            }
        }
        let refused = message(NLMSG_ERROR, &(-1i32).to_ne_bytes());
        let error = read(&refused, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1));
    }

    #[test]
    fn this_machine_is_asked() {
        let loopback = queueing("lo").unwrap();
        // Nobody has given it one, or everybody who did knows.
        let is_known = |queueing: &Queueing| !queueing.discipline.is_empty();
        assert!(loopback.as_ref().is_some_and(is_known), "{loopback:?}");
        assert_eq!(queueing_from("127.0.0.1".parse().unwrap()).unwrap(), loopback);
        assert_eq!(queueing("no such interface").unwrap(), None);
    }
}
