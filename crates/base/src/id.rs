//! Typed `u32` ids, the arenas they index, side tables keyed by them, and sets of them.
//! Ids print in the spelling of the text formats.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A typed index. Implemented by the newtypes that [`define_id!`](crate::define_id) makes.
pub trait Id: Copy + Eq + Ord + fmt::Display + fmt::Debug {
    fn from_index(index: usize) -> Self;
    fn index(self) -> usize;
}

/// Defines an id that prints with a prefix: `define_id!(pub ValueId, "%")` prints `%3`.
#[macro_export]
macro_rules! define_id {
    ($(#[$meta:meta])* $vis:vis $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(u32);

        impl $crate::Id for $name {
            fn from_index(index: usize) -> Self {
                $name(u32::try_from(index).expect("an arena holds fewer than 2^32 entities"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Owns entities in insertion order; an id is never reused.
#[derive(Clone, PartialEq, Eq)]
pub struct Arena<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I: Id, T> Arena<I, T> {
    pub fn new() -> Self {
        Arena { items: Vec::new(), id: PhantomData }
    }

    pub fn push(&mut self, item: T) -> I {
        let id = I::from_index(self.items.len());
        self.items.push(item);
        id
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    pub fn contains(&self, id: I) -> bool {
        id.index() < self.items.len()
    }

    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (I, &mut T)> {
        self.items.iter_mut().enumerate().map(|(index, item)| (I::from_index(index), item))
    }
}

impl<I: Id, T> Default for Arena<I, T> {
    fn default() -> Self {
        Arena::new()
    }
}

impl<I, T: fmt::Debug> fmt::Debug for Arena<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}

impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I: Id, T> FromIterator<T> for Arena<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(items: It) -> Self {
        Arena { items: items.into_iter().collect(), id: PhantomData }
    }
}

/// One `T` for every id of an arena, grown with the default on first write.
#[derive(Clone, PartialEq, Eq)]
pub struct SideTable<I, T> {
    items: Vec<T>,
    default: T,
    id: PhantomData<I>,
}

impl<I: Id, T: Clone> SideTable<I, T> {
    pub fn with_default(default: T) -> Self {
        SideTable { items: Vec::new(), default, id: PhantomData }
    }
}

impl<I: Id, T: Clone + Default> Default for SideTable<I, T> {
    fn default() -> Self {
        SideTable::with_default(T::default())
    }
}

impl<I, T: fmt::Debug> fmt::Debug for SideTable<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}

impl<I: Id, T> Index<I> for SideTable<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        self.items.get(id.index()).unwrap_or(&self.default)
    }
}

impl<I: Id, T: Clone> IndexMut<I> for SideTable<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        if id.index() >= self.items.len() {
            self.items.resize(id.index() + 1, self.default.clone());
        }
        &mut self.items[id.index()]
    }
}

/// A set of ids as a bit vector, iterated in id order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdSet<I> {
    words: Vec<u64>,
    id: PhantomData<I>,
}

impl<I: Id> IdSet<I> {
    pub fn new() -> Self {
        IdSet { words: Vec::new(), id: PhantomData }
    }

    /// Returns whether the id was new.
    pub fn insert(&mut self, id: I) -> bool {
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Returns whether the id was there.
    pub fn remove(&mut self, id: I) -> bool {
        let there = self.contains(id);
        if there {
            self.words[id.index() / 64] &= !(1 << (id.index() % 64));
        }
        there
    }

    pub fn contains(&self, id: I) -> bool {
        self.words.get(id.index() / 64).is_some_and(|word| word & (1 << (id.index() % 64)) != 0)
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = I> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| I::from_index(index * 64 + bit))
        })
    }
}

impl<I: Id> Default for IdSet<I> {
    fn default() -> Self {
        IdSet::new()
    }
}

impl<I: Id> FromIterator<I> for IdSet<I> {
    fn from_iter<It: IntoIterator<Item = I>>(ids: It) -> Self {
        let mut set = IdSet::new();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    define_id!(TestId, "t");

    #[test]
    fn arena_hands_out_ids_in_order() {
        let mut arena: Arena<TestId, &str> = Arena::new();
        let (a, b) = (arena.push("a"), arena.push("b"));
        assert_eq!((a.to_string(), b.to_string()), ("t0".into(), "t1".into()));
        assert_eq!(arena[b], "b");
        assert_eq!(arena.ids().collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn side_table_defaults() {
        let mut table: SideTable<TestId, u32> = SideTable::with_default(7);
        table[TestId::from_index(2)] = 1;
        assert_eq!(table[TestId::from_index(0)], 7);
        assert_eq!(table[TestId::from_index(2)], 1);
        assert_eq!(table[TestId::from_index(99)], 7);
    }

    #[test]
    fn id_set_is_a_set() {
        let ids = [3, 64, 200, 3].map(TestId::from_index);
        let mut set: IdSet<TestId> = ids.into_iter().collect();
        assert_eq!(set.len(), 3);
        assert!(!set.insert(ids[1]) && set.remove(ids[1]) && !set.remove(ids[1]));
        assert_eq!(set.iter().map(Id::index).collect::<Vec<_>>(), [3, 200]);
    }
}
