//! Whether to look for more for a while before sleeping.

use std::time::Duration;

/// Sleeps at most between two looks.
const REST_MOST: u32 = 1024;

/// Looks are worth it while messages follow each other closely: a processor that falls asleep needs several microseconds to wake. Where they do not
/// each look in vain makes the next one rarer, so that who rests or speaks over long paths costs no more than if there were none.
#[derive(Debug)]
pub(crate) struct Lookout {
    /// It sleeps at once so many times more.
    sleeps: u32,
    /// And so many times after the next look in vain.
    rest: u32,
}

impl Lookout {
    pub(crate) fn new() -> Self {
        Self { sleeps: 0, rest: 1 }
    }

    /// For how long to look before the sleep that is about to begin, at most `most`.
    pub(crate) fn time(&mut self, most: Duration) -> Option<Duration> {
        if most.is_zero() {
            return None;
        }
        match self.sleeps.checked_sub(1) {
            Some(left) => {
                self.sleeps = left;
                None
            }
            None => Some(most),
        }
    }

    /// Something came in that time.
    pub(crate) fn found(&mut self) {
        self.rest = 1;
    }

    /// Nothing did, or others needed the processor meanwhile.
    pub(crate) fn in_vain(&mut self) {
        self.sleeps = self.rest;
        self.rest = (self.rest * 2).min(REST_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);

    /// Of so many sleeps, how many begin with a look that finds something or not.
    fn looks(lookout: &mut Lookout, sleeps: u32, finds: bool) -> u32 {
        let one = |_: &u32| {
            let looked = lookout.time(MOST).is_some();
            match (looked, finds) {
                (true, true) => lookout.found(),
                (true, false) => lookout.in_vain(),
                (false, _) => {}
            }
            looked
        };
        (0..sleeps).filter(one).count() as u32
    }

    #[test]
    fn who_finds_something_goes_on_looking() {
        assert_eq!(looks(&mut Lookout::new(), 1000, true), 1000);
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut lookout = Lookout::new();
        assert!(looks(&mut lookout, 2047, false) <= 11);
        assert_eq!(looks(&mut lookout, 10 * (REST_MOST + 1), false), 10);
    }

    #[test]
    fn after_a_rest_one_find_is_enough() {
        let mut lookout = Lookout::new();
        looks(&mut lookout, 100_000, false);
        let until = (0..=REST_MOST).position(|_| lookout.time(MOST).is_some());
        assert!(until.is_some());
        lookout.found();
        assert_eq!(looks(&mut lookout, 10, true), 10);
        assert_eq!(looks(&mut lookout, 10, false), 3);
    }

    #[test]
    fn without_time_there_is_no_look() {
        assert_eq!(Lookout::new().time(Duration::ZERO), None);
    }
}
