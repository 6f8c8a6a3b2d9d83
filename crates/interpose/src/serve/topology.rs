//! Cartesian topologies (MPI 4.1 §8.5.1, §8.5.5), and what all topologies share. The topology of a
//! spanning communicator is in its view; one that is all in one cluster has the vendor's.

use super::creation::{Contexts, Part, divide, spanning};
use super::group::array;
use crate::communicator::{Spanning, int};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_engine::{Cart, Topology, TopologyError};
use gridmpi_wire::Rank;
use std::ffi::c_int;
use std::sync::Arc;

pub(super) fn erroneous(error: TopologyError) -> Error {
    let class = match error {
        TopologyError::TooLarge { .. }
        | TopologyError::Coordinate { .. }
        | TopologyError::Argument(_) => ErrorClass::Arg,
        TopologyError::Dims(_) | TopologyError::Direction(_) => ErrorClass::Dims,
        TopologyError::Rank(_) => ErrorClass::Rank,
    };
    Error::new(class, error.to_string())
}

/// `MPI_ERR_TOPOLOGY`: the communicator has no topology, or another one than asked for.
pub(super) fn no_topology(kind: &str) -> Error {
    Error::new(ErrorClass::Topology, format!("the communicator has no {kind} topology"))
}

/// Fills an array of the program's that takes `room` elements.
///
/// # Errors
/// `MPI_ERR_ARG` if they do not fit.
///
/// # Safety
/// The array has `room` elements.
pub(super) unsafe fn fill(place: *mut c_int, room: c_int, values: &[c_int]) -> Result<()> {
    if usize::try_from(room).is_ok_and(|room| room >= values.len()) {
        // SAFETY: as this function's.
        unsafe { place.copy_from(values.as_ptr(), values.len()) };
        return Ok(());
    }
    let message = format!("{} values do not fit an array of {room}", values.len());
    Err(Error::new(ErrorClass::Arg, message))
}

/// The ranks below `size`.
pub(super) fn first_ranks(size: u32) -> Vec<Rank> {
    (0..size).map(Rank).collect()
}

/// Makes the communicator of the first `size` members of `old` with `topology`; the others get
/// `MPI_COMM_NULL`, as do all if there are none.
pub(super) fn create_of_first<A: Abi>(
    rt: &Runtime<A>,
    old: &Spanning<A>,
    size: u32,
    topology: Topology,
) -> Result<A::Comm> {
    let contexts = Contexts::agree(rt, old)?;
    let member = old.rank().0 < size;
    let part = member.then(|| Part::of_ranks(old.view.group(), &first_ranks(size), &contexts));
    divide(rt, old, part, Some(topology))
}

/// `MPI_Topo_test`.
pub unsafe fn topo_test<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    status: *mut c_int,
) -> Result<()> {
    let kind = match spanning(rt, comm)?.view.topology() {
        Some(Topology::Cart(_)) => A::CART,
        Some(Topology::Graph(_)) => A::GRAPH,
        Some(Topology::DistGraph(_)) => A::DIST_GRAPH,
        None => A::UNDEFINED,
    };
    // SAFETY: the program's place.
    unsafe { *status = kind };
    Ok(())
}

/// A spanning communicator with a grid.
struct Grid<A: Abi>(Arc<Spanning<A>>);

impl<A: Abi> Grid<A> {
    fn of(rt: &Runtime<A>, comm: A::Comm) -> Result<Self> {
        let comm = spanning(rt, comm)?;
        match comm.view.topology() {
            Some(Topology::Cart(_)) => Ok(Self(comm)),
            _ => Err(no_topology("Cartesian")),
        }
    }

    fn cart(&self) -> &Cart {
        match self.0.view.topology() {
            Some(Topology::Cart(cart)) => cart,
            _ => unreachable!("checked when it was made"),
        }
    }
}

/// # Safety
/// The arrays have `ndims` elements.
unsafe fn grid_of_arguments(
    size: u32,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
) -> Result<Cart> {
    // SAFETY: as this function's.
    let (dims, periods) = unsafe { (array(dims, ndims)?, array(periods, ndims)?) };
    let periods: Vec<bool> = periods.iter().map(|&period| period != 0).collect();
    Cart::new(size, dims, &periods).map_err(erroneous)
}

/// `MPI_Cart_create`: ranks stay as they are, whatever `reorder` allows.
pub unsafe fn cart_create<A: Abi>(
    rt: &'static Runtime<A>,
    comm_old: A::Comm,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    _reorder: c_int,
    comm_cart: *mut A::Comm,
) -> Result<()> {
    let old = spanning(rt, comm_old)?;
    // SAFETY: the program's arrays.
    let cart = unsafe { grid_of_arguments(old.view.size(), ndims, dims, periods)? };
    let made = create_of_first(rt, &old, cart.size(), Topology::Cart(cart))?;
    // SAFETY: the program's place.
    unsafe { *comm_cart = made };
    Ok(())
}

/// `MPI_Cart_sub`.
pub unsafe fn cart_sub<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    remain_dims: *const c_int,
    newcomm: *mut A::Comm,
) -> Result<()> {
    let grid = Grid::of(rt, comm)?;
    let (old, cart) = (&grid.0, grid.cart());
    // SAFETY: the program's array has an element for each dimension.
    let remain = unsafe { array(remain_dims, ndims(cart))? };
    let remain: Vec<bool> = remain.iter().map(|&remains| remains != 0).collect();
    let members = cart.sub_members(old.rank(), &remain).map_err(erroneous)?;
    let part = cart.sub(&remain).map_err(erroneous)?;
    let contexts = Contexts::agree(rt, old)?;
    let members = Part::of_ranks(old.view.group(), &members, &contexts);
    let made = divide(rt, old, Some(members), Some(Topology::Cart(part)))?;
    // SAFETY: the program's place.
    unsafe { *newcomm = made };
    Ok(())
}

fn ndims(cart: &Cart) -> c_int {
    c_int::try_from(cart.ndims()).unwrap_or(c_int::MAX)
}

/// `MPI_Cartdim_get`.
pub unsafe fn cartdim_get<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    ndims: *mut c_int,
) -> Result<()> {
    let answer = self::ndims(Grid::of(rt, comm)?.cart());
    // SAFETY: the program's place.
    unsafe { *ndims = answer };
    Ok(())
}

/// `MPI_Cart_get`.
pub unsafe fn cart_get<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    maxdims: c_int,
    dims: *mut c_int,
    periods: *mut c_int,
    coords: *mut c_int,
) -> Result<()> {
    let grid = Grid::of(rt, comm)?;
    let cart = grid.cart();
    let own = cart.coords(int(grid.0.rank().0)).map_err(erroneous)?;
    let extents: Vec<c_int> = cart.dims().collect();
    let wraps: Vec<c_int> = cart.periods().map(c_int::from).collect();
    // SAFETY: the program's arrays. All have as many elements, so the first one finds too few.
    unsafe {
        fill(dims, maxdims, &extents)?;
        fill(periods, maxdims, &wraps)?;
        fill(coords, maxdims, &own)
    }
}

/// `MPI_Cart_rank`.
pub unsafe fn cart_rank<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    coords: *const c_int,
    rank: *mut c_int,
) -> Result<()> {
    let grid = Grid::of(rt, comm)?;
    // SAFETY: the program's array has an element for each dimension.
    let coords = unsafe { array(coords, ndims(grid.cart()))? };
    let answer = grid.cart().rank(coords).map_err(erroneous)?;
    // SAFETY: the program's place.
    unsafe { *rank = int(answer.0) };
    Ok(())
}

/// `MPI_Cart_coords`.
pub unsafe fn cart_coords<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    rank: c_int,
    maxdims: c_int,
    coords: *mut c_int,
) -> Result<()> {
    let answer = Grid::of(rt, comm)?.cart().coords(rank).map_err(erroneous)?;
    // SAFETY: the program's array.
    unsafe { fill(coords, maxdims, &answer) }
}

/// `MPI_Cart_shift`.
pub unsafe fn cart_shift<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    direction: c_int,
    disp: c_int,
    rank_source: *mut c_int,
    rank_dest: *mut c_int,
) -> Result<()> {
    let grid = Grid::of(rt, comm)?;
    let shifted = grid.cart().shift(grid.0.rank(), direction, disp).map_err(erroneous)?;
    let rank = |rank: Option<Rank>| rank.map_or(A::PROC_NULL, |rank| int(rank.0));
    // SAFETY: the program's places.
    unsafe {
        *rank_source = rank(shifted.0);
        *rank_dest = rank(shifted.1);
    }
    Ok(())
}

/// `MPI_Cart_map`: the ranks that [`cart_create`] would give.
pub unsafe fn cart_map<A: Abi>(
    rt: &'static Runtime<A>,
    comm: A::Comm,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    newrank: *mut c_int,
) -> Result<()> {
    let comm = spanning(rt, comm)?;
    // SAFETY: the program's arrays.
    let cart = unsafe { grid_of_arguments(comm.view.size(), ndims, dims, periods)? };
    let answer = cart.map(comm.rank()).map_or(A::UNDEFINED, |rank| int(rank.0));
    // SAFETY: the program's place.
    unsafe { *newrank = answer };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(error: Error) -> ErrorClass {
        match error {
            Error::Ours { class, .. } => class,
            Error::Vendor(_) => unreachable!(),
        }
    }

    #[test]
    fn errors_have_the_classes_of_the_standard() {
        assert_eq!(class(erroneous(TopologyError::Rank(3))), ErrorClass::Rank);
        assert_eq!(class(erroneous(TopologyError::Direction(3))), ErrorClass::Dims);
        assert_eq!(class(erroneous(TopologyError::TooLarge { size: 3 })), ErrorClass::Arg);
        assert_eq!(class(no_topology("graph")), ErrorClass::Topology);
    }

    #[test]
    fn arrays_are_filled_whole_or_not_at_all() {
        let mut place = [7; 3];
        // SAFETY: an array of 3 elements.
        unsafe {
            assert_eq!(fill(place.as_mut_ptr(), 3, &[1, 2]), Ok(()));
            assert_eq!(place, [1, 2, 7]);
            assert_eq!(class(fill(place.as_mut_ptr(), 1, &[5, 6]).unwrap_err()), ErrorClass::Arg);
            assert!(fill(place.as_mut_ptr(), -1, &[]).is_err());
        }
        assert_eq!(place, [1, 2, 7]);
    }

    #[test]
    fn grids_without_dimensions_need_no_arrays() {
        let null = std::ptr::null();
        // SAFETY: arrays of no elements.
        let cart = unsafe { grid_of_arguments(4, 0, null, null) };
        assert_eq!(cart.map(|cart| cart.size()), Ok(1));
        // SAFETY: not looked at.
        assert!(unsafe { grid_of_arguments(4, -1, null, null) }.is_err());
    }
}
