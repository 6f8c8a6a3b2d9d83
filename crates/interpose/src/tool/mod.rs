//! GridMPI's variables in the tools interface (MPI 4.1 §15.3), in one row with the vendor's.
//!
//! Whatever is the vendor's (its variables, all sessions, events, enumerations) stays with the vendor. Errors are codes of the
//! vendor's ABI; no error handler hears of them (MPI 4.1 §15.3.10).

mod handles;
mod meter;
mod numbers;
mod text;
mod variables;

pub(crate) use handles::{Handles, Held, Watch, is_ours};
pub(crate) use meter::Meter;
pub(crate) use numbers::{Numbers, Row, Which};
pub(crate) use text::{give, give_text, is_text};
pub(crate) use variables::{CATEGORY, Class, Control, PACING, Performance, whole};

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use gridmpi_abi::Abi;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is kept of it, also outside a job.
#[derive(Debug)]
pub(crate) struct Tool {
    controls: Numbers,
    performance: Numbers,
    categories: Numbers,
    pub(crate) handles: Handles,
    /// The rate that was written before there was a job, bits per second; 0: none.
    wish: AtomicU64,
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            controls: Numbers::new(Control::ALL.len() as c_int),
            performance: Numbers::new(Performance::ALL.len() as c_int),
            categories: Numbers::new(1),
            handles: Handles::default(),
            wish: AtomicU64::new(0),
        }
    }
}

/// A code of the tools interface.
pub(crate) fn fault(code: c_int) -> Error {
    Error::Vendor(code)
}

/// The control variables.
pub(crate) fn controls<A: Abi>(rt: &Runtime<A>) -> Result<Row> {
    // SAFETY: the row's own place.
    rt.tool.controls.row(|number| unsafe { rt.vendor.t_cvar_get_num(number) })
}

/// The performance variables.
pub(crate) fn performance<A: Abi>(rt: &Runtime<A>) -> Result<Row> {
    // SAFETY: the row's own place.
    rt.tool.performance.row(|number| unsafe { rt.vendor.t_pvar_get_num(number) })
}

/// The categories.
pub(crate) fn categories<A: Abi>(rt: &Runtime<A>) -> Result<Row> {
    // SAFETY: the row's own place.
    rt.tool.categories.row(|number| unsafe { rt.vendor.t_category_get_num(number) })
}

/// `gridmpi_matb`, bits per second.
pub(crate) fn rate<A: Abi>(rt: &Runtime<A>) -> u64 {
    rt.joined().map_or_else(|| rt.tool.wish.load(Relaxed), |job| whole(job.matb.rate(&job.net)))
}

/// Sets `gridmpi_matb`; 0: the job's own choice.
pub(crate) fn set_rate<A: Abi>(rt: &Runtime<A>, wanted: u64) {
    match rt.joined() {
        None => rt.tool.wish.store(wanted, Relaxed),
        Some(job) if wanted == 0 => job.matb.delete(&job.net),
        Some(job) => job.matb.set(&job.net, wanted),
    }
}

/// The job begins: what was written before counts.
pub(crate) fn begin<A: Abi>(rt: &Runtime<A>) {
    let wish = rt.tool.wish.load(Relaxed);
    if wish != 0 {
        set_rate(rt, wish);
    }
}
