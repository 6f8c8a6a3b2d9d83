//! Layouts and buffers against the standard's type maps, for random types.
#![allow(unsafe_code)] // the memory is the tests' own

mod model;

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use gridmpi_buffer::{Layout, MAX_SLICES, RecvBuffer, SendBuffer};
use model::{Type, types};
use proptest::prelude::*;

/// Bytes of the program's memory in these tests; types of a wider reach are passed over.
const MEMORY: usize = 1 << 16;

/// Memory in which neighbours, and bytes a power of two apart, differ.
fn memory() -> Vec<u8> {
    (0..MEMORY as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 21) as u8).collect()
}

/// Where each byte of `count` elements lies in memory, with the elements' address in the middle.
fn places(kind: &Type, count: u64) -> Option<Vec<usize>> {
    let offsets = kind.map().elements(count);
    let half = MEMORY as i64 / 2;
    let fits = offsets.len() < 1 << 13 && offsets.iter().all(|offset| offset.abs() < half);
    fits.then(|| offsets.iter().map(|offset| (half + offset) as usize).collect())
}

/// The elements as a program would name them: relative to their address, or absolutely.
fn address(memory: *const u8, kind: &Type, absolute: bool) -> (*const u8, Layout) {
    let middle = memory.wrapping_add(MEMORY / 2);
    let layout = kind.layout();
    if !absolute {
        return (middle, layout);
    }
    let moved = Layout::structure([(1, middle.expose_provenance() as i64, &layout)]).unwrap();
    let moved = moved.resized(0, layout.extent()).unwrap();
    (std::ptr::null(), moved)
}

fn send(memory: &[u8], kind: &Type, count: u64, absolute: bool) -> SendBuffer {
    let (address, layout) = address(memory.as_ptr(), kind, absolute);
    // SAFETY: `places` has checked the reach, and the memory outlives the buffer in every test.
    unsafe { SendBuffer::from_user(address, count, Arc::new(layout)) }
}

fn receive(memory: &mut [u8], kind: &Type, count: u64, absolute: bool) -> RecvBuffer {
    let (address, layout) = address(memory.as_mut_ptr(), kind, absolute);
    // SAFETY: as in `send`.
    unsafe { RecvBuffer::from_user(address.cast_mut(), count, Arc::new(layout)) }
}

/// The data as scatter-gather sees it.
fn by_slices(buffer: &SendBuffer, offset: u64, len: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while (all.len() as u64) < len {
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        let done = all.len() as u64;
        let covered = buffer.io_slices(offset + done, len - done, &mut slices);
        assert!(covered > 0 && slices.len() <= MAX_SLICES);
        slices.iter().for_each(|slice| all.extend_from_slice(slice));
        assert_eq!(all.len() as u64, done + covered);
    }
    all
}

fn write_by_slices(buffer: &mut RecvBuffer, offset: u64, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let len = (data.len() - done) as u64;
        let written = buffer.with_io_slices_mut(offset + done as u64, len, |slices| {
            assert!(slices.len() <= MAX_SLICES);
            let mut written = 0;
            for slice in slices {
                let len = slice.len();
                slice.copy_from_slice(&data[done + written..][..len]);
                written += len;
            }
            written
        });
        assert!(written > 0);
        done += written;
    }
}

/// `len` cut at the sorted, wrapped `cuts`: pairs of offset and length, some of length 0.
fn pieces(len: u64, cuts: &[u64]) -> Vec<(u64, u64)> {
    let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (len + 1)).chain([len]).collect();
    ends.sort_unstable();
    let mut from = 0;
    let mut pieces = Vec::new();
    for end in ends {
        pieces.push((from, end - from));
        from = end;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_global_rejects: 1 << 20, ..ProptestConfig::default() })]

    #[test]
    fn bounds_are_those_of_the_type_map(kind in types()) {
        let (map, layout) = (kind.map(), kind.layout());
        prop_assert_eq!(layout.size(), map.data.len() as u64);
        let has_entries = !map.data.is_empty() || layout.extent() != 0 || layout.lb() != 0;
        if has_entries {
            prop_assert_eq!((layout.lb(), layout.ub()), (map.lb(), map.ub()));
        }
        let (low, high) = map.true_bounds();
        prop_assert_eq!((layout.true_lb(), layout.true_extent()), (low, high - low));
        let dense = map.elements(3).windows(2).all(|pair| pair[1] == pair[0] + 1);
        prop_assert_eq!(layout.is_dense(), dense);
    }

    #[test]
    fn sending_reads_the_type_map_in_order(
        kind in types(), count in 0u64..5, absolute: bool, cuts in prop::collection::vec(any::<u64>(), 0..6),
    ) {
        let Some(places) = places(&kind, count) else { return Err(TestCaseError::reject("wide")) };
        let memory = memory();
        let expected: Vec<u8> = places.iter().map(|&place| memory[place]).collect();
        let buffer = send(&memory, &kind, count, absolute);
        prop_assert_eq!(buffer.len(), expected.len() as u64);
        prop_assert_eq!(buffer.is_owned(), buffer.is_empty());
        prop_assert_eq!(&buffer.to_bytes()[..], &expected[..]);

        let mut parts = Vec::new();
        for (offset, len) in pieces(buffer.len(), &cuts) {
            let part = &expected[offset as usize..][..len as usize];
            let mut copy = vec![0; len as usize];
            buffer.copy_to(offset, &mut copy);
            prop_assert_eq!(&copy[..], part);
            prop_assert_eq!(&by_slices(&buffer, offset, len)[..], part);
            let slice = buffer.slice(offset, len);
            parts.push(if offset % 2 == 0 { slice.to_owned() } else { slice });
        }
        let whole = SendBuffer::concat(parts);
        prop_assert_eq!(&by_slices(&whole, 0, whole.len())[..], &expected[..]);
        for (offset, len) in pieces(whole.len(), &cuts) {
            let again = whole.slice(offset, len).to_owned();
            prop_assert!(again.is_owned());
            prop_assert_eq!(&again.to_bytes()[..], &expected[offset as usize..][..len as usize]);
        }
    }

    #[test]
    fn receiving_writes_the_type_map_in_order(
        kind in types(), count in 0u64..5, absolute: bool, split: u64, by_slice: bool,
        cuts in prop::collection::vec(any::<u64>(), 0..6),
    ) {
        let Some(places) = places(&kind, count) else { return Err(TestCaseError::reject("wide")) };
        let data: Vec<u8> = (0..places.len()).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut expected = memory();
        places.iter().zip(&data).for_each(|(&place, &byte)| expected[place] = byte);

        let mut memory = memory();
        let buffer = receive(&mut memory, &kind, count, absolute);
        prop_assert_eq!(buffer.capacity(), data.len() as u64);
        let (first, rest) = buffer.split_at(split % (data.len() as u64 + 1));
        let mut buffer = RecvBuffer::concat(vec![first, RecvBuffer::empty(), rest]);
        for (offset, len) in pieces(data.len() as u64, &cuts) {
            let part = &data[offset as usize..][..len as usize];
            if by_slice { write_by_slices(&mut buffer, offset, part) } else { buffer.write_at(offset, part) }
        }
        prop_assert!(data.is_empty() || buffer.into_bytes().is_none());
        prop_assert!(memory == expected);
    }

    #[test]
    fn buffers_of_our_own_keep_what_is_written(
        lens in prop::collection::vec(0u64..40, 0..6), cuts in prop::collection::vec(any::<u64>(), 0..6),
    ) {
        let mut buffer = RecvBuffer::concat(lens.iter().map(|&len| RecvBuffer::owned(len)).collect());
        let data: Vec<u8> = (0..buffer.capacity()).map(|i| i as u8).collect();
        for (index, (offset, len)) in pieces(buffer.capacity(), &cuts).into_iter().enumerate() {
            let part = &data[offset as usize..][..len as usize];
            if index % 2 == 0 { buffer.write_at(offset, part) } else { write_by_slices(&mut buffer, offset, part) }
        }
        prop_assert!(buffer.is_owned());
        prop_assert_eq!(buffer.into_bytes(), Some(Bytes::from(data)));
    }
}

/// Long ones lie in blocks, the longest do not.
#[test]
fn room_keeps_what_is_written() {
    for len in [0, 5, 64 << 10, 128 << 10, (128 << 10) + 1, 256 << 10, (256 << 10) + 1] {
        let data: Vec<u8> = (0..len).map(|i| (i / 3) as u8).collect();
        let fill = |buffer: &mut RecvBuffer| {
            let (first, rest) = data.split_at(data.len() / 3);
            buffer.write_at(0, first);
            write_by_slices(buffer, first.len() as u64, rest);
        };
        let mut alone = RecvBuffer::room(len);
        fill(&mut alone);
        assert!(alone.is_owned() && alone.capacity() == len);
        assert!(alone.into_bytes().unwrap() == data, "{len} bytes");

        let mut one_of_two = RecvBuffer::concat(vec![RecvBuffer::room(len), RecvBuffer::room(len)]);
        fill(&mut one_of_two);
        let half = one_of_two.slice(0, len).slice(len / 2, len - len / 2);
        assert!(half.into_bytes().unwrap() == data[data.len() / 2..], "half of {len} bytes");
    }
}

#[test]
fn discarded_data_goes_nowhere() {
    let mut buffer = RecvBuffer::discard(1 << 20);
    buffer.write_at(5, &[1; 100]);
    write_by_slices(&mut buffer, 0, &vec![2; 1 << 20]);
    assert_eq!((buffer.capacity(), buffer.is_owned()), (1 << 20, true));
    let (first, rest) = buffer.split_at(7);
    assert_eq!((first.capacity(), rest.slice(3, 90).capacity()), (7, 90));
    assert!(first.into_bytes().is_none());
}

#[test]
fn dense_memory_is_one_slice_and_bounds_are_checked() {
    let memory = memory();
    let layout = Arc::new(Layout::predefined(8, 8).contiguous(16).unwrap());
    assert!(layout.is_dense());
    // SAFETY: 128 × 32 bytes lie within the memory.
    let buffer = unsafe { SendBuffer::from_user(memory.as_ptr(), 32, layout) };
    let mut slices = Vec::new();
    assert_eq!(buffer.io_slices(0, 4096, &mut slices), 4096);
    assert_eq!(slices.len(), 1);
    assert!(!buffer.is_fragmented());
    assert!(std::panic::catch_unwind(|| buffer.slice(4000, 97)).is_err());
    assert!(std::panic::catch_unwind(|| buffer.copy_to(4096, &mut [0])).is_err());
    assert!(std::panic::catch_unwind(|| buffer.slice(u64::MAX, 2)).is_err());
}

#[test]
fn overlapping_blocks_are_never_lent_together() {
    // MPI forbids to receive into overlapping elements (MPI 4.1 §5.1.11); it must not break us.
    let mut memory = memory();
    let overlapping = Arc::new(Layout::bytes(8).hvector(10, 1, 4).unwrap());
    // SAFETY: 44 bytes lie within the memory.
    let mut buffer = unsafe { RecvBuffer::from_user(memory.as_mut_ptr(), 1, overlapping) };
    let lent = buffer.with_io_slices_mut(0, 80, |slices| slices.len());
    assert_eq!(lent, 1);
    let descending = Arc::new(Layout::bytes(8).hvector(10, 1, -16).unwrap());
    let end = memory.as_mut_ptr().wrapping_add(160);
    // SAFETY: 10 × 16 bytes before `end` lie within the memory.
    let mut buffer = unsafe { RecvBuffer::from_user(end, 1, descending) };
    assert!(buffer.with_io_slices_mut(0, 80, |slices| slices.len()) >= 1);
}

#[test]
fn short_blocks_are_said_to_be_fragmented() {
    let memory = memory();
    let column = Arc::new(Layout::predefined(8, 8).vector(100, 1, 10).unwrap());
    // SAFETY: 100 × 80 bytes lie within the memory.
    let buffer = unsafe { SendBuffer::from_user(memory.as_ptr(), 1, column) };
    assert!(buffer.is_fragmented());
    assert!(!buffer.to_owned().is_fragmented());
}
