//! Finds the vendor's library in this process, never ourselves.
//!
//! `RTLD_NEXT` does not find it where it was loaded `RTLD_LOCAL` (mpi4py), and a look-up on a global handle finds
//! ourselves. So: walk the loaded objects, open the vendor's again without loading it, and look up on that handle.

use gridmpi_abi::Symbol;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Why there is nothing to call.
#[derive(Debug, PartialEq, Eq)]
pub enum NoVendor {
    /// No loaded library has MPI's procedures: the program has none, or has it linked in statically.
    NotLoaded,
    /// There is one, of another family.
    OtherFamily {
        /// Its file.
        library: String,
        /// The symbol that it should have.
        marker: String,
    },
}

impl std::fmt::Display for NoVendor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotLoaded => f.write_str(
                "this program has no shared MPI library loaded; link it dynamically against its MPI",
            ),
            Self::OtherFamily { library, marker } => write!(
                f,
                "{library} is of another MPI family than this preloaded library (it has no {marker}); \
                 start the program with the launcher of the MPI that it was built with"
            ),
        }
    }
}

/// The vendor's library, open.
pub(super) struct Library {
    handle: *mut c_void,
    path: String,
}

impl Library {
    /// The first loaded object that itself defines `PMPI_Comm_rank`.
    pub(super) fn find(marker: &CStr) -> Result<Self, NoVendor> {
        let library = loaded_objects()
            .into_iter()
            .filter(|path| may_be_mpi(path))
            .find_map(|path| Self::open(&path))
            .ok_or(NoVendor::NotLoaded)?;
        if library.address(marker).is_null() {
            return Err(NoVendor::OtherFamily {
                library: library.path,
                marker: marker.to_string_lossy().into_owned(),
            });
        }
        Ok(library)
    }

    /// Opens an object that is loaded, if it is an MPI or depends on one.
    fn open(path: &CStr) -> Option<Self> {
        let library = Self::open_loaded(path)?;
        let probe = library.address(c"PMPI_Comm_rank");
        if probe.is_null() {
            return None;
        }
        let defined_in = object_of(probe)?;
        // The same object has this function: it is ourselves.
        let own: fn(&CStr) -> Option<Self> = Self::open;
        if Some(&defined_in) == object_of(own as *const c_void).as_ref() {
            return None;
        }
        Self::open_loaded(&defined_in)
    }

    fn open_loaded(path: &CStr) -> Option<Self> {
        // SAFETY: RTLD_NOLOAD opens what is loaded and runs nothing.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then(|| Self { handle, path: path.to_string_lossy().into_owned() })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// A procedure by its profiling name, which nobody but us interposes, or by its plain one.
    pub(super) fn procedure(&self, name: &CStr) -> Option<unsafe extern "C" fn()> {
        let profiling = [b"P", name.to_bytes_with_nul()].concat();
        let profiling = CStr::from_bytes_with_nul(&profiling).ok()?;
        let address =
            [profiling, name].into_iter().map(|name| self.address(name)).find(|a| !a.is_null())?;
        // SAFETY: a function of the vendor's, never called with this signature.
        Some(unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(address) })
    }

    /// A constant. A program that is not position-independent has its own copies of the vendor's variables, and their
    /// addresses are the ones that count everywhere; the global look-up finds those first.
    pub(super) fn constant(&self, symbol: &Symbol) -> usize {
        // SAFETY: a look-up.
        let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.name.as_ptr()) };
        let address = if global.is_null() { self.address(symbol.name) } else { global };
        if address.is_null() || !symbol.read {
            return address.addr();
        }
        // SAFETY: the vendor's header says that the variable is a pointer.
        unsafe { address.cast::<usize>().read() }
    }

    fn address(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a look-up on an open handle.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }
}

/// Vendors' libraries are called libmpi, libmpich, libmpi_abi …; so are bindings and wrappers, which depend on them and
/// therefore find the same procedures.
fn may_be_mpi(path: &CStr) -> bool {
    let path = path.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    file.windows(3).any(|window| window == b"mpi")
}

/// The file of the object that an address lies in.
fn object_of(address: *const c_void) -> Option<CString> {
    // SAFETY: all zero is a valid Dl_info; dladdr fills it, with a name that lives as long as the object.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null();
        found.then(|| CStr::from_ptr(info.dli_fname).to_owned())
    }
}

fn loaded_objects() -> Vec<CString> {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback gets this vector and the entries' names, valid while it runs.
    unsafe { libc::dl_iterate_phdr(Some(collect_name), (&raw mut names).cast()) };
    names
}

unsafe extern "C" fn collect_name(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    names: *mut c_void,
) -> c_int {
    // SAFETY: as `loaded_objects` says.
    let (name, names): (*const c_char, _) =
        unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>()) };
    if !name.is_null() {
        // SAFETY: a C string of the loader's.
        names.push(unsafe { CStr::from_ptr(name) }.to_owned());
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_mpi_the_message_says_so() {
        let error = Library::find(c"MPIR_Dup_fn").err();
        assert_eq!(error, Some(NoVendor::NotLoaded));
        assert!(NoVendor::NotLoaded.to_string().contains("no shared MPI library"));
    }

    #[test]
    fn names_that_may_be_an_mpi() {
        assert!(may_be_mpi(c"/usr/lib/libmpich.so.12"));
        assert!(may_be_mpi(c"libmpi.so.40"));
        assert!(!may_be_mpi(c"/lib/libc.so.6"));
        assert!(!may_be_mpi(c"/opt/mpi/lib/libhwloc.so.15"));
    }
}
