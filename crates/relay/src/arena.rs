//! Values by keys that are never used again for another value.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Names a value of an [`Arena`]: its place, and how many were there before it.
pub struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Key<T> {}
impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}
impl<T> Eq for Key<T> {}
impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.index, self.generation).cmp(&(other.index, other.generation))
    }
}
impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.index, self.generation).hash(state);
    }
}
impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation)
    }
}

impl<T> Key<T> {
    /// The key as one number, for the kernel to keep.
    #[must_use]
    pub(crate) const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`Self::to_bits`] gave.
    #[must_use]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32, of: PhantomData }
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`Key`].
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Arena<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> Key<T> {
        self.insert_with(|_| value)
    }

    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key<T>) -> T) -> Key<T> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let key = Key { index, generation: slot.generation, of: PhantomData };
        slot.value = Some(make(key));
        self.len += 1;
        key
    }

    pub(crate) fn get(&self, key: Key<T>) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key<T>) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation, of: PhantomData };
            Some((key, slot.value.as_ref()?))
        })
    }

    pub(crate) fn keys(&self) -> Vec<Key<T>> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_what_is_gone_reaches_nothing() {
        let mut arena = Arena::default();
        let first = arena.insert('a');
        assert_eq!(arena.remove(first), Some('a'));
        let second = arena.insert('b');
        assert_ne!(first, second);
        assert_eq!(arena.get(first), None);
        assert_eq!(arena.get_mut(first), None);
        assert_eq!(arena.remove(first), None);
        assert_eq!(arena.get(Key::from_bits(second.to_bits())), Some(&'b'));
        assert_eq!((arena.len(), arena.keys()), (1, vec![second]));
    }
}
