//! The vendor's collectives on byte vectors.

use gridmpi_coll::{LocalCollective, Span};

use super::{Operation, Process};

/// One member's entry.
struct Entry {
    rank: usize,
    step: usize,
    call: LocalCollective,
}

/// Runs the next local collective of `cluster`, which all its members have reached. It is over for
/// everybody when the last has entered.
pub fn run(processes: &mut [Process], cluster: usize, operation: Operation) {
    let members = processes[0].shape.members(cluster).to_vec();
    let entries: Vec<Entry> = members
        .iter()
        .map(|rank| {
            let rank = rank.0 as usize;
            let (step, call) = processes[rank].next_local().unwrap();
            Entry { rank, step, call: call.clone() }
        })
        .collect();
    let time =
        entries.iter().map(|entry| processes[entry.rank].time_before(entry.step)).max().unwrap();
    for entry in &entries {
        check_one_buffer(&entry.call);
        processes[entry.rank].done[entry.step] = Some(time);
    }
    use LocalCollective as L;
    match &entries[0].call {
        L::Barrier => {
            assert!(entries.iter().all(|entry| entry.call == L::Barrier), "all enter the same");
        }
        L::Bcast { root, .. } => bcast(processes, &entries, *root),
        L::Gatherv { root, .. } => gatherv(processes, &entries, *root),
        L::Scatterv { root, .. } => scatterv(processes, &entries, *root),
        L::Allgatherv { .. } => allgatherv(processes, &entries),
        L::Alltoallv { .. } => alltoallv(processes, &entries),
        L::Reduce { root, .. } => reduce(processes, &entries, *root, operation),
        L::ReduceScatter { .. } => reduce_scatter(processes, &entries, operation),
        L::Scan { .. } | L::Exscan { .. } => scan(processes, &entries, operation),
    }
}

/// The arguments of a call of the expected kind.
macro_rules! arguments {
    ($entry:expr, $pattern:pat => $value:expr) => {
        match &$entry.call {
            $pattern => $value,
            other => panic!("rank {} entered {other:?}", $entry.rank),
        }
    };
}

fn check_one_buffer(call: &LocalCollective) {
    use LocalCollective as L;
    let one = |spans: &[Span]| spans.windows(2).all(|pair| pair[0].buffer == pair[1].buffer);
    let fine = match call {
        L::Gatherv { recv, .. } | L::Allgatherv { recv, .. } => one(recv),
        L::Scatterv { send, .. } => one(send),
        L::Alltoallv { send, recv } => one(send) && one(recv) && send[0].buffer != recv[0].buffer,
        L::ReduceScatter { from, into } => {
            let adjacent = from.windows(2).all(|pair| pair[0].end() == pair[1].offset);
            one(from) && adjacent && from[0].buffer != into.buffer
        }
        _ => true,
    };
    assert!(fine, "spans by rank are in one buffer: {call:?}");
}

fn bcast(processes: &mut [Process], entries: &[Entry], expected: u32) {
    let of = |entry: &Entry| {
        arguments!(entry, LocalCollective::Bcast { data, root } => {
            assert_eq!(*root, expected);
            *data
        })
    };
    let data = processes[entries[expected as usize].rank].read(of(&entries[expected as usize]));
    for (local, entry) in entries.iter().enumerate() {
        let place = of(entry);
        assert_eq!(place.len, data.len() as u64);
        if local != expected as usize {
            processes[entry.rank].write(place, &data);
        }
    }
}

fn gatherv(processes: &mut [Process], entries: &[Entry], expected: u32) {
    let at_root = &entries[expected as usize];
    let places = arguments!(at_root, LocalCollective::Gatherv { recv, .. } => recv.clone());
    assert_eq!(places.len(), entries.len());
    for (local, entry) in entries.iter().enumerate() {
        let send = arguments!(entry, LocalCollective::Gatherv { send, recv, root } => {
            assert_eq!(*root, expected);
            assert!(local == expected as usize || recv.is_empty());
            *send
        });
        match send {
            Some(send) => {
                let data = processes[entry.rank].read(send);
                processes[at_root.rank].write(places[local], &data);
            }
            None => assert_eq!(local, expected as usize, "only the root is in place"),
        }
    }
}

fn scatterv(processes: &mut [Process], entries: &[Entry], expected: u32) {
    let at_root = &entries[expected as usize];
    let parts = arguments!(at_root, LocalCollective::Scatterv { send, .. } => send.clone());
    assert_eq!(parts.len(), entries.len());
    for (local, entry) in entries.iter().enumerate() {
        let recv = arguments!(entry, LocalCollective::Scatterv { send, recv, root } => {
            assert_eq!(*root, expected);
            assert!(local == expected as usize || send.is_empty());
            *recv
        });
        match recv {
            Some(recv) => {
                let data = processes[at_root.rank].read(parts[local]);
                processes[entry.rank].write(recv, &data);
            }
            None => assert_eq!(local, expected as usize, "only the root is in place"),
        }
    }
}

fn allgatherv(processes: &mut [Process], entries: &[Entry]) {
    let of = |entry: &Entry| arguments!(entry, LocalCollective::Allgatherv { send, recv } => (*send, recv.clone()));
    let data: Vec<_> = entries
        .iter()
        .enumerate()
        .map(|(local, entry)| {
            let (send, recv) = of(entry);
            processes[entry.rank].read(send.unwrap_or(recv[local]))
        })
        .collect();
    for (local, entry) in entries.iter().enumerate() {
        let (send, places) = of(entry);
        assert_eq!(places.len(), entries.len());
        for (index, place) in places.iter().enumerate() {
            assert_eq!(place.len, data[index].len() as u64);
            if index != local || send.is_some() {
                processes[entry.rank].write(*place, &data[index]);
            }
        }
    }
}

fn alltoallv(processes: &mut [Process], entries: &[Entry]) {
    let of = |entry: &Entry| arguments!(entry, LocalCollective::Alltoallv { send, recv } => (send.clone(), recv.clone()));
    for (source, from) in entries.iter().enumerate() {
        for (target, to) in entries.iter().enumerate() {
            let (parts, places) = (of(from).0, of(to).1);
            assert_eq!((parts.len(), places.len()), (entries.len(), entries.len()));
            let data = processes[from.rank].read(parts[target]);
            processes[to.rank].write(places[source], &data);
        }
    }
}

fn operands(
    processes: &[Process],
    entries: &[Entry],
    spans: &[Span],
    op: Operation,
) -> Vec<Vec<u8>> {
    let read = |(entry, span): (&Entry, &Span)| {
        processes[entry.rank].check_elements(*span, op);
        processes[entry.rank].read(*span)
    };
    entries.iter().zip(spans).map(read).collect()
}

/// Operands combined in local order.
fn combine(operands: &[Vec<u8>], operation: Operation) -> Vec<u8> {
    let (first, rest) = operands.split_first().unwrap();
    rest.iter().fold(first.clone(), |left, right| operation.apply(&left, right))
}

fn reduce(processes: &mut [Process], entries: &[Entry], expected: u32, operation: Operation) {
    let spans: Vec<_> = entries
        .iter()
        .enumerate()
        .map(|(local, entry)| {
            arguments!(entry, LocalCollective::Reduce { from, into, root } => {
                assert_eq!(*root, expected);
                let at_root = local == expected as usize;
                assert_eq!(into.is_some(), at_root);
                assert!(from.is_some() || at_root, "only the root is in place");
                (*from).or(*into).unwrap()
            })
        })
        .collect();
    let result = combine(&operands(processes, entries, &spans, operation), operation);
    let at_root = &entries[expected as usize];
    let into = arguments!(at_root, LocalCollective::Reduce { into, .. } => into.unwrap());
    processes[at_root.rank].check_elements(into, operation);
    processes[at_root.rank].write(into, &result);
}

fn reduce_scatter(processes: &mut [Process], entries: &[Entry], operation: Operation) {
    let of = |entry: &Entry| arguments!(entry, LocalCollective::ReduceScatter { from, into } => (from.clone(), *into));
    for (local, entry) in entries.iter().enumerate() {
        let spans: Vec<_> = entries.iter().map(|entry| of(entry).0[local]).collect();
        let result = combine(&operands(processes, entries, &spans, operation), operation);
        assert_eq!(of(entry).0.len(), entries.len());
        processes[entry.rank].check_elements(of(entry).1, operation);
        processes[entry.rank].write(of(entry).1, &result);
    }
}

fn scan(processes: &mut [Process], entries: &[Entry], operation: Operation) {
    use LocalCollective as L;
    let exclusive = matches!(entries[0].call, L::Exscan { .. });
    let of = |entry: &Entry| match &entry.call {
        L::Scan { from, into } if !exclusive => (from.unwrap_or(*into), *into),
        L::Exscan { from, into } if exclusive => (from.unwrap_or(*into), *into),
        other => panic!("rank {} entered {other:?}", entry.rank),
    };
    let spans: Vec<_> = entries.iter().map(|entry| of(entry).0).collect();
    let operands = operands(processes, entries, &spans, operation);
    for (local, entry) in entries.iter().enumerate() {
        let last = if exclusive { local } else { local + 1 };
        if last > 0 {
            processes[entry.rank].write(of(entry).1, &combine(&operands[..last], operation));
        }
    }
}
