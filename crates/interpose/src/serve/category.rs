//! Categories of the tools interface (MPI 4.1 §15.3.9): the vendor's, and `gridmpi` with all that is ours.

use crate::error::{Result, forward};
use crate::runtime::Runtime;
use crate::tool::{
    self, CATEGORY, Control, Performance, Row, Which, fault, give, give_text, is_text,
};
use gridmpi_abi::Abi;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// `MPI_T_category_get_num`.
pub unsafe fn t_category_get_num<A: Abi>(
    rt: &'static Runtime<A>,
    num_cat: *mut c_int,
) -> Result<()> {
    let row = tool::categories(rt)?;
    // SAFETY: the program's place.
    unsafe { give(num_cat, row.count()) };
    Ok(())
}

/// `MPI_T_category_get_index`.
pub unsafe fn t_category_get_index<A: Abi>(
    rt: &'static Runtime<A>,
    name: *const c_char,
    cat_index: *mut c_int,
) -> Result<()> {
    let row = tool::categories(rt)?;
    // SAFETY: the program's arguments.
    unsafe {
        if is_text(name, CATEGORY.0) {
            give(cat_index, row.of_ours(0));
            return Ok(());
        }
        forward(|| rt.vendor.t_category_get_index(name, cat_index))?;
        give(cat_index, row.of_vendor(*cat_index));
    }
    Ok(())
}

/// `MPI_T_category_get_info`.
pub unsafe fn t_category_get_info<A: Abi>(
    rt: &'static Runtime<A>,
    cat_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    num_cvars: *mut c_int,
    num_pvars: *mut c_int,
    num_categories: *mut c_int,
) -> Result<()> {
    if let Which::Vendor(index) = tool::categories(rt)?.which(cat_index) {
        // SAFETY: the program's arguments.
        return forward(|| unsafe {
            rt.vendor.t_category_get_info(
                index,
                name,
                name_len,
                desc,
                desc_len,
                num_cvars,
                num_pvars,
                num_categories,
            )
        });
    }
    // SAFETY: the program's places.
    unsafe {
        give_text(CATEGORY.0, name, name_len);
        give_text(CATEGORY.1, desc, desc_len);
        give(num_cvars, Control::ALL.len() as c_int);
        give(num_pvars, Performance::ALL.len() as c_int);
        give(num_categories, 0);
    }
    Ok(())
}

/// `MPI_T_category_get_num_events`. We have none, and a vendor without the procedure has none either.
pub unsafe fn t_category_get_num_events<A: Abi>(
    rt: &'static Runtime<A>,
    cat_index: c_int,
    num_events: *mut c_int,
) -> Result<()> {
    match tool::categories(rt)?.which(cat_index) {
        Which::Vendor(index) if rt.vendor.has_t_category_get_num_events() => {
            // SAFETY: the program's arguments.
            forward(|| unsafe { rt.vendor.t_category_get_num_events(index, num_events) })
        }
        _ => {
            // SAFETY: the program's place.
            unsafe { give(num_events, 0) };
            Ok(())
        }
    }
}

/// `MPI_T_category_get_events`.
pub unsafe fn t_category_get_events<A: Abi>(
    rt: &'static Runtime<A>,
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> Result<()> {
    match tool::categories(rt)?.which(cat_index) {
        Which::Vendor(index) if rt.vendor.has_t_category_get_events() => {
            // SAFETY: the program's arguments.
            forward(|| unsafe { rt.vendor.t_category_get_events(index, len, indices) })
        }
        _ => Ok(()),
    }
}

/// `MPI_T_category_get_cvars`.
pub unsafe fn t_category_get_cvars<A: Abi>(
    rt: &'static Runtime<A>,
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> Result<()> {
    let list = List { row: tool::controls(rt)?, ours: Control::ALL.len(), len, indices };
    let index = match tool::categories(rt)?.which(cat_index) {
        // SAFETY: the program's array.
        Which::Ours(_) => return unsafe { list.give_ours::<A>() },
        Which::Vendor(index) => index,
    };
    // SAFETY: the program's arguments, and as many as the vendor has given.
    unsafe {
        forward(|| rt.vendor.t_category_get_cvars(index, len, indices))?;
        list.renumber(|| contents(rt, index).map(|(count, ..)| count))
    }
}

/// `MPI_T_category_get_pvars`.
pub unsafe fn t_category_get_pvars<A: Abi>(
    rt: &'static Runtime<A>,
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> Result<()> {
    let list = List { row: tool::performance(rt)?, ours: Performance::ALL.len(), len, indices };
    let index = match tool::categories(rt)?.which(cat_index) {
        // SAFETY: the program's array.
        Which::Ours(_) => return unsafe { list.give_ours::<A>() },
        Which::Vendor(index) => index,
    };
    // SAFETY: the program's arguments, and as many as the vendor has given.
    unsafe {
        forward(|| rt.vendor.t_category_get_pvars(index, len, indices))?;
        list.renumber(|| contents(rt, index).map(|(_, count, _)| count))
    }
}

/// `MPI_T_category_get_categories`. Ours stands by itself.
pub unsafe fn t_category_get_categories<A: Abi>(
    rt: &'static Runtime<A>,
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> Result<()> {
    let row = tool::categories(rt)?;
    let list = List { row, ours: 0, len, indices };
    let index = match row.which(cat_index) {
        // SAFETY: the program's array.
        Which::Ours(_) => return unsafe { list.give_ours::<A>() },
        Which::Vendor(index) => index,
    };
    // SAFETY: the program's arguments, and as many as the vendor has given.
    unsafe {
        forward(|| rt.vendor.t_category_get_categories(index, len, indices))?;
        list.renumber(|| contents(rt, index).map(|(.., count)| count))
    }
}

/// How many control variables, performance variables and categories a category of the vendor's has.
fn contents<A: Abi>(rt: &Runtime<A>, index: c_int) -> Result<(c_int, c_int, c_int)> {
    let (mut controls, mut performance, mut categories) = (0, 0, 0);
    // SAFETY: places of our own; null asks for no string (MPI 4.1 §15.3.3).
    forward(|| unsafe {
        rt.vendor.t_category_get_info(
            index,
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
            &raw mut controls,
            &raw mut performance,
            &raw mut categories,
        )
    })?;
    Ok((controls, performance, categories))
}

/// The program's array for numbers of a row.
struct List {
    row: Row,
    /// How many of ours would be in it.
    ours: usize,
    len: c_int,
    indices: *mut c_int,
}

impl List {
    /// Lists ours, as many as there is room for.
    unsafe fn give_ours<A: Abi>(&self) -> Result<()> {
        let count = self.ours.min(usize::try_from(self.len).unwrap_or(0));
        if self.indices.is_null() && count > 0 {
            return Err(fault(A::T_ERR_INVALID));
        }
        for place in 0..count {
            // SAFETY: the program's array has `len` places.
            unsafe { self.indices.add(place).write(self.row.of_ours(place)) };
        }
        Ok(())
    }

    /// Turns the vendor's numbers into the program's; `count` asks how many the vendor would give.
    unsafe fn renumber(&self, count: impl FnOnce() -> Result<c_int>) -> Result<()> {
        if self.indices.is_null() || self.len <= 0 {
            return Ok(());
        }
        let count = usize::try_from(count()?.min(self.len)).unwrap_or(0);
        for place in 0..count {
            // SAFETY: the vendor has filled so many.
            unsafe {
                let number = self.indices.add(place);
                number.write(self.row.of_vendor(*number));
            }
        }
        Ok(())
    }
}
