//! `MPI_Type_free` (MPI 4.1 §5.1.9).

use crate::error::{Result, check};
use crate::guard::Lift;
use crate::runtime::Runtime;
use gridmpi_abi::Abi;

/// `MPI_Type_free`: operations under way keep the layout itself.
pub unsafe fn type_free<A: Abi>(rt: &'static Runtime<A>, datatype: *mut A::Datatype) -> Result<()> {
    // SAFETY: the program's handle.
    let freed = unsafe { *datatype };
    // Forgotten first, since the vendor may use a freed handle again at once.
    rt.layouts.forget(freed);
    let code = {
        let _lift = Lift::new();
        // SAFETY: the program's handle. Delete callbacks of the program run in it.
        unsafe { rt.vendor.type_free(datatype) }
    };
    // And again, since such a callback may have sent with it.
    rt.layouts.forget(freed);
    check(code)
}
