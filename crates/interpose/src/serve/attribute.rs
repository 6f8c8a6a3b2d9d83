//! Attributes (MPI 4.1 §7.7) live on the token; a few predefined ones tell about the whole job.

use crate::error::{Result, forward};
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use std::ffi::{c_int, c_void};

/// `MPI_WTIME_IS_GLOBAL`: clocks of different clusters differ (MPI 4.1 §9.1.2).
static CLOCKS_DIFFER: c_int = 0;

/// The value of ours for a predefined attribute; lives as long as the process.
fn predefined<A: Abi>(rt: &'static Runtime<A>, keyval: c_int) -> Option<&'static c_int> {
    if keyval == A::TAG_UB {
        Some(&rt.job().tag_ub)
    } else if keyval == A::UNIVERSE_SIZE {
        Some(&rt.job().universe)
    } else if keyval == A::WTIME_IS_GLOBAL {
        Some(&CLOCKS_DIFFER)
    } else {
        None
    }
}

/// `MPI_Comm_get_attr`.
pub unsafe fn comm_get_attr<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    comm_keyval: c_int,
    attribute_val: *mut c_void,
    flag: *mut c_int,
) -> Result<()> {
    // SAFETY: the program's arguments. The vendor decides which communicators have the attribute.
    forward(|| unsafe { rt.vendor.comm_get_attr(comm, comm_keyval, attribute_val, flag) })?;
    // The vendor need not know a size of the universe (MPI 4.1 §11.10.1), but we do.
    let known = comm_keyval == A::UNIVERSE_SIZE && comm == A::comm_world();
    // SAFETY: the program's places; the value of an attribute is a pointer, here to an int.
    unsafe {
        if let Some(value) = predefined(rt, comm_keyval)
            && (known || *flag != 0)
        {
            attribute_val.cast::<*const c_int>().write(value);
            *flag = 1;
        }
    }
    Ok(())
}

/// `MPI_Attr_get`, the deprecated name of [`comm_get_attr`].
pub unsafe fn attr_get<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    keyval: c_int,
    attribute_val: *mut c_void,
    flag: *mut c_int,
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe { comm_get_attr(rt, comm, keyval, attribute_val, flag) }
}
