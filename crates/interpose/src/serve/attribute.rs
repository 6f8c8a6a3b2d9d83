//! Attributes (MPI 4.1 §7.7) live on the token; a few predefined ones tell about the whole job.

use crate::error::{Error, Result, forward};
use crate::matb::{YAMPI_PSP_MATB, YAMPI_PSP_MAXRATE, is_key};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
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

/// The value of ours for a predefined attribute of a communicator that spans clusters, for which the vendor `found` one or not.
pub(crate) fn of_job<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    keyval: c_int,
    found: bool,
) -> Option<&'static c_int> {
    // The vendor need not know a size of the universe (MPI 4.1 §11.10.1), but we do.
    let known = keyval == A::UNIVERSE_SIZE && comm == A::comm_world();
    predefined(rt, keyval).filter(|_| known || found)
}

/// The address of the value, if it is known, of an attribute about rates; `None` for another one.
pub(crate) fn of_rates<A: Abi>(rt: &Runtime<A>, keyval: c_int) -> Option<Option<*const c_int>> {
    match keyval {
        YAMPI_PSP_MAXRATE => Some(rt.job().matb.max_rate()),
        YAMPI_PSP_MATB => Some(rt.job().matb.get(&rt.job().net)),
        _ => None,
    }
}

/// Sets an attribute about rates; `None` if it is another one.
pub(crate) fn set_rate<A: Abi>(
    rt: &Runtime<A>,
    keyval: c_int,
    value: Option<c_int>,
) -> Option<Result<()>> {
    let job = rt.job();
    match (keyval, value) {
        (YAMPI_PSP_MATB, Some(value)) => job.matb.put(&job.net, value),
        (YAMPI_PSP_MATB, None) => job.matb.delete(&job.net),
        (YAMPI_PSP_MAXRATE, _) => {
            let message = "YAMPI_PSP_MAXRATE can be read only; YAMPI_PSP_MATB can be put";
            return Some(Err(Error::new(ErrorClass::Arg, message)));
        }
        _ => return None,
    }
    Some(Ok(()))
}

/// `MPI_Comm_set_attr`. The value of an attribute about rates is the address of an int, as it is when it is got.
pub unsafe fn comm_set_attr<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    comm_keyval: c_int,
    attribute_val: *mut c_void,
) -> Result<()> {
    if is_key(comm_keyval) {
        // SAFETY: the program's place; null is no value.
        let value = unsafe { attribute_val.cast::<c_int>().as_ref() }.copied().unwrap_or(0);
        return set_rate(rt, comm_keyval, Some(value)).unwrap_or(Ok(()));
    }
    // SAFETY: the program's arguments.
    forward(|| unsafe { rt.vendor.comm_set_attr(comm, comm_keyval, attribute_val) })
}

/// `MPI_Comm_delete_attr`.
pub unsafe fn comm_delete_attr<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    comm_keyval: c_int,
) -> Result<()> {
    match set_rate(rt, comm_keyval, None) {
        Some(result) => result,
        // SAFETY: the program's arguments.
        None => forward(|| unsafe { rt.vendor.comm_delete_attr(comm, comm_keyval) }),
    }
}

/// `MPI_Attr_put`, the deprecated name of [`comm_set_attr`].
pub unsafe fn attr_put<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    keyval: c_int,
    attribute_val: *mut c_void,
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe { comm_set_attr(rt, comm, keyval, attribute_val) }
}

/// `MPI_Attr_delete`, the deprecated name of [`comm_delete_attr`].
pub unsafe fn attr_delete<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    keyval: c_int,
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe { comm_delete_attr(rt, comm, keyval) }
}

/// `MPI_Comm_get_attr`.
pub unsafe fn comm_get_attr<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    comm_keyval: c_int,
    attribute_val: *mut c_void,
    flag: *mut c_int,
) -> Result<()> {
    if let Some(value) = of_rates(rt, comm_keyval) {
        // SAFETY: the program's places, as below.
        unsafe {
            *flag = c_int::from(value.is_some());
            if let Some(value) = value {
                attribute_val.cast::<*const c_int>().write(value);
            }
        }
        return Ok(());
    }
    // SAFETY: the program's arguments. The vendor decides which communicators have the attribute.
    forward(|| unsafe { rt.vendor.comm_get_attr(comm, comm_keyval, attribute_val, flag) })?;
    // SAFETY: the program's places; the value of an attribute is a pointer, here to an int.
    unsafe {
        if let Some(value) = of_job(rt, comm, comm_keyval, *flag != 0) {
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
