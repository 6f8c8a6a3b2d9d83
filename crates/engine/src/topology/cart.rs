//! Cartesian topologies (MPI 4.1 §8.5): row-major, the last dimension varies fastest.

use gridmpi_wire::Rank;

use super::{TopologyError, member};

/// A grid of processes. With no dimensions it is one process (MPI 4.1 §8.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<Dimension>,
    size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dimension {
    extent: i32,
    periodic: bool,
}

/// `MPI_PROC_NULL` is `None`.
type Neighbour = Option<Rank>;

impl Cart {
    /// `MPI_Cart_create` on a communicator of `available` processes: the first [`Self::size`] of them are
    /// in the grid, the others get `MPI_COMM_NULL`.
    ///
    /// # Errors
    /// [`TopologyError::Dims`] for an extent below 1 or differing lengths, [`TopologyError::TooLarge`].
    pub fn new(available: u32, dims: &[i32], periods: &[bool]) -> Result<Self, TopologyError> {
        if dims.len() != periods.len() {
            return Err(TopologyError::Dims(dims.len().min(periods.len())));
        }
        let mut size: u32 = 1;
        for (index, &extent) in dims.iter().enumerate() {
            let extent = u32::try_from(extent).ok().filter(|&extent| extent > 0);
            let extent = extent.ok_or(TopologyError::Dims(index))?;
            let grown = size.checked_mul(extent).filter(|&grown| grown <= available);
            size = grown.ok_or(TopologyError::TooLarge { size: available })?;
        }
        if size > available {
            return Err(TopologyError::TooLarge { size: available });
        }
        let pairs = dims.iter().zip(periods);
        let dims = pairs.map(|(&extent, &periodic)| Dimension { extent, periodic }).collect();
        Ok(Self { dims, size })
    }

    /// Processes in the grid.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Number of dimensions (`MPI_Cartdim_get`).
    #[must_use]
    pub fn ndims(&self) -> usize {
        self.dims.len()
    }

    /// Extents of the dimensions (`MPI_Cart_get`).
    pub fn dims(&self) -> impl Iterator<Item = i32> + '_ {
        self.dims.iter().map(|dim| dim.extent)
    }

    /// Which dimensions wrap (`MPI_Cart_get`).
    pub fn periods(&self) -> impl Iterator<Item = bool> + '_ {
        self.dims.iter().map(|dim| dim.periodic)
    }

    /// `MPI_Cart_rank`: coordinates of periodic dimensions wrap. Without dimensions it is rank 0.
    ///
    /// # Errors
    /// [`TopologyError::Coordinate`]; [`TopologyError::Dims`] for fewer coordinates than dimensions.
    pub fn rank(&self, coords: &[i32]) -> Result<Rank, TopologyError> {
        let mut rank = 0;
        for (dimension, dim) in self.dims.iter().enumerate() {
            let &coordinate = coords.get(dimension).ok_or(TopologyError::Dims(dimension))?;
            let wrapped = dim.wrap(coordinate.into());
            let within = wrapped.ok_or(TopologyError::Coordinate { dimension, coordinate })?;
            rank = rank * dim.extent as u32 + within as u32;
        }
        Ok(Rank(rank))
    }

    /// `MPI_Cart_coords`.
    ///
    /// # Errors
    /// [`TopologyError::Rank`].
    pub fn coords(&self, rank: i32) -> Result<Vec<i32>, TopologyError> {
        Ok(self.coordinates(member(rank, self.size)?))
    }

    /// `MPI_Cart_shift`: the ranks that `me` receives from and sends to when everybody sends `disp` steps
    /// along `direction`; `None` beyond the edge of a dimension that does not wrap.
    ///
    /// # Errors
    /// [`TopologyError::Direction`], always so without dimensions.
    pub fn shift(
        &self,
        me: Rank,
        direction: i32,
        disp: i32,
    ) -> Result<(Neighbour, Neighbour), TopologyError> {
        let dimension = usize::try_from(direction).ok().filter(|&index| index < self.ndims());
        let dimension = dimension.ok_or(TopologyError::Direction(direction))?;
        let disp = i64::from(disp);
        Ok((self.along(me, dimension, -disp), self.along(me, dimension, disp)))
    }

    /// The neighbours of `me` in the order of neighbourhood collectives: for each dimension the one
    /// before and the one after (MPI 4.1 §8.6).
    #[must_use]
    pub fn neighbours(&self, me: Rank) -> Vec<Neighbour> {
        let both = |dimension| [self.along(me, dimension, -1), self.along(me, dimension, 1)];
        (0..self.ndims()).flat_map(both).collect()
    }

    /// `MPI_Cart_map`: where `me` would be in such a grid; `None` is `MPI_UNDEFINED`.
    #[must_use]
    pub fn map(&self, me: Rank) -> Option<Rank> {
        (me.0 < self.size).then_some(me)
    }

    /// The grid of each part of `MPI_Cart_sub`; without a kept dimension it has none.
    ///
    /// # Errors
    /// [`TopologyError::Dims`] for fewer flags than dimensions.
    pub fn sub(&self, remain: &[bool]) -> Result<Self, TopologyError> {
        if remain.len() < self.ndims() {
            return Err(TopologyError::Dims(remain.len()));
        }
        let kept = self.dims.iter().zip(remain).filter(|(_, kept)| **kept);
        let dims: Vec<Dimension> = kept.map(|(dim, _)| *dim).collect();
        let size = dims.iter().map(|dim| dim.extent as u32).product();
        Ok(Self { dims, size })
    }

    /// The part of `MPI_Cart_sub` that `me` is in: its members' ranks here, in the order of their ranks
    /// there.
    ///
    /// # Errors
    /// [`TopologyError::Dims`] for fewer flags than dimensions.
    pub fn sub_members(&self, me: Rank, remain: &[bool]) -> Result<Vec<Rank>, TopologyError> {
        let part = self.sub(remain)?;
        let mine = self.coordinates(me);
        let member = |rank| {
            let mut kept = part.coordinates(Rank(rank)).into_iter();
            let choose = |(own, keep): (&i32, &bool)| if *keep { kept.next() } else { Some(*own) };
            let coords: Vec<i32> = mine.iter().zip(remain).filter_map(choose).collect();
            self.rank(&coords)
        };
        (0..part.size).map(member).collect()
    }

    fn coordinates(&self, rank: Rank) -> Vec<i32> {
        let mut rest = rank.0;
        let mut coords: Vec<i32> = self
            .dims
            .iter()
            .rev()
            .map(|dim| {
                let coordinate = rest % dim.extent as u32;
                rest /= dim.extent as u32;
                coordinate as i32
            })
            .collect();
        coords.reverse();
        coords
    }

    fn along(&self, me: Rank, dimension: usize, disp: i64) -> Neighbour {
        let mut coords = self.coordinates(me);
        let wrapped = self.dims[dimension].wrap(i64::from(coords[dimension]) + disp)?;
        coords[dimension] = wrapped;
        self.rank(&coords).ok()
    }
}

impl Dimension {
    /// `coordinate` as one of this dimension, if it is or wraps to one.
    fn wrap(&self, coordinate: i64) -> Option<i32> {
        let extent = i64::from(self.extent);
        let inside = (0..extent).contains(&coordinate);
        (inside || self.periodic).then(|| coordinate.rem_euclid(extent) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid() -> Cart {
        Cart::new(20, &[3, 4], &[true, false]).unwrap()
    }

    #[test]
    fn ranks_are_row_major() {
        let grid = grid();
        assert_eq!(grid.size(), 12);
        assert_eq!(grid.rank(&[1, 2]), Ok(Rank(6)));
        assert_eq!(grid.coords(7), Ok(vec![1, 3]));
        assert_eq!(grid.coords(12), Err(TopologyError::Rank(12)));
        assert_eq!(grid.coords(-1), Err(TopologyError::Rank(-1)));
        assert_eq!(grid.map(Rank(11)), Some(Rank(11)));
        assert_eq!(grid.map(Rank(12)), None);
    }

    #[test]
    fn periodic_coordinates_wrap_and_others_are_refused() {
        assert_eq!(grid().rank(&[-1, 0]), Ok(Rank(8)));
        assert_eq!(grid().rank(&[7, 1]), Ok(Rank(5)));
        let outside = TopologyError::Coordinate { dimension: 1, coordinate: 4 };
        assert_eq!(grid().rank(&[0, 4]), Err(outside));
    }

    #[test]
    fn shifts_wrap_or_fall_off_the_edge() {
        let grid = grid();
        assert_eq!(grid.shift(Rank(0), 0, 1), Ok((Some(Rank(8)), Some(Rank(4)))));
        assert_eq!(grid.shift(Rank(0), 1, 1), Ok((None, Some(Rank(1)))));
        assert_eq!(grid.shift(Rank(3), 1, -1), Ok((None, Some(Rank(2)))));
        assert_eq!(grid.shift(Rank(5), 0, 0), Ok((Some(Rank(5)), Some(Rank(5)))));
        assert_eq!(grid.shift(Rank(5), 1, i32::MIN), Ok((None, None)));
        assert_eq!(
            grid.shift(Rank(5), 0, i32::MIN).unwrap().1,
            grid.shift(Rank(5), 0, 1).unwrap().1
        );
        assert_eq!(grid.shift(Rank(0), 2, 1), Err(TopologyError::Direction(2)));
        assert_eq!(grid.shift(Rank(0), -1, 1), Err(TopologyError::Direction(-1)));
        assert_eq!(grid.neighbours(Rank(0)), [Some(Rank(8)), Some(Rank(4)), None, Some(Rank(1))]);
    }

    #[test]
    fn no_dimensions_is_one_process() {
        let point = Cart::new(5, &[], &[]).unwrap();
        assert_eq!((point.size(), point.ndims()), (1, 0));
        assert_eq!(point.rank(&[]), Ok(Rank(0)));
        assert_eq!(point.coords(0), Ok(vec![]));
        assert_eq!(point.shift(Rank(0), 0, 1), Err(TopologyError::Direction(0)));
        assert_eq!(point.sub(&[]), Ok(point.clone()));
        assert_eq!(grid().sub(&[false, false]), Ok(point));
        assert_eq!(grid().sub_members(Rank(5), &[false, false]), Ok(vec![Rank(5)]));
    }

    #[test]
    fn wrong_grids_are_refused() {
        assert_eq!(Cart::new(6, &[0], &[true]), Err(TopologyError::Dims(0)));
        assert_eq!(Cart::new(6, &[2, -3], &[true; 2]), Err(TopologyError::Dims(1)));
        assert_eq!(Cart::new(6, &[7], &[true]), Err(TopologyError::TooLarge { size: 6 }));
        let huge = Cart::new(u32::MAX, &[i32::MAX; 3], &[true; 3]);
        assert_eq!(huge, Err(TopologyError::TooLarge { size: u32::MAX }));
    }

    #[test]
    fn parts_keep_the_order_of_their_dimensions() {
        let cube = Cart::new(24, &[2, 3, 4], &[false, true, false]).unwrap();
        let members = cube.sub_members(Rank(13), &[true, false, true]).unwrap();
        let expected = [0, 1, 2, 3, 12, 13, 14, 15].map(Rank);
        assert_eq!(members, expected);
        let part = cube.sub(&[true, false, true]).unwrap();
        assert_eq!(part, Cart::new(8, &[2, 4], &[false, false]).unwrap());
    }

    proptest! {
        #[test]
        fn coordinates_and_shifts_are_inverse(
            dims in prop::collection::vec((1i32..5, any::<bool>()), 1..4), pick: u32, disp in -9i32..9, direction: usize,
        ) {
            let (extents, periods): (Vec<i32>, Vec<bool>) = dims.iter().copied().unzip();
            let cart = Cart::new(1000, &extents, &periods).unwrap();
            let me = Rank(pick % cart.size());
            prop_assert_eq!(cart.rank(&cart.coords(me.0 as i32).unwrap()), Ok(me));
            let direction = (direction % dims.len()) as i32;
            let (source, target) = cart.shift(me, direction, disp).unwrap();
            if let Some(target) = target {
                prop_assert_eq!(cart.shift(target, direction, disp).unwrap().0, Some(me));
            }
            if let Some(source) = source {
                prop_assert_eq!(cart.shift(source, direction, disp).unwrap().1, Some(me));
            }
            prop_assert!(!periods[direction as usize] || (source.is_some() && target.is_some()));
        }

        #[test]
        fn parts_partition_the_grid(
            dims in prop::collection::vec((1i32..4, any::<bool>()), 0..4),
        ) {
            let (extents, remain): (Vec<i32>, Vec<bool>) = dims.iter().copied().unzip();
            let cart = Cart::new(1000, &extents, &remain).unwrap();
            let part = cart.sub(&remain).unwrap();
            for me in (0..cart.size()).map(Rank) {
                let members = cart.sub_members(me, &remain).unwrap();
                prop_assert_eq!(members.len() as u32, part.size());
                for (place, member) in members.iter().enumerate() {
                    prop_assert_eq!(&cart.sub_members(*member, &remain).unwrap(), &members);
                    let whole = cart.coords(member.0 as i32).unwrap();
                    let kept: Vec<i32> = whole.iter().zip(&remain).filter(|k| *k.1).map(|k| *k.0).collect();
                    prop_assert_eq!(part.coords(place as i32).unwrap(), kept);
                }
                prop_assert!(members.contains(&me));
            }
        }
    }
}
