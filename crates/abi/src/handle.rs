//! The two ways in which C holds a handle, and what every handle can do.

use std::ffi::{CStr, c_int};
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::marker::PhantomData;

/// A handle of the vendor: a plain value, compared by its bits.
pub trait Handle: Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// The value, widened. Two handles of one kind are the same exactly if their bits are.
    fn bits(self) -> usize;
    /// The handle that has these bits.
    fn from_bits(bits: usize) -> Self;
}

/// The kinds of handle, so that one kind cannot be passed for another.
pub mod kind {
    macro_rules! kinds {
        ($($name:ident)*) => { $(
            #[doc = concat!("`MPI_", stringify!($name), "`.")]
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub struct $name;
        )* };
    }
    kinds!(Comm Group Request Message Info Errhandler Win File Session Op Datatype);
}

/// Held in an `int`, as by MPICH.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct IntHandle<K>(c_int, PhantomData<K>);

/// Held in a pointer, as by Open MPI. A number here: it is never followed by us.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PointerHandle<K>(usize, PhantomData<K>);

/// What the kinds have in common.
pub trait Kind: Copy + Eq + Hash + Debug + Send + Sync + 'static {}
impl<K: Copy + Eq + Hash + Debug + Send + Sync + 'static> Kind for K {}

impl<K: Kind> Handle for IntHandle<K> {
    #[inline]
    fn bits(self) -> usize {
        self.0.cast_unsigned() as usize
    }

    #[inline]
    fn from_bits(bits: usize) -> Self {
        Self(bits as u32 as c_int, PhantomData)
    }
}

impl<K: Kind> Handle for PointerHandle<K> {
    #[inline]
    fn bits(self) -> usize {
        self.0
    }

    #[inline]
    fn from_bits(bits: usize) -> Self {
        Self(bits, PhantomData)
    }
}

impl<K: Kind> Debug for IntHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl<K: Kind> Debug for PointerHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The public fields of `MPI_Status` (MPI 4.1 §3.2.5). `Default` is all zero.
pub trait StatusFields: Copy + Default + Debug + Send + Sync + 'static {
    /// `MPI_SOURCE`.
    fn source(&self) -> c_int;
    /// `MPI_TAG`.
    fn tag(&self) -> c_int;
    /// `MPI_ERROR`, an error code.
    fn error(&self) -> c_int;
    /// Sets `MPI_SOURCE`.
    fn set_source(&mut self, source: c_int);
    /// Sets `MPI_TAG`.
    fn set_tag(&mut self, tag: c_int);
    /// Sets `MPI_ERROR`.
    fn set_error(&mut self, error: c_int);
}

/// A constant that only the loaded library knows.
#[derive(Debug)]
pub struct Symbol {
    /// The variable.
    pub name: &'static CStr,
    /// The constant is what the variable holds, not its address.
    pub read: bool,
}
