//! Connections that have not proven who they are: so many at a time, shared among those they come from (`sock::crowding`).

use crate::lock;
use gridmpi_sock::crowding::{self, Place};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// How many there are, and at most. Any thread may use it; nothing waits.
#[derive(Debug)]
pub struct Strangers {
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    places: Vec<Taken>,
    /// Strangers that there have been; each has its number.
    count: u64,
    /// Those who are still served, whether they have a place or were ended a moment ago.
    served: usize,
}

#[derive(Debug)]
struct Taken {
    number: u64,
    place: Place,
    /// Another handle on the connection, to end it by.
    stream: TcpStream,
}

/// One of them, who has a place until this is dropped or somebody else gets it.
#[derive(Debug)]
pub struct Stranger {
    of: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    /// At most so many at a time.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        let inside = Inside { places: Vec::new(), count: 0, served: 0 };
        Self { most, inside: Mutex::new(inside) }
    }

    /// Somebody has come, from this address; that of the relay, if there is one between. Where all places are taken another may be ended:
    /// what is read from its connection ends, and what is written fails. `None` where the newcomer is to be turned away, who may come again.
    #[must_use]
    pub fn come(self: &Arc<Self>, stream: &TcpStream, from: IpAddr) -> Option<Stranger> {
        let stream = stream.try_clone().ok()?;
        let mut inside = lock(&self.inside);
        // Those who were ended go by themselves, at once; who serves them is bounded, too.
        if inside.served >= 2 * self.most {
            return None;
        }
        if inside.places.len() >= self.most {
            let victim = crowding::victim(inside.places.iter().map(|it| it.place), from)?;
            let ended = inside.places.remove(victim);
            let _ = ended.stream.shutdown(Shutdown::Both);
        }
        inside.count += 1;
        inside.served += 1;
        let number = inside.count;
        let place = Place { from, since: Instant::now() };
        inside.places.push(Taken { number, place, stream });
        Some(Stranger { of: Arc::clone(self), number })
    }
}

impl Stranger {
    /// Gives the place back: it is known who this is, or that it is nobody. Whether there was still one; else the connection was ended.
    #[must_use]
    pub fn leave(self) -> bool {
        self.go()
    }

    fn go(&self) -> bool {
        let mut inside = lock(&self.of.inside);
        let found = inside.places.iter().position(|taken| taken.number == self.number);
        found.map(|index| inside.places.remove(index)).is_some()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.go();
        lock(&self.of.inside).served -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Two ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_crowd_from_one_address_makes_room_for_another_and_not_for_its_own() {
        let strangers = Arc::new(Strangers::new(3));
        let (mut far, near): (Vec<_>, Vec<_>) = (0..3).map(|_| pair()).unzip();
        let mut crowd: Vec<_> =
            near.iter().map(|near| strangers.come(near, ip(1)).unwrap()).collect();
        assert!(strangers.come(&near[0], ip(1)).is_none(), "its own are young");
        let other = strangers.come(&near[0], ip(2)).unwrap();
        assert_eq!(far[0].read(&mut [0; 1]).unwrap(), 0, "the oldest is ended");
        assert!(!crowd.remove(0).leave() && crowd.remove(0).leave() && other.leave());
        assert!(strangers.come(&near[1], ip(1)).is_some(), "there are places again");
        drop(crowd);
        let inside = lock(&strangers.inside);
        assert!(inside.places.is_empty() && inside.served == 0);
    }

    #[test]
    fn those_who_were_ended_and_are_still_served_are_bounded() {
        let strangers = Arc::new(Strangers::new(1));
        let (_far, near) = pair();
        let come = |last| strangers.come(&near, ip(last));
        let wait = || lock(&strangers.inside).places[0].place.since -= Duration::from_secs(1);
        let first = come(1).unwrap();
        assert!(come(2).is_none(), "all are alike, and the first is young");
        wait();
        let second = come(2).unwrap();
        wait();
        assert!(come(3).is_none(), "the first is still served");
        drop(first);
        assert!(come(3).is_some());
        assert!(!second.leave());
        assert_eq!(lock(&strangers.inside).served, 0);
    }
}
