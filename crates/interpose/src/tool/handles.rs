//! Handles of our variables, told from the vendor's by where they point: to a byte of ours that nobody reads.

use super::meter::Meter;
use super::variables::{Control, Performance};
use parking_lot::Mutex;
use std::collections::HashMap;
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
    /// By address.
    sessions: HashMap<usize, Session>,
    /// How many there have been.
    opened: u64,
    held: Vec<Option<Held>>,
}

/// A session of the vendor's. Its address may be that of another one later, and while it is being freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session(u64);

/// What a handle stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    Control(Control),
    Performance(Watch),
}

/// A performance variable in a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) session: Session,
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
        let mut table = self.0.lock();
        let Some(session) = table.session(session) else { return false };
        table.get(handle).and_then(|held| held.take_if(|held| held.is_of(session))).is_some()
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
        let mut table = self.0.lock();
        let session = table.session(session)?;
        match table.get(handle)? {
            Some(Held::Performance(watch)) if watch.session == session => Some(work(watch)),
            _ => None,
        }
    }

    /// Works on all of a session's.
    pub(crate) fn watches(&self, session: *mut c_void, mut work: impl FnMut(&mut Watch)) {
        let mut table = self.0.lock();
        let Some(session) = table.session(session) else { return };
        for held in table.held.iter_mut().flatten() {
            match held {
                Held::Performance(watch) if watch.session == session => work(watch),
                _ => {}
            }
        }
    }

    /// A session of the vendor's begins.
    pub(crate) fn open_session(&self, session: *mut c_void) {
        let mut table = self.0.lock();
        table.opened += 1;
        let opened = Session(table.opened);
        table.sessions.insert(session.addr(), opened);
    }

    pub(crate) fn session(&self, session: *mut c_void) -> Option<Session> {
        self.0.lock().session(session)
    }

    /// The vendor is to free a session: another may have its address before the vendor has returned. Its handles stay until
    /// [`drop_session`](Self::drop_session).
    pub(crate) fn close_session(&self, session: *mut c_void) -> Option<Session> {
        self.0.lock().sessions.remove(&session.addr())
    }

    /// The vendor has not freed it.
    pub(crate) fn reopen_session(&self, session: *mut c_void, closed: Session) {
        self.0.lock().sessions.insert(session.addr(), closed);
    }

    /// The vendor has freed it: its handles end with it.
    pub(crate) fn drop_session(&self, closed: Session) {
        for held in &mut self.0.lock().held {
            held.take_if(|held| held.is_of(closed));
        }
    }
}

impl Held {
    fn is_of(&self, session: Session) -> bool {
        matches!(self, Self::Performance(watch) if watch.session == session)
    }
}

impl Table {
    fn session(&self, session: *mut c_void) -> Option<Session> {
        self.sessions.get(&session.addr()).copied()
    }

    fn get(&mut self, handle: *mut c_void) -> Option<&mut Option<Held>> {
        self.held.get_mut(place(handle)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn watch(session: Session) -> Held {
        let meter = Meter::default();
        Held::Performance(Watch { session, variable: Performance::Grants, meter })
    }

    fn open(handles: &Handles, address: usize) -> (*mut c_void, Session) {
        let session = ptr::without_provenance_mut(address);
        handles.open_session(session);
        (session, handles.session(session).unwrap())
    }

    #[test]
    fn handles_are_told_apart_and_end_with_their_session() {
        let handles = Handles::default();
        let ((one, of_one), (other, of_other)) = (open(&handles, 8), open(&handles, 16));
        assert_eq!(handles.session(ptr::without_provenance_mut(24)), None);
        let control = handles.add(Held::Control(Control::Matb)).unwrap();
        let first = handles.add(watch(of_one)).unwrap();
        let second = handles.add(watch(of_other)).unwrap();
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
        assert_eq!(handles.close_session(one), Some(of_one));
        handles.drop_session(of_one);
        assert!(handles.watch(one, first, |_| ()).is_none() && handles.session(one).is_none());
        assert!(handles.remove_watch(other, second) && handles.remove_control(control));
        assert!(!handles.remove_control(control));
    }

    #[test]
    fn a_session_with_the_address_of_one_that_is_freed_is_another() {
        let handles = Handles::default();
        let (address, old) = open(&handles, 8);
        let handle = handles.add(watch(old)).unwrap();
        assert_eq!(handles.close_session(address), Some(old));
        let (_, new) = open(&handles, 8);
        let other = handles.add(watch(new)).unwrap();
        assert!(handles.watch(address, handle, |_| ()).is_none());
        handles.drop_session(old);
        assert_eq!(handles.session(address), Some(new));
        assert!(handles.watch(address, other, |_| ()).is_some());
        assert_eq!(handles.add(watch(new)), Some(handle), "its place is free");
    }

    #[test]
    fn there_is_an_end_to_handles() {
        let handles = Handles::default();
        let (address, session) = open(&handles, 8);
        let all: Vec<_> = (0..MOST).map_while(|_| handles.add(watch(session))).collect();
        assert_eq!(all.len(), MOST);
        assert_eq!(handles.add(watch(session)), None);
        assert!(handles.remove_watch(address, all[7]));
        assert_eq!(handles.add(watch(session)), Some(all[7]));
        assert!(!is_ours(all[MOST - 1].wrapping_byte_add(1)));
    }
}
