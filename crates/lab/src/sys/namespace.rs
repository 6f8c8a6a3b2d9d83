//! Namespaces and mounts.

use super::check;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Kinds of namespaces, as bits to be combined.
pub type Kinds = libc::c_int;

/// A user namespace.
pub const USER: Kinds = libc::CLONE_NEWUSER;
/// A namespace of process ids.
pub const PID: Kinds = libc::CLONE_NEWPID;
/// A network namespace.
pub const NET: Kinds = libc::CLONE_NEWNET;
/// A namespace of the host name.
pub const UTS: Kinds = libc::CLONE_NEWUTS;
/// A namespace of System V and POSIX inter-process communication.
pub const IPC: Kinds = libc::CLONE_NEWIPC;
/// A mount namespace.
pub const MOUNT: Kinds = libc::CLONE_NEWNS;

/// Moves the calling thread (for [`USER`] the process, for [`PID`] its children to come) into
/// new namespaces.
///
/// # Errors
/// When the system does not allow it.
pub fn unshare(kinds: Kinds) -> io::Result<()> {
    // A mount namespace needs a file-system context (working directory, root) of its own.
    let with_context = if kinds & MOUNT != 0 { kinds | libc::CLONE_FS } else { kinds };
    // SAFETY: changes only what the calling thread sees; no memory is involved.
    check(unsafe { libc::unshare(with_context) }).map(drop)
}

/// Moves the calling thread into an existing namespace of one kind.
///
/// # Errors
/// When `namespace` is not of this kind or the system does not allow it.
pub fn join(namespace: BorrowedFd<'_>, kind: Kinds) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { libc::setns(namespace.as_raw_fd(), kind) }).map(drop)
}

/// Sets the host name of the calling thread's UTS namespace.
///
/// # Errors
/// When the name is too long or the system does not allow it.
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the pointer is valid for the given length.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong) -> io::Result<()> {
    let (source, target, kind) = (text(source)?, text(target)?, text(Path::new(kind))?);
    // SAFETY: three valid strings; these file systems take no data.
    let result = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null())
    };
    check(result).map(drop)
}

/// Keeps mounts of this mount namespace from showing elsewhere (not the other way round).
///
/// # Errors
/// When the system does not allow it.
pub fn keep_mounts_here() -> io::Result<()> {
    mount(Path::new("none"), Path::new("/"), "", libc::MS_REC | libc::MS_SLAVE)
}

/// Mounts a fresh `proc` or `sysfs`, which shows the caller's namespaces.
///
/// # Errors
/// When the system does not allow it.
pub fn mount_fresh(kind: &str, target: &Path) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Path::new(kind), target, kind, flags)
}

/// Makes `source` also appear at `target`, with everything mounted below it.
///
/// # Errors
/// When either does not exist or the system does not allow it.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(source, target, "", libc::MS_BIND | libc::MS_REC)
}

/// A detached copy of what is mounted at `path` and below.
///
/// # Errors
/// When nothing is mounted there or the system does not allow it.
pub fn copy_mounts(path: &Path) -> io::Result<OwnedFd> {
    let path = text(path)?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as u32;
    // SAFETY: a valid string; the result is checked before it is owned.
    unsafe {
        let fd = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags);
        Ok(OwnedFd::from_raw_fd(check(fd as libc::c_int)?))
    }
}

/// Mounts such a copy at `path`.
///
/// # Errors
/// When the path does not exist or the system does not allow it.
pub fn attach_mounts(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = text(path)?;
    let (tree, here) = (tree.as_raw_fd(), libc::AT_FDCWD);
    // SAFETY: two valid strings and an open descriptor.
    let result = unsafe {
        let from = c"".as_ptr();
        let flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
        libc::syscall(libc::SYS_move_mount, tree, from, here, path.as_ptr(), flags)
    };
    check(result as libc::c_int).map(drop)
}

/// Whether programs cannot be run from the file system of `path`.
///
/// # Errors
/// When the path does not exist.
pub fn is_noexec(path: &Path) -> io::Result<bool> {
    let path = text(path)?;
    // SAFETY: a valid string and a structure that the kernel fills.
    let flags = unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &mut status))?;
        status.f_flag
    };
    Ok(flags & libc::ST_NOEXEC != 0)
}
