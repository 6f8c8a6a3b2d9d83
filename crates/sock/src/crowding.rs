//! Who makes room where all places for strangers are taken.
//!
//! A listener holds so many connections that have not proven who they are, and no more. When all places are taken somebody has to go, the
//! newcomer or one who is there. Where a connection comes from is all that is known of a stranger: what else he shows before his proof
//! can be shown by anybody. So places are shared among those *groups* (an IPv4 address, the first 64 bits of an IPv6 address) that want some, as
//! evenly as may be: the group that has most gives one up.
//!
//! * A flood from one address takes all places that nobody else wants, and none from a group that has fewer.
//! * Many processes of one site behind one address get as many as a flood from another. They come again when they are turned away, and one
//!   that was let in has half a second at the least against his own.
//! * Against a flood from more addresses than there are places nobody can be told apart: the oldest of all goes, after half a second.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Nobody makes room for others of his own group, or where all groups are alike, before he has been there for so long.
const SPARED: Duration = Duration::from_millis(500);

/// The bits of an IPv6 address that say where it is; one machine may have all addresses behind them.
const SITE: u128 = !(u64::MAX as u128);

/// A place that somebody has taken who has not proven who he is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address that the connection comes from; that of the relay for a circuit.
    pub from: IpAddr,
    /// When it was taken.
    pub since: Instant,
}

/// Which of `places`, all taken, is given to somebody who comes from `newcomer` now: the position of the one to be ended. `None`: the
/// newcomer is to be turned away, and may come again. Only to be asked when no place is free. Time goes with the number of places.
#[must_use]
pub fn victim(places: impl Iterator<Item = Place>, newcomer: IpAddr) -> Option<usize> {
    victim_at(places, newcomer, Instant::now())
}

/// [`victim`] at a time.
fn victim_at(places: impl Iterator<Item = Place>, newcomer: IpAddr, now: Instant) -> Option<usize> {
    let places: Vec<(Group, Instant)> = places.map(|it| (Group::of(it.from), it.since)).collect();
    let own = Group::of(newcomer);
    let mut counts = BTreeMap::from([(own, 1)]);
    for (group, _) in &places {
        *counts.entry(*group).or_insert(0usize) += 1;
    }
    let size = |group: Group| counts.get(&group).copied().unwrap_or_default();
    let most = counts.values().copied().max()?;
    let is_own = size(own) == most;
    // Where the newcomer's is the only one of his group and none has more, all are alike.
    let gives = |group: Group| if is_own && most > 1 { group == own } else { size(group) == most };
    let giving = places.iter().enumerate().filter(|(_, (group, _))| gives(*group));
    let (index, (_, since)) = giving.min_by_key(|(_, (_, since))| *since)?;
    let is_spared = is_own && now.saturating_duration_since(*since) < SPARED;
    (!is_spared).then_some(index)
}

/// Those who count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    V4(u32),
    V6(u128),
}

impl Group {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6(address.to_bits() & SITE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACES: usize = 64;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn v4(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A listener's places.
    #[derive(Default)]
    struct Hall(Vec<Place>);

    impl Hall {
        /// Somebody comes. Whether he was let in.
        fn come(&mut self, from: IpAddr, now: Instant) -> bool {
            if self.0.len() >= PLACES {
                let Some(index) = victim_at(self.0.iter().copied(), from, now) else {
                    return false;
                };
                self.0.remove(index);
            }
            self.0.push(Place { from, since: now });
            true
        }

        fn of(&self, from: IpAddr) -> usize {
            self.0.iter().filter(|place| place.from == from).count()
        }

        /// The one of `from` who has been there longest has proven who he is.
        fn leave(&mut self, from: IpAddr) -> bool {
            let index = self.0.iter().position(|place| place.from == from);
            index.map(|index| self.0.remove(index)).is_some()
        }
    }

    #[test]
    fn the_oldest_of_the_largest_group_goes_whoever_is_older() {
        let now = Instant::now();
        let from = |text, ago| Place { from: ip(text), since: now - ms(ago) };
        let places = [from("10.0.0.1", 900), from("10.0.0.2", 20), from("10.0.0.2", 30)];
        assert_eq!(victim_at(places.into_iter(), ip("10.0.0.3"), now), Some(2));
        assert_eq!(victim_at(places.into_iter(), ip("10.0.0.1"), now), Some(0), "his own, of two");
        assert_eq!(victim_at(places.into_iter(), ip("10.0.0.2"), now), None, "his own are young");
        assert_eq!(victim_at(std::iter::empty(), ip("10.0.0.1"), now), None);
        assert_eq!(victim(places.into_iter(), ip("10.0.0.3")), Some(2));
    }

    #[test]
    fn a_group_is_an_ipv4_address_or_64_bits_of_an_ipv6_address() {
        let group = |text| Group::of(ip(text));
        assert_eq!(group("10.0.0.1"), group("::ffff:10.0.0.1"));
        assert_ne!(group("10.0.0.1"), group("10.0.0.2"));
        assert_ne!(group("::ffff:10.0.0.1"), group("::ffff:10.0.0.2"));
        assert_eq!(group("2001:db8:1:2::1"), group("2001:db8:1:2:ffff::"));
        assert_ne!(group("2001:db8:1:2::1"), group("2001:db8:1:3::1"));
    }

    #[test]
    fn a_flood_from_one_address_replaces_its_own_at_half_a_second_and_others_come_at_once() {
        let (mut hall, began) = (Hall::default(), Instant::now());
        let (flood, honest) = (v4(1), v4(2));
        let mut let_in = 0;
        for at in 0..2000 {
            let_in += usize::from(hall.come(flood, began + ms(at)));
        }
        assert_eq!((hall.of(flood), let_in), (PLACES, 4 * PLACES), "64 each 0.5 s");
        assert!(hall.come(honest, began + ms(2000)), "the newest of the flood makes room, too");
        for at in 2000..9000 {
            hall.come(flood, began + ms(at));
        }
        assert_eq!((hall.of(honest), hall.of(flood)), (1, PLACES - 1), "nobody drives it out");
    }

    #[test]
    fn a_site_behind_one_address_gets_half_beside_a_flood_and_all_of_it_comes_through() {
        let (mut hall, began) = (Hall::default(), Instant::now());
        let (flood, site) = (v4(1), v4(2));
        (0..PLACES).for_each(|_| assert!(hall.come(flood, began)));
        // A proof takes 100 ms; who was turned away comes again.
        let (mut waiting, mut proven, mut at) = (1000, 0, 0);
        while proven < 1000 {
            let now = began + ms(at);
            for _ in 0..100 {
                hall.come(flood, now);
            }
            waiting -= (0..waiting).filter(|_| hall.come(site, now)).count();
            assert!(hall.of(site) <= PLACES / 2 && hall.of(flood) >= PLACES / 2);
            at += 100;
            while hall.leave(site) {
                proven += 1;
            }
            assert!(at < 10_000, "{proven} have come through");
        }
        assert_eq!(at, 3200, "32 at a time");
    }

    #[test]
    fn where_all_come_from_different_addresses_the_oldest_goes_after_half_a_second() {
        let (mut hall, began) = (Hall::default(), Instant::now());
        (0..64).for_each(|n| assert!(hall.come(v4(n), began + ms(n.into()))));
        assert!(!hall.come(v4(100), began + ms(499)));
        assert!(hall.come(v4(100), began + ms(500)));
        assert_eq!(hall.of(v4(0)), 0);
        assert!(!hall.come(v4(101), began + ms(500)), "the next is younger");
    }

    fn place() -> impl Strategy<Value = (u32, u64)> {
        (0u32..6, 0u64..2000)
    }

    proptest! {
        #[test]
        fn none_of_a_group_that_has_fewer_is_ended(
            taken in prop::collection::vec(place(), 0..40), newcomer in 0u32..8,
        ) {
            let now = Instant::now();
            let places = taken.iter().map(|(n, ago)| Place { from: v4(*n), since: now - ms(*ago) });
            let count = |n: u32| taken.iter().filter(|(other, _)| *other == n).count();
            let most = taken.iter().map(|(n, _)| count(*n)).max().unwrap_or(0);
            match victim_at(places, v4(newcomer), now) {
                Some(index) => {
                    let (group, ago) = taken[index];
                    let is_own_turn = count(newcomer) + 1 >= most;
                    prop_assert!(count(group) == most || (is_own_turn && group == newcomer));
                    prop_assert!(!is_own_turn || ago >= 500);
                    prop_assert!(taken.iter().all(|(n, other)| *n != group || *other <= ago));
                }
                // A group with fewer than another is always let in.
                None => prop_assert!(count(newcomer) + 1 >= most),
            }
        }

        #[test]
        fn shares_come_out_even_whoever_comes_when(
            coming in prop::collection::vec(0u32..4, 2000..3000),
        ) {
            let (mut hall, began) = (Hall::default(), Instant::now());
            // All of the first before any other; then in any order, fast.
            for _ in 0..PLACES {
                hall.come(v4(0), began);
            }
            for n in &coming {
                hall.come(v4(*n), began + ms(1));
            }
            prop_assert!((0..4).all(|n| hall.of(v4(n)) == PLACES / 4));
        }
    }
}
