//! Control variables of the tools interface (MPI 4.1 §15.3.6): the vendor's and ours.

use crate::error::{Result, forward};
use crate::runtime::Runtime;
use crate::tool::{self, Control, Held, PACING, Which, fault, give, give_text, is_ours, is_text};
use gridmpi_abi::Abi;
use std::ffi::{c_char, c_int, c_void};

/// `MPI_T_cvar_get_num`.
pub unsafe fn t_cvar_get_num<A: Abi>(rt: &'static Runtime<A>, num_cvar: *mut c_int) -> Result<()> {
    let row = tool::controls(rt)?;
    // SAFETY: the program's place.
    unsafe { give(num_cvar, row.count()) };
    Ok(())
}

/// `MPI_T_cvar_get_index`.
pub unsafe fn t_cvar_get_index<A: Abi>(
    rt: &'static Runtime<A>,
    name: *const c_char,
    cvar_index: *mut c_int,
) -> Result<()> {
    let row = tool::controls(rt)?;
    // SAFETY: the program's string.
    let is_it = |control: &Control| unsafe { is_text(name, control.text().0) };
    if let Some(place) = Control::ALL.iter().position(is_it) {
        // SAFETY: the program's place.
        unsafe { give(cvar_index, row.of_ours(place)) };
        return Ok(());
    }
    // SAFETY: the program's arguments.
    unsafe {
        forward(|| rt.vendor.t_cvar_get_index(name, cvar_index))?;
        give(cvar_index, row.of_vendor(*cvar_index));
    }
    Ok(())
}

/// `MPI_T_cvar_get_info`.
pub unsafe fn t_cvar_get_info<A: Abi>(
    rt: &'static Runtime<A>,
    cvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    datatype: *mut A::Datatype,
    enumtype: *mut *mut c_void,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    scope: *mut c_int,
) -> Result<()> {
    let control = match tool::controls(rt)?.which(cvar_index) {
        Which::Ours(place) => Control::ALL[place],
        Which::Vendor(index) => {
            // SAFETY: the program's arguments.
            return forward(|| unsafe {
                rt.vendor.t_cvar_get_info(
                    index, name, name_len, verbosity, datatype, enumtype, desc, desc_len, bind,
                    scope,
                )
            });
        }
    };
    let (called, described) = control.text();
    let (verbose, reach) = match control {
        Control::Matb => (A::T_VERBOSITY_USER_BASIC, A::T_SCOPE_LOCAL),
        Control::Pacing | Control::PacedBy => (A::T_VERBOSITY_USER_BASIC, A::T_SCOPE_READONLY),
    };
    // SAFETY: the program's places.
    unsafe {
        give_text(called, name, name_len);
        give_text(described, desc, desc_len);
        give(verbosity, verbose);
        give(datatype, A::datatype(control.datatype().0));
        give(enumtype, A::t_enum_null());
        give(bind, A::T_BIND_NO_OBJECT);
        give(scope, reach);
    }
    Ok(())
}

/// `MPI_T_cvar_handle_alloc`. Ours are bound to no object.
pub unsafe fn t_cvar_handle_alloc<A: Abi>(
    rt: &'static Runtime<A>,
    cvar_index: c_int,
    obj_handle: *mut c_void,
    handle: *mut *mut c_void,
    count: *mut c_int,
) -> Result<()> {
    let control = match tool::controls(rt)?.which(cvar_index) {
        Which::Ours(place) => Control::ALL[place],
        Which::Vendor(index) => {
            // SAFETY: the program's arguments.
            return forward(|| unsafe {
                rt.vendor.t_cvar_handle_alloc(index, obj_handle, handle, count)
            });
        }
    };
    if handle.is_null() {
        return Err(fault(A::T_ERR_INVALID));
    }
    let held = rt.tool.handles.add(Held::Control(control));
    let held = held.ok_or_else(|| fault(A::T_ERR_OUT_OF_HANDLES))?;
    // SAFETY: the program's places.
    unsafe {
        give(handle, held);
        give(count, control.datatype().1);
    }
    Ok(())
}

/// `MPI_T_cvar_handle_free`.
pub unsafe fn t_cvar_handle_free<A: Abi>(
    rt: &'static Runtime<A>,
    handle: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the program's place.
    match unsafe { handle.as_mut() } {
        Some(held) if is_ours(*held) => {
            if !rt.tool.handles.remove_control(*held) {
                return Err(fault(A::T_ERR_INVALID_HANDLE));
            }
            *held = A::t_cvar_handle_null();
            Ok(())
        }
        // SAFETY: the program's arguments.
        _ => forward(|| unsafe { rt.vendor.t_cvar_handle_free(handle) }),
    }
}

/// `MPI_T_cvar_read`.
pub unsafe fn t_cvar_read<A: Abi>(
    rt: &'static Runtime<A>,
    handle: *mut c_void,
    buf: *mut c_void,
) -> Result<()> {
    if !is_ours(handle) {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.t_cvar_read(handle, buf) });
    }
    let control = ours(rt, handle, buf)?;
    // SAFETY: the program has room for as many values as `MPI_T_cvar_handle_alloc` said.
    unsafe {
        match control {
            Control::Matb => buf.cast::<u64>().write_unaligned(tool::rate(rt)),
            Control::Pacing => buf.cast::<[u8; PACING]>().write(pacing(rt)),
            Control::PacedBy => buf.cast::<[u8; PACING]>().write(paced_by(rt)),
        }
    }
    Ok(())
}

/// The setting's name, filled up with null characters.
fn pacing<A: Abi>(rt: &Runtime<A>) -> [u8; PACING] {
    filled(rt.joined().map_or(gridmpi_bootstrap::Pacing::Off, |job| job.pacing).name())
}

/// Who paces, in the same way; empty where nothing is sent.
fn paced_by<A: Abi>(rt: &Runtime<A>) -> [u8; PACING] {
    filled(rt.joined().and_then(|job| job.net.paced_by()).map_or("", gridmpi_net::PacedBy::name))
}

fn filled(name: &str) -> [u8; PACING] {
    let mut text = [0; PACING];
    // The last one stays null.
    for (place, byte) in text[..PACING - 1].iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    text
}

/// `MPI_T_cvar_write`.
pub unsafe fn t_cvar_write<A: Abi>(
    rt: &'static Runtime<A>,
    handle: *mut c_void,
    buf: *const c_void,
) -> Result<()> {
    if !is_ours(handle) {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.t_cvar_write(handle, buf) });
    }
    match ours(rt, handle, buf)? {
        Control::Matb => {
            // SAFETY: the program's value, of the type that `MPI_T_cvar_get_info` said.
            tool::set_rate(rt, unsafe { buf.cast::<u64>().read_unaligned() });
            Ok(())
        }
        Control::Pacing | Control::PacedBy => Err(fault(A::T_ERR_CVAR_SET_NEVER)),
    }
}

/// What a handle of ours stands for, there being a buffer.
fn ours<A: Abi>(rt: &Runtime<A>, handle: *mut c_void, buf: *const c_void) -> Result<Control> {
    if buf.is_null() {
        return Err(fault(A::T_ERR_INVALID));
    }
    rt.tool.handles.control(handle).ok_or_else(|| fault(A::T_ERR_INVALID_HANDLE))
}
