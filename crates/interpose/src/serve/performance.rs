//! Performance variables of the tools interface (MPI 4.1 §15.3.7): the vendor's and ours. Sessions are the vendor's.

use crate::error::{Result, forward};
use crate::runtime::Runtime;
use crate::tool::{
    self, Class, Held, Meter, Performance, Watch, Which, fault, give, give_text, is_ours, is_text,
};
use gridmpi_abi::Abi;
use std::ffi::{c_char, c_int, c_void};

/// `MPI_T_pvar_get_num`.
pub unsafe fn t_pvar_get_num<A: Abi>(rt: &'static Runtime<A>, num_pvar: *mut c_int) -> Result<()> {
    let row = tool::performance(rt)?;
    // SAFETY: the program's place.
    unsafe { give(num_pvar, row.count()) };
    Ok(())
}

/// `MPI_T_pvar_get_index`.
pub unsafe fn t_pvar_get_index<A: Abi>(
    rt: &'static Runtime<A>,
    name: *const c_char,
    var_class: c_int,
    pvar_index: *mut c_int,
) -> Result<()> {
    let row = tool::performance(rt)?;
    let is_it = |variable: &Performance| {
        // SAFETY: the program's string.
        variable.class().number::<A>() == var_class && unsafe { is_text(name, variable.text().0) }
    };
    if let Some(place) = Performance::ALL.iter().position(is_it) {
        // SAFETY: the program's place.
        unsafe { give(pvar_index, row.of_ours(place)) };
        return Ok(());
    }
    // SAFETY: the program's arguments.
    unsafe {
        forward(|| rt.vendor.t_pvar_get_index(name, var_class, pvar_index))?;
        give(pvar_index, row.of_vendor(*pvar_index));
    }
    Ok(())
}

/// `MPI_T_pvar_get_info`.
pub unsafe fn t_pvar_get_info<A: Abi>(
    rt: &'static Runtime<A>,
    pvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    var_class: *mut c_int,
    datatype: *mut A::Datatype,
    enumtype: *mut *mut c_void,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    readonly: *mut c_int,
    continuous: *mut c_int,
    atomic: *mut c_int,
) -> Result<()> {
    let variable = match tool::performance(rt)?.which(pvar_index) {
        Which::Ours(place) => Performance::ALL[place],
        Which::Vendor(index) => {
            // SAFETY: the program's arguments.
            return forward(|| unsafe {
                rt.vendor.t_pvar_get_info(
                    index, name, name_len, verbosity, var_class, datatype, enumtype, desc,
                    desc_len, bind, readonly, continuous, atomic,
                )
            });
        }
    };
    let ((called, described), class) = (variable.text(), variable.class());
    let is_level = c_int::from(class == Class::Level);
    // SAFETY: the program's places.
    unsafe {
        give_text(called, name, name_len);
        give_text(described, desc, desc_len);
        give(verbosity, A::T_VERBOSITY_TUNER_BASIC);
        give(var_class, class.number::<A>());
        give(datatype, A::datatype(class.datatype()));
        give(enumtype, A::t_enum_null());
        give(bind, A::T_BIND_NO_OBJECT);
        give(readonly, is_level);
        give(continuous, is_level);
        give(atomic, 1 - is_level);
    }
    Ok(())
}

/// `MPI_T_pvar_session_create`.
pub unsafe fn t_pvar_session_create<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the program's place.
    unsafe {
        forward(|| rt.vendor.t_pvar_session_create(pe_session))?;
        rt.tool.handles.open_session(*pe_session);
    }
    Ok(())
}

/// `MPI_T_pvar_session_free`.
pub unsafe fn t_pvar_session_free<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the program's place.
    let session = unsafe { pe_session.as_ref() }.copied();
    let handles = &rt.tool.handles;
    let closed = session.and_then(|session| Some((session, handles.close_session(session)?)));
    // SAFETY: the program's arguments.
    let freed = forward(|| unsafe { rt.vendor.t_pvar_session_free(pe_session) });
    match closed {
        Some((_, closed)) if freed.is_ok() => handles.drop_session(closed),
        Some((session, closed)) => handles.reopen_session(session, closed),
        None => {}
    }
    freed
}

/// `MPI_T_pvar_handle_alloc`. Ours are bound to no object.
pub unsafe fn t_pvar_handle_alloc<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    pvar_index: c_int,
    obj_handle: *mut c_void,
    handle: *mut *mut c_void,
    count: *mut c_int,
) -> Result<()> {
    let variable = match tool::performance(rt)?.which(pvar_index) {
        Which::Ours(place) => Performance::ALL[place],
        Which::Vendor(index) => {
            // SAFETY: the program's arguments.
            return forward(|| unsafe {
                rt.vendor.t_pvar_handle_alloc(pe_session, index, obj_handle, handle, count)
            });
        }
    };
    if handle.is_null() {
        return Err(fault(A::T_ERR_INVALID));
    }
    let session = rt.tool.handles.session(pe_session);
    let session = session.ok_or_else(|| fault(A::T_ERR_INVALID_SESSION))?;
    let watch = Watch { session, variable, meter: Meter::default() };
    let held = rt.tool.handles.add(Held::Performance(watch));
    let held = held.ok_or_else(|| fault(A::T_ERR_OUT_OF_HANDLES))?;
    // SAFETY: the program's places.
    unsafe {
        give(handle, held);
        give(count, 1);
    }
    Ok(())
}

/// `MPI_T_pvar_handle_free`.
pub unsafe fn t_pvar_handle_free<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the program's place.
    match unsafe { handle.as_mut() } {
        Some(held) if is_ours(*held) => {
            if !rt.tool.handles.remove_watch(pe_session, *held) {
                return Err(fault(A::T_ERR_INVALID_HANDLE));
            }
            *held = A::t_pvar_handle_null();
            Ok(())
        }
        // SAFETY: the program's arguments.
        _ => forward(|| unsafe { rt.vendor.t_pvar_handle_free(pe_session, handle) }),
    }
}

/// `MPI_T_pvar_start`.
pub unsafe fn t_pvar_start<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut c_void,
) -> Result<()> {
    let refusal = A::T_ERR_PVAR_NO_STARTSTOP;
    // SAFETY: the program's arguments.
    let vendor = || unsafe { rt.vendor.t_pvar_start(pe_session, handle) };
    change(rt, pe_session, handle, refusal, vendor, |meter, all| meter.start(all))
}

/// `MPI_T_pvar_stop`.
pub unsafe fn t_pvar_stop<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut c_void,
) -> Result<()> {
    let refusal = A::T_ERR_PVAR_NO_STARTSTOP;
    // SAFETY: the program's arguments.
    let vendor = || unsafe { rt.vendor.t_pvar_stop(pe_session, handle) };
    change(rt, pe_session, handle, refusal, vendor, |meter, all| meter.stop(all))
}

/// `MPI_T_pvar_reset`.
pub unsafe fn t_pvar_reset<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut c_void,
) -> Result<()> {
    let refusal = A::T_ERR_PVAR_NO_WRITE;
    // SAFETY: the program's arguments.
    let vendor = || unsafe { rt.vendor.t_pvar_reset(pe_session, handle) };
    change(rt, pe_session, handle, refusal, vendor, |meter, all| meter.set(0, all))
}

/// Starts, stops or resets one variable, or with `MPI_T_PVAR_ALL_HANDLES` all of the session, the vendor's and ours. Levels are
/// passed over then (MPI 4.1 §15.3.7), and one alone is refused.
fn change<A: Abi>(
    rt: &Runtime<A>,
    session: *mut c_void,
    handle: *mut c_void,
    refusal: c_int,
    vendor: impl FnOnce() -> c_int,
    work: impl Fn(&mut Meter, u64),
) -> Result<()> {
    if is_ours(handle) {
        return one(rt, session, handle, |watch| match watch.variable.class() {
            Class::Level => Err(fault(refusal)),
            _ => {
                work(&mut watch.meter, watch.variable.now(rt));
                Ok(())
            }
        });
    }
    if !handle.is_null() && handle == A::t_pvar_all_handles() {
        rt.tool.handles.watches(session, |watch| work(&mut watch.meter, watch.variable.now(rt)));
    }
    forward(vendor)
}

/// `MPI_T_pvar_read`.
pub unsafe fn t_pvar_read<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut c_void,
    buf: *mut c_void,
) -> Result<()> {
    if !is_ours(handle) {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.t_pvar_read(pe_session, handle, buf) });
    }
    one(rt, pe_session, handle, |watch| {
        let all = watch.variable.now(rt);
        // SAFETY: the program's room for a value.
        unsafe { read::<A>(watch, all, buf) }
    })
}

/// `MPI_T_pvar_readreset`: nothing comes between the two.
pub unsafe fn t_pvar_readreset<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut c_void,
    buf: *mut c_void,
) -> Result<()> {
    if !is_ours(handle) {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.t_pvar_readreset(pe_session, handle, buf) });
    }
    one(rt, pe_session, handle, |watch| {
        if watch.variable.class() == Class::Level {
            return Err(fault(A::T_ERR_PVAR_NO_ATOMIC));
        }
        let all = watch.variable.now(rt);
        // SAFETY: the program's room for a value.
        unsafe { read::<A>(watch, all, buf)? };
        watch.meter.set(0, all);
        Ok(())
    })
}

/// `MPI_T_pvar_write`.
pub unsafe fn t_pvar_write<A: Abi>(
    rt: &'static Runtime<A>,
    pe_session: *mut c_void,
    handle: *mut c_void,
    buf: *const c_void,
) -> Result<()> {
    if !is_ours(handle) {
        // SAFETY: the program's arguments.
        return forward(|| unsafe { rt.vendor.t_pvar_write(pe_session, handle, buf) });
    }
    one(rt, pe_session, handle, |watch| {
        let class = watch.variable.class();
        if class == Class::Level {
            return Err(fault(A::T_ERR_PVAR_NO_WRITE));
        }
        if buf.is_null() {
            return Err(fault(A::T_ERR_INVALID));
        }
        // SAFETY: the program's value, of the type that `MPI_T_pvar_get_info` said.
        let value = unsafe {
            match class {
                // The conversion saturates.
                Class::Timer => (buf.cast::<f64>().read_unaligned() * NANO) as u64,
                _ => buf.cast::<u64>().read_unaligned(),
            }
        };
        watch.meter.set(value, watch.variable.now(rt));
        Ok(())
    })
}

/// Nanoseconds in a second.
const NANO: f64 = 1e9;

/// Gives the program the value.
unsafe fn read<A: Abi>(watch: &Watch, all: u64, buf: *mut c_void) -> Result<()> {
    if buf.is_null() {
        return Err(fault(A::T_ERR_INVALID));
    }
    let value = watch.meter.value(all);
    // SAFETY: the program's room for a value.
    unsafe {
        match watch.variable.class() {
            Class::Level => buf.cast::<u64>().write_unaligned(all),
            Class::Counter => buf.cast::<u64>().write_unaligned(value),
            Class::Timer => buf.cast::<f64>().write_unaligned(value as f64 / NANO),
        }
    }
    Ok(())
}

/// Works on a handle of ours, which must be of this session.
fn one<A: Abi>(
    rt: &Runtime<A>,
    session: *mut c_void,
    handle: *mut c_void,
    work: impl FnOnce(&mut Watch) -> Result<()>,
) -> Result<()> {
    let worked = rt.tool.handles.watch(session, handle, work);
    worked.unwrap_or_else(|| Err(fault(A::T_ERR_INVALID_HANDLE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::Vendor;
    use gridmpi_abi::Mpich;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static RT: OnceLock<&'static Runtime<Mpich>> = OnceLock::new();
    static REFUSES: AtomicBool = AtomicBool::new(true);

    /// As when another thread makes a session, and gets the address, before this one has returned.
    unsafe extern "C" fn free(session: *mut *mut c_void) -> c_int {
        if REFUSES.load(Relaxed) {
            return Mpich::T_ERR_INVALID_SESSION;
        }
        RT.get().unwrap().tool.handles.open_session(unsafe { *session });
        Mpich::SUCCESS
    }

    #[test]
    fn a_session_that_gets_the_address_of_one_that_is_freed_is_known() {
        let free = (c"MPI_T_pvar_session_free", free as *const c_void);
        let rt = Runtime::<Mpich>::over(unsafe { Vendor::of(&[free]) });
        let rt = *RT.get_or_init(|| Box::leak(Box::new(rt)));
        let mut session = ptr::without_provenance_mut(8);
        rt.tool.handles.open_session(session);
        let opened = rt.tool.handles.session(session);
        assert!(unsafe { t_pvar_session_free(rt, &raw mut session) }.is_err());
        assert_eq!(rt.tool.handles.session(session), opened, "it was not freed");
        REFUSES.store(false, Relaxed);
        assert!(unsafe { t_pvar_session_free(rt, &raw mut session) }.is_ok());
        let other = rt.tool.handles.session(session);
        assert!(other.is_some() && other != opened);
    }
}
