//! Handles of our variables, told from the vendor's by where they point: to a byte of ours that nobody reads.

use super::meter::Meter;
use super::variables::{Control, Performance};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::atomic::AtomicU8;

/// As many as may be alive at once.
const MOST: usize = 4096;

/// A handle is the address of one of these.
static PLACES: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];

/// Those of this process, and the vendor's sessions.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    sessions: HashSet<usize>,
    held: Vec<Option<Held>>,
}

/// What a handle stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    Control(Control),
    Performance(Watch),
}

/// A performance variable in a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) session: usize,
    pub(crate) variable: Performance,
    pub(crate) meter: Meter,
}

/// Whether a handle is, or was, one of ours.
pub(crate) fn is_ours(handle: *mut c_void) -> bool {
    place(handle).is_some()
}

fn place(handle: *mut c_void) -> Option<usize> {
    let place = handle.addr().wrapping_sub((&raw const PLACES).addr());
    (place < MOST).then_some(place)
}

impl Handles {
    /// A new one; `None` if there are too many.
    pub(crate) fn add(&self, held: Held) -> Option<*mut c_void> {
        let mut table = self.0.lock();
        let free = table.held.iter().position(Option::is_none);
        let place = free.unwrap_or(table.held.len());
        let handle = std::ptr::from_ref(PLACES.get(place)?).cast_mut().cast();
        if free.is_none() {
            table.held.push(None);
        }
        table.held[place] = Some(held);
        Some(handle)
    }

    /// Forgets the control variable's handle; whether there was one.
    pub(crate) fn remove_control(&self, handle: *mut c_void) -> bool {
        let mut table = self.0.lock();
        let held = table.get(handle);
        held.and_then(|held| held.take_if(|held| matches!(held, Held::Control(_)))).is_some()
    }

    /// Forgets the performance variable's handle of this session; whether there was one.
    pub(crate) fn remove_watch(&self, session: *mut c_void, handle: *mut c_void) -> bool {
        let of_session = |held: &mut Held| matches!(held, Held::Performance(watch) if watch.session == session.addr());
        let mut table = self.0.lock();
        table.get(handle).and_then(|held| held.take_if(of_session)).is_some()
    }

    /// What a control variable's handle stands for.
    pub(crate) fn control(&self, handle: *mut c_void) -> Option<Control> {
        match self.0.lock().get(handle)? {
            Some(Held::Control(control)) => Some(*control),
            _ => None,
        }
    }

    /// Works on what a handle of this session stands for.
    pub(crate) fn watch<R>(
        &self,
        session: *mut c_void,
        handle: *mut c_void,
        work: impl FnOnce(&mut Watch) -> R,
    ) -> Option<R> {
        match self.0.lock().get(handle)? {
            Some(Held::Performance(watch)) if watch.session == session.addr() => Some(work(watch)),
            _ => None,
        }
    }

    /// Works on all of a session's.
    pub(crate) fn watches(&self, session: *mut c_void, mut work: impl FnMut(&mut Watch)) {
        for held in self.0.lock().held.iter_mut().flatten() {
            match held {
                Held::Performance(watch) if watch.session == session.addr() => work(watch),
                _ => {}
            }
        }
    }

    /// A session of the vendor's begins.
    pub(crate) fn open_session(&self, session: *mut c_void) {
        self.0.lock().sessions.insert(session.addr());
    }

    pub(crate) fn has_session(&self, session: *mut c_void) -> bool {
        self.0.lock().sessions.contains(&session.addr())
    }

    /// A session ends, and with it its handles: another may get its address.
    pub(crate) fn close_session(&self, session: *mut c_void) {
        let mut table = self.0.lock();
        table.sessions.remove(&session.addr());
        for held in &mut table.held {
            held.take_if(
                |held| matches!(held, Held::Performance(watch) if watch.session == session.addr()),
            );
        }
    }
}

impl Table {
    fn get(&mut self, handle: *mut c_void) -> Option<&mut Option<Held>> {
        self.held.get_mut(place(handle)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn watch(session: usize) -> Held {
        let meter = Meter::default();
        Held::Performance(Watch { session, variable: Performance::Grants, meter })
    }

    #[test]
    fn handles_are_told_apart_and_end_with_their_session() {
        let handles = Handles::default();
        let [one, other] = [8, 16].map(ptr::without_provenance_mut);
        handles.open_session(one);
        assert!(handles.has_session(one) && !handles.has_session(other));
        let control = handles.add(Held::Control(Control::Matb)).unwrap();
        let first = handles.add(watch(8)).unwrap();
        let second = handles.add(watch(16)).unwrap();
        assert!([control, first, second].into_iter().all(is_ours) && !is_ours(one));
        assert_eq!(handles.control(control), Some(Control::Matb));
        assert_eq!(handles.control(first), None);
        assert!(handles.watch(one, first, |_| ()).is_some());
        assert!(handles.watch(one, second, |_| ()).is_none());
        assert!(handles.watch(one, control, |_| ()).is_none());
        assert!(!handles.remove_watch(one, second) && !handles.remove_control(second));
        let mut count = 0;
        handles.watches(one, |_| count += 1);
        assert_eq!(count, 1);
        handles.close_session(one);
        assert!(handles.watch(one, first, |_| ()).is_none() && !handles.has_session(one));
        assert!(handles.remove_watch(other, second) && handles.remove_control(control));
        assert!(!handles.remove_control(control));
    }

    #[test]
    fn there_is_an_end_to_handles() {
        let handles = Handles::default();
        let all: Vec<_> = (0..MOST).map_while(|_| handles.add(watch(1))).collect();
        assert_eq!(all.len(), MOST);
        assert_eq!(handles.add(watch(1)), None);
        assert!(handles.remove_watch(ptr::without_provenance_mut(1), all[7]));
        assert_eq!(handles.add(watch(1)), Some(all[7]));
        assert!(!is_ours(all[MOST - 1].wrapping_byte_add(1)));
    }
}
