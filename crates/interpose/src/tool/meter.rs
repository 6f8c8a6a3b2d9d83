//! What a handle of a counter or timer shows (MPI 4.1 §15.3.7.6 f.): nothing until it is started, and what has come since.

/// One handle's view of something that only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meter {
    /// What came while it ran, until it was last started, written or reset.
    sum: u64,
    /// What all had come to then; `None` while it is stopped.
    from: Option<u64>,
}

impl Meter {
    /// The value; `all` is what it has come to for everybody. A value that was written may pass the end and begins again.
    pub(crate) fn value(self, all: u64) -> u64 {
        self.sum.wrapping_add(self.from.map_or(0, |from| all.wrapping_sub(from)))
    }

    /// Counts from now on.
    pub(crate) fn start(&mut self, all: u64) {
        self.from.get_or_insert(all);
    }

    /// Counts no longer.
    pub(crate) fn stop(&mut self, all: u64) {
        *self = Self { sum: self.value(all), from: None };
    }

    /// Goes on from `value`.
    pub(crate) fn set(&mut self, value: u64, all: u64) {
        *self = Self { sum: value, from: self.from.map(|_| all) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_comes_while_it_runs() {
        let mut meter = Meter::default();
        assert_eq!(meter.value(100), 0);
        meter.start(100);
        meter.start(105);
        assert_eq!(meter.value(110), 10);
        meter.stop(120);
        meter.stop(150);
        assert_eq!(meter.value(200), 20);
        meter.start(200);
        assert_eq!(meter.value(203), 23);
        meter.set(0, 204);
        assert_eq!(meter.value(205), 1);
        meter.stop(206);
        meter.set(u64::MAX, 300);
        assert_eq!(meter.value(400), u64::MAX);
        meter.start(400);
        assert_eq!(meter.value(402), 1);
    }
}
