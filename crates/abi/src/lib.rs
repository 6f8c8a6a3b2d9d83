//! What differs between the ABIs of MPI: how handles and statuses are held, and what the constants are.
//!
//! Everything here is generated from `api/abi/*.toml`: the trait [`Abi`], one type for each ABI ([`Mpich`],
//! [`OpenMpi`]), and the names that are the same everywhere ([`ErrorClass`], [`Combiner`], [`Named`], [`Operation`]).
//! Constants that are numbers in every ABI are associated constants; those that are addresses in some are functions,
//! right from when [`Symbol`]s have been looked up.
#![forbid(unsafe_code)]

mod handle;

pub use handle::{Handle, IntHandle, PointerHandle, StatusFields, Symbol, kind};

use std::ffi::{c_int, c_void};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `MPI_Count` and `MPI_Offset`.
pub type Count = i64;
/// `MPI_Aint`.
pub type Aint = isize;
/// A pointer to a function that the program gave to MPI.
pub type Function = *const c_void;

include!(concat!(env!("OUT_DIR"), "/abi.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!((size_of::<<Mpich as Abi>::Comm>(), size_of::<<Mpich as Abi>::File>()), (4, 8));
        assert_eq!(size_of::<<OpenMpi as Abi>::Comm>(), 8);
        assert_eq!((size_of::<MpichStatus>(), align_of::<MpichStatus>()), (20, 4));
        assert_eq!((size_of::<OpenMpiStatus>(), align_of::<OpenMpiStatus>()), (24, 8));
    }

    #[test]
    fn classes_and_combiners_come_back() {
        for class in ErrorClass::ALL {
            let back = Mpich::class_of(Mpich::error_class(*class));
            assert!(back == Some(*class) || back == Some(ErrorClass::Other), "{class:?}");
        }
        assert_eq!(
            OpenMpi::error_class(ErrorClass::Errhandler),
            OpenMpi::error_class(ErrorClass::Other)
        );
        assert_eq!(Mpich::combiner(1), Some(Combiner::Named));
        assert_eq!(OpenMpi::combiner(0), Some(Combiner::Named));
        assert_eq!(Mpich::combiner(-7), None);
    }

    #[test]
    fn a_status_keeps_its_fields() {
        let mut status = MpichStatus::default();
        status.set_source(3);
        status.set_tag(4);
        status.set_error(5);
        assert_eq!((status.source(), status.tag(), status.error()), (3, 4, 5));
    }

    #[test]
    fn addresses_are_filled_in_from_the_library() {
        let world = OpenMpi::SYMBOLS.iter().position(|s| s.name == c"ompi_mpi_comm_world").unwrap();
        OpenMpi::set_symbol(world, 0x1234);
        assert_eq!(OpenMpi::comm_world().bits(), 0x1234);
        assert_eq!(Mpich::comm_world().bits(), 0x4400_0000);
    }
}
