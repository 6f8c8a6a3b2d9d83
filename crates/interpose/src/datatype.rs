//! The program's datatypes as [`Layout`]s: flattened once, kept until the type is freed.

use crate::error::{Error, Result, check};
use gridmpi_abi::{Abi, Aint, Combiner, ErrorClass, Handle};
use gridmpi_buffer::{ArrayOrder, Distribution, Layout, LayoutError};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::runtime::Runtime;
use crate::vendor::Vendor;

/// Flattened datatypes by vendor handle.
///
/// An entry lives until `MPI_Type_free` of its handle; messages under way keep the layout itself.
#[derive(Default)]
pub(crate) struct Layouts {
    known: RwLock<HashMap<usize, Known>>,
    live: AtomicUsize,
}

#[derive(Clone)]
struct Known {
    layout: Arc<Layout>,
    derived: bool,
}

impl Layouts {
    /// The layout of `datatype`.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE` for the null datatype and for types whose layout exceeds 63 bits.
    pub(crate) fn of<A: Abi>(
        &self,
        vendor: &Vendor<A>,
        datatype: A::Datatype,
    ) -> Result<Arc<Layout>> {
        self.known(vendor, datatype).map(|known| known.layout)
    }

    /// Whether the program made it, and may free it.
    pub(crate) fn is_derived<A: Abi>(
        &self,
        vendor: &Vendor<A>,
        datatype: A::Datatype,
    ) -> Result<bool> {
        self.known(vendor, datatype).map(|known| known.derived)
    }

    fn known<A: Abi>(&self, vendor: &Vendor<A>, datatype: A::Datatype) -> Result<Known> {
        if let Some(known) = self.known.read().get(&datatype.bits()) {
            return Ok(known.clone());
        }
        if datatype == A::datatype_null() {
            return Err(type_error("MPI_DATATYPE_NULL cannot be communicated"));
        }
        let (layout, derived) = flatten(vendor, datatype)?;
        let known = Known { layout: Arc::new(layout), derived };
        let mut all = self.known.write();
        all.insert(datatype.bits(), known.clone());
        self.live.store(all.len(), Relaxed);
        Ok(known)
    }

    /// Forgets `datatype`, whose handle the vendor may now give to another type.
    pub(crate) fn forget(&self, datatype: impl Handle) {
        let mut all = self.known.write();
        all.remove(&datatype.bits());
        self.live.store(all.len(), Relaxed);
    }

    /// How many are known; one relaxed load.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Relaxed)
    }
}

/// A datatype that lasts as long as an operation needs it. A derived one is a copy of ours, since the program may free its own at once
/// (MPI 4.1 §5.1.9); not by `MPI_Type_dup`, so that the program's copy functions do not run.
#[derive(Debug)]
pub(crate) struct Lasting<A: Abi> {
    datatype: A::Datatype,
    is_copy: bool,
}

impl<A: Abi> Lasting<A> {
    /// # Errors
    /// As [`Layouts::of`], and those of the vendor.
    pub(crate) fn new(rt: &Runtime<A>, of: A::Datatype) -> Result<Self> {
        if !rt.layouts.is_derived(&rt.vendor, of)? {
            return Ok(Self { datatype: of, is_copy: false });
        }
        let mut copy = A::datatype_null();
        // SAFETY: a datatype of the program and a place of our own.
        unsafe {
            check(rt.vendor.type_contiguous(1, of, &raw mut copy))?;
            check(rt.vendor.type_commit(&raw mut copy))?;
        }
        Ok(Self { datatype: copy, is_copy: true })
    }

    /// A predefined one.
    pub(crate) fn predefined(datatype: A::Datatype) -> Self {
        Self { datatype, is_copy: false }
    }

    /// So many of `byte`, which is one byte long, as a single element: for procedures whose counts are `int`.
    pub(crate) fn many(vendor: &Vendor<A>, byte: A::Datatype, bytes: u64) -> Result<Self> {
        many(vendor, byte, bytes).map(|datatype| Self { datatype, is_copy: true })
    }

    pub(crate) fn get(&self) -> A::Datatype {
        self.datatype
    }

    /// To be called once, when nothing needs it any more.
    pub(crate) fn release(&self, rt: &Runtime<A>) {
        if self.is_copy {
            let mut copy = self.datatype;
            rt.layouts.forget(copy);
            // SAFETY: ours and nobody else's.
            unsafe { rt.vendor.type_free(&raw mut copy) };
        }
    }
}

/// A datatype of so many of `byte`, which is one byte long. The caller frees it.
pub(crate) fn many<A: Abi>(
    vendor: &Vendor<A>,
    byte: A::Datatype,
    bytes: u64,
) -> Result<A::Datatype> {
    let (mut block, mut whole) = (A::datatype_null(), A::datatype_null());
    let block_bytes = u64::from(BLOCK.unsigned_abs());
    let (blocks, rest) = (bytes / block_bytes, bytes % block_bytes);
    let too_many = |_| Error::new(ErrorClass::Count, format!("{bytes} bytes are too many"));
    let lens = [c_int::try_from(blocks).map_err(too_many)?, rest as c_int];
    let displs = [0, Aint::try_from(bytes - bytes % block_bytes).unwrap_or(0)];
    // SAFETY: places of our own.
    unsafe {
        check(vendor.type_contiguous(BLOCK, byte, &raw mut block))?;
        let (types, r) = ([block, byte], &raw mut whole);
        let made = vendor.type_create_struct(2, lens.as_ptr(), displs.as_ptr(), types.as_ptr(), r);
        check(vendor.type_free(&raw mut block))?;
        check(made)?;
        let committed = check(vendor.type_commit(r));
        if committed.is_err() {
            vendor.type_free(r);
        }
        committed?;
    }
    Ok(whole)
}

/// What types of many bytes are made of, bytes.
const BLOCK: c_int = 1 << 30;

/// What `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell of a derived type (MPI 4.1 §5.1.13).
struct Contents<A: Abi> {
    combiner: Combiner,
    integers: Vec<i64>,
    /// Addresses of a type made by the `int` procedures, all numbers of one made by a `_c` procedure.
    numbers: Vec<i64>,
    large: bool,
    types: Vec<A::Datatype>,
}

/// The layout, and whether the type is derived.
fn flatten<A: Abi>(vendor: &Vendor<A>, datatype: A::Datatype) -> Result<(Layout, bool)> {
    let bounds = Bounds::of(vendor, datatype)?;
    let Some(contents) = Contents::of(vendor, datatype)? else {
        return Ok((named(&bounds), false));
    };
    let mut children = Vec::with_capacity(contents.types.len());
    for &child in &contents.types {
        children.push(flatten(vendor, child)?.0);
        release(vendor, child)?;
    }
    let layout = contents.compose(&children).map_err(|e| type_error(e.to_string()))?;
    let layout =
        layout.with_bounds(bounds.lb, bounds.extent).map_err(|e| type_error(e.to_string()))?;
    Ok((layout, true))
}

/// Size and extent as the vendor has them, which may pad otherwise than we would.
struct Bounds {
    size: u64,
    lb: i64,
    extent: i64,
}

impl Bounds {
    fn of<A: Abi>(vendor: &Vendor<A>, datatype: A::Datatype) -> Result<Self> {
        let (mut size, mut lb, mut extent) = (0, 0, 0);
        // SAFETY: a datatype handle of the program and three places of our own.
        let codes = unsafe {
            [
                vendor.type_size_x(datatype, &raw mut size),
                vendor.type_get_extent(datatype, &raw mut lb, &raw mut extent),
            ]
        };
        if codes != [A::SUCCESS; 2] {
            return Err(type_error("the datatype is not known to the vendor MPI"));
        }
        Ok(Self { size: u64::try_from(size).unwrap_or(0), lb: lb as i64, extent: extent as i64 })
    }
}

/// A predefined type: dense, or one of the pair types of MPI 4.1 §6.9.4, a value then an `int`.
fn named(bounds: &Bounds) -> Layout {
    if bounds.extent == i64::try_from(bounds.size).unwrap_or(-1) {
        return Layout::predefined(bounds.size, bounds.size.clamp(1, 16).next_power_of_two());
    }
    let value = bounds.size.saturating_sub(4);
    let index_at = i64::try_from(value.next_multiple_of(4)).unwrap_or(0);
    let parts = [(1, 0, &Layout::bytes(value)), (1, index_at, &Layout::bytes(4))];
    let pair = Layout::structure(parts).and_then(|pair| pair.with_bounds(bounds.lb, bounds.extent));
    pair.unwrap_or_else(|_| Layout::bytes(bounds.size))
}

impl<A: Abi> Contents<A> {
    /// `None` for predefined types.
    fn of(vendor: &Vendor<A>, datatype: A::Datatype) -> Result<Option<Self>> {
        if vendor.has_type_get_contents_c() {
            Self::read_large(vendor, datatype)
        } else {
            Self::read(vendor, datatype)
        }
    }

    fn read(vendor: &Vendor<A>, datatype: A::Datatype) -> Result<Option<Self>> {
        let (mut ni, mut na, mut nd, mut combiner) = (0, 0, 0, 0);
        // SAFETY: a datatype handle of the program and places of our own.
        let code = unsafe {
            vendor.type_get_envelope(
                datatype,
                &raw mut ni,
                &raw mut na,
                &raw mut nd,
                &raw mut combiner,
            )
        };
        check(code)?;
        let Some(combiner) = derived::<A>(combiner)? else { return Ok(None) };
        let mut integers = vec![0 as c_int; length(ni)];
        let mut addresses = vec![0; length(na)];
        let mut types = vec![A::datatype_null(); length(nd)];
        // SAFETY: the arrays have the lengths that the envelope asked for.
        let code = unsafe {
            vendor.type_get_contents(
                datatype,
                ni,
                na,
                nd,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                types.as_mut_ptr(),
            )
        };
        check(code)?;
        let integers = integers.into_iter().map(i64::from).collect();
        let numbers = addresses.into_iter().map(|a| a as i64).collect();
        Ok(Some(Self { combiner, integers, numbers, large: false, types }))
    }

    fn read_large(vendor: &Vendor<A>, datatype: A::Datatype) -> Result<Option<Self>> {
        let (mut ni, mut na, mut nc, mut nd, mut combiner) = (0, 0, 0, 0, 0);
        // SAFETY: a datatype handle of the program and places of our own.
        let code = unsafe {
            vendor.type_get_envelope_c(
                datatype,
                &raw mut ni,
                &raw mut na,
                &raw mut nc,
                &raw mut nd,
                &raw mut combiner,
            )
        };
        check(code)?;
        let Some(combiner) = derived::<A>(combiner)? else { return Ok(None) };
        let mut integers = vec![0 as c_int; length(ni)];
        let mut addresses = vec![0; length(na)];
        let mut counts = vec![0; length(nc)];
        let mut types = vec![A::datatype_null(); length(nd)];
        // SAFETY: the arrays have the lengths that the envelope asked for.
        let code = unsafe {
            vendor.type_get_contents_c(
                datatype,
                ni,
                na,
                nc,
                nd,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                counts.as_mut_ptr(),
                types.as_mut_ptr(),
            )
        };
        check(code)?;
        let large = nc > 0;
        let integers = integers.into_iter().map(i64::from).collect();
        let numbers =
            if large { counts } else { addresses.into_iter().map(|a| a as i64).collect() };
        Ok(Some(Self { combiner, integers, numbers, large, types }))
    }

    /// All numbers in the standard's order: the two families of procedures list them alike but for
    /// where subarray and darray keep what stays `int`.
    fn all(&self) -> Vec<i64> {
        if self.large {
            self.numbers.clone()
        } else {
            [self.integers.as_slice(), &self.numbers].concat()
        }
    }

    fn compose(&self, types: &[Layout]) -> std::result::Result<Layout, LayoutError> {
        let n = self.all();
        if let Combiner::Struct | Combiner::StructInteger = self.combiner {
            // It alone may have no base type: one of no blocks (MPI 4.1 §5.1.2).
            return Layout::structure(blocks(&n).zip(types).map(|((len, at), of)| (len, at, of)));
        }
        let child = types.first().ok_or(LayoutError::Array("number of base types"))?;
        let displacements = || n.get(2..).unwrap_or(&[]).iter().copied();
        match self.combiner {
            Combiner::Dup => Ok(child.clone()),
            Combiner::Contiguous => child.contiguous(count(&n, 0)),
            Combiner::Vector => child.vector(count(&n, 0), count(&n, 1), at(&n, 2)),
            Combiner::Hvector | Combiner::HvectorInteger => {
                child.hvector(count(&n, 0), count(&n, 1), at(&n, 2))
            }
            Combiner::Indexed => child.indexed(blocks(&n)),
            Combiner::Hindexed | Combiner::HindexedInteger => child.hindexed(blocks(&n)),
            Combiner::IndexedBlock => child.indexed_block(count(&n, 1), displacements()),
            Combiner::HindexedBlock => child.hindexed_block(count(&n, 1), displacements()),
            Combiner::Resized => child.resized(at(&n, 0), at(&n, 1)),
            Combiner::Subarray => self.subarray(child),
            Combiner::Darray => self.darray(child),
            other => unreachable!("{other:?} is a struct's or a predefined type's"),
        }
    }

    fn subarray(&self, child: &Layout) -> std::result::Result<Layout, LayoutError> {
        let dims = usize::try_from(at(&self.integers, 0)).unwrap_or(0);
        let numbers =
            if self.large { &self.numbers[..] } else { self.integers.get(1..).unwrap_or(&[]) };
        let part = |k: usize| (0..dims).map(|d| count(numbers, k * dims + d)).collect::<Vec<_>>();
        let order = self.integers.last().copied().unwrap_or(0);
        child.subarray(&part(0), &part(1), &part(2), order_of::<A>(order))
    }

    fn darray(&self, child: &Layout) -> std::result::Result<Layout, LayoutError> {
        let n = &self.integers;
        let dims = usize::try_from(at(n, 2)).unwrap_or(0);
        let (sizes, rest) =
            if self.large { (&self.numbers[..], 3) } else { (n.get(3..).unwrap_or(&[]), 3 + dims) };
        let sizes: Vec<_> = (0..dims).map(|d| count(sizes, d)).collect();
        let distributions: Vec<_> =
            (0..dims).map(|d| distribution::<A>(at(n, rest + d), at(n, rest + dims + d))).collect();
        let grid: Vec<_> = (0..dims).map(|d| count(n, rest + 2 * dims + d)).collect();
        let order = n.last().copied().unwrap_or(0);
        child.darray(count(n, 1), &sizes, &distributions, &grid, order_of::<A>(order))
    }
}

fn order_of<A: Abi>(order: i64) -> ArrayOrder {
    if order == i64::from(A::ORDER_FORTRAN) { ArrayOrder::Fortran } else { ArrayOrder::C }
}

fn distribution<A: Abi>(kind: i64, argument: i64) -> Distribution {
    let argument = (argument != i64::from(A::DISTRIBUTE_DFLT_DARG)).then_some(argument as u64);
    if kind == i64::from(A::DISTRIBUTE_BLOCK) {
        Distribution::Block(argument)
    } else if kind == i64::from(A::DISTRIBUTE_CYCLIC) {
        Distribution::Cyclic(argument)
    } else {
        Distribution::None
    }
}

/// How a derived type was made; `None` for predefined ones, those of Fortran's kinds among them.
fn derived<A: Abi>(combiner: c_int) -> Result<Option<Combiner>> {
    match A::combiner(combiner) {
        Some(
            Combiner::Named
            | Combiner::F90Real
            | Combiner::F90Complex
            | Combiner::F90Integer
            | Combiner::ValueIndex,
        ) => Ok(None),
        Some(combiner) => Ok(Some(combiner)),
        None => Err(type_error(format!("a datatype with the unknown combiner {combiner}"))),
    }
}

/// Gives back a type that `MPI_Type_get_contents` handed out: derived ones are references, and those of Fortran's
/// kinds must not be freed (MPI 4.1 §5.1.13, §19.1.9).
fn release<A: Abi>(vendor: &Vendor<A>, mut datatype: A::Datatype) -> Result<()> {
    let (mut n, mut combiner) = ([0; 3], 0);
    // SAFETY: a datatype of the vendor's and places of our own.
    unsafe {
        let [i, a, d] = &mut n;
        check(vendor.type_get_envelope(datatype, i, a, d, &raw mut combiner))?;
        if derived::<A>(combiner)?.is_some() {
            check(vendor.type_free(&raw mut datatype))?;
        }
    }
    Ok(())
}

fn type_error(message: impl Into<String>) -> Error {
    Error::new(ErrorClass::Type, message)
}

fn length(n: impl TryInto<usize>) -> usize {
    n.try_into().unwrap_or(0)
}

/// Block lengths and displacements: a count, then so many of each.
fn blocks(n: &[i64]) -> impl Iterator<Item = (u64, i64)> + '_ {
    let blocks = usize::try_from(at(n, 0)).unwrap_or(0);
    (0..blocks).map(move |k| (count(n, 1 + k), at(n, 1 + blocks + k)))
}

fn at(n: &[i64], k: usize) -> i64 {
    n.get(k).copied().unwrap_or(0)
}

fn count(n: &[i64], k: usize) -> u64 {
    u64::try_from(at(n, k)).unwrap_or(0)
}
