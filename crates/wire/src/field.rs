//! Fields of fixed length, little-endian, read and written without allocation.

use crate::{ContextId, ProcId, Rank, Strand, WireError};

/// Reads fields off the front of a slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Short(field))?;
        self.rest = rest;
        Ok(*head)
    }
}

/// Appends fields to a fixed array. The array is sized by the sum of the fields' lengths, so a
/// write past its end is a mistake of ours that the first test meets.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(crate) fn written(&self) -> usize {
        self.at
    }
}

/// A value with a fixed length on the wire.
pub(crate) trait Field: Sized {
    /// Bytes on the wire.
    const LEN: usize;
    fn put(&self, out: &mut Writer<'_>);
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError>;
}

macro_rules! number_fields {
    ($($number:ty),*) => {$(
        impl Field for $number {
            const LEN: usize = size_of::<$number>();
            fn put(&self, out: &mut Writer<'_>) {
                out.bytes(&self.to_le_bytes());
            }
            fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
                Ok(Self::from_le_bytes(from.array(name)?))
            }
        }
    )*};
}

macro_rules! wrapper_fields {
    ($($name:ident($inner:ty)),*) => {$(
        impl Field for $name {
            const LEN: usize = <$inner as Field>::LEN;
            fn put(&self, out: &mut Writer<'_>) {
                self.0.put(out);
            }
            fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
                Ok(Self(<$inner>::get(from, name)?))
            }
        }
    )*};
}

number_fields!(u8, u16, u32, u64, i32);
wrapper_fields!(ContextId(u64), Rank(u32), ProcId(u32));

impl Field for bool {
    const LEN: usize = 1;
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(&[u8::from(*self)]);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        match u8::get(from, name)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Field(name)),
        }
    }
}

impl Field for Strand {
    const LEN: usize = 1;
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(&[self.index() as u8]);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        Self::new(u8::get(from, name)?.into()).ok_or(WireError::Field(name))
    }
}

impl<const N: usize> Field for [u8; N] {
    const LEN: usize = N;
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(self);
    }
    fn get(from: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        from.array(name)
    }
}

/// Declares a structure whose fields cross the wire in the order written, and its codec.
macro_rules! wire_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$doc])* pub $field: $ty,)* }

        impl $crate::field::Field for $name {
            const LEN: usize = 0 $(+ <$ty as $crate::field::Field>::LEN)*;
            fn put(&self, out: &mut $crate::field::Writer<'_>) {
                $($crate::field::Field::put(&self.$field, out);)*
            }
            fn get(
                from: &mut $crate::field::Reader<'_>,
                _name: &'static str,
            ) -> Result<Self, $crate::WireError> {
                Ok(Self {
                    $($field: <$ty as $crate::field::Field>::get(from, stringify!($field))?,)*
                })
            }
        }
    };
}
pub(crate) use wire_struct;
