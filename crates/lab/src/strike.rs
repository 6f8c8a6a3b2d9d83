//! Faults that are over as soon as they are done: connections broken off, processes killed. For the
//! holder, process 1 of the lab.

use crate::error::{Doing as _, LabError};
use crate::network::NodeHandles;
use crate::sys::{namespace, process};
use crate::tools::ask;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

/// Breaks off the TCP connections that a node has with these addresses; says how many there were.
///
/// # Errors
/// When `ss` is missing, or the kernel cannot do it.
pub(crate) fn reset(node: &NodeHandles, addresses: &[Ipv4Addr]) -> Result<usize, LabError> {
    if addresses.is_empty() {
        return Ok(0);
    }
    let on_thread = || {
        namespace::join(node.net.as_fd(), namespace::NET).doing("cannot enter a node")?;
        // It says which it has ended.
        let ended = connections(addresses, true)?;
        if ended > 0 || connections(addresses, false)? == 0 {
            return Ok(ended);
        }
        Err(LabError::Usage(
            "this kernel cannot end connections: it needs CONFIG_INET_DIAG_DESTROY".to_owned(),
        ))
    };
    thread::scope(|scope| {
        let ended = scope.spawn(on_thread).join();
        ended.unwrap_or_else(|_| Err(LabError::Usage("a thread panicked".to_owned())))
    })
}

/// Counts, or ends and counts.
fn connections(addresses: &[Ipv4Addr], end: bool) -> Result<usize, LabError> {
    let ends: Vec<_> = addresses.iter().map(|address| format!("dst {address}")).collect();
    let filter = format!("( {} )", ends.join(" or "));
    let options = if end { "-HtnK" } else { "-Htn" };
    let said = ask("ss", &[options, "state", "established", &filter])?;
    Ok(said.lines().filter(|line| !line.trim().is_empty()).count())
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
