//! The body of the preloaded libraries, generic over the ABI.
//!
//! A call comes in through a symbol of `gridmpi-interpose-*`, passes [`entry`] (is the library at work? is this a call
//! of the vendor's own? does it meet anything of ours?) and goes either straight to the vendor ([`Vendor`]) or to the
//! function in `serve` that bears its name.
//!
//! `unsafe` is at home here: every argument comes from C. The contract of each function is the one that the standard
//! has with the program, and is not repeated on each.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

mod buffered;
mod collective;
mod communicator;
pub mod counts;
mod datatype;
mod direct;
pub mod entry;
pub mod error;
mod forked;
pub mod fortran;
pub mod guard;
mod job;
mod last_words;
mod local;
mod matb;
mod meeting;
mod operation;
mod pacing;
mod progress;
pub mod runtime;
pub mod serve;
pub mod spanning;
mod status;
mod tokens;
mod tool;
pub mod vendor;

pub use counts::{CountOut, Counts};
pub use error::Error;
pub use runtime::Runtime;
pub use vendor::Vendor;

/// The whole of a library for one ABI: the symbols that its build script wrote.
#[macro_export]
macro_rules! symbols {
    ($abi:path) => {
        #[allow(unsafe_code, non_snake_case, missing_docs, clippy::all)]
        mod symbols {
            use gridmpi_abi::{Abi, Aint, Count, Function};
            use gridmpi_interpose::{entry, fortran};
            use std::ffi::{c_char, c_int, c_void};

            type A = $abi;

            include!(concat!(env!("OUT_DIR"), "/symbols.rs"));

            gridmpi_interpose::fortran_symbols! {
                get mpi_attr_get_: c_int, mpi_comm_get_attr_: isize, mpi_comm_get_attr_f08_: isize;
                put mpi_attr_put_: c_int, mpi_comm_set_attr_: isize, mpi_comm_set_attr_f08_: isize;
                delete mpi_attr_delete_, mpi_comm_delete_attr_, mpi_comm_delete_attr_f08_;
            }
        }
    };
}
