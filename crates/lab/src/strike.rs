//! Faults that are over as soon as they are done: connections broken off or forgotten, addresses changed, processes killed. For
//! the holder, process 1 of the lab.

use crate::error::{Doing as _, LabError};
use crate::network::{self, NodeHandles};
use crate::sys::{conntrack, namespace, process};
use crate::tools::ask;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

/// A TCP connection as one of its ends sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    near: SocketAddrV4,
    far: SocketAddrV4,
}

impl Connection {
    /// From a line of what `ss` lists.
    fn read(line: &str) -> Option<Self> {
        let mut ends = line.split_whitespace().skip(2).map(end);
        Some(Self { near: ends.next()??, far: ends.next()?? })
    }

    /// Whether these addresses are those of its near end and its far end.
    pub(crate) fn is_between(&self, near: &[Ipv4Addr], far: &[Ipv4Addr]) -> bool {
        near.contains(self.near.ip()) && far.contains(self.far.ip())
    }
}

/// An end as `ss` writes it: `10.1.0.1:5000`, `10.1.0.1%eth0:5000` of a socket bound to a device, `[::ffff:10.1.0.1]:5000` of one that
/// speaks IPv6 as well.
fn end(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.rsplit_once(':')?;
    let address = address.split_once('%').map_or(address, |(address, _)| address);
    let bare = address.trim_matches(['[', ']']);
    let IpAddr::V4(address) = bare.parse::<IpAddr>().ok()?.to_canonical() else { return None };
    Some(SocketAddrV4::new(address, port.parse().ok()?))
}

/// How many connections are named to `ss` at a time.
const AT_A_TIME: usize = 50;

/// Breaks off the TCP connections that a node has with these addresses; says which there were.
///
/// # Errors
/// When `ss` is missing, or the kernel cannot do it.
pub(crate) fn reset(
    node: &NodeHandles,
    addresses: &[Ipv4Addr],
) -> Result<Vec<Connection>, LabError> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let ends: Vec<_> = addresses.iter().map(|address| format!("dst {address}")).collect();
    let filter = ends.join(" or ");
    on(node, || {
        // It says which it has ended.
        let ended = connections(&filter, true)?;
        let standing = if ended.is_empty() { connections(&filter, false)? } else { Vec::new() };
        if standing.is_empty() {
            return Ok(ended);
        }
        // They may just have been made; if not, it ends none.
        let ended = connections(&filter, true)?;
        let left = connections(&filter, false)?;
        if ended.is_empty() && standing.iter().any(|one| left.contains(one)) {
            let why = "this kernel cannot end connections: it needs CONFIG_INET_DIAG_DESTROY";
            return Err(LabError::Usage(why.to_owned()));
        }
        Ok(ended)
    })
}

/// Breaks off the same connections at their other end, if they are still there.
///
/// # Errors
/// When `ss` is missing.
pub(crate) fn reset_far(node: &NodeHandles, ended: &[&Connection]) -> Result<(), LabError> {
    if ended.is_empty() {
        return Ok(());
    }
    on(node, || {
        ended.chunks(AT_A_TIME).try_for_each(|some| {
            let one = |one: &&Connection| format!("( src {} and dst {} )", one.far, one.near);
            connections(&some.iter().map(one).collect::<Vec<_>>().join(" or "), true).map(drop)
        })
    })
}

/// Makes NAT and firewall of a gateway forget every connection.
///
/// # Errors
/// When the kernel cannot do it.
pub(crate) fn forget(node: &NodeHandles) -> Result<(), LabError> {
    on(node, || conntrack::forget_all().doing("cannot make the gateway forget its connections"))
}

/// Gives a node another address towards the wide area, of which all those are told who are there.
///
/// # Errors
/// When a step fails.
pub(crate) fn renumber<'a>(
    node: &NodeHandles,
    [from, to]: [Ipv4Addr; 2],
    (prefix, mac): (u8, &str),
    mut others: impl Iterator<Item = &'a NodeHandles>,
) -> Result<(), LabError> {
    others.try_for_each(|other| on(other, || network::know(to, mac)))?;
    on(node, || network::renumber(from, to, prefix))
}

/// Does something in a node's network, on a thread that enters it for that.
fn on<T: Send>(
    node: &NodeHandles,
    act: impl FnOnce() -> Result<T, LabError> + Send,
) -> Result<T, LabError> {
    let on_thread = || {
        namespace::join(node.net.as_fd(), namespace::NET).doing("cannot enter a node")?;
        act()
    };
    thread::scope(|scope| {
        let done = scope.spawn(on_thread).join();
        done.unwrap_or_else(|_| Err(LabError::Usage("a thread panicked".to_owned())))
    })
}

/// Lists those that stand, or ends and lists them.
fn connections(filter: &str, end: bool) -> Result<Vec<Connection>, LabError> {
    let options = if end { "-HtnK" } else { "-Htn" };
    let said = ask("ss", &[options, "state", "established", &format!("( {filter} )")])?;
    Ok(said.lines().filter_map(Connection::read).collect())
}

/// Kills the processes of a node whose command line has `pattern` in it; says how many there were.
///
/// # Errors
/// When the lab's processes cannot be told from others.
pub(crate) fn kill(node: &NodeHandles, pattern: &str) -> Result<usize, LabError> {
    if fs::read_link("/proc/self").is_ok_and(|own| own != Path::new("1")) {
        let why = "the lab sees the machine's own /proc: its processes cannot be told apart";
        return Err(LabError::Usage(why.to_owned()));
    }
    let namespace = File::from(node.net.try_clone().doing("cannot copy a descriptor")?);
    let namespace = namespace.metadata().doing("cannot read a namespace")?.ino();
    let mut count = 0;
    for entry in fs::read_dir("/proc").doing("cannot read /proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The number may be another process's by the time it is killed: the descriptor is not.
        let Ok(watched) = process::watch(pid) else { continue };
        let is_meant = pid != 1 && is_in(&entry.path(), namespace) && runs(&entry.path(), pattern);
        count += usize::from(is_meant && process::end(&watched).is_ok());
    }
    Ok(count)
}

fn is_in(process: &Path, namespace: u64) -> bool {
    fs::metadata(process.join("ns/net")).is_ok_and(|net| net.ino() == namespace)
}

fn runs(process: &Path, pattern: &str) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").contains(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_however_ss_writes_them() {
        let (near, far) = ([Ipv4Addr::new(10, 100, 1, 1)], [Ipv4Addr::new(10, 100, 2, 1)]);
        for line in [
            "0      0   10.100.1.1:40000   10.100.2.1:5000 ",
            "0 0 [::ffff:10.100.1.1]:40000 [::ffff:10.100.2.1]:5000",
            "0 0 10.100.1.1%eth1:40000 10.100.2.1:5000",
            "0 0 [::ffff:10.100.1.1]%eth1:40000 [::ffff:10.100.2.1]:5000",
        ] {
            let connection = Connection::read(line).unwrap();
            assert_eq!(connection.far.to_string(), "10.100.2.1:5000");
            assert!(connection.is_between(&near, &far) && !connection.is_between(&far, &near));
        }
        assert_eq!(Connection::read("0 0 [fe80::1]:1 10.1.0.1:2"), None);
        assert_eq!(Connection::read("0 0 10.1.0.1:1"), None);
    }
}
